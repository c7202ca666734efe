"""Minimum numbers of patients, sites and patients per coefficient: the limit itself passes, one less is refused."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from multicentre.core.calls import Call, Mask
from multicentre.core.messages import Nothing, array, count, text, texts
from multicentre.core.noise_plan import Noise
from multicentre.core.steps import Release, SitePart, step
from multicentre.errors import DisclosureRefused, IntegrityError, RefusedByPolicy
from multicentre.privacy.accountant import Spent
from multicentre.privacy.budget import Account
from multicentre.privacy.minimum_counts import (
    NoisedAnswers,
    find_excess_coefficients,
    find_small_site,
    find_too_few_sites,
    find_uncounted_total,
    find_value_refusal,
    max_parameters,
    min_behind_value,
    rests_on_total,
)
from multicentre.privacy.patient_counts import PatientCounts, People
from multicentre.privacy.policy import Policy


@dataclass(frozen=True)
class Sums(Release):
    """Sums."""

    total: np.ndarray = array("sums", ("d",), bound=8.0, sensitivity=1.0)


@dataclass(frozen=True)
class Table(Release):
    """Patients by cell."""

    cells: np.ndarray = array("patients", ("c",), dtype="i8", bound=1e6, counts=True)
    n: int = count("patients")


@dataclass(frozen=True)
class Words(Release):
    """Texts about patients."""

    word: str = text("the commonest code")
    codes: tuple = texts("codes")


@dataclass(frozen=True)
class Public(Release):
    """Names of columns."""

    columns: tuple = texts("columns", public=True)


@dataclass(frozen=True)
class Single(Release):
    """Values about single patients."""

    individual: ClassVar[bool] = True
    near: np.ndarray = array("how near", ("n",), permission="relations=summed", bound=8.0)


class Part(SitePart):
    """Offers a step of each kind."""

    method = "part"

    @step(releases=Sums, summed=True)
    def add(self, request: Nothing) -> Sums:
        """Add up."""

    @step(releases=Sums)
    def describe(self, request: Nothing) -> Sums:
        """Describe."""

    @step(releases=Table, summed=True)
    def tabulate(self, request: Nothing) -> Table:
        """Count."""

    @step(releases=Words)
    def tell(self, request: Nothing) -> Words:
        """Return texts."""

    @step(releases=Public)
    def names(self, request: Nothing) -> Public:
        """Return names."""

    @step(releases=Single, summed=True)
    def relate(self, request: Nothing) -> Single:
        """Relate patients."""


PEERS = ("lyon", "oslo", "roma", "wien")
MASK, COUNTED = Mask("first", 0, 3), Mask("first", 0, 3, counted=True)
HIDING, WEAK = Noise("gaussian", {"total": 1.5}), Noise("gaussian", {"total": 1.0})
ONE_EACH, SEVERAL = People(one_each=True), People(["a", "a", "b", "c"])


def call(which=Part.add, mask=None, noise=None, peers=PEERS):
    return Call("study", "0.1", 0, which, Nothing(), peers, mask, noise)


# Sites


@pytest.mark.parametrize(("n_records", "is_small"), [(0, False), (None, False), (1, True), (9, True), (10, False)])
def test_a_site_below_the_minimum_is_small_unless_it_has_nobody(n_records, is_small):
    refusal = find_small_site(10, ONE_EACH, n_records, has_budget=False)
    assert (refusal is not None) is is_small
    if refusal:
        assert (refusal.term, refusal.error) == ("", DisclosureRefused)
        assert refusal.reason == "the site has fewer patients than its policy's minimum of 10"
        assert refusal.hint.startswith("Pool small sites")


def test_patients_are_counted_and_the_hint_says_so_without_a_budget():
    people = People([f"p{number // 2}" for number in range(18)])
    assert find_small_site(9, people, 18, has_budget=False) is None
    assert find_small_site(10, people, 18, has_budget=False).hint.startswith("Records of one patient count as one")
    assert find_small_site(10, people, 18, has_budget=True).hint.startswith("Pool small sites")


@pytest.mark.parametrize(
    ("mask", "peers", "least", "n_sites"),
    [
        (None, PEERS, 9, None),
        (MASK, PEERS, 3, None),
        (MASK, PEERS, 4, 3),  # readable with three of the four sites
        (Mask("first", 0, 4), PEERS[:2], 3, 2),
        (Mask("first", 0, 4), ("lyon", "oslo", "lyon"), 3, 2),
        (Mask("first", 0, 2), PEERS[:2], 2, None),
    ],
)
def test_a_masked_sum_needs_a_minimum_of_sites(mask, peers, least, n_sites):
    refusal = find_too_few_sites(call(mask=mask, peers=peers), least)
    if n_sites is None:
        assert refusal is None
    else:
        assert (refusal.term, refusal.error) == ("min_sites_in_sum", RefusedByPolicy)
        assert refusal.reason == f"the site's policy requires sums over at least {least} sites; got {n_sites}"


# Totals


TOTAL = Policy(min_patients_in_total=5)


def uncounted(a_call, people=ONE_EACH, policy=TOTAL):
    return find_uncounted_total(a_call, policy, people, NoisedAnswers())


@pytest.mark.parametrize(
    ("a_call", "people", "policy"),
    [
        (call(mask=MASK), ONE_EACH, Policy()),
        (call(), ONE_EACH, TOTAL),
        (call(Part.relate, mask=MASK), ONE_EACH, TOTAL),
        (call(Part.names, mask=MASK), ONE_EACH, TOTAL),
        (call(mask=COUNTED), ONE_EACH, TOTAL),
        (call(mask=COUNTED), SEVERAL, TOTAL),
        (call(Part.tabulate, mask=COUNTED), ONE_EACH, TOTAL),
        (call(mask=MASK, noise=HIDING), ONE_EACH, TOTAL),
    ],
)
def test_totals_that_are_counted_hidden_or_not_about_sums_of_patients_pass(a_call, people, policy):
    assert uncounted(a_call, people, policy) is None


def test_an_uncounted_total_is_refused():
    refusal = uncounted(call(mask=MASK))
    assert (refusal.term, refusal.error) == ("min_patients_in_total", RefusedByPolicy)
    assert refusal.reason == "the coordinator must count the patients behind this sum; got an uncounted sum"


def test_weak_noise_does_not_replace_the_minimum_of_a_total():
    refusal = uncounted(call(mask=COUNTED, noise=WEAK))
    assert (refusal.term, refusal.error) == ("min_patients_in_total", RefusedByPolicy)
    assert refusal.reason == (
        "the noised answers must be within epsilon 3 in total to replace a minimum; got a larger one"
    )


def test_cells_that_count_records_are_refused():
    refusal = uncounted(call(Part.tabulate, mask=COUNTED), SEVERAL)
    assert (refusal.term, refusal.error) == ("min_patients_in_total", DisclosureRefused)
    assert refusal.reason == ("a patient must have one record, because the cells of cells count records; got several")
    assert refusal.hint.startswith("Reduce the site's data to one record per patient")


# Values


def value_refusal(release, a_call, policy=None, counts=None):
    (item, *_) = release.items()
    return find_value_refusal(a_call, release, item, counts or PatientCounts(), policy or Policy())


def summed(n, value=1.0):
    return Sums(np.full(2, value), patients=n)


@pytest.mark.parametrize(
    ("n", "fits"), [(10, True), (9, False), (1, False), (np.int64(10), True), (np.int32(9), False)]
)
def test_a_value_needs_the_minimum_of_patients(n, fits):
    refusal = value_refusal(summed(n), call())
    assert (refusal is None) is fits
    if refusal:
        assert (refusal.term, refusal.error) == ("Sums.total", DisclosureRefused)
        assert refusal.reason == "the answer must have at least 10 patients behind it; got fewer"


@pytest.mark.parametrize("n", [-1, True, 10.0, "10", np.float64(10.0), np.bool_(True)])
def test_a_number_of_patients_that_is_no_count_is_refused_without_it(n):
    refusal = value_refusal(summed(n), call())
    assert refusal.reason == (
        "the number of patients behind the answer must be an integer of at least 0; got another value"
    )
    assert (refusal.term, refusal.error) == ("Sums.total", DisclosureRefused)


def test_a_value_must_state_its_patients():
    refusal = value_refusal(Sums(np.ones(2)), call())
    assert refusal.reason == "the answer must state the number of patients behind it; got none"
    assert (refusal.term, refusal.error) == ("Sums.total", DisclosureRefused)


@pytest.mark.parametrize(
    ("release", "is_empty"),
    [
        (summed(0, 0.0), True),
        (summed(0, 1e-300), False),
        (Words("", (), patients=0), True),
        (Words("x", (), patients=0), False),
    ],
)
def test_a_value_of_no_patient_is_zero_or_empty(release, is_empty):
    refusal = value_refusal(release, call())
    assert (refusal is None) is is_empty
    if refusal:
        assert refusal.reason == "a value without patients behind it must be zero or empty; got another value"
        assert refusal.error is DisclosureRefused


def test_values_about_single_patients_have_no_minimum():
    assert value_refusal(Single(np.ones(2), patients=1), call(Part.relate)) is None


def test_patients_are_counted_not_records():
    """Twelve records can belong to nine patients, of whom the first has four."""
    counts = PatientCounts(np.cumsum([4, *[1] * 20]))
    assert value_refusal(summed(13), call(), counts=counts) is None
    refusal = value_refusal(summed(12), call(), counts=counts)
    assert refusal.hint.startswith("Records of one patient count as one patient")
    single = value_refusal(summed(9), call())
    assert single.hint.startswith("Mask the sums (secure_sum=True).")
    assert "smaller epsilon" not in single.hint
    assert "smaller epsilon" in value_refusal(summed(9), call(noise=WEAK)).hint
    for a_call in (call(Part.describe), call(peers=("lyon",)), call(mask=MASK)):
        assert value_refusal(summed(9), a_call).hint.startswith("Leave out columns and views")


SHARE = Policy(min_patients=10, min_patients_in_total=20, min_patients_in_share=3, min_sites_in_sum=3)


@pytest.mark.parametrize(
    ("a_call", "least", "of_total"),
    [
        (call(), 20, False),  # an unmasked summand needs both minima
        (call(Part.describe), 10, False),
        (call(mask=MASK), 10, False),
        (call(mask=COUNTED), 3, True),
        (call(Part.names), 3, True),
    ],
)
def test_the_minimum_depends_on_how_an_answer_leaves(a_call, least, of_total):
    assert min_behind_value(a_call, SHARE) == least
    assert rests_on_total(a_call) is of_total
    assert min_behind_value(call(), Policy(min_patients=30, min_patients_in_total=20)) == 30


# Coefficients


@pytest.mark.parametrize(
    ("mask", "n_patients", "share", "most"),
    [
        (None, 60, 1 / 3, 20),
        (None, 59, 1 / 3, 19),
        (None, 30, 0.1, 3),
        (MASK, 60, 1 / 3, 60),  # readable with three sites
        (Mask("first", 0, 9), 60, 1 / 3, 80),
    ],
)
def test_coefficients_are_a_share_of_the_patients_of_all_sites(mask, n_patients, share, most):
    a_call = call(mask=mask)
    assert max_parameters(a_call, n_patients, share) == most
    assert find_excess_coefficients(a_call, most, n_patients, share) is None
    assert find_excess_coefficients(a_call, 10**6, n_patients, 0) is None
    refusal = find_excess_coefficients(a_call, most + 1, n_patients, share)
    scope = "this site" if mask is None else "all sites"
    assert (refusal.term, refusal.error) == ("max_parameters_per_patient", RefusedByPolicy)
    assert refusal.reason == (
        f"a regression must have at least {1 / share:.3g} patients of {scope} per coefficient; "
        f"got {most + 1} coefficients"
    )
    assert refusal.hint.startswith("Leave columns out, or add patients.")


# Noise in place of a minimum


def test_noise_hides_while_all_answers_are_within_the_limit():
    """Epsilon 3 at delta 1e-5 permits a signal of 0.73 standard deviations: 1 / 1.5, but not sqrt(2) / 1.5."""
    answers = NoisedAnswers()
    assert answers.hide_with(HIDING)
    assert answers.spent == Spent(0.0)
    answers.add(HIDING)
    assert answers.spent.rho == pytest.approx(2 / 9)  # 1 / (2 * 1.5^2)
    assert not answers.hide_with(HIDING)
    assert answers.hide_with(Noise("gaussian", {"total": 20.0}))


def test_answers_of_the_ledger_count_and_are_read_once():
    reads = []

    def entries():
        reads.append(1)
        return [
            {"entry": 1, "event": "release", "rho": 0.1, "noise": {"mechanism": "gaussian", "total": 2.0, "n": 4.0}},
            {"entry": 2, "event": "release", "rho": None},
            {"entry": 3, "event": "release"},
            {"entry": 4, "event": "refusal", "rho": 0.1},
            {"entry": 5, "event": "release", "rho": 0.1, "noise": {"mechanism": "laplace", "total": 8.0}},
        ]

    answers = NoisedAnswers(entries)
    assert answers.spent.rho == pytest.approx(1 / 8 + 1 / 32 + 1 / 128)
    answers.add(HIDING)
    assert answers.spent.rho == pytest.approx(1 / 8 + 1 / 32 + 1 / 128 + 2 / 9)
    assert len(reads) == 1


def test_a_release_whose_noise_is_not_named_is_refused():
    with pytest.raises(IntegrityError, match="entry 7 must contain its noise; got none") as caught:
        _ = NoisedAnswers(lambda: [{"entry": 7, "event": "release", "rho": 0.1}]).spent
    assert caught.value.where == "ledger"


def test_an_account_counts_the_answers_that_were_charged():
    account = Account(10.0, 1e-5)
    answers = NoisedAnswers(account=account)
    answers.add(HIDING)
    assert answers.spent.rho == 0.0
    account.charge(Spent(2 / 9), {})
    assert answers.spent.rho == pytest.approx(2 / 9)
    assert not answers.hide_with(HIDING)


def test_answers_of_all_studies_of_a_site_count_together():
    of_site = NoisedAnswers()
    one, other = NoisedAnswers(of_site=of_site), NoisedAnswers(of_site=of_site)
    assert one.hide_with(HIDING)
    one.add(HIDING)
    assert of_site.spent == one.spent
    assert other.spent.rho == 0.0
    assert not other.hide_with(HIDING)
