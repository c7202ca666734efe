"""A disclosure card shows every field that leaves, who sees it and what hides it, and nothing that does not leave."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from multicentre.core.messages import Length, Message, Nothing, array, arrays, count, number, text
from multicentre.core.noise_plan import Noise, Plan, Planned
from multicentre.core.steps import Release, SitePart, step
from multicentre.privacy.card import disclosure_card
from multicentre.privacy.guarantee import guarantee_of_plan
from multicentre.privacy.policy import Policy

EXACT = "no differential privacy: sums of many patients are exact."
UNMASKED = (
    "sums are computed by the coordinator's process, so anybody who controls it can read each site's value. "
    "Masked sums (secure_sum = true) prevent this."
)
MASKED = (
    "a cell of a masked total may be the value of one patient: the minimum of 10 patients applies to the whole share "
    "of this site."
)
SINGLE = "values about single patients leave (label): no minimum number of patients protects them."
FEW = "the policy has no minimum (min_patients = {}): a value may be that of one patient."
LISTED = Policy(relations="listed", exact_times=True)
ONE = "a sum over one site equals the answer of that site."
TWO = (
    "a sum of two sites reveals to each site the other's share, by subtraction. min_sites_in_sum = 3 in a policy "
    "prevents this."
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
    def add(self, request: Nothing) -> Sums:
        """Add up."""

    @step(releases=ByName, when="once")
    def name(self, request: Nothing) -> ByName:
        """Add up by name."""

    @step(releases=Single, when="at the end")
    def label(self, request: Nothing) -> Single:
        """Label patients."""

    @step(releases=Version)
    def version(self, request: Nothing) -> Version:
        """Name the version."""


@dataclass(frozen=True)
class OtherMemory(Message):
    n: int = count("patients")
    seed: int = count("seed of the split")


class Other(SitePart):
    method = "other"
    remembers = OtherMemory
    lengths = {"d": Length("columns", "n_columns")}  # noqa: RUF012

    @step(releases=Sums, when="once", summed=True)
    def add(self, request: Nothing) -> Sums:
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
    assert (total.seen, total.noise) == ("nobody; only the sum", "")
    bare = line(disclosure_card(Part, protection="unmasked"), "add", "total")
    assert (bare.seen, bare.span, bare.noise) == ("coordinator's process, which adds", "", "")
    assert line(disclosure_card(Part), "name", "times").seen == "coordinator, site by site"
    assert line(disclosure_card(Part, protection="unmasked"), "name", "times").seen == "coordinator, site by site"


def test_what_needs_a_permission_says_which():
    card = disclosure_card(Part)
    assert line(card, "name", "times").what == "last time (only if the policy sets exact_times = true)"
    assert line(card, "name", "links").what == 'links (only if the policy sets relations = "listed")'


def test_masked_fields_show_their_range_and_how_far_the_sum_is_rounded():
    card = disclosure_card(Part, protection="masked", n_sites=3)
    # 63 bits hold three times the range of 2**20: 41 of them are for fractions, and each site rounds by half a step.
    assert line(card, "add", "total").span == f"±1e+06, ±{3 * 2.0**-42:.0e}"
    assert line(card, "add", "n").span == "±1e+06"
    assert line(card, "name", "sums[by name]").span == ""
    assert line(disclosure_card(Part, protection="masked"), "add", "total").span == "±1e+06"


@pytest.mark.parametrize(("protection", "where"), [("unmasked", "at each site"), ("masked", "in the sum")])
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
    assert [name for name, _ in disclosure_card(Part, requested={"name", "version"}).steps] == ["name"]
    assert disclosure_card(Part, requested=()).lines == ()


@pytest.mark.parametrize(
    ("protection", "n_sites", "policy", "caveats"),
    [
        ("unmasked", None, Policy(), (UNMASKED,)),
        ("unmasked", 3, LISTED, (SINGLE, UNMASKED)),
        ("masked", None, Policy(), (MASKED,)),
        ("masked", 3, LISTED, (SINGLE, MASKED)),
        ("masked", 2, Policy(), (MASKED, TWO)),
        ("masked", 3, Policy(min_patients_in_total=5), ()),
        ("unmasked", 2, Policy(), (UNMASKED, TWO)),
        ("unmasked", 1, Policy(), (ONE, UNMASKED)),
        ("masked", 3, Policy(min_patients=1), (FEW.format(1),)),
        ("unmasked", 3, Policy(min_patients=0), (FEW.format(0), UNMASKED)),
    ],
)
def test_a_steward_is_warned_of_small_sums_and_of_open_ones_the_strongest_first(protection, n_sites, policy, caveats):
    card = disclosure_card(Part, protection=protection, n_sites=n_sites, policy=policy)
    assert card.caveats == caveats
    assert card.notes == (*caveats[1:], *card.warnings)
    assert card.warnings[-1] == EXACT
    printed = str(card).split("\n")
    assert printed[0] == "Disclosure card of card"
    assert printed[2] == (f"Caveat: {caveats[0]}" if caveats else card.sentences[0])


def test_the_minimum_is_that_of_the_policy():
    assert disclosure_card(Part, policy=Policy(min_patients=25)).min_patients == 25


PRINTED = """\
Disclosure card of other

Caveat: a cell of a masked total may be the value of one patient: the minimum of 5 patients applies to the whole share of this site.

This site releases its shares of totals (sums and counts over patients, added over all sites).
Each value has at least 5 patients of this site behind it, or none (a masked share of a total as a whole, not each of its cells).
Nobody can read this site's share of a masked total, unless enough other sites collude with the coordinator; the coordinator reads the totals; the other sites and the readers of the results receive results computed from these.

letter  meaning  number
d       columns  7

step  how often  field  shape    who can see it        range, rounding of the sum
add   once       total  d array  nobody; only the sum  ±1e+06, ±7e-13
add   once       n      count    nobody; only the sum  ±1e+06

  add.total: sum of the ages
  add.n: patients

Stored at the site between rounds: the patients' rows; patients (also released: add.n); seed of the split.
Note: no differential privacy: sums of many patients are exact."""  # noqa: E501


def test_a_card_prints_its_caveat_three_sentences_its_letters_its_fields_and_its_notes():
    card = disclosure_card(
        Other, protection="masked", n_sites=3, policy=Policy(min_patients=5), parameters={"n_columns": 7}
    )
    assert str(card) == PRINTED


def test_a_letter_without_a_meaning_says_so():
    (letter, *_) = disclosure_card(Part).used_letters
    assert (letter.letter, letter.what, letter.number) == ("d", "not explained by the method", "")


def test_the_sentences_follow_the_policy():
    what, how_many, who = disclosure_card(Part, policy=LISTED).sentences
    assert what == (
        "This site releases values about single patients or pairs of patients (label); times of events as they were "
        "recorded (name); its shares of totals (sums and counts over patients, added over all sites); numbers of "
        "this site only."
    )
    assert how_many == (
        "Each value has at least 10 patients of this site behind it, or none (a masked share of a total as a whole, "
        "not each of its cells); the values of label are about single patients, whom no minimum protects."
    )
    assert "the coordinator reads the totals and the values of this site only" in who
    what, how_many, who = disclosure_card(Part, protection="unmasked", policy=Policy(relations="none")).sentences
    assert what == (
        "This site releases its shares of totals (sums and counts over patients, added over all sites). It refuses "
        "name, label, which its policy does not permit."
    )
    assert how_many == "Each value has at least 10 patients of this site behind it, or none."
    assert who.startswith("The coordinator's process receives this site's share of each unmasked total and can read it")


def test_the_sentences_say_what_noise_hides():
    card = disclosure_card(Part, protection="masked", n_sites=3, plan=PLAN)
    promise = guarantee_of_plan(PLAN, "masked")
    assert card.sentences[1] == (
        f"Noise bounds what each value discloses about one patient (epsilon {promise.epsilon:.3g}, delta 1e-05)."
    )
    assert card.caveats == ()
    by_entry = disclosure_card(Part, n_sites=3, plan=Plan(PLAN.releases, unit="entry"))
    assert by_entry.caveats == ("noise hides one entry, not a whole patient.",)
    records = disclosure_card(Part, n_sites=3, plan=PLAN, counted="records")
    assert "discloses about one record (" in records.sentences[1]


def test_a_minimum_in_totals_is_in_the_sentences():
    policy = Policy(min_patients=3, min_patients_in_total=5)
    ways = ("masked", "unmasked")
    masked, unmasked = (disclosure_card(Other, protection=way, policy=policy).sentences[1] for way in ways)
    assert "is revealed only with at least 5 patients of all sites behind it" in masked
    assert "an unmasked share of a total leaves only with at least 5 patients behind it" in unmasked


def test_cards_of_methods_that_run_one_after_the_other_are_joined_without_repeating():
    one = disclosure_card(Part, policy=Policy(min_patients=20))
    two = disclosure_card(Other, plan=Plan((Planned(Other.add, Noise("gaussian", {"total": 3.0, "n": 2.0})),)))
    joined = one.joined(two, one)
    assert joined.method == "card, other"
    assert [line.what for line in joined.lines] == [line.what for line in one.lines + two.lines]
    assert joined.steps == one.steps
    letters = {letter.meaning: letter.letter for letter in joined.used_letters}
    assert letters["not explained by the method"] == "d"
    assert len(set(letters.values())) == len(letters)  # "columns" of the second method has another letter
    assert joined.remembers == (
        "the patients' rows; factors of the site's patients; seed of the split; patients (also released: add.n)"
    )
    assert joined.min_patients == 10
    assert joined.warnings == (EXACT, *two.warnings)
    assert any(warning.startswith("noise replaces the minimum") for warning in joined.warnings)
    assert joined.caveats[0] == MASKED
    assert joined.noised
    assert joined.individual == ("label",)
    assert one.joined() == one


def test_a_card_is_plain_values_for_json():
    plain = disclosure_card(Other).to_dict()
    assert plain["method"] == "other"
    assert plain["lines"][0]["field"] == "total"
    assert plain["steps"] == (("add", "Add up."),)
    assert plain["caveat"] == MASKED
    assert plain["sentences"] == disclosure_card(Other).sentences
    assert plain["letters"] == ({"letter": "d", "what": "columns", "number": "", "method": ""},)
    assert plain["remembers"] == "the patients' rows; patients (also released: add.n); seed of the split"
    assert plain["warnings"] == (EXACT,)
