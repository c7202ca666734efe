"""Fields that leave only where a policy permits it, and what a site part is told of its own answer."""

from dataclasses import dataclass

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing, array, number
from multicentre.core.steps import Release, SitePart, step
from multicentre.errors import ConfigurationError, RefusedByPolicy
from multicentre.privacy.card import disclosure_card

TOLD: list[tuple[str, bool, int]] = []


@dataclass(frozen=True)
class Times(Release):
    times: np.ndarray = array("times of events", ("t",), permission="exact_times")


@dataclass(frozen=True)
class Total(Release):
    total: float = number("sum", bound=1e6)


class TimesPart(SitePart):
    method = "times"

    @step(releases=Times)
    def tell(self, request: Nothing) -> Times:
        """Tell the times."""
        return Times(np.array(self.data), patients=20)

    @step(releases=Total, summed=True)
    def add(self, request: Nothing) -> Total:
        """Add the times."""
        TOLD.append((self.site, self.masked, self.least_behind))
        return Total(float(sum(self.data)), patients=20)


def federate(**options):
    return mc.Federation.in_process({"lyon": [1.0, 2.0], "oslo": [3.0]}, **options)


def test_a_field_with_a_permission_leaves_where_every_policy_gives_it():
    policy = mc.Policy(exact_times=True)
    answers = federate(policy=policy).begin(TimesPart).ask(TimesPart.tell, Nothing())
    assert answers["lyon"].times.tolist() == [1.0, 2.0]


def test_a_site_without_the_permission_refuses_before_it_computes_and_writes_it_down():
    federation = federate(policy={"lyon": mc.Policy(exact_times=True), "oslo": mc.Policy()})
    with pytest.raises(RefusedByPolicy, match=r"oslo.*exact_times = true"):
        federation.begin(TimesPart).ask(TimesPart.tell, Nothing())
    last = federation.ledgers["oslo"].entries[-1]
    assert (last["event"], last["step"]) == ("refusal", "tell")
    assert "Times.times" in last["reason"]


def test_the_card_names_the_permission():
    lines = {line.step: line.what for line in disclosure_card(TimesPart).lines}
    assert lines["tell"] == "times of events (only if the policy sets exact_times = true)"
    assert lines["add"] == "sum"


@pytest.mark.parametrize("secure", [False, True])
def test_a_part_knows_whether_its_answer_is_masked_and_what_the_policy_wants(secure):
    TOLD.clear()
    federation = federate(policy={"lyon": mc.Policy(), "oslo": mc.Policy(min_patients=3)}, secure_sum=secure)
    assert federation.begin(TimesPart).sum(TimesPart.add, Nothing()).total == pytest.approx(6.0)
    assert sorted(TOLD) == [("lyon", secure, 10), ("oslo", secure, 3)]


def test_a_permission_is_true_or_false():
    with pytest.raises(ConfigurationError, match="exact_times"):
        mc.Policy(exact_times="yes")
