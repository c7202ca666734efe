"""Rank tests from histograms: scipy as the oracle, and limits that hold for every order within bins."""

import numpy as np
import pytest
from scipy import stats

from multicentre.analytics.describe.ranks import rank_test


def histogram(groups, edges):
    return np.array([np.bincount(np.searchsorted(edges, group), minlength=len(edges) + 1) for group in groups], float)


@pytest.mark.parametrize("n_groups", [2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_a_bin_per_value_gives_the_test_of_scipy(n_groups, seed):
    rng = np.random.default_rng(seed)
    groups = [rng.poisson(4 + 0.5 * number, 30 + number) for number in range(n_groups)]
    counts = histogram(groups, np.arange(0.5, 20.0))
    test = rank_test(counts, np.ones(counts.shape[1], dtype=bool))
    expected = stats.kruskal(*groups)
    assert test.is_exact
    assert [test.statistic, test.p_value] == pytest.approx([expected.statistic, expected.pvalue], rel=1e-9)
    assert test.lower == test.upper == test.p_value


def test_two_groups_give_the_test_of_mann_and_whitney():
    rng = np.random.default_rng(0)
    groups = [rng.integers(0, 9, 40), rng.integers(1, 10, 50)]
    counts = histogram(groups, np.arange(0.5, 10.0))
    expected = stats.mannwhitneyu(*groups, use_continuity=False, method="asymptotic").pvalue
    assert rank_test(counts, np.ones(counts.shape[1], dtype=bool)).p_value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_limits_hold_for_the_values_behind_the_bins(n_groups, seed):
    rng = np.random.default_rng([seed, n_groups])
    groups = [np.round(rng.normal(0.3 * number, 1.0, 25), seed % 3) for number in range(n_groups)]
    edges = np.linspace(-2.0, 2.0, 7)
    counts = histogram(groups, edges)
    test = rank_test(counts, np.zeros(counts.shape[1], dtype=bool))
    exact = stats.kruskal(*groups).pvalue
    assert not test.is_exact
    assert test.lower - 1e-12 <= exact <= test.upper + 1e-12
    assert test.lower <= test.p_value <= test.upper
    finer = rank_test(histogram(groups, np.linspace(-4.0, 4.0, 4001)), np.zeros(4002, dtype=bool))
    assert finer.p_value == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("counts", [[[4.0, 3.0]], [[4.0, 0.0], [3.0, 0.0]], [[0.0, 0.0], [3.0, 2.0]]])
def test_one_group_or_one_value_has_no_test(counts):
    assert np.isnan(rank_test(np.array(counts), np.ones(2, dtype=bool)).p_value)
