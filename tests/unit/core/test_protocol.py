"""Number of the protocol and digests of methods: what changes them, and what leaves them alone."""

import dataclasses
from dataclasses import dataclass

import pytest

from multicentre.core import messages
from multicentre.core.messages import Message
from multicentre.core.protocol import WIRE_PROTOCOL, describe_differences, protocol_of
from multicentre.core.steps import Release, SitePart, step
from multicentre.survival.cox.site import CoxSite


@dataclass(frozen=True)
class Years(Message):
    until: int = messages.count("last year")


@dataclass(frozen=True)
class Months(Message):
    until: int = messages.count("last month", bound=12.0)


@dataclass(frozen=True)
class YearsOrNone(Message):
    until: int = messages.count("last year", default=2000)


def make_part(
    what="sum of the ages",
    bound=1e9,
    summed=True,
    unit="years",
    doc="Add.",
    request=Years,
    addressed="all",
    refusable=False,
    release=(),
    **of_part,
):
    """Return a site part with a step that has these declarations."""
    total = messages.number(what, unit=unit, bound=bound)
    kind = dataclasses.make_dataclass("Total", [("total", float, total)], bases=(Release,), frozen=True)

    def add(self, request):
        return kind(1.0)

    add.__doc__, add.__annotations__ = doc, {"request": request, "return": kind}
    declared = step(releases=kind, summed=summed, addressed=addressed, refusable=refusable)(add)
    for name, value in dict(release).items():
        setattr(kind, name, value)
    return type("Part", (SitePart,), {"method": "ages", "revision": 1, **of_part, "add": declared})


def digest_of(part):
    return protocol_of({part: {"add"}})["ages"]


CHANGES = [
    {"bound": 1e8},
    {"summed": False},
    {"unit": "months"},
    {"request": Months},
    {"request": YearsOrNone},
    {"summed": False, "addressed": "each"},
    {"refusable": True},
    {"release": {"concerns_patients": False}},
    {"release": {"of_all_records": True}},
    {"release": {"without_values": True}},
    {"release": {"individual": True}},
    {"revision": 2},
    {"clips_persons": True},
    {"counts_persons": True},
    {"in_transcript": False},
    {"sums_fields": not SitePart.sums_fields},
    {"remembers": Years},
    {"remembers": Months},
]


def test_what_peers_must_agree_on_changes_the_digest():
    digests = [digest_of(make_part()), *(digest_of(make_part(**changed)) for changed in CHANGES)]
    assert len(set(digests)) == len(digests)


def test_a_default_is_part_of_the_digest():
    other = dataclasses.make_dataclass(
        "YearsOrNone", [("until", int, messages.count("last year", default=2001))], bases=(Message,), frozen=True
    )
    assert digest_of(make_part(request=other)) != digest_of(make_part(request=YearsOrNone))


def test_the_digest_of_a_declaration_is_the_same_in_every_release():
    """Sites of an earlier release work with this one only if both digest the same declarations equally.

    Whoever changes what is digested raises WIRE_PROTOCOL and updates these two.
    """
    assert digest_of(make_part()) == "1e223e35f74e7de8"
    assert digest_of(make_part(request=YearsOrNone, remembers=Months)) == "53f1b095516777a2"


@pytest.mark.parametrize("changed", [{"what": "total age"}, {"doc": "Sum."}], ids=lambda one: next(iter(one)))
def test_texts_leave_the_digest_alone(changed):
    assert digest_of(make_part(**changed)) == digest_of(make_part())


def test_only_steps_that_a_study_uses_count():
    few, all_ = protocol_of({CoxSite: {"describe"}}), protocol_of({CoxSite: CoxSite.steps()})
    assert few["wire"] == all_["wire"] == str(WIRE_PROTOCOL)
    assert few["fed-cox"] != all_["fed-cox"]


def test_differences_are_named():
    assert describe_differences({"wire": "5", "fed-cox": "a"}, {"wire": "6"}) == "wire (5 and 6), fed-cox (a and none)"
    assert describe_differences({"wire": "5"}, {"wire": "5", "trip": "c"}) == "trip (none and c)"
    assert describe_differences({"wire": "5"}, {"wire": "5"}) == ""
