"""The weak learner by proportional hazards, beside scikit-survival and what weights must mean."""

import numpy as np
import pytest

from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.messages import Patients, Prepared
from multicentre.survival.learners.cohort import fit_cox


def draw(n=150, d=3, *, ties=True, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    time, end = rng.exponential(np.exp(-X @ np.linspace(0.8, -0.4, d))), rng.exponential(2.0, size=n)
    followed = np.minimum(time, end)
    return SurvivalData(X, np.ceil(5 * followed) / 5 if ties else followed, time <= end)


def seen(data, *, horizon=None):
    """Return patients under an agreement that takes their columns as they are."""
    d = data.X.shape[1]
    grid = np.linspace(0.1, horizon or data.time.max(), 40)
    ends = np.zeros(d + 1, dtype=np.int64)
    return Patients(data, Prepared(data.columns, "", 1, 1.0, 1.0, grid, np.zeros(d), np.ones(d), ends[:0] * 0.0, ends))


@pytest.mark.parametrize("ties", ["breslow", "efron"])
@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_unit_weights_give_scikit_survivals_fit(ties, ridge):
    linear = pytest.importorskip("sksurv.linear_model")
    data = draw()
    model = fit_cox(seen(data), np.ones(len(data)), ridge=ridge, ties=ties)
    peer = linear.CoxPHSurvivalAnalysis(alpha=ridge, ties=ties, tol=1e-14, n_iter=200).fit(data.X, data.outcome)
    np.testing.assert_allclose(model.coefficients, peer.coef_, rtol=0, atol=1e-12)
    baseline = peer.cum_baseline_hazard_
    inside = model.times >= baseline.x[0]
    np.testing.assert_allclose(model.baseline[inside], baseline(model.times[inside]), rtol=1e-10)
    assert not model.baseline[~inside].any()


def test_whole_weights_are_repeated_rows():
    data, times = draw(), np.random.default_rng(1).integers(0, 4, size=150)
    weighted = fit_cox(seen(data), times.astype(float), ridge=0.0)
    repeated = data.take(np.repeat(np.arange(150), times))
    again = fit_cox(seen(repeated, horizon=data.time.max()), np.ones(len(repeated)), ridge=0.0)
    np.testing.assert_allclose(weighted.coefficients, again.coefficients, rtol=0, atol=1e-10)
    np.testing.assert_allclose(weighted.baseline, again.baseline, rtol=1e-10)


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_the_scale_of_weights_does_not_matter(ties):
    data, weights = draw(), np.random.default_rng(1).exponential(size=150)
    models = [fit_cox(seen(data), scale * weights, ties=ties) for scale in (1.0, 1e-3)]
    np.testing.assert_allclose(models[0].coefficients, models[1].coefficients, rtol=1e-9)
    np.testing.assert_allclose(models[0].baseline, models[1].baseline, rtol=1e-9)


def test_efrons_gradient_is_zero_at_the_weighted_maximum_by_its_own_formula():
    data, weights = draw(60, 2), np.random.default_rng(1).exponential(size=60)
    weights *= 60 / weights.sum()
    model = fit_cox(seen(data), weights, ridge=0.0, ties="efron")

    def value(b):
        theta, total = weights * np.exp(data.X @ b), 0.0
        for time in np.unique(data.time[data.event == 1]):
            tied = (data.time == time) & (data.event == 1)
            at_risk, mean = theta[data.time >= time].sum(), weights[tied].mean()
            total += weights[tied] @ (data.X[tied] @ b)
            shares = np.arange(tied.sum()) / tied.sum()
            total -= mean * np.log(at_risk - shares * theta[tied].sum()).sum()
        return total

    steps = 1e-4 * np.eye(2)
    slopes = [(value(model.coefficients + h) - value(model.coefficients - h)) / 2e-4 for h in steps]
    np.testing.assert_allclose(slopes, 0.0, atol=1e-6)


def test_follow_up_is_cut_at_the_horizon():
    data = draw(ties=False)
    horizon = float(np.quantile(data.time, 0.7))
    model = fit_cox(seen(data, horizon=horizon), np.ones(150))
    cut = SurvivalData(data.X, np.minimum(data.time, horizon), (data.event == 1) & (data.time <= horizon))
    np.testing.assert_allclose(model.coefficients, fit_cox(seen(cut), np.ones(150)).coefficients, rtol=1e-12)


def test_a_patient_censored_between_two_events_is_not_at_risk_at_the_second():
    data = SurvivalData([[1.0], [0.0], [1.0], [0.0]], [1.0, 2.0, 3.0, 3.0], [1, 0, 1, 1])
    model = fit_cox(seen(data), np.ones(4), ridge=0.0, min_events_leaf=1)
    ratio = np.exp(model.coefficients[0])
    steps = [1.0 / (2 * ratio + 2), 2.0 / (ratio + 1)]
    assert model.baseline[-1] == pytest.approx(sum(steps))


@pytest.mark.parametrize("change", ["few events", "no weight", "separation", "constant"])
def test_what_cannot_be_fitted_is_empty_or_harmless(change):
    data, weights = draw(40, 2), np.ones(40)
    if change == "few events":
        data = SurvivalData(data.X, data.time, np.arange(40) < 2)
    if change == "no weight":
        weights = (data.event == 0).astype(float)
    if change == "separation":
        first = (np.argsort(np.argsort(data.time)) < 20).astype(float)
        data = SurvivalData(np.column_stack([first, data.X[:, 0]]), data.time, first)
        without, kept = (fit_cox(seen(data), weights, ridge=ridge) for ridge in (0.0, 1.0))
        assert without.is_empty or np.isfinite(without.valid(2).survival(data.X)).all()
        assert 0.5 < kept.coefficients[0] < 10.0
        return
    if change == "constant":
        data = SurvivalData(np.column_stack([np.full(40, 2.0), data.X[:, 0]]), data.time, data.event)
        model = fit_cox(seen(data), weights, ridge=0.0)
        alone = fit_cox(seen(SurvivalData(data.X[:, 1:], data.time, data.event)), weights, ridge=0.0)
        np.testing.assert_allclose(model.coefficients, [0.0, alone.coefficients[0]], atol=1e-9)
        return
    assert fit_cox(seen(data), weights).is_empty


def test_the_model_is_a_valid_message_and_holds_no_time_of_the_site():
    data = draw(ties=False)
    model = fit_cox(seen(data), np.ones(150)).valid(3)
    assert not np.isin(data.time[data.time < data.time.max()], np.concatenate([model.times, model.baseline])).any()
