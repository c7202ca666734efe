"""Newton rounds of the Cox model: a step is accepted or halved."""

import numpy as np
import pytest

from multicentre.survival.cox.rounds import Ascent, Totals, _climb

BEFORE = Ascent(np.zeros(1), np.ones(1), 1.0, -50.0, 0.0, -60.0, 3.0)


def climbed(value, rounding=0.0):
    none, rows = np.zeros(0), np.zeros((0, 1))
    totals = Totals(100.0, 20.0, 0.0, value, np.ones(1), np.eye(1), none, none, rows, none, rows, np.ones(1))
    return _climb(BEFORE, np.array([0.5]), totals, 0.0, rounding)


def test_a_step_that_lowers_the_objective_is_halved():
    state, gain = climbed(-51.0)
    assert (state.share, gain) == (0.5, -1.0)
    assert state.coefficients.tolist() == [0.0]
    assert state.objective == -50.0


@pytest.mark.parametrize("value", [-50.0, -40.0])
def test_a_step_that_does_not_lower_the_objective_is_accepted(value):
    state, gain = climbed(value)
    assert gain == value + 50.0
    assert state.coefficients.tolist() == [0.5]
    assert (state.share, state.objective) == (1.0, value)


@pytest.mark.parametrize(("fall", "share"), [(1.9, 1.0), (2.1, 0.5)])
def test_a_fall_is_rounding_if_it_is_at_most_that_of_two_sums(fall, share):
    assert climbed(-50.0 - fall, rounding=1.0)[0].share == share
