"""Simulated times follow the hazards that are said of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from multicentre.datasets import SurvivalTruth, simulate_survival
from multicentre.errors import ConfigurationError

MANY = 20_000


@pytest.mark.parametrize("nonlinear", [False, True])
@pytest.mark.parametrize("competing", [False, True])
@pytest.mark.parametrize(("n_columns", "site_effect"), [(1, 0.0), (4, 0.7)])
def test_cumulative_hazards_at_the_event_are_standard_exponential(nonlinear, competing, n_columns, site_effect):
    options = {"nonlinear": nonlinear, "competing": competing, "site_effect": site_effect}
    data = simulate_survival(MANY, n_columns, random_state=3, censoring=0.0, **options)
    truth = SurvivalTruth(n_columns, **options)
    assert (data.event > 0).all()
    at_own_time = sum(
        np.exp(truth.log_hazard_ratio(data.X, cause))
        * truth.cumulative_hazard(np.zeros((1, n_columns)), data.time, cause)[0]
        / np.exp(truth.log_hazard_ratio(np.zeros((1, n_columns)), cause))
        for cause in truth.causes
    )
    assert stats.kstest(at_own_time, "expon").pvalue > 1e-3


def test_causes_occur_in_proportion_to_their_hazards():
    data = simulate_survival(MANY, 3, random_state=1, censoring=0.0, competing=True)
    truth = SurvivalTruth(3, competing=True)
    hazards = [truth.cumulative_hazard(data.X, np.array([1.0]), cause)[:, 0] for cause in (1, 2)]
    chance = hazards[0] / (hazards[0] + hazards[1])
    excess = ((data.event == 1) - chance).sum() / np.sqrt((chance * (1 - chance)).sum())
    assert abs(excess) < 4


def test_survival_is_that_of_all_causes():
    truth = SurvivalTruth(3, competing=True, site_effect=-0.4)
    X, times = np.array([[0.3, -1.0, 1.0]]), np.array([5.0, 50.0])
    both = truth.cumulative_hazard(X, times, 1) + truth.cumulative_hazard(X, times, 2)
    np.testing.assert_allclose(truth.survival(X, times), np.exp(-both))
    assert truth.coefficients(2).tolist() == truth.coefficients(1)[::-1].tolist()


@pytest.mark.parametrize("censoring", [0.0, 0.1, 0.5, 0.95])
def test_the_share_of_censored_patients_is_that_asked_for(censoring):
    data = simulate_survival(MANY, 2, random_state=5, censoring=censoring)
    assert abs((data.event == 0).mean() - censoring) <= 4 * np.sqrt(censoring * (1 - censoring) / MANY)


def test_follow_up_does_not_depend_on_the_columns():
    data = simulate_survival(MANY, 1, random_state=2, censoring=0.6)
    late = data.time > np.quantile(data.time, 0.5)
    high = data.X[:, 0] > 0
    assert data.event[high].mean() > data.event[~high].mean()
    assert data.event[late].mean() > 0.2


@given(st.integers(1, 40), st.integers(1, 7), st.integers(0, 99))
def test_the_seed_gives_the_patients_and_not_the_truth(n_patients, n_columns, seed):
    data = simulate_survival(n_patients, n_columns, seed)
    assert data.X.shape == (n_patients, n_columns)
    assert data.digest() == simulate_survival(n_patients, n_columns, seed).digest()
    assert data.digest() != simulate_survival(n_patients, n_columns, seed + 1).digest()
    assert np.isin(data.X[:, 2::3], (0.0, 1.0)).all()
    assert data.unit == "months"


@pytest.mark.parametrize("unfit", [{"n_patients": 0}, {"n_columns": 0}, {"censoring": 1.0}, {"censoring": -0.1}])
def test_numbers_out_of_range_are_refused(unfit):
    with pytest.raises(
        ConfigurationError, match="n_patients and n_columns must be at least 1, and censoring from 0 to"
    ):
        simulate_survival(**unfit)
