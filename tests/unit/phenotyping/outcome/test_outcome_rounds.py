"""How the coordinator climbs: halving where the objective falls, and no comparison across different patients."""

import numpy as np
import pytest

from multicentre.phenotyping.outcome.messages import Ascent, Sums
from multicentre.phenotyping.outcome.rounds import _climb

BEST = Ascent(np.zeros(2), np.array([4.0, 2.0]), 1.0, -10.0, np.eye(2), 100.0)
TRIED = np.array([4.0, 2.0])


def sums(log_likelihood, n_patients=100.0):
    return Sums(n_patients, log_likelihood, np.array([1.0, 0.0]), 2.0 * np.eye(2))


def test_a_step_that_leads_down_is_halved_from_where_it_began():
    after = _climb(BEST, TRIED, sums(-11.0), 0.0, 0.0)
    assert after.share == 0.5
    assert (after.coefficients == BEST.coefficients).all()
    assert (after.step == BEST.step).all()
    assert after.objective == BEST.objective


def test_a_step_that_leads_up_is_taken():
    after = _climb(BEST, TRIED, sums(-9.0), 0.0, 0.0)
    assert (after.share, after.objective) == (1.0, -9.0)
    assert (after.coefficients == TRIED).all()
    np.testing.assert_allclose(after.step, [0.5, 0.0])


def test_the_penalty_counts_in_the_comparison():
    assert _climb(BEST, TRIED, sums(-9.0), 2.0, 0.0).share == 0.5


def test_nothing_is_compared_after_a_site_was_lost():
    after = _climb(BEST, TRIED, sums(-11.0, n_patients=60.0), 0.0, 0.0)
    assert (after.share, after.objective, after.n_patients) == (1.0, -11.0, 60.0)
    assert (after.coefficients == TRIED).all()


def test_what_rounding_takes_off_the_objective_is_no_fall():
    assert _climb(BEST, TRIED, sums(-10.0 - 1e-9), 0.0, 0.0).objective == pytest.approx(-10.0)
    assert _climb(BEST, TRIED, sums(-10.0 - 1e-9), 0.0, 0.0).share == 1.0


@pytest.mark.parametrize(("fall", "share"), [(0.19, 1.0), (0.21, 0.5)])
def test_a_fall_is_rounding_if_it_is_at_most_that_of_two_sums(fall, share):
    assert _climb(BEST, TRIED, sums(-10.0 - fall), 0.0, 0.1).share == share
