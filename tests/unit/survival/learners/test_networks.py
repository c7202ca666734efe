"""DeepSurv at one site: its loss, its determinism, and what it does with hard data."""

import numpy as np
import pytest

from multicentre.data.survival import SurvivalData
from multicentre.errors import ConfigurationError
from multicentre.survival.agreement.messages import Patients, Prepared
from multicentre.survival.fitted_models.network import log_hazard_ratio
from multicentre.survival.learners.cohort import Cohort
from multicentre.survival.learners.networks import (
    NetworkSettings,
    Training,
    draw_parameters,
    fit_network,
    negative_log_likelihood,
)

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed (extra: deep)")

QUICK = NetworkSettings(hidden_layer_sizes=(8,), max_epochs=15, batch_size=64)


def simulate(n=240, seed=0, censored=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 5.0, 0.1] + [0.0, 40.0, 2.0]
    risk = np.abs(X[:, 0]) * 1.5 + (X[:, 1] - 40.0) / 5.0
    return X, np.ceil(8.0 * rng.exponential(np.exp(-risk))), rng.random(n) >= censored


def patients_of(X, time, event):
    agreed = Prepared(
        ("a", "b", "c"), "", 1, float(len(X)), float(event.sum()), np.array([1.0, 2.0, 5.0, 20.0]),
        X.mean(axis=0), X.std(axis=0), np.zeros(0), np.zeros(4, dtype=np.int64),
    )  # fmt: skip
    return Patients(SurvivalData(X, time, event.astype(int), columns=agreed.columns), agreed)


def cohort_of(patients, weights):
    return Cohort.of(patients.standardised, patients.time, patients.happened, weights)


def test_the_loss_is_the_partial_likelihood_per_weight_of_an_event():
    patients = patients_of(*simulate(60))
    cohort = cohort_of(patients, np.random.default_rng(1).uniform(0.2, 3.0, 60))
    log_risk = np.random.default_rng(2).normal(size=60)
    loss = float(negative_log_likelihood(torch.from_numpy(log_risk), cohort))
    expected = -cohort.log_likelihood(log_risk) / cohort.weights[cohort.happened].sum()
    np.testing.assert_allclose(loss, expected, rtol=1e-12)


def test_the_gradient_of_the_loss_is_the_martingale_residual():
    patients = patients_of(*simulate(50))
    cohort = cohort_of(patients, np.ones(50))
    log_risk = torch.from_numpy(np.random.default_rng(2).normal(size=50)).requires_grad_()
    negative_log_likelihood(log_risk, cohort).backward()
    risks = log_risk.detach().numpy()
    expected = (
        np.exp(risks)
        * cohort.baseline(risks, np.unique(cohort.time))[np.searchsorted(np.unique(cohort.time), cohort.time)]
    )
    np.testing.assert_allclose(log_risk.grad.numpy() * cohort.n_events, expected - cohort.happened, atol=1e-12)


@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_training_lowers_the_loss_and_numpy_predicts_what_torch_trained(norm):
    patients = patients_of(*simulate())
    settings = NetworkSettings(hidden_layer_sizes=(8, 4), norm=norm, batch_size=64, learning_rate=0.02)
    cohort = cohort_of(patients, np.ones(240))
    training = Training(draw_parameters(3, settings, np.random.default_rng(0)), 3, settings, seed=0)
    before = training.loss(cohort)
    for _ in range(20):
        training.pass_over(cohort)
    assert training.loss(cohort) < before - 0.2
    log_risk = log_hazard_ratio(training.parameters(), cohort.rows, settings.hidden_layer_sizes, norm == "layer")
    np.testing.assert_allclose(-cohort.log_likelihood(log_risk) / cohort.n_events, training.loss(cohort), rtol=1e-10)


@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_a_site_learns_a_risk_that_is_not_linear(norm):
    patients, (X, *_) = patients_of(*simulate(400, seed=1)), simulate(300, seed=2)
    network = fit_network(patients, np.ones(400), NetworkSettings(norm=norm, max_epochs=30), seed=0).valid(3)
    truth = np.abs(X[:, 0]) * 1.5 + (X[:, 1] - 40.0) / 5.0
    assert np.corrcoef(network.log_hazard_ratio(X), truth)[0, 1] > 0.8


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    patients = patients_of(*simulate())
    one, two, other = (fit_network(patients, np.ones(240), QUICK, seed) for seed in (5, 5, 6))
    assert one.parameters.tobytes() == two.parameters.tobytes()
    assert one.baseline.tobytes() == two.baseline.tobytes()
    assert not np.array_equal(one.parameters, other.parameters)


def test_torchs_own_draws_and_threads_play_no_part():
    patients, before = patients_of(*simulate()), torch.get_num_threads()
    one = fit_network(patients, np.ones(240), QUICK, seed=5)
    torch.rand(3)
    assert one.parameters.tobytes() == fit_network(patients, np.ones(240), QUICK, seed=5).parameters.tobytes()
    assert torch.get_num_threads() == before


def test_the_scale_of_the_weights_plays_no_part():
    patients, weights = patients_of(*simulate()), np.random.default_rng(0).uniform(0.5, 2.0, 240)
    one, other = (fit_network(patients, scale * weights, QUICK, seed=0) for scale in (1.0, 1024.0))
    np.testing.assert_allclose(one.parameters, other.parameters, atol=1e-7)


def test_a_patient_of_weight_0_plays_no_part():
    X, time, event = simulate()
    kept = np.arange(240) < 200
    one = fit_network(patients_of(X, time, event), kept.astype(float), QUICK, seed=0)
    X[~kept], time[~kept] = X[~kept] + 1e-9, 7.0
    other = fit_network(patients_of(X, time, event), kept.astype(float), QUICK, seed=0)
    np.testing.assert_allclose(one.parameters, other.parameters, atol=1e-6)


def test_the_baseline_is_breslows_of_all_patients():
    patients, weights = patients_of(*simulate()), np.random.default_rng(0).uniform(0.5, 2.0, 240)
    network = fit_network(patients, weights, QUICK, seed=0)
    cohort = cohort_of(patients, weights)
    log_risk = network.log_hazard_ratio(patients.rows[np.argsort(-patients.time, kind="stable")])
    np.testing.assert_allclose(network.baseline, cohort.baseline(log_risk, network.times), rtol=1e-12)


def test_a_pull_to_the_start_keeps_parameters_near_it():
    patients = patients_of(*simulate())
    cohort, start = cohort_of(patients, np.ones(240)), draw_parameters(3, QUICK, np.random.default_rng(0))
    moved = []
    for proximal in (0.0, 100.0):
        training = Training(start, 3, NetworkSettings(hidden_layer_sizes=(8,), norm="layer"), seed=0, proximal=proximal)
        for _ in range(30):
            training.pass_over(cohort)
        moved.append(np.abs(training.parameters() - start).max())
    assert moved[1] < 0.3 * moved[0]


@pytest.mark.parametrize("hidden", [(), (4, 4, 4)])
def test_hard_data_give_a_model_or_none(hidden):
    X, time, event = simulate(40)
    X[:, 2] = 2.0
    X[:, 0] = X[:, 0] * 1e-3 + (time > 2) * 1e3
    with np.errstate(invalid="ignore"):
        patients = patients_of(X, time, event)
    patients.agreed.spread[2] = 1.0
    settings = NetworkSettings(hidden_layer_sizes=hidden, batch_size=2, max_epochs=5, learning_rate=1.0)
    network = fit_network(patients, np.ones(40), settings, seed=0)
    assert network.is_empty or np.isfinite(network.valid(3).survival(X)).all()


@pytest.mark.parametrize("n_events", [0, 2])
def test_too_few_events_give_no_model(n_events):
    X, time, _ = simulate(60)
    event = np.arange(60) < n_events
    assert fit_network(patients_of(X, time, event), np.ones(60), QUICK, seed=0).is_empty


def test_numbers_out_of_bounds_give_no_model(monkeypatch):
    monkeypatch.setattr(Training, "parameters", lambda self: np.full(8 * 3 + 8 + 8, np.nan))
    assert fit_network(patients_of(*simulate()), np.ones(240), QUICK, seed=0).is_empty


WRONG = [
    {"hidden_layer_sizes": (0,)}, {"hidden_layer_sizes": (2, 2, 2, 2, 2)}, {"hidden_layer_sizes": (5000,)},
    {"norm": "group"}, {"dropout": 1.0},
    {"learning_rate": 0.0}, {"weight_decay": -1.0}, {"batch_size": 1}, {"max_epochs": 0}, {"n_iter_no_change": 0},
    {"validation_fraction": 0.9}, {"learning_rate": float("nan")},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        NetworkSettings(**wrong)
