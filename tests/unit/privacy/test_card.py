"""A disclosure card shows every field that leaves, who sees it and what hides it, and nothing that does not leave."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from multicentre.federation.messages import Message, Nothing, array, arrays, count, number, text
from multicentre.federation.noise import Noise, Plan, Planned
from multicentre.federation.steps import Release, SitePart, step
from multicentre.privacy.card import disclosure_card
from multicentre.privacy.policy import Policy
from multicentre.privacy.statement import guarantee_of_plan

EXACT = "no differential privacy: sums of many patients are exact."
CLEAR = (
    "sums are taken by the coordinator's process: whoever controls it could read one site's summand. "
    "Masked sums (secure_sum = true) prevent that."
)
MASKED = "under masks the minimum is of patients behind a site's summand: a cell of a total may rest on one patient."
ONE = "a sum of one site is that site's own answer."
TWO = (
    "a sum of two is no secret between the two: each takes its own share off it and holds the other's. "
    "A policy forbids it with min_sites_in_sum = 3."
)


@dataclass(frozen=True)
class Sums(Release):
    total: np.ndarray = array("sum of the ages", ("d",), unit="years", bound=2.0**20, sensitivity=4.0)
    n: int = count("patients", bound=2.0**20, sensitivity=1.0)


@dataclass(frozen=True)
class ByName(Release):
    sums: dict = arrays("sums by view", ("d",), bound=8.0)
    times: float = number("last time", permission="exact_times")
    links: float = number("links", permission="relations=listed")


@dataclass(frozen=True)
class Single(Release):
    individual: ClassVar[bool] = True
    label: float = number("label of a patient", permission="relations=listed")


@dataclass(frozen=True)
class Version(Release):
    concerns_patients: ClassVar[bool] = False
    version: str = text("installed version")


@dataclass(frozen=True)
class Memory(Message):
    factors: np.ndarray = array("factors of the site's patients", ("n",))
    seed: int = count("seed of the split")


class Part(SitePart):
    method = "card"
    remembers = Memory

    @step(releases=Sums, when="every round", summed=True)
    def add(self, ask: Nothing) -> Sums:
        """Add up."""

    @step(releases=ByName, when="once")
    def name(self, ask: Nothing) -> ByName:
        """Add up by name."""

    @step(releases=Single, when="at the end")
    def label(self, ask: Nothing) -> Single:
        """Label patients."""

    @step(releases=Version)
    def version(self, ask: Nothing) -> Version:
        """Name the version."""


class Other(SitePart):
    method = "other"

    @step(releases=Sums, when="once", summed=True)
    def add(self, ask: Nothing) -> Sums:
        """Add up."""


PLAN = Plan((Planned(Part.add, Noise("gaussian", {"total": 3.0, "n": 2.0})),))


def line(card, step_, field):
    (found,) = (line for line in card.lines if (line.step, line.field) == (step_, field))
    return found


def test_every_field_that_tells_of_patients_is_on_the_card_and_no_other():
    card = disclosure_card(Part)
    assert [(one.step, one.field) for one in card.lines] == [
        ("add", "total"),
        ("add", "n"),
        ("name", "sums[by name]"),
        ("name", "times"),
        ("name", "links"),
        ("label", "label"),
    ]
    assert card.steps == (("add", "Add up."), ("name", "Add up by name."), ("label", "Label patients."))
    assert card.method == "card"
    assert card.remembers == "the patients' rows; factors of the site's patients; seed of the split"
    assert card.individual == ("label",)
    assert (card.min_patients, card.noised) == (10, False)


def test_a_line_says_what_leaves_how_often_and_who_sees_it():
    total = line(disclosure_card(Part), "add", "total")
    assert (total.when, total.what, total.unit) == ("every round", "sum of the ages", "years")
    assert total.shape == Sums.declarations()["total"].dimensions
    assert (total.seen, total.span, total.noise) == ("coordinator's process, which adds", "", "")
    assert line(disclosure_card(Part), "name", "times").seen == "coordinator, site by site"
    assert line(disclosure_card(Part, protection="masked"), "name", "times").seen == "coordinator, site by site"
    assert line(disclosure_card(Part, protection="masked"), "add", "total").seen == "nobody; the sum alone"


def test_what_needs_a_permission_says_which():
    card = disclosure_card(Part)
    assert line(card, "name", "times").what == "last time (only where the policy says exact_times = true)"
    assert line(card, "name", "links").what == 'links (only where the policy says relations = "listed")'


def test_masked_fields_show_their_range_and_how_far_the_sum_is_rounded():
    card = disclosure_card(Part, protection="masked", n_sites=3)
    # 63 bits hold three times the range of 2**20: 41 of them are for fractions, and each site rounds by half a step.
    assert line(card, "add", "total").span == f"±1e+06, ±{3 * 2.0**-42:.0e}"
    assert line(card, "add", "n").span == "±1e+06"
    assert line(card, "name", "sums[by name]").span == ""
    assert line(disclosure_card(Part, protection="masked"), "add", "total").span == "±1e+06"


@pytest.mark.parametrize(("protection", "where"), [("clear", "at each site"), ("masked", "in the sum")])
def test_a_plan_shows_its_noise_and_leaves_out_what_it_does_not_name(protection, where):
    card = disclosure_card(Part, protection=protection, n_sites=3, plan=PLAN)
    assert [(one.field, one.noise) for one in card.lines] == [
        ("total", f"gaussian 12 {where} (one patient: 4)"),
        ("n", f"gaussian 2 {where} (one patient: 1)"),
    ]
    assert card.noised
    assert card.individual == ()
    assert card.warnings[-1] == str(guarantee_of_plan(PLAN, protection))
    two = disclosure_card(Part, protection=protection, plan=PLAN, sites_per_patient=2)
    assert two.warnings[-1] == str(guarantee_of_plan(PLAN, protection, 2))


def test_the_range_of_a_masked_field_has_room_for_its_noise():
    card = disclosure_card(
        Part,
        protection="masked",
        n_sites=3,
        plan=Plan((Planned(Part.add, Noise("gaussian", {"total": 2.0**20, "n": 2.0})),)),
    )
    assert line(card, "add", "total").span.startswith(f"±{2.0**20 + 16 * 4 * 2.0**20:.2g},")


def test_the_steps_that_are_asked_are_those_of_the_card():
    assert [name for name, _ in disclosure_card(Part, asked={"name", "version"}).steps] == ["name"]
    assert disclosure_card(Part, asked=()).lines == ()


@pytest.mark.parametrize(
    ("protection", "n_sites", "warnings"),
    [
        ("clear", None, (CLEAR, EXACT)),
        ("clear", 3, (CLEAR, EXACT)),
        ("masked", 3, (MASKED, EXACT)),
        ("masked", 2, (MASKED, TWO, EXACT)),
        ("clear", 2, (CLEAR, TWO, EXACT)),
        ("clear", 1, (CLEAR, ONE, EXACT)),
    ],
)
def test_a_steward_is_warned_of_small_sums_and_of_open_ones(protection, n_sites, warnings):
    assert disclosure_card(Part, protection=protection, n_sites=n_sites).warnings == warnings


def test_the_minimum_is_that_of_the_policy():
    assert disclosure_card(Part, policy=Policy(min_patients=25)).min_patients == 25


def test_a_card_prints_a_table_its_meanings_and_its_warnings():
    printed = str(disclosure_card(Other, protection="masked", n_sites=3, policy=Policy(min_patients=5))).split("\n")
    assert printed[0] == "What other lets out of a site (each value rests on at least 5 patients)"
    head, total, n = printed[2:5]
    assert head.split("  ")[0] == "step"
    assert [name for name in ("step", "how often", "field", "shape", "who can see it") if name not in head] == []
    assert "range, rounding of the sum" in head
    assert "noise" not in head  # a column that would be empty is left out
    assert total.startswith("add   once       total  ")
    assert n.index("n  ") == head.index("field")
    assert printed[6:8] == ["  add.total: sum of the ages", "  add.n: patients"]
    assert printed[9] == "Stays at the site: the patients' rows"
    assert printed[10:] == [f"Note: {MASKED}", f"Note: {EXACT}"]


def test_a_card_says_what_the_minimum_does_not_cover():
    first = str(disclosure_card(Part)).split("\n")[0]
    assert first == (
        "What card lets out of a site (each value rests on at least 10 patients, but for those of label, which tell of "
        "single patients)"
    )
    noised = str(disclosure_card(Part, plan=PLAN)).split("\n")[0]
    assert noised == (
        "What card lets out of a site (what carries no noise rests on at least 10 patients, noise hides each in the "
        "rest)"
    )


def test_cards_of_methods_that_run_one_after_the_other_are_joined_without_repeating():
    one = disclosure_card(Part, policy=Policy(min_patients=20))
    two = disclosure_card(Other, plan=Plan((Planned(Other.add, Noise("gaussian", {"total": 3.0, "n": 2.0})),)))
    joined = one.joined(two, one)
    assert joined.method == "card, other"
    assert joined.lines == one.lines + two.lines
    assert joined.steps == one.steps
    assert joined.remembers == f"{one.remembers}; the patients' rows"
    assert joined.min_patients == 10
    assert joined.warnings == (CLEAR, EXACT, two.warnings[-1])
    assert joined.noised
    assert joined.individual == ("label",)
    assert one.joined() == one


def test_a_card_is_plain_values_for_json():
    plain = disclosure_card(Other).to_dict()
    assert plain["method"] == "other"
    assert plain["lines"][0]["field"] == "total"
    assert plain["steps"] == (("add", "Add up."),)
