"""Every refusal of the guard names its place, its reason and a remedy, and stands in the ledger with its call."""

import dataclasses
import hashlib
import logging
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from multicentre.core.calls import Call, Mask, Selection
from multicentre.core.messages import Nothing, array, arrays, count, number, text, texts
from multicentre.core.noise_plan import Noise, PlanReview, PlanShown
from multicentre.core.steps import Release, SitePart, step
from multicentre.errors import DataError, DisclosureRefused, MessageError, RefusedByPolicy
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.patient_counts import People
from multicentre.privacy.policy import Policy
from multicentre.privacy.sites_per_field import Field, SitesBehind

SAME = (
    'Use the same patients in both requests: missing="mean" or "indicator" keeps those with a missing entry, and '
    '[data] complete = "all" of a study file leaves them out of all analyses.'
)
STEWARD = "Ask the site's steward whether its policy can be changed, or leave the site out."
LOCKED = "See the site's log, correct the data or the study there, and create a new federation."
MASK = f"Mask the sums (secure_sum=True). {STEWARD}"


@dataclass(frozen=True)
class Sums(Release):
    total: np.ndarray = array("sums", ("d",), bound=8.0, sensitivity=1.0)
    n: int = count("patients", bound=2.0**20, sensitivity=1.0)


@dataclass(frozen=True)
class Named(Release):
    sums: dict = arrays("sums by name", ("d",), bound=8.0)


@dataclass(frozen=True)
class Pairs(Release):
    links: float = number("links between patients", permission="relations=summed", bound=8.0)


@dataclass(frozen=True)
class Words(Release):
    words: tuple = texts("the commonest codes")
    word: str = text("the commonest code")


@dataclass(frozen=True)
class Version(Release):
    concerns_patients: ClassVar[bool] = False
    version: str = text("installed version")


class Part(SitePart):
    method = "sums"

    @step(releases=Sums, summed=True)
    def add(self, request: Nothing) -> Sums:
        """Add up."""

    @step(releases=Named)
    def name(self, request: Nothing) -> Named:
        """Add up by name."""

    @step(releases=Pairs, summed=True)
    def link(self, request: Nothing) -> Pairs:
        """Count links."""

    @step(releases=Words)
    def words(self, request: Nothing) -> Words:
        """Name codes."""

    @step(releases=Version)
    def version(self, request: Nothing) -> Version:
        """Name the version."""


class Keys(SitePart):
    method = "keys"
    holds_patients = False

    @step(releases=Version)
    def version(self, request: Nothing) -> Version:
        """Name the version."""


def guard(ids=None, **policy):
    people = People(one_each=True) if ids is None else People(map(str, ids))
    return Guard(Policy(**policy), Ledger(), people, site="lyon")


def call(which=Part.add, *, masked=False, **changes):
    mask = Mask("first", 0, 3) if masked else None
    return dataclasses.replace(Call("study", "0.1", 4, which, Nothing(), ("a", "b", "c"), mask), **changes)


def noise(multiplier=10.0):
    return Noise("gaussian", {"total": multiplier, "n": multiplier})


def sums(value=1.0, patients=30):
    return Sums(np.array([value]), 30, patients=patients)


def shown(method="sums", multiplier=10.0, times=1):
    fields, values = {"add": ("total", "n")}, {"add": np.array([multiplier, multiplier])}
    return PlanShown(method, ("add",), ("gaussian",), np.array([times]), fields, values)


def refusal(gate, act, kind):
    with pytest.raises(kind) as caught:
        act(gate)
    assert type(caught.value) is kind
    entry = gate.ledger.entries[-1]
    assert entry["event"] == "refusal"
    return caught.value, entry


ADMISSIONS = {
    "method": (
        {"methods": ("other",)},
        call(),
        "add, methods",
        "the site's policy does not permit the method sums",
        STEWARD,
    ),
    "masked only": (
        {"secure_sums_only": True},
        call(),
        "add, secure_sums_only",
        "answers of this site must be masked sums; got an unmasked one",
        STEWARD,
    ),
    "crowd": (
        {"min_sites_in_sum": 4},
        call(masked=True),
        "add, min_sites_in_sum",
        "the site's policy requires sums over at least 4 sites; got 3",
        STEWARD,
    ),
    "bare sums of pairs": (
        {},
        call(Part.link),
        "link, Pairs.links",
        'the site\'s policy must have relations = "dense" for this field; got a policy without it',
        MASK,
    ),
    "masked sums of pairs": (
        {"relations": "none"},
        call(Part.link, masked=True),
        "link, Pairs.links",
        'the site\'s policy must have relations = "summed" for this field; got a policy without it',
        STEWARD,
    ),
    "no noise": (
        {"epsilon": 1.0},
        call(),
        "add, policy, epsilon",
        "answers must have noise if the policy has a privacy budget; the call has none",
        "Set epsilon, if the method has this parameter, or ask the site's steward.",
    ),
}


@pytest.mark.parametrize("name", ADMISSIONS)
def test_a_refused_call_names_place_reason_and_remedy(name):
    policy, asked, where, what, hint = ADMISSIONS[name]
    error, entry = refusal(guard(**policy), lambda gate: gate.admit(asked), RefusedByPolicy)
    assert (error.where, error.what, error.hint) == (where, what, hint)
    facts = {"study": "study", "session": "0.1", "call": 4, "method": "sums", "step": asked.step.name, "sites": 3}
    assert {**facts, "protection": asked.protection}.items() <= entry.items()
    place, reason = where.removeprefix(f"{asked.step.name}, "), what.removesuffix("")
    assert entry["reason"] == f"{place}: {reason}"


def test_masked_sums_of_pairs_and_bare_ones_leave_where_the_policy_says_so():
    guard().admit(call(Part.link, masked=True))
    guard(relations="dense").admit(call(Part.link))


ANSWERS = {
    "another release": (call(), Named({}, patients=30), "add, release", "the answer must be a release of class Sums"),
    "not as declared": (call(), sums(np.nan), "add, Sums.total", "the answer must match its declaration"),
    "no count": (
        call(),
        sums(patients={"total": 30}),
        "add, Sums.n",
        "the answer must state the number of patients behind it",
    ),
    "no whole count": (
        call(),
        sums(patients=30.0),
        "add, Sums.total",
        "the number of patients behind the answer must be",
    ),
    "value of nobody": (
        call(),
        sums(patients={"total": 0, "n": 30}),
        "add, Sums.total",
        "a value without patients behind it must be zero or empty",
    ),
    "few": (
        call(),
        sums(patients={"total": 30, "n": 9}),
        "add, Sums.n",
        "the answer must have at least 10 patients behind it",
    ),
    "words of nobody": (
        call(Part.words),
        Words(("a",), "", patients=0),
        "words, Words.words",
        "a value without patients behind it must be zero or empty",
    ),
    "a word of nobody": (
        call(Part.words),
        Words((), "x", patients=0),
        "words, Words.word",
        "a value without patients behind it must be zero or empty",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_refused_answer_names_place_and_reason_but_no_value(name):
    asked, answer, where, what = ANSWERS[name]
    error, entry = refusal(guard(), lambda gate: gate.release(asked, answer), DisclosureRefused)
    assert error.where == where
    assert error.what.startswith(what)
    assert error.hint.endswith(STEWARD)
    assert entry["reason"].startswith(f"{where.partition(', ')[2]}: {what}")
    assert entry["call"] == 4


def test_too_few_patients_are_refused_with_what_to_leave_out():
    error, _ = refusal(guard(), lambda gate: gate.release(call(), sums(patients=9)), DisclosureRefused)
    assert "Leave out columns and views that few patients have" in error.hint
    guard().release(call(), sums(patients=10))


def test_masks_are_recommended_for_few_patients_only_where_they_would_help():
    def hint(asked):
        return refusal(guard(), lambda gate: gate.release(asked, sums(patients=9)), DisclosureRefused)[0].hint

    assert "secure_sum=True" in hint(call())
    assert "secure_sum" not in hint(call(masked=True))
    assert "secure_sum" not in hint(call(peers=("lyon",)))


def test_a_site_with_too_few_patients_says_so_before_anything_is_computed():
    def small(n_patients):
        return Guard(Policy(min_patients=10), Ledger(), site="lyon", n_records=n_patients)

    error, entry = refusal(small(9), lambda gate: gate.admit(call()), DisclosureRefused)
    assert str(error).startswith("the site has fewer patients than its policy's minimum of 10. Pool small sites")
    assert "9" not in str(error)
    assert entry["reason"] == error.what
    for enough in (0, 10, None):
        small(enough).admit(call())


def test_a_plan_of_noise_is_refused_by_a_site_with_too_few_patients():
    small = Guard(Policy(), Ledger(), n_records=9)
    with pytest.raises(DisclosureRefused, match="the site has fewer patients than its policy's minimum of 10"):
        small.review(PlanShown("sums", (), (), np.zeros(0, dtype=np.int64), {}, {}))


def test_a_value_beyond_its_range_is_refused_by_field_and_key_with_both_remedies():
    answer = Named({"ct": np.zeros(1), "mr": np.array([-9.0])}, patients=30)
    error, entry = refusal(guard(), lambda gate: gate.release(call(Part.name, masked=True), answer), DisclosureRefused)
    assert error.where == "name, Named.sums[mr]"
    assert error.hint.startswith("Look for outliers at this site")
    assert error.hint.endswith(STEWARD)
    assert entry["reason"] == (
        "Named.sums[mr]: the answer must match its declaration (a value is beyond the declared range of 8)"
    )


def test_an_answer_that_cannot_be_checked_is_refused_with_one_remedy():
    error, _ = refusal(guard(), lambda gate: gate.release(call(), sums("x")), DisclosureRefused)
    assert error.hint.count(STEWARD) == 1


@pytest.mark.parametrize(
    ("ids", "reason", "hint"),
    [
        ((), "records must have patient ids to compare cohorts; got none", STEWARD),
        (
            range(99),
            "the cohort must differ from that of an earlier answer by at least 5 patients; it differs by fewer",
            f"{SAME} {STEWARD}",
        ),
    ],
)
def test_a_refused_cohort_names_the_rule(ids, reason, hint):
    gate = guard(ids, min_difference=5)
    gate.memory.remember("answers", gate.memory.fingerprints(range(100)))
    error, entry = refusal(gate, lambda gate: gate.release(call(), sums()), DisclosureRefused)
    assert (error.where, error.hint) == ("add, min_difference", hint)
    assert entry["reason"] == f"min_difference: {reason}"


@pytest.mark.parametrize(("kept", "refused"), [(100, False), (96, True), (95, False)])
def test_a_part_of_the_records_is_a_cohort_of_its_own(kept, refused):
    gate = guard(range(100), min_difference=5)
    gate.release(call(), sums())
    if refused:
        with pytest.raises(
            DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 5"
        ):
            gate.release(call(), sums(), np.arange(kept))
    else:
        gate.release(call(), sums(), np.arange(kept))


def test_without_a_memory_rows_are_no_cohort():
    gate = guard(range(100), min_difference=0)
    gate.release(call(), sums())
    gate.release(call(), sums(), np.arange(99))
    assert len(gate.cohort) == 0


# Plans


def test_a_plan_of_a_method_that_is_not_allowed_is_refused():
    error, entry = refusal(guard(methods=("other",)), lambda gate: gate.review(shown()), RefusedByPolicy)
    assert (error.where, error.hint) == ("plan, methods", STEWARD)
    assert error.what == "the site's policy does not permit the method sums"
    assert (entry["method"], entry["step"]) == ("sums", "plan")
    for allowed in (None, ("sums",)):
        guard(methods=allowed).review(shown())


def test_a_plan_that_does_not_fit_the_budget_is_refused_and_written_down():
    guard(epsilon=1.0).review(shown())
    error, entry = refusal(guard(epsilon=1.0), lambda gate: gate.review(shown(times=5)), RefusedByPolicy)
    assert error.where == "plan, policy, epsilon"
    assert "releases must fit the remaining part of the budget of epsilon 1" in error.what
    assert "times the noise" in error.hint
    assert (entry["method"], entry["step"]) == ("sums", "plan")


def test_a_plan_whose_parts_do_not_fit_is_refused_as_an_answer_would_be():
    wrong = dataclasses.replace(shown(), times=np.array([0]))
    refusal(guard(), lambda gate: gate.review(wrong), DisclosureRefused)
    with pytest.raises(MessageError):
        wrong.noises()


def test_a_plan_is_refused_where_its_noise_cannot_be_drawn(monkeypatch):
    from multicentre.errors import MissingExtra
    from multicentre.privacy import mechanisms

    monkeypatch.setattr(mechanisms, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="opendp"):
        guard().review(shown())


# Steps that break


def test_a_step_that_broke_is_written_down_and_its_error_passed_on_without_a_budget():
    gate, error = guard(), DataError("the column age is empty", where="age")
    assert gate.note_failure(call(), error) is error
    (entry,) = gate.ledger.entries
    assert (entry["event"], entry["reason"], entry["step"], entry["call"]) == ("failure", "DataError", "add", 4)


def test_with_a_budget_the_coordinator_learns_only_that_a_step_broke(caplog):
    gate, error = guard(epsilon=1.0), ValueError("patient 17 is 104 years old")
    with caplog.at_level(logging.ERROR, logger="multicentre.site.lyon"):
        passed = gate.note_failure(call(), error)
    assert (type(passed), passed.what, passed.where) == (DataError, "the step failed on the data of this site", "add")
    assert passed.hint == "See the site's log or ledger for the reason; with a privacy budget it is not sent."
    assert [entry["reason"] for entry in gate.ledger.entries] == ["ValueError"]
    assert caplog.messages == ["step add of sums: patient 17 is 104 years old"]
    assert caplog.records[0].name == "multicentre.site.lyon"


def test_steps_that_hold_no_patients_fail_in_words_even_with_a_budget():
    gate, error = guard(epsilon=1.0), DataError("must belong to the current key agreement")
    assert gate.note_failure(call(Keys.version), error) is error
    assert [entry["reason"] for entry in gate.ledger.entries] == ["DataError"]


def test_a_refused_plan_is_not_written_down_twice():
    gate, error = guard(epsilon=1.0), RefusedByPolicy("too much")
    assert gate.note_failure(call(PlanReview.review), error) is error
    assert gate.ledger.entries == ()


def test_after_three_broken_steps_a_site_with_a_budget_answers_nothing_about_patients():
    gate, noised = guard(epsilon=1.0), call(noise=noise())
    for _ in range(3):
        gate.admit(noised)
        gate.note_failure(noised, ValueError())
    error, entry = refusal(gate, lambda gate: gate.admit(noised), RefusedByPolicy)
    assert (error.where, error.hint) == ("add, epsilon", LOCKED)
    assert error.what == "at most 3 steps may fail at a site with a privacy budget; got 3"
    assert (entry["step"], entry["call"]) == ("add", 4)
    gate.admit(call(Keys.version))


def test_refused_answers_count_as_broken_steps_and_say_nothing_with_a_budget():
    gate, noised = guard(epsilon=1.0), call(noise=noise())
    for _ in range(3):
        gate.admit(noised)
        error, entry = refusal(gate, lambda gate: gate.release(noised, sums(9.0)), DataError)
        assert (error.where, error.what) == ("add", "the step failed on the data of this site")
        assert "beyond the declared range of 8" in entry["reason"]
    refusal(gate, lambda gate: gate.admit(noised), RefusedByPolicy)


def test_broken_steps_without_a_budget_lock_nothing():
    gate = guard()
    for _ in range(5):
        gate.note_failure(call(), ValueError())
    gate.admit(call())


# What the ledger says of a release


def test_a_release_is_described_field_by_field():
    gate = guard()
    gate.release(call(), sums(2.0))
    (entry,) = gate.ledger.entries
    assert {
        "protection": "unmasked",
        "session": "0.1",
        "sites": 3,
        "epsilon": None,
        "delta": None,
    }.items() <= entry.items()
    assert "records" not in entry
    total, n = entry["fields"]
    assert total["sha256"] == hashlib.sha256(np.array([2.0]).tobytes()).hexdigest()
    assert n["sha256"] == hashlib.sha256(b"30").hexdigest()
    assert (total["bytes"], n["bytes"], total["shape"], n["shape"]) == (8, 8, [1], [])


def test_no_hash_of_a_masked_value_is_kept():
    gate = guard()
    gate.release(call(masked=True), sums(2.0))
    assert [field["sha256"] for field in gate.ledger.entries[0]["fields"]] == [None, None]
    assert gate.ledger.entries[0]["protection"] == "masked"


def test_the_records_of_a_selection_are_named():
    gate = guard()
    gate.release(call(selection=Selection("0.7", (1, 2))), sums())
    assert gate.ledger.entries[0]["records"] == "folds 1, 2 of 0.7"


def test_a_noised_release_is_paid_for_before_it_is_written_down():
    gate, noised = guard(epsilon=2.0), call(noise=noise())
    released = gate.release(noised, sums())
    (entry,) = gate.ledger.entries
    assert entry["rho"] == pytest.approx(2 / (2 * 10.0**2))
    assert (entry["delta"], entry["unit"], entry["neighbours"]) == (1e-5, "patient", "add-remove")
    assert entry["epsilon"] == pytest.approx(gate.charging.account.spent.epsilon(1e-5))
    assert entry["noise"] == {"mechanism": "gaussian", "total": 10.0, "n": 10.0}
    # What is written down is what leaves: the value with its noise.
    assert entry["fields"][0]["sha256"] == hashlib.sha256(released.total.tobytes()).hexdigest()
    (paid,) = gate.charging.account.entries()
    assert (paid["step"], paid["call"], paid["rho"]) == ("add", 4, entry["rho"])


def test_an_answer_that_can_no_longer_be_paid_for_is_refused_and_written_down():
    gate, noised = guard(epsilon=1.0), call(noise=noise())
    error, entry = refusal(gate, lambda gate: [gate.release(noised, sums()) for _ in range(9)], RefusedByPolicy)
    assert error.where == "add, policy, epsilon"
    assert (entry["step"], entry["call"]) == ("add", 4)
    assert gate.charging.account.spent.epsilon(1e-5) <= 1.0


def test_what_tells_of_no_patient_is_never_noised_or_paid_for():
    gate = guard(epsilon=1.0)
    answer = Version("1.0")
    assert gate.release(call(Part.version, noise=noise()), answer) is answer
    assert gate.charging.account.entries() == ()


# Patients and records


def test_a_budget_is_per_patient_and_needs_records_with_patients():
    gate = Guard(Policy(epsilon=1.0), Ledger(), People())
    error, _ = refusal(gate, lambda gate: gate.review(shown()), RefusedByPolicy)
    assert error.where == "plan, epsilon"
    assert error.what == "records must have patients for a budget, which is per patient; got records without patients"
    error, _ = refusal(gate, lambda gate: gate.admit(call(noise=noise())), RefusedByPolicy)
    assert error.where == "add, epsilon"
    Guard(Policy(), Ledger(), People()).review(shown())


# The first patient has eleven records, and ten others have one each.
NAMES = ["a"] * 10 + list("abcdefghijk")


def test_patients_are_counted_among_the_selected_records():
    """Eleven records of all may belong to one patient; the last eleven belong to as many."""
    gate = Guard(Policy(min_difference=0), Ledger(), People(NAMES), n_records=len(NAMES))
    last = np.arange(10, 21)
    released = gate.release(call(), sums(patients=11), last)
    assert released.patients == 11
    assert gate.ledger.entries[-1]["fields"][0]["patients"] == 11
    refusal(gate, lambda gate: gate.release(call(), sums(patients=11)), DisclosureRefused)
    assert gate.patients_among(last) == 11
    assert gate.patients_among(np.arange(21)) == 11
    assert gate.patients_among(np.arange(11)) == 1
    assert Guard(Policy(), Ledger(), People()).patients_among(last) == 11


def test_the_records_that_guarantee_a_minimum_are_rounded_up_to_a_power_of_two():
    """Twenty records belong to at least ten patients; the exact number would disclose the eleven of the first."""
    gate = Guard(Policy(), Ledger(), People(NAMES))
    assert gate.least_records(None) == 32
    assert gate.least_records(np.arange(10, 21)) == gate.least_behind == 10
    assert gate.least_in_answer(call(), None) == 20
    assert gate.least_in_answer(call(), np.arange(10, 21)) == 10
    assert guard().least_records(None) == 10


def test_a_small_site_may_add_its_share_to_a_counted_total_only():
    terms = {"min_patients_in_total": 10, "min_patients_in_share": 3, "min_sites_in_sum": 3}

    def site_of(n):
        return Guard(Policy(**terms), Ledger(), People(one_each=True), n_records=n)

    counted = call(masked=True)
    counted = dataclasses.replace(counted, mask=dataclasses.replace(counted.mask, counted=True))
    site_of(3).admit(counted)
    for n, refused in ((2, counted), (3, call()), (9, call())):
        error, _ = refusal(site_of(n), lambda gate, refused=refused: gate.admit(refused), DisclosureRefused)
        assert "the site has fewer patients than its policy's minimum" in error.what
    site_of(10).admit(call())


def test_noise_for_one_record_hides_no_patient_with_several():
    gate = Guard(Policy(), Ledger(), People(NAMES))
    error, entry = refusal(gate, lambda gate: gate.admit(call(noise=noise())), DisclosureRefused)
    assert error.where == "add, persons"
    assert entry["reason"].endswith("the noise hides one record; got up to 100")  # only the order of magnitude
    guard(range(30)).admit(call(noise=noise()))


def test_few_sites_with_a_field_are_refused_where_the_answer_is_about_patients():
    behind = {Field("scan"): SitesBehind(1, ("lyon",))}
    error, _ = refusal(guard(), lambda gate: gate.check_sites_per_field(call(), behind), RefusedByPolicy)
    assert error.where == "add, min_sites_in_sum"
    guard().check_sites_per_field(call(Part.version), behind)
    guard(min_sites_in_sum=1).check_sites_per_field(call(), behind)


def test_a_regression_needs_patients_for_its_coefficients():
    gate = Guard(Policy(max_parameters_per_patient=0.5), Ledger(), People(NAMES), n_records=len(NAMES))
    gate.check_fit(call(), 5, None)
    gate.check_fit(call(), 5, np.arange(10, 21))
    error, _ = refusal(gate, lambda gate: gate.check_fit(call(), 6, None), RefusedByPolicy)
    assert error.where == "add, max_parameters_per_patient"
    refusal(gate, lambda gate: gate.check_fit(call(), 5, np.arange(10, 19)), RefusedByPolicy)
    gate.check_fit(call(Part.version), 6, None)
    Guard(Policy(), Ledger(), People(NAMES)).check_fit(call(), 6, None)  # the number of records is not known
