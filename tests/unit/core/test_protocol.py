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


def make_part(what="sum of the ages", bound=1e9, revision=1, summed=True, unit="years", doc="Add."):
    """Return a site part with a step that has these declarations."""
    total = messages.number(what, unit=unit, bound=bound)
    kind = dataclasses.make_dataclass("Total", [("total", float, total)], bases=(Release,), frozen=True)

    def add(self, request):
        return kind(1.0)

    add.__doc__, add.__annotations__ = doc, {"request": Years, "return": kind}
    declared = step(releases=kind, summed=summed)(add)
    return type("Part", (SitePart,), {"method": "ages", "revision": revision, "add": declared})


def digest_of(part):
    return protocol_of({part: {"add"}})["ages"]


@pytest.mark.parametrize(
    "changed", [{"bound": 1e8}, {"revision": 2}, {"summed": False}, {"unit": "months"}], ids=lambda one: next(iter(one))
)
def test_what_peers_must_agree_on_changes_the_digest(changed):
    assert digest_of(make_part(**changed)) != digest_of(make_part())


@pytest.mark.parametrize("changed", [{"what": "total age"}, {"doc": "Sum."}], ids=lambda one: next(iter(one)))
def test_texts_leave_the_digest_alone(changed):
    assert digest_of(make_part(**changed)) == digest_of(make_part())


def test_only_steps_that_a_study_uses_count():
    few, all_ = protocol_of({CoxSite: {"describe"}}), protocol_of({CoxSite: CoxSite.steps()})
    assert few["wire"] == all_["wire"] == str(WIRE_PROTOCOL)
    assert few["fed-cox"] != all_["fed-cox"]


def test_differences_are_named():
    assert describe_differences({"wire": "5", "fed-cox": "a"}, {"wire": "6"}) == "wire (5 and 6), fed-cox (a and none)"
    assert describe_differences({"wire": "5"}, {"wire": "5"}) == ""
