import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from multicentre.errors import ConfigurationError, DataError
from multicentre.survival.times import (
    StepFunction,
    at_times,
    censored_by_bin,
    check_grid,
    count_by_bin,
    cumulative_hazard,
    kaplan_meier,
    nelson_aalen,
    restricted_mean,
    time_to_share,
    to_bins,
)

GRID = np.array([1.0, 2.0, 4.0, 7.0])
curves = arrays(np.float64, (3, 4), elements=st.floats(0, 1)).map(lambda S: -np.sort(-S, axis=1))


@given(st.lists(st.tuples(st.floats(0, 10), st.booleans()), min_size=1, max_size=30))
def test_counts_are_those_of_the_definition(patients):
    time, event = np.array([t for t, _ in patients]), np.array([e for _, e in patients])
    bins = to_bins(time, GRID)
    events, at_risk = count_by_bin(bins, event, 4)
    before = np.concatenate([[-1.0], GRID[:-1]])
    np.testing.assert_array_equal(
        events, [(event & (time > low) & (time <= high)).sum() for low, high in zip(before, GRID, strict=True)]
    )
    np.testing.assert_array_equal(at_risk, [(time > low).sum() for low in before])
    censored, at_risk_of_it = censored_by_bin(bins, event, 4)
    np.testing.assert_array_equal(at_risk_of_it, at_risk - events)
    assert (censored <= at_risk_of_it).all()


def test_weights_count_as_repeated_patients():
    rng = np.random.default_rng(0)
    bins, event, weights = rng.integers(0, 5, 20), rng.random(20) < 0.5, rng.integers(0, 4, 20)
    weighted = count_by_bin(bins, event, 4, weights.astype(float))
    repeated = count_by_bin(np.repeat(bins, weights), np.repeat(event, weights), 4)
    np.testing.assert_array_equal(weighted, repeated)


def test_product_limit_and_cumulative_hazard():
    events, at_risk = np.array([2.0, 0.0, 1.0, 0.0]), np.array([8.0, 5.0, 4.0, 0.0])
    np.testing.assert_allclose(kaplan_meier(events, at_risk), [0.75, 0.75, 0.5625, 0.5625])
    np.testing.assert_allclose(nelson_aalen(events, at_risk), [0.25, 0.25, 0.5, 0.5])


@given(curves)
def test_the_restricted_mean_is_the_area(S):
    fine = np.linspace(0, 7, 70001)[:-1] + 5e-5
    np.testing.assert_allclose(restricted_mean(S, GRID), at_times(S, GRID, fine).mean(axis=1) * 7, atol=1e-9)


@given(curves, st.floats(0.01, 0.99))
def test_the_first_time_at_a_share(S, share):
    for curve, time in zip(S, time_to_share(S, GRID, share), strict=True):
        reached = GRID[curve <= share]
        assert time == (reached[0] if len(reached) else 7.0)


def test_a_curve_that_never_reaches_a_half_gives_the_horizon():
    assert time_to_share(np.array([[0.9, 0.8, 0.7, 0.6]]), GRID)[0] == 7.0


@given(curves, st.floats(0, 7))
def test_step_functions_agree_with_the_curves(S, time):
    for curve in S:
        step = StepFunction(GRID, curve, 1.0)
        assert step(time) == at_times(curve, GRID, np.array([time]))[0]
    assert step.domain == (0.0, 7.0)


def test_a_step_function_ends_at_the_horizon():
    step = StepFunction(GRID, np.ones(4), 1.0)
    for time in (-0.1, 7.1, np.nan):
        with pytest.raises(DataError, match="within the curve's domain"):
            step(time)


def test_step_functions_follow_the_convention_of_scikit_survival():
    functions = pytest.importorskip("sksurv.functions")
    y = np.array([0.9, 0.6, 0.5, 0.1])
    theirs = functions.StepFunction(x=GRID, y=y, domain=(0, 7))
    asked = np.array([1.0, 1.5, 2.0, 6.9, 7.0])
    np.testing.assert_array_equal(StepFunction(GRID, y, 1.0)(asked), theirs(asked))


def test_no_survival_is_a_large_hazard():
    assert cumulative_hazard(np.array([1.0, 0.0])).tolist() == [0.0, pytest.approx(27.63, abs=0.01)]


@pytest.mark.parametrize("times", [[], [1.0, 1.0], [2.0, 1.0], [-1.0, 1.0], [1.0, np.inf], [[1.0]]])
def test_a_grid_increases(times):
    with pytest.raises(ConfigurationError, match="must be finite, non-negative and increasing"):
        check_grid(np.array(times))
