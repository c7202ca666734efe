import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import mutual_info_score

from multicentre.validation.stratifier.maths import (
    BOOSTED_CLASSES,
    Calibration,
    contiguous_folds,
    count_agreement,
    count_parts,
    fold_imbalance,
    half_width,
    mutual_information,
    split_outcome,
    weighted_mean,
)


def test_mutual_information_is_sklearn_s_less_its_bias():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 5, 400)
    b = (a + rng.integers(0, 3, 400)) % 4
    table = np.array([[np.sum((a == i) & (b == j)) for j in range(4)] for i in range(5)])
    assert mutual_information(table) == pytest.approx(mutual_info_score(a, b) - 4 * 3 / 800, abs=1e-12)


def test_independent_columns_have_no_information_on_average():
    rng = np.random.default_rng(1)
    found = [mutual_information(rng.multinomial(2000, np.full(20, 0.05)).reshape(10, 2)) for _ in range(200)]
    assert np.mean(found) < 0.5 * 9 / 4000
    assert mutual_information(np.zeros((3, 2))) == 0.0


values = arrays(
    np.float64,
    st.integers(1, 60),
    elements=st.one_of(st.integers(0, 12).map(float), st.floats(-5, 5), st.just(float("nan"))),
)


@given(values, st.integers(2, 6))
def test_contiguous_folds_are_stretches_and_keep_ties(x, n_splits):
    folds = contiguous_folds(x, np.arange(len(x)), n_splits)
    known = ~np.isnan(x)
    assert (folds[~known] == -1).all()
    order = np.argsort(x[known])
    assert (np.diff(folds[known][order]) >= 0).all()
    assert all(len(np.unique(folds[x == value])) == 1 for value in np.unique(x[known]))
    assert folds.max(initial=0) < n_splits


def test_contiguous_folds_of_distinct_values_are_equal():
    x = np.random.default_rng(2).permutation(100) / 7
    assert np.bincount(contiguous_folds(x, np.arange(100), 5)).tolist() == [20] * 5


def test_a_patient_is_in_one_fold():
    x = np.random.default_rng(3).normal(size=300)
    patients = np.arange(300) // 3
    folds = contiguous_folds(x, patients, 4)
    assert all(len(np.unique(folds[patients == one])) == 1 for one in range(100))


@pytest.mark.parametrize(("parts", "n_splits", "expected"), [([10] * 10, 5, 1.0), ([30, 10, 10, 10], 2, 1.0)])
def test_imbalance(parts, n_splits, expected):
    assert fold_imbalance(np.array(parts), n_splits) == expected


def test_imbalance_of_a_binary_column_is_infinite_for_five_folds():
    assert fold_imbalance(np.array([500, 500, 0, 0]), 5) == np.inf
    assert fold_imbalance(np.array([90, 2, 2, 2, 2]), 5) > 20


def test_weighted_mean_is_that_of_the_sites():
    weight, ratio = np.array([900.0, 1500.0, 400.0]), np.array([0.97, 0.95, 0.99])
    sums = weight.sum(), (weight**2).sum(), (weight * ratio).sum(), (weight * ratio**2).sum()
    mean, error = weighted_mean(*sums, 3)
    assert mean == pytest.approx(np.average(ratio, weights=weight))
    equal = weighted_mean(3.0, 3.0, ratio.sum(), (ratio**2).sum(), 3)
    assert equal[1] == pytest.approx(ratio.std(ddof=1) / np.sqrt(3))
    assert 0 < error < ratio.std(ddof=1)
    assert np.isnan(weighted_mean(100.0, 1e4, 95.0, 90.25, 1)[1])
    assert np.isnan(weighted_mean(0.0, 0.0, 0.0, 0.0, 0)).all()


def test_one_site_tells_nothing_of_the_spread_over_sites():
    assert half_width(np.nan, 1, BOOSTED_CLASSES) == np.inf
    assert half_width(0.01, 3, Calibration(0, 1, 0)) == pytest.approx(4.302653 * 0.01, rel=1e-5)


def test_counts_are_those_of_a_cross_table():
    rng = np.random.default_rng(4)
    x, y, cuts = rng.normal(size=500), rng.integers(0, 3, 500), np.array([-1.0, 0.0, 0.5])
    x[:9] = np.nan
    expected = [[np.sum((np.searchsorted(cuts, x) == i) & (y == j) & ~np.isnan(x)) for j in range(3)] for i in range(5)]
    assert count_parts(x, cuts, y, (5, 3)).tolist() == expected


def test_few_thresholds_are_all_used():
    assert split_outcome(np.array([0.0, 2.0]), np.array([1.0]), 5).tolist() == [0, 1]
    assert split_outcome(np.array([0.0, 2.0]), np.zeros(0), 5).tolist() == [0, 0]


def test_a_patient_with_one_known_value_says_nothing_of_stability():
    assert count_agreement(np.array([1.0, np.nan, 2.0]), np.array([0, 0, 1])) == (0, 0)
