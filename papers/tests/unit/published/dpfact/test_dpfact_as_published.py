"""DPFact as published: its loss, its noise, its claim, and what its site counts."""

import dataclasses
import math
import warnings

import numpy as np
import pytest

import multicentre as mc
from multicentre.data import EventTensor
from multicentre.errors import ConfigurationError, DisclosureRefused, NotConverged, RefusedByPolicy
from multicentre.estimator.base import FederatedEstimator
from multicentre.phenotyping import DPFact
from multicentre.phenotyping.agreement import Vocabulary
from multicentre.phenotyping.dpfact.messages import Begin, Prepared
from multicentre.phenotyping.fitted.communication import communication_table
from multicentre.phenotyping.scores import factor_match_score
from multicentre_papers.entry_descent import MaskedLossWarning
from multicentre_papers.published import DPFactAsPublished
from multicentre_papers.published.dpfact import rounds
from multicentre_papers.published.dpfact.estimator import ClaimWarning
from multicentre_papers.published.dpfact.maths import shrink_columns
from multicentre_papers.published.dpfact.messages import BeginDrawn, PassEntries
from multicentre_papers.published.dpfact.site import AsPublishedSite
from support.event_sites import simulate_events

OPEN = mc.Policy(min_patients=1)
NOISED = {"epsilon": 2.0, "max_iter": 4, "paper_lipschitz": 1.0}
DELTA = 1e-5
CODES = {"procedure": ("p0", "p1"), "diagnosis": ("d0", "d1")}


@pytest.fixture(scope="module")
def events():
    return simulate_events()


def fit(sites, rank=3, *, policy=OPEN, kind=DPFactAsPublished, **parameters):
    parameters = {"vocabulary": next(iter(sites.values())).codes, **parameters}
    with mc.Federation.in_process(sites, policy=policy, secure_sum=False) as federation, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(rank, **parameters).fit(federation)


# --- the loss


@pytest.mark.slow
def test_the_published_loss_learns_nothing_and_the_whole_one_does():
    planted = mc.datasets.simulate_planted(
        3000, {"procedure": 60, "diagnosis": 80}, n_phenotypes=8, n_sites=3, random_state=1
    )
    sites, truth = planted.by_site(), planted.truth.factors
    masked = fit(sites, 8, elastic_penalty=5.0, max_iter=20)
    whole = fit(sites, 8, kind=DPFact)
    assert factor_match_score(truth, masked.factors_).score < 0.1
    assert factor_match_score(truth, whole.factors_).score >= 0.85
    errors = masked.reconstruction_errors_
    assert errors.rmse > 10 * errors.rmse_of_zero
    assert whole.reconstruction_errors_.rmse < errors.rmse_of_zero


def test_a_fit_warns_that_it_is_for_comparison(events):
    federation = mc.Federation.in_process(events.sites(2), policy=OPEN, secure_sum=False)
    with pytest.warns(MaskedLossWarning, match="entries above zero only") as caught:
        DPFactAsPublished(3, vocabulary=events.tensor.codes, learning_rate=1e-3, max_iter=1).fit(federation)
    assert {warning.filename for warning in caught} == {__file__}


def test_errors_at_entries_fall(events):
    model = fit(events.sites(2), learning_rate=3e-3, elastic_penalty=5.0, max_iter=15, track_errors=True)
    path = [entry["rmse_at_entries"] for entry in model.history_]
    assert path[-1] < 0.8 * path[0]


def test_a_diverging_descent_names_the_learning_rate(events):
    with pytest.raises(NotConverged, match="learning_rate"):
        fit(events.sites(2), learning_rate=5.0, elastic_weight=0.1, max_iter=50)


def test_the_published_threshold_is_scaled_by_the_step():
    columns = np.array([[3.0, 0.003], [4.0, 0.004]])
    np.testing.assert_allclose(shrink_columns(columns, 0.01 * 1.0), [[2.994, 0.0], [3.992, 0.0]])


def test_the_plan_names_every_option_it_adds():
    source = rounds.__loader__.get_source(rounds.__name__)
    own = {field.name for field in dataclasses.fields(rounds.PublishedPlan)}
    for name in own - {field.name for field in dataclasses.fields(rounds.Plan)}:
        assert f"plan.{name}" in source


# --- the noise and its claim


def test_the_noise_promises_nothing_and_a_warning_says_so(events):
    federation = mc.Federation.in_process(events.sites(3), policy=OPEN, secure_sum=False)
    with pytest.warns((ClaimWarning, MaskedLossWarning)) as caught:
        model = DPFactAsPublished(3, vocabulary=events.tensor.codes, **NOISED).fit(federation)
    claim = next(one for one in caught if one.category is ClaimWarning)
    assert "not differentially private" in str(claim.message)
    assert claim.filename == __file__
    assert model.privacy_ is None
    assert not model.dp_valid_
    assert model.privacy_plan() is None
    assert model.epsilon_claimed_ == pytest.approx(2.0 * math.sqrt(model.n_iter_ / 4))


def test_the_noise_is_that_of_the_formula(events):
    model = DPFactAsPublished(3, epsilon=2.0, max_iter=25, n_passes=3, learning_rate=0.02, paper_lipschitz=4.0)
    rho = 2.0**2 / (8 * 25 * math.log(1 / DELTA))
    expected = 2 * 3 * 4.0 * 0.02 / math.sqrt(2 * rho)
    assert model._plan(Vocabulary(events.tensor.codes), 100.0).noise_sd == pytest.approx(expected)


@pytest.mark.slow
def test_a_site_adds_the_noise_and_no_seed_repeats_it():
    drawn = simulate_events(30, (400, 600), rate=0.05, seed=1)
    part = AsPublishedSite("site", drawn.tensor)
    factors = {mode: np.ones((len(codes), 4)) for mode, codes in drawn.tensor.codes.items()}
    part.agree(Prepared(drawn.tensor.codes))
    answers = []
    for noise_sd in (0.0, 0.7, 0.7):
        part.begin(Begin(factors, 0))
        request = PassEntries(factors, 1, 1e-9, 0.0, 0.0, nonnegative=False, round_number=1, noise_sd=noise_sd)
        answers.append(np.concatenate([factor.ravel() for factor in part.pass_entries(request).factors.values()]))
    first, second = answers[1] - answers[0], answers[2] - answers[0]
    # Six standard errors of 4000 normal numbers: a false alarm has a probability of 2e-9 for each.
    assert first.std() == pytest.approx(0.7, rel=6 / math.sqrt(2 * first.size))
    assert abs(np.corrcoef(first, second)[0, 1]) < 6 / math.sqrt(first.size)


def test_figures_name_the_claim_and_no_promise(events):
    sites = events.sites(2)
    model = fit(sites, epsilon=1.21, max_iter=3, paper_lipschitz=1e-3, learning_rate=1e-3)
    (line,) = {one.title: one for one in model.figures({}, {})}["Differential privacy"].rows
    assert line[0] == "no promise"
    assert "1.21" in line[1]
    plain = fit(sites, max_iter=1, learning_rate=1e-3)
    assert "Differential privacy" not in {one.title for one in plain.figures({}, {})}


def test_a_site_with_a_budget_refuses_the_fit(events, tmp_path):
    policy = mc.Policy(epsilon=8.0, delta=DELTA, account=str(tmp_path / "account.jsonl"))
    with pytest.raises(RefusedByPolicy, match="answers must have noise"):
        fit(events.sites(3), policy=policy, **NOISED)


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({**NOISED, "paper_lipschitz": None}, "paper_lipschitz"),
        ({**NOISED, "paper_lipschitz": -1.0}, "paper_lipschitz"),
        ({**NOISED, "epsilon": 0.0}, "epsilon"),
        ({**NOISED, "delta": 1.0}, "delta"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"elastic_weight": 2.25}, "elastic_weight"),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_named(events, parameters, where):
    with pytest.raises(ConfigurationError) as caught:
        fit(events.sites(2), **parameters)
    assert caught.value.where == where


# --- the rounds and the model


def test_bytes_of_the_rounds_are_those_of_the_formula():
    sites = simulate_events(160).sites(2)
    model = fit(sites, max_iter=3, learning_rate=1e-3, policy=mc.Policy(min_patients=0))
    frame = communication_table(model).to_frame()
    factors = sum(map(len, model.codes_.values())) * 3
    rounds_, formula = frame.loc["rounds"], frame.loc["rounds, by the formula"]
    assert rounds_["bytes_from_sites"] == formula["bytes_from_sites"] == 3 * 2 * 8 * (factors + 1)


def test_a_model_comes_back_from_its_folder(events, tmp_path):
    model = fit(events.sites(2), max_iter=2, learning_rate=1e-3)
    model.save(tmp_path)
    again = FederatedEstimator.load(tmp_path)
    assert type(again) is DPFactAsPublished
    for mode, factor in model.factors_.items():
        assert factor.tobytes() == again.factors_[mode].tobytes()
    assert again.transform(events.tensor).tobytes() == model.transform(events.tensor).tobytes()


# --- the site


def patients(n_of_pair=1):
    """Return patients of whom every code has 20 or more, and `n_of_pair` have (p0, d0), the last of them 5 times."""
    pairs = [(0, 1)] * 20 + [(1, 0)] * 20 + [(1, 1)] * 20 + [(0, 0)] * n_of_pair
    places = np.array([(patient, *pair) for patient, pair in enumerate(pairs)])
    counts = np.where(np.arange(len(pairs)) == len(pairs) - 1, 5.0, 1.0)
    return EventTensor(places, counts, {mode: list(names) for mode, names in CODES.items()})


def singled_out(rest):
    """Return factors of one phenotype that is the pair (p0, d0), and `rest` of the other codes."""
    return {mode: np.array([[1.0], [rest]]) for mode in CODES}


def forged(rest):
    return PassEntries(singled_out(rest), 1, 1e-3, 0.0, 0.0, nonnegative=True, round_number=1, noise_sd=0.0)


def prepared(rest):
    part = AsPublishedSite("lyon", patients())
    part.agree(Prepared(CODES))
    part.begin(Begin(singled_out(rest), 0))
    return part


@pytest.mark.parametrize("rest", [0.0, 1e-9, 1e-3])
def test_one_patient_is_behind_a_forged_cell(rest):
    part = prepared(rest)
    assert part.pass_entries(forged(rest)).patients == 1
    part = prepared(rest)
    part.masked = True
    assert part.pass_entries(forged(rest)).patients == len(part.data)


def test_a_forged_pass_is_refused_unmasked():
    with mc.Federation.in_process({"lyon": patients(), "oslo": patients(25)}, secure_sum=False) as federation:
        session = federation.begin(AsPublishedSite)
        session.ask(AsPublishedSite.agree, Prepared(CODES))
        session.ask(AsPublishedSite.begin, Begin(singled_out(0.0), 0))
        with pytest.raises(DisclosureRefused, match="at least 10 patients behind it"):
            session.sum(AsPublishedSite.pass_entries, forged(0.0))
    entries = [entry for entry in federation.ledgers["lyon"].entries if entry["step"] == "pass_entries"]
    assert [entry["event"] for entry in entries] == ["refusal"]


def test_nobody_else_can_compute_the_memberships_that_a_site_draws():
    part = prepared(0.0)
    part.begin_drawn(BeginDrawn(singled_out(0.0), 3, 1.0))
    public = part.generator(3).random((len(part.data), 1))
    assert np.abs(np.corrcoef(part.memory.memberships[:, 0], public[:, 0])[0, 1]) < 0.5
