"""A coordinator that forges factors and memberships, so that a cell of an answer rests on one patient.

Of each code 20 patients or more have it, and every phenotype has as many members. One pair of codes belongs to a single
patient, whose count is what the coordinator wants. Unmasked, the site's answer must count that patient alone behind
the forged cell, whatever the weights are that the coordinator gave to the others.
"""

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.data import EventTensor
from multicentre.errors import ConfigurationError, DisclosureRefused
from multicentre.phenotyping.agreement import Fewest, TensorPart
from multicentre.phenotyping.dpfact import messages
from multicentre.phenotyping.dpfact.site import DPFactSite
from multicentre.phenotyping.kernels.effective_counts import fewest_in_gram, fewest_in_products
from multicentre.phenotyping.outcome.messages import Model, PatientSubset, Prepare
from multicentre.phenotyping.outcome.site import OutcomeSite
from multicentre_papers.baselines.trip import messages as trip
from multicentre_papers.baselines.trip.site import TRIPSite

SECRET = 5.0
CODES = {"procedure": ("p0", "p1"), "diagnosis": ("d0", "d1")}
# The coordinator singles out the pair (p0, d0): exactly, or with weights for the others that are nearly 0.
FORGED = {"exact": 0.0, "nearly": 1e-9, "faint": 1e-3}
each_forgery = pytest.mark.parametrize("rest", FORGED.values(), ids=FORGED)


def patients(n_of_pair=1, last=SECRET):
    """Return patients of whom every code has 20 or more, and `n_of_pair` have (p0, d0), the last `last` times."""
    pairs = [(0, 1)] * 20 + [(1, 0)] * 20 + [(1, 1)] * 20 + [(0, 0)] * n_of_pair
    places = np.array([(patient, *pair) for patient, pair in enumerate(pairs)])
    counts = np.where(np.arange(len(pairs)) == len(pairs) - 1, last, 1.0)
    return EventTensor(places, counts, {mode: list(names) for mode, names in CODES.items()})


def singled_out(rest):
    """Return factors of one phenotype that is the pair (p0, d0), and `rest` of the other codes."""
    return {mode: np.array([[1.0], [rest]]) for mode in CODES}


def prepared(rest, data=None):
    part = DPFactSite("lyon", patients() if data is None else data)
    part.agree(messages.Prepared(CODES))
    part.begin(messages.Begin(singled_out(rest), 0))
    return part


def update(rest, kind=messages.Update, **more):
    return kind("diagnosis", singled_out(rest)["diagnosis"], "procedure", **more)


FIT = {"n_sweeps": 5, "sparsity": 0.0, "nonnegative": True}
STEPS = {
    "fit_memberships": lambda rest: update(rest, messages.UpdateAndFit, **FIT),
    "sum_products": update,
    "fit_rates": lambda rest: update(rest, messages.UpdateAndFit, **FIT),
    "sum_ratios": update,
    "fit_locally": lambda rest: messages.FitLocally(singled_out(rest), 1, 1e-6, 0.0, 5),
    "pass_patients": lambda rest: messages.PassPatients(singled_out(rest), "procedure", 5, 1, 0.1, 1.0, 0),
    "sum_clipped_products": lambda rest: messages.ClipProducts(singled_out(rest), "procedure", 5, 1.0, 1.0),
    "pass_clipped_patients": lambda rest: messages.PassPatients(singled_out(rest), "procedure", 5, 1, 0.1, 1.0, 0),
    "sum_clipped_cooccurrence": lambda rest: Nothing(),
    "sum_cooccurrence": lambda rest: Nothing(),
    "multiply_cooccurrence": lambda rest: messages.Directions(np.array([[rest], [rest], [1.0], [rest]])),
    "sum_errors": lambda rest: messages.Final(singled_out(rest), True, False, False, 5, 0.0, 0.1),
}


@each_forgery
def test_a_forged_start_shows_the_count_of_one_patient_and_the_answer_says_one(rest):
    answer = prepared(rest).sum_products(update(rest))
    assert answer.products[0, 0] == pytest.approx(SECRET, rel=0.01)
    assert answer.patients == 1


@each_forgery
@pytest.mark.parametrize("name", STEPS)
def test_no_step_of_dpfact_says_that_more_than_one_patient_is_behind_a_forged_cell(name, rest):
    part = prepared(rest)
    assert getattr(part, name)(STEPS[name](rest)).patients == 1
    part = prepared(rest)
    part.masked = True
    assert getattr(part, name)(STEPS[name](rest)).patients == len(part.data)


@pytest.mark.parametrize("name", STEPS)
def test_every_step_is_refused_unmasked_and_never_stands_in_the_ledger_as_resting_on_many(name):
    sites = {"lyon": patients(), "oslo": patients(25)}
    with mc.Federation.in_process(sites, secure_sum=False) as federation:
        handle = federation.begin(DPFactSite)
        handle.ask(DPFactSite.agree, messages.Prepared(CODES))
        handle.ask(DPFactSite.begin, messages.Begin(singled_out(0.0), 0))
        # Counts over predictions of nearly 0 are beyond their range, which is looked at first.
        with pytest.raises(
            DisclosureRefused, match=r"the answer must have at least 10 patients behind it|beyond the declared range"
        ):
            handle.sum(getattr(DPFactSite, name), STEPS[name](0.0))
    entries = [entry for entry in federation.ledgers["lyon"].entries if entry["step"] == name]
    assert [entry["event"] for entry in entries] == ["refusal"]


def test_pairs_of_many_patients_are_answered():
    part = prepared(1.0, patients(25, last=1.0))
    answer = part.sum_products(update(1.0))
    assert answer.patients == 20
    assert answer.products.shape == (2, 1)


def test_forged_memberships_that_leave_a_cell_to_one_of_many_who_share_its_codes():
    """All 40 patients have the pair of codes; memberships of 39 are nearly 0 after a fit to their other code."""
    places = [(patient, 0, 0) for patient in range(40)] + [(patient, 1, 1) for patient in range(39)]
    data = EventTensor(np.array(sorted(places)), np.ones(79), {mode: list(names) for mode, names in CODES.items()})
    part = DPFactSite("lyon", data)
    part.agree(messages.Prepared(CODES))
    # A second code with a large negative weight pulls the memberships of all who have it to 0.
    factors = {"procedure": np.array([[1.0], [-1.0]]), "diagnosis": np.array([[1.0], [1.0]])}
    part.begin(messages.Begin(factors, 0))
    request = messages.UpdateAndFit("diagnosis", factors["diagnosis"], "procedure", 5, 0.0, True)
    assert part.fit_memberships(request).patients == 1


@each_forgery
def test_trip_counts_the_patients_behind_each_cell(rest):
    part = TRIPSite("lyon", patients())
    part.agree(trip.Prepared(CODES, 0))
    part.begin(trip.Begin(singled_out(rest), 0.0, True, 5))
    request = trip.Draw(singled_out(rest), 1e-6)
    assert part.fit_near_consensus(request).patients == 1
    assert part.sum_errors(trip.Final(singled_out(rest), 0.1, 5)).patients == 1


def test_a_product_of_two_phenotypes_that_one_patient_has_both_of_rests_on_one():
    """Sums and squares of memberships rest on 20 patients and more, the product of two on one."""
    places = [(patient, patient % 2, patient % 2) for patient in range(60)]
    places = sorted([*places, (60, 0, 0), (60, 1, 1)])
    codes = {mode: list(names) for mode, names in CODES.items()}
    data = EventTensor(np.array(places), np.ones(62), codes, outcomes=np.arange(61) % 2)
    part = OutcomeSite("lyon", data)
    factors = {mode: np.eye(2) for mode in CODES}
    part.prepare(Prepare(CODES, factors, nonnegative=True, test_size=0.0, seed=0, n_bins=10))
    moments = part.sum_moments(PatientSubset(True))
    assert moments.products[0, 1] == pytest.approx(1.0)
    assert moments.patients == 1
    model = Model(True, np.zeros(3), np.zeros(2), np.ones(2))
    assert part.sum_derivatives(model).patients == 1


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e-200, 1e150])
def test_no_scale_of_the_weights_hides_who_has_them(scale):
    """Weights that are tiny throughout are not nobody's: the cell still tells of them."""
    memberships = np.ones((61, 1)) * scale
    tensor = prepared(0.0).tensor
    assert fewest_in_products(tensor, [memberships, None, np.array([[1.0], [0.0]])], 1) == 1
    assert fewest_in_gram(np.eye(61)[:, :1] * scale) == 1
    assert fewest_in_gram(memberships) == 61


def test_a_record_of_many_counts_dominates_a_cell():
    """Twenty patients share the pair; one of them has 5,000 of its 5,019 counts."""
    assert prepared(1.0, patients(20, last=5000.0)).sum_products(update(1.0)).patients == 1


def with_codes():
    """Return 60 patients, 12 to 48 of whom have each code."""
    places = [(patient, 0, 1) for patient in range(12)] + [(patient, 1, 1) for patient in range(12, 47)]
    places += [(patient, 1, 0) for patient in range(12, 59)] + [(59, 0, 0)]
    return EventTensor(np.array(places), np.ones(len(places)), {mode: list(names) for mode, names in CODES.items()})


@pytest.mark.parametrize("least", [2, 10, 15])
def test_code_names_at_many_thresholds_reveal_no_more_than_at_one(least):
    part = TensorPart("lyon", with_codes())
    part.least_behind = least
    answers = set()
    for threshold in range(61):
        try:
            named = part.name_codes(Fewest(threshold)).codes
        except ConfigurationError:
            assert threshold > max(least, 10)
        else:
            assert threshold <= max(least, 10)
            answers.add(tuple(sorted(named.items())))
    counts = {mode: part.data.patients_by_code(mode) for mode in CODES}
    shown = {
        mode: tuple(name for name, n in zip(names, counts[mode], strict=True) if n >= max(least, 10))
        for mode, names in CODES.items()
    }
    assert answers == {tuple(sorted(shown.items()))}


def test_a_fit_with_a_larger_threshold_is_refused_with_a_hint_in_every_session():
    sites = {"lyon": with_codes(), "oslo": with_codes()}
    with mc.Federation.in_process(sites, policy=mc.Policy(min_sites_in_sum=2)) as federation:
        for threshold in (11, 20, 36):
            handle = federation.begin(DPFactSite)
            with pytest.raises(ConfigurationError, match="min_code_patients must be at most 10"):
                handle.ask(DPFactSite.name_codes, Fewest(threshold))
        assert federation.begin(DPFactSite).ask(DPFactSite.name_codes, Fewest(1))
