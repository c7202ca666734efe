"""The secure OR and linear counting, beside exact counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import ConfigurationError
from multicentre.linkage.duplicates.rate import (
    choose_buckets,
    corrected_rate,
    declared_sensitivity,
    detected_share,
    duplicate_rate,
    measured_sensitivity,
)
from multicentre.linkage.keys.occupied_buckets import (
    MAX_BUCKETS,
    MIN_BUCKETS,
    MODULUS,
    count_union,
    hide_residues,
    mark_buckets,
    read_marks,
)

BOUND = 2.0**53


def test_modulus_is_prime():
    assert all(MODULUS % divisor for divisor in range(2, 256))


@given(st.lists(st.lists(st.integers(0, 63), max_size=20), min_size=1, max_size=6))
def test_sum_of_marks_tells_the_union_of_the_sites(sites):
    total = sum(mark_buckets(np.array(site, dtype=np.int64), 64, BOUND) for site in sites)
    union = np.zeros(64, dtype=bool)
    union[[bucket for site in sites for bucket in site]] = True
    differ = read_marks(total) != union
    assert differ.sum() <= 1  # a shared bucket's residues cancel with probability 1 / 65520
    assert not (read_marks(total) & ~union).any()


@given(st.integers(2, 2**20), st.lists(st.integers(0, 2**40), min_size=1, max_size=30))
def test_hidden_residues_stay_within_their_bound(modulus, values):
    residues = np.array(values) % modulus
    hidden = hide_residues(residues, modulus, BOUND)
    assert (hidden % modulus == residues).all()
    assert hidden.min() >= 0
    assert hidden.max() < BOUND


def test_linear_counting_is_unbiased_with_the_deviation_it_states():
    rng = np.random.default_rng(0)
    n_persons, n_buckets, n_repeats = 2000, 8000, 400
    found = [
        count_union(n_buckets - len(np.unique(rng.integers(0, n_buckets, n_persons))), n_buckets)
        for _ in range(n_repeats)
    ]
    unions, deviations = np.array(found).T
    assert abs(unions.mean() - n_persons) < 4 * unions.std() / np.sqrt(n_repeats)
    assert unions.std() == pytest.approx(deviations.mean(), rel=0.12)


def test_interval_covers_the_rate_as_often_as_it_says():
    rng = np.random.default_rng(1)
    n_union, n_local, n_buckets = 950, 1000, 32_000
    covered = 0
    for _ in range(400):
        occupied = len(np.unique(rng.integers(0, n_buckets, n_union)))
        _, (low, high) = duplicate_rate(*count_union(n_buckets - occupied, n_buckets), n_local)
        covered += low <= 0.05 <= high
    assert 0.92 <= covered / 400 <= 0.98


def test_rate_stays_within_0_and_1():
    assert duplicate_rate(120.0, 30.0, 100.0) == (0.0, (0.0, pytest.approx(0.388, abs=1e-3)))
    assert duplicate_rate(0.0, 0.0, 0.0) == (0.0, (0.0, 1.0))


def test_no_empty_bucket_is_an_error():
    with pytest.raises(ConfigurationError, match="at least one of 1024 buckets must be empty"):
        count_union(0, 1024)


def test_number_of_buckets_has_limits():
    assert choose_buckets(1, 1) == MIN_BUCKETS
    assert choose_buckets(10**9, 32) == MAX_BUCKETS


@pytest.mark.slow
@pytest.mark.parametrize(("sensitivity", "n_repeated"), [(0.6, 60), (0.8, 200), (0.97, 100), (1.0, 40)])
def test_interval_with_linkage_errors_covers_the_rate_as_often_as_it_says(sensitivity, n_repeated):
    """Duplicates are detected by chance, sensitivity is measured on few people, and both have an error of the hash."""
    rng = np.random.default_rng(2)
    n_duplicates, n_local, deviation, chance, n_repeats = 500, 10_000, 15.0, 40.0, 300
    covered, means = 0, []
    for _ in range(n_repeats):
        agreeing = rng.binomial(n_repeated, sensitivity)
        found = rng.binomial(n_duplicates, sensitivity) + rng.poisson(chance) + rng.normal(0, deviation) - chance
        repeated = np.array([[agreeing, n_repeated - agreeing]])
        rate, (low, high) = corrected_rate(found, deviation**2 + chance, n_local, 2, *measured_sensitivity(repeated))
        covered += low <= n_duplicates / n_local <= high
        means.append(rate)
    assert 0.92 <= covered / n_repeats <= 0.99
    assert np.mean(means) == pytest.approx(0.05, rel=0.03)


@pytest.mark.parametrize("n_sites", [2, 3, 6])
def test_detected_share_of_people_at_all_sites_is_that_of_simulated_errors(n_sites):
    faultless = np.random.default_rng(3).random((40_000, n_sites)) < 0.9
    detected = np.maximum(faultless.sum(axis=1) - 1, 0).mean() / (n_sites - 1)
    assert detected_share(np.array([0.81]), n_sites)[0] == pytest.approx(detected, abs=0.005)


def test_a_declared_sensitivity_gives_limits_at_its_ends():
    _, (low, high) = corrected_rate(90.0, 0.0, 1000.0, 2, *declared_sensitivity((0.5, 1.0)))
    assert low == pytest.approx(0.09)
    assert high == pytest.approx((90 + 1.96 * np.sqrt(45)) / 500, abs=1e-3)
    assert corrected_rate(0.0, 0.0, 0.0, 2, *declared_sensitivity(1.0)) == (0.0, (0.0, 1.0))


@pytest.mark.parametrize("sensitivity", [0, -1, 1.1, (0.9, 0.8), float("nan")])
def test_unfit_sensitivities(sensitivity):
    with pytest.raises(ConfigurationError, match="sensitivity must be above 0 and at most 1"):
        declared_sensitivity(sensitivity)
