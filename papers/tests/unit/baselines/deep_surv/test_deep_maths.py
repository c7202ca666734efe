"""The baseline's sums, and on how many patients weighted sums rest in effect."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.survival.times import count_by_bin, nelson_aalen
from multicentre_papers.baselines.deep_surv.site import baseline_hazard, effective_by_bin, fewest_in_effect, sum_at_risk

seeds = st.integers(0, 10**6)


def draw(seed, n_times=9):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    bins = rng.integers(0, n_times + 1, n)
    return bins, (rng.random(n) < rng.random()) & (bins < n_times), int(rng.integers(0, 12))


@given(seeds)
def test_ratios_of_one_give_the_table_at_risk_and_nelson_aalens_curve(seed):
    bins, happened, _ = draw(seed)
    events, expected = count_by_bin(bins, happened, 9)
    at_risk = sum_at_risk(bins, np.ones(len(bins)), 9)
    np.testing.assert_array_equal(at_risk, expected)
    np.testing.assert_array_equal(baseline_hazard(events, at_risk), nelson_aalen(events, expected))


@given(seeds)
def test_each_bin_rests_on_as_many_as_kishs_formula_says(seed):
    bins, *_ = draw(seed)
    ratios = np.exp(np.random.default_rng(seed).normal(size=len(bins)))
    found = effective_by_bin(bins, ratios)
    assert len(found) == bins.max() + 1
    for place, number in enumerate(found):
        own = ratios[bins == place]
        assert number == (np.floor(own.sum() ** 2 / (own @ own) + 1e-6) if len(own) else 0)


def test_equal_ratios_count_the_patients():
    assert effective_by_bin(np.repeat([0, 2], [10, 9]), np.full(19, 7.0)).tolist() == [10.0, 0.0, 9.0]


@pytest.mark.parametrize("extreme", [60.0, -60.0, 2000.0])
def test_one_extreme_risk_is_one_patient_in_effect(extreme):
    risks = np.linspace(-0.1, 0.1, 40)
    assert fewest_in_effect(risks) == 39
    risks[7] = extreme
    assert fewest_in_effect(risks) == 1
    assert fewest_in_effect(np.zeros(0)) == 0
