"""Buckets packed into folds, held against scikit-learn and against what a balanced fold is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from multicentre.validation.folds.plan import bucket_number, pack_buckets


def tables(n_classes=2):
    row = st.lists(st.integers(0, 40), min_size=n_classes, max_size=n_classes)
    return st.lists(row, min_size=6, max_size=40).map(np.array)


def spread(table, fold, n_splits):
    """Return what the greedy rule makes small: the mean over classes of the folds' standard deviation of shares."""
    packed = np.array([table[fold == j].sum(axis=0) for j in range(n_splits)])
    return float((packed / np.maximum(table.sum(axis=0), 1)).std(axis=0).mean())


def as_scikit_learn_packs(table, n_splits):
    bucket = np.repeat(np.arange(len(table)), table.sum(axis=1))
    y = np.concatenate([np.repeat(np.arange(table.shape[1]), row) for row in table])
    fold = np.full(len(table), -1)
    for j, (_, test) in enumerate(StratifiedGroupKFold(n_splits).split(np.zeros((len(y), 1)), y, bucket)):
        fold[np.unique(bucket[test])] = j
    return fold


@pytest.mark.parametrize("seed", range(10))
def test_buckets_are_packed_as_scikit_learn_packs_groups(seed):
    rng = np.random.default_rng(seed)
    unlike = rng.choice(np.arange(20, 2000), 60, replace=False)
    events = rng.binomial(unlike, 0.1)
    table = np.column_stack([unlike + events, events])
    ours, theirs = pack_buckets(table, 5), as_scikit_learn_packs(table, 5)
    assert len(set(zip(ours.tolist(), theirs.tolist(), strict=True))) == 5, "folds differ by more than their numbers"


@pytest.mark.parametrize("seed", range(5))
def test_events_are_even_where_a_plain_hash_leaves_them_uneven(seed):
    rng = np.random.default_rng(seed)
    bucket, event = rng.integers(256, size=12_000), rng.random(12_000) < 0.03
    table = np.array([np.bincount(bucket[event == one], minlength=256) for one in (False, True)]).T
    fold = pack_buckets(table, 5)
    packed = np.array([table[fold == j].sum(axis=0) for j in range(5)])
    assert np.abs(packed[:, 1] / packed[:, 1].mean() - 1).max() <= 0.05
    assert np.abs(packed.sum(axis=1) / 2400 - 1).max() <= 0.05
    plain = np.array([table[np.arange(256) % 5 == j].sum(axis=0) for j in range(5)])
    assert np.abs(plain[:, 1] / plain[:, 1].mean() - 1).max() > 0.05


@given(tables(), st.integers(2, 5))
def test_every_bucket_has_a_fold_and_no_single_move_mends_much(table, n_splits):
    fold = pack_buckets(table, n_splits)
    assert fold.shape == (len(table),)
    assert set(fold.tolist()) <= set(range(n_splits))
    assert spread(table, fold, n_splits) <= spread(table, np.zeros(len(table), dtype=int), n_splits) + 1e-12


@given(tables(3), st.permutations([0, 1, 2]))
def test_the_order_of_the_classes_does_not_matter(table, order):
    assert spread(table, pack_buckets(table[:, order], 3), 3) == pytest.approx(
        spread(table, pack_buckets(table, 3), 3), abs=1e-12
    )


def test_without_classes_sizes_are_made_even_largest_first():
    fold = pack_buckets(np.array([[3], [9], [5], [4], [3]]), 2)
    assert [int(np.array([3, 9, 5, 4, 3])[fold == j].sum()) for j in (0, 1)] == [12, 12]


def test_empty_buckets_go_where_fewest_are():
    assert pack_buckets(np.array([[5], [3], [0], [0]]), 2).tolist() == [0, 1, 1, 1]
    assert pack_buckets(np.zeros((3, 2), dtype=int), 2).tolist() == [0, 0, 0]


def test_a_class_that_nobody_has_is_no_hindrance():
    table = np.random.default_rng(0).integers(0, 30, size=(40, 2))
    assert spread(table, pack_buckets(np.c_[table, np.zeros(40, dtype=int)], 4), 4) < 0.01


@pytest.mark.parametrize(("n_records", "n_splits", "expected"), [(0, 5, 40), (799, 5, 40), (10_000, 5, 500)])
def test_the_number_of_buckets(n_records, n_splits, expected):
    assert bucket_number(n_records, n_splits) == expected
    assert bucket_number(10**9, n_splits) == 4096
