"""A mask hides an answer only where another site contributes to each of its fields."""

from types import SimpleNamespace

import pytest

from multicentre.core.guard_protocol import SessionSeal, check_masking
from multicentre.errors import ProtocolRefused, RefusedByPolicy


def field(fewest, *sites):
    return SimpleNamespace(fewest=fewest, sites=sites)


class Gate:
    """Notes departures, and refuses fields of a single site if told to."""

    def __init__(self, *, refuses=False):
        self.refuses, self.departures, self.checked = refuses, [], []

    def note_departure(self, call, error):
        self.departures.append(error)

    def check_sites_per_field(self, call, behind):
        self.checked.append(behind)
        if self.refuses:
            raise RefusedByPolicy("too few sites")


def masking(behind, *, sums_fields=True, error=None, gate=None):
    """Return whether a mask hides the answer of lyon."""

    def check(call, keys):
        if error is not None:
            raise error

    seal = SimpleNamespace(check=check, sites_behind=lambda call, keys: behind)
    call = SimpleNamespace(step=SimpleNamespace(part=SimpleNamespace(sums_fields=sums_fields)))
    return check_masking(gate or Gate(), call, SessionSeal(seal, SimpleNamespace(site="lyon")))


@pytest.mark.parametrize(
    ("behind", "is_hidden"),
    [
        ({}, True),
        ({"blood": field(2, "lyon", "oslo")}, True),
        ({"blood": field(1, "lyon")}, False),
        ({"blood": field(1, "lyon", "oslo")}, False),  # oslo may be lost
        ({"blood": field(1, "oslo")}, True),
        ({"blood": field(2, "lyon", "oslo"), "scan": field(1, "lyon")}, False),
        ({"blood": field(1, "oslo"), "scan": field(3, "lyon", "oslo", "roma")}, True),
    ],
)
def test_a_mask_hides_what_another_site_adds_to(behind, is_hidden):
    gate = Gate()
    assert masking(behind, gate=gate) is is_hidden
    assert gate.checked == [behind]


def test_without_sums_of_fields_the_sites_behind_them_do_not_count():
    gate = Gate(refuses=True)
    assert masking({"blood": field(1, "lyon")}, sums_fields=False, gate=gate) is True
    assert gate.checked == []


def test_too_few_sites_behind_a_field_are_refused():
    with pytest.raises(RefusedByPolicy, match="too few sites"):
        masking({}, gate=Gate(refuses=True))


def test_a_mask_that_was_not_agreed_on_is_noted_and_refused():
    gate, error = Gate(), ProtocolRefused("not agreed")
    with pytest.raises(ProtocolRefused, match="not agreed"):
        masking({}, error=error, gate=gate)
    assert gate.departures == [error]
    assert gate.checked == []
