"""The test of whether a bucket's people are all in one fold, from sums."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from multicentre.linkage.keys.mixed_buckets import (
    MODULUS,
    count_mixed,
    mark_folds,
    miss_probability,
    next_buckets,
    read_folds,
)

BOUND = 2.0**53
N_BUCKETS, N_SPLITS = 16, 7
RECORD = st.tuples(st.integers(0, N_BUCKETS - 1), st.integers(0, N_SPLITS - 1))


def test_modulus_is_prime():
    assert all(MODULUS % divisor for divisor in range(2, 1024))


@given(st.lists(st.lists(RECORD, max_size=15), min_size=1, max_size=5))
def test_sums_over_sites_tell_occupied_and_mixed_buckets(sites):
    marks = [
        mark_folds(*np.array(site, dtype=np.int64).reshape(-1, 2).T, n_buckets=N_BUCKETS, bound=BOUND) for site in sites
    ]
    occupied, mixed = read_folds(sum(first for first, _ in marks), sum(second for _, second in marks), N_SPLITS)
    held = [{fold for site in sites for at, fold in site if at == bucket} for bucket in range(N_BUCKETS)]
    assert (occupied != [len(folds) > 0 for folds in held]).sum() <= 1  # random numbers cancel once in a million
    assert (mixed != [len(folds) > 1 for folds in held]).sum() <= 1


def test_marks_stay_within_their_bound():
    for marks in mark_folds(np.zeros(1000, dtype=np.int64), np.full(1000, 99), 4, BOUND):
        assert marks.min() >= 0
        assert marks.max() < BOUND


def test_mixtures_are_missed_as_rarely_as_stated():
    """Of folds 0 and 1 in one bucket, only a fold of a few hundred others could hide the mixture."""
    n, n_splits = 20_000, 500
    marks = mark_folds(np.tile(np.arange(n), 2), np.repeat([0, 1], n), n, BOUND)
    _, mixed = read_folds(*marks, n_splits)
    assert 1 - mixed.mean() <= 2 * miss_probability(n_splits, 1)
    assert 1 - mixed.mean() > 0


def test_people_of_shared_buckets_are_counted():
    rng = np.random.default_rng(0)
    counts = [count_mixed(len(np.unique(rng.integers(0, 4096, 700))), 4096) for _ in range(50)]
    assert abs(np.mean(counts) - 700) < 5
    assert next_buckets(0) == 1024
