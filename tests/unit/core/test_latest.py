"""The latest result of a function is returned for the same arguments and for no others."""

import hashlib

from multicentre.core.latest import Latest
from multicentre.core.rosters import roster_of


def test_the_result_is_computed_once_for_the_same_objects():
    calls = []

    def join(*parts):
        calls.append(parts)
        return [*parts]

    latest = Latest(join)
    one, other = ("lyon",), ("oslo",)
    equal = ("lyon", "oslo")[:1]  # another object
    assert latest(one, other) is latest(one, other)
    assert latest(equal, other) == [equal, other]
    assert latest(one, other) == [one, other]
    assert latest(one, one) == [one, one]
    assert calls == [(one, other), (equal, other), (one, other), (one, one)]


def test_a_result_that_is_none_is_remembered_too():
    calls = []
    latest = Latest(calls.append)
    names = ("lyon",)
    assert latest(names) is latest(names) is None
    assert calls == [names]


def test_a_roster_names_its_sites_in_their_order():
    names = ("oslo", "lyon", "oslo")
    roster = roster_of(names)
    assert roster is roster_of(names)
    assert (roster.names, roster.distinct) == (names, {"lyon", "oslo"})
    assert roster.digest == hashlib.sha256(b'["oslo", "lyon", "oslo"]').hexdigest()
