import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor

from multicentre.data import DataWarning, SurvivalData, TableData
from multicentre.survival.scores.concordance import concordance_index
from multicentre.validation.stratifier.suggestion import relative_hazard_target, score_folds


@pytest.fixture(scope="module")
def folds():
    return np.random.default_rng(0).permutation(600) % 3


@pytest.fixture(scope="module")
def X():  # noqa: N802
    return np.random.default_rng(1).normal(size=(600, 3))


@pytest.mark.parametrize("model", ["boosting", "linear"])
def test_classes_are_scored_by_accuracy(X, folds, model):
    noise = np.random.default_rng(2).normal(size=600)
    data = TableData(X, (X[:, 0] + 0.5 * noise > 0).astype(int))
    best = 0.5 + np.arctan(1 / 0.5) / np.pi
    assert best - 0.08 < score_folds(data, folds, model, 20) < best + 0.03


@pytest.mark.parametrize("model", ["boosting", "linear"])
def test_numbers_are_scored_by_concordance(X, folds, model):
    noise = np.random.default_rng(3).normal(size=600)
    data = TableData(X, 2 * X[:, 1] + noise, outcome="number")
    best = np.arcsin(2 / np.sqrt(5)) / np.pi + 0.5
    assert best - 0.07 < score_folds(data, folds, model, 20) < best + 0.02


@pytest.mark.slow
@pytest.mark.parametrize("model", ["boosting", "linear"])
def test_times_are_scored_by_concordance(X, folds, model):
    rng = np.random.default_rng(4)
    time, end = rng.exponential(np.exp(-1.5 * X[:, 2])), rng.exponential(3.0, 600)
    data = SurvivalData(X, np.minimum(time, end), time <= end)
    best = concordance_index(data.time, data.event == 1, X[:, 2])
    assert best > 0.7
    assert best - 0.06 < score_folds(data, folds, model, 20) < best + 0.01


def test_missing_values_and_a_constant_outcome_are_no_hindrance(X, folds):
    holes = X.copy()
    holes[::7, 0] = np.nan
    holes[:, 1] = np.nan
    with pytest.warns(DataWarning, match="x1: all entries"):
        constant, varying = (TableData(holes, y) for y in (np.zeros(600, dtype=int), np.arange(600) % 2))
    assert score_folds(constant, folds, "linear", 5) == 1.0
    assert 0.3 < score_folds(varying, folds, "linear", 5) < 0.7


def test_without_a_comparable_pair_there_is_no_score(X, folds):
    assert np.isnan(score_folds(SurvivalData(X, np.ones(600), np.zeros(600)), folds, "boosting", 5))
    assert np.isnan(score_folds(TableData(X, np.arange(600) % 2), np.full(600, -1), "boosting", 5))


def test_weights_are_the_cumulative_hazard():
    time, happened = np.array([1.0, 2.0, 2.0, 4.0, 5.0]), np.array([True, True, False, True, False])
    target, weight = relative_hazard_target(time, happened)
    cumulative = np.array([1 / 5, 1 / 5 + 1 / 4, 1 / 5 + 1 / 4, 1 / 5 + 1 / 4 + 1 / 2, 1 / 5 + 1 / 4 + 1 / 2])
    np.testing.assert_allclose(weight, cumulative)
    np.testing.assert_allclose(target * weight, happened)


def test_those_who_leave_before_the_first_event_weigh_half_of_it():
    _, weight = relative_hazard_target(np.array([1.0, 2.0]), np.array([False, True]))
    assert weight.tolist() == [0.5, 1.0]


def test_a_small_relative_hazard_is_found():
    # The hazard is that of everybody, not of x = 0; with a small effect the two are nearly the same.
    rng = np.random.default_rng(5)
    x = rng.normal(size=20_000)
    target, weight = relative_hazard_target(rng.exponential(np.exp(-0.1 * x)), np.ones(20_000, dtype=bool))
    slope = PoissonRegressor(alpha=0).fit(x[:, None], target, sample_weight=weight).coef_[0]
    assert slope == pytest.approx(0.1, abs=0.03)
