"""Scores of survival predictions are scikit-survival's, on one table and by sums over sites."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import multicentre as mc
from multicentre.survival import SurvivalEvaluation
from multicentre.survival.fitted_models import CoxModel
from multicentre.survival.scores.auc import dynamic_auc, mean_auc
from multicentre.survival.scores.brier import Censoring, brier_scores, brier_times, integrated_brier_score
from multicentre.survival.scores.concordance import concordance_index, uno_concordance
from multicentre.survival.times import at_times

SIZES = [20, 300, 1500]
WHOLE = pytest.mark.parametrize("whole", [False, True], ids=["distinct", "tied"])


def draw(n_patients, seed, *, whole):
    """Return times, events and risks of test and of training patients, who are followed for longer."""
    rng = np.random.default_rng(seed)
    time, event, risk = rng.exponential(10, n_patients) + 0.1, rng.random(n_patients) < 0.6, rng.normal(size=n_patients)
    training, before = np.append(rng.exponential(14, n_patients), 120.0), np.append(rng.random(n_patients) < 0.5, True)
    if whole:
        time, training, risk = np.ceil(time), np.ceil(training), risk.round(1)
    return time, event, risk, training, before


def structured(time, event):
    y = np.empty(len(time), dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = event, time
    return y


def test_without_censoring_the_concordance_at_one_time_is_an_area():
    rng = np.random.default_rng(0)
    late, risk = rng.random(60) < 0.5, rng.normal(size=60)
    found = concordance_index(1.0 + late, ~late, risk)
    assert found == pytest.approx(roc_auc_score(~late, risk))


@WHOLE
@pytest.mark.parametrize("n_patients", SIZES)
def test_concordance(n_patients, whole):
    metrics = pytest.importorskip("sksurv.metrics")
    time, event, risk, training, before = draw(n_patients, 1, whole=whole)
    expected = metrics.concordance_index_censored(event, time, risk)[0]
    assert concordance_index(time, event, risk) == pytest.approx(expected, abs=1e-12)
    known = Censoring.estimate(training, before)
    for horizon in (None, 8.0):
        expected = metrics.concordance_index_ipcw(
            structured(training, before), structured(time, event), risk, tau=horizon
        )[0]
        assert uno_concordance(time, event, risk, known, horizon=horizon) == pytest.approx(expected, abs=1e-10)


@WHOLE
@pytest.mark.parametrize("n_patients", SIZES)
def test_brier_scores(n_patients, whole):
    metrics = pytest.importorskip("sksurv.metrics")
    time, event, _, training, before = draw(n_patients, 2, whole=whole)
    times = brier_times(time, training, before, 40.0)
    curves = np.random.default_rng(0).random((n_patients, len(times)))
    known = structured(training, before), structured(time, event)
    np.testing.assert_allclose(
        brier_scores(curves, times, time, event, training, before),
        metrics.brier_score(*known, curves, times)[1],
        rtol=0,
        atol=1e-12,
    )
    expected = metrics.integrated_brier_score(*known, curves, times)
    found = integrated_brier_score(curves, times, time, event, training, before)
    assert found == pytest.approx(expected, abs=1e-12)


@WHOLE
@pytest.mark.parametrize("n_patients", SIZES)
def test_areas_under_the_curve(n_patients, whole):
    metrics = pytest.importorskip("sksurv.metrics")
    time, event, risk, training, before = draw(n_patients, 3, whole=whole)
    times = np.quantile(time, [0.2, 0.4, 0.6, 0.8])
    known = structured(training, before), structured(time, event)
    areas, mean = metrics.cumulative_dynamic_auc(*known, risk, times)
    found = dynamic_auc(time, event, risk, times, Censoring.estimate(training, before))
    np.testing.assert_allclose(found, areas, rtol=0, atol=1e-12)
    assert mean_auc(found, times, time, event) == pytest.approx(mean, abs=1e-12)


@pytest.mark.parametrize("n_sites", [3, 6])
def test_an_evaluation_over_sites(n_sites):
    metrics = pytest.importorskip("sksurv.metrics")
    drawn = mc.datasets.simulate_survival(1500, 4, 7)
    weeks = mc.data.SurvivalData(drawn.X, np.ceil(4 * drawn.time), drawn.event)
    grid = np.linspace(4.0, 160.0, 40)
    model = CoxModel(grid, np.array([0.8, -0.4, 0.27, -0.2]), np.zeros(4), (grid / 120) ** 1.3)
    parts = np.array_split(np.argsort(weeks.time, kind="stable"), n_sites)
    sites = {f"site-{place}": weeks.take(rows) for place, rows in enumerate(parts)}
    with mc.Federation.in_process(sites, secure_sum=True) as federation:
        found = SurvivalEvaluation(model, time_points=np.arange(1.0, 161.0), scoring=["concordance", "brier", "auc"])
        found.fit(federation)
    y, risk = weeks.outcome, -model.restricted_mean(weeks.X)
    curves = at_times(model.survival(weeks.X), grid, found.times_)
    assert found.ibs_ == pytest.approx(metrics.integrated_brier_score(y, y, curves, found.times_), abs=1e-10)
    expected = metrics.concordance_index_censored(y["event"], y["time"], risk)[0]
    assert found.concordance_ == pytest.approx(expected, abs=1e-3)
    areas, mean = metrics.cumulative_dynamic_auc(y, y, risk, found.times_)
    np.testing.assert_allclose(found.auc_, areas, atol=2e-3)
    assert found.mean_auc_ == pytest.approx(mean, abs=1e-3)
