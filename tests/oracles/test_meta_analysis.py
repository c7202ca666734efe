"""Combined estimates are those of the R package metafor; values frozen by meta_analysis_values.py."""

import json
from pathlib import Path

import numpy as np
import pytest

from multicentre.statistics.meta_analysis import leave_one_out, pool, reml
from oracles.meta_analysis_values import ESTIMATES

VALUES = json.loads(Path(__file__).with_name("meta_analysis_values.json").read_text())
MODELS = [key for key in VALUES if key != "versions"]


@pytest.mark.parametrize("model", MODELS)
def test_combined_estimates_are_those_of_metafor(model):
    name, method, test = model.split("-")
    estimates, errors = (np.array(values) for values in ESTIMATES[name])
    terms = {
        "method": "DL" if method == "EE" else method,
        "hartung_knapp": {"z": False, "knha": True, "adhoc": "adhoc"}[test],
    }
    pooled = pool(estimates, errors, **terms)
    mean = pooled.fixed if method == "EE" else pooled.random
    calculated = [mean.value, mean.standard_error, mean.lower, mean.upper, mean.p_value]
    *expected, tau_squared, q, q_p_value, i_squared, h_squared, low, high = VALUES[model][:12]
    assert calculated == pytest.approx(expected, rel=1e-6)
    assert [pooled.q, pooled.q_p_value] == pytest.approx([q, q_p_value], rel=1e-6)
    if method != "EE":
        spread = [pooled.tau_squared, pooled.i_squared, pooled.h_squared, *pooled.prediction]
        assert spread == pytest.approx([tau_squared, i_squared, h_squared, low, high], rel=1e-6, abs=1e-9)
    if len(estimates) > 2:
        means = [one.fixed if method == "EE" else one.random for one in leave_one_out(estimates, errors, **terms)]
        assert [one.value for one in means] == pytest.approx(VALUES[model][12:], rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_reml_is_at_the_maximum_of_its_likelihood(seed):
    rng = np.random.default_rng(seed)
    estimates, variances = rng.normal(0, 1, 6), rng.uniform(0.05, 2.0, 6)

    def likelihood(tau_squared):
        spread = variances + tau_squared
        weights = 1 / spread
        centre = weights @ estimates / weights.sum()
        return -np.log(spread).sum() - np.log(weights.sum()) - weights @ (estimates - centre) ** 2

    grid = np.linspace(0.0, 10.0, 4001)
    best = grid[np.argmax([likelihood(value) for value in grid])]
    assert reml(estimates, variances) == pytest.approx(best, abs=2.6e-3)


def test_one_precise_estimate_dominates_without_rounding():
    """The squared weights of the others are below the rounding of those of the first."""
    estimates, errors = np.array([0.1, 0.12, 0.11]), np.array([1e-6, 10.0, 10.0])
    pooled = pool(estimates, errors)
    # To first order in the ratio of the weights, 1e-14: Q is the sum of the others' squared differences over 100.
    assert pooled.q == pytest.approx((0.02**2 + 0.01**2) / 100, rel=1e-9)
    assert pooled.tau_squared == 0.0
    assert pooled.random.value == pytest.approx(0.1, abs=1e-12)
    assert pooled.random.standard_error == pytest.approx(1e-6 * np.sqrt(pooled.q / 2), rel=1e-9)
