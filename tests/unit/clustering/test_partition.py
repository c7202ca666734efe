"""Groups of rows by k-means: the partition, its order, and rows that leave nothing to group."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from multicentre.clustering.metrics import adjusted_rand
from multicentre.clustering.partition import number_by_appearance, partition_rows
from multicentre.errors import ConfigurationError, DataError


def blobs(n=60, c=3, seed=0):
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % c
    return 10.0 * np.eye(c)[truth] + rng.normal(size=(n, c)), truth


def test_separate_blobs_are_found_and_numbered_by_their_first_sample():
    rows, truth = blobs()
    found = partition_rows(rows, 3, random_state=0)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, truth)


def test_the_partition_is_as_good_as_the_library_s():
    rows = np.random.default_rng(1).normal(size=(80, 4))
    found = partition_rows(rows, 5, n_init=20, random_state=3)
    inertia = sum(((rows[found == k] - rows[found == k].mean(axis=0)) ** 2).sum() for k in range(5))
    assert inertia == pytest.approx(KMeans(5, n_init=20, random_state=3).fit(rows).inertia_, rel=1e-9)


@pytest.mark.parametrize("state", [lambda: 7, lambda: np.random.default_rng(7)])
def test_a_random_state_makes_the_labels_reproducible(state):
    rows = np.random.default_rng(2).normal(size=(70, 2))
    first, second = (partition_rows(rows, 6, n_init=1, random_state=state()) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_labels_do_not_turn_with_the_embedding():
    rows = np.random.default_rng(2).normal(size=(70, 3))
    turned = rows @ np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    np.testing.assert_array_equal(*(partition_rows(x, 4, random_state=0) for x in (rows, turned)))


def test_equal_rows_share_a_cluster_and_nothing_is_warned_of():
    assert partition_rows(np.ones((5, 2)), 3, random_state=0).tolist() == [0] * 5
    assert partition_rows([[2.0], [1.0], [2.0], [1.0]], 3, random_state=0).tolist() == [0, 1, 0, 1]
    nearly = np.repeat([[0.0], [1.0]], 10, axis=0) + 1e-16 * np.arange(20)[:, None]
    assert adjusted_rand(np.repeat([0, 1], 10), partition_rows(nearly, 2, random_state=0)) == 1.0


def test_rows_that_differ_by_rounding_alone_raise_no_warning():
    rows = np.repeat([[1e8], [2e8]], 20, axis=0) + 1.5e-8 * np.arange(40)[:, None]
    assert len(np.unique(rows)) > 2
    assert set(partition_rows(rows, 30, n_init=2, random_state=0)[:20]).isdisjoint(
        partition_rows(rows, 30, n_init=2, random_state=0)[20:]
    )


@pytest.mark.parametrize("rows", [np.zeros((0, 2)), np.array([[np.nan], [1.0]]), np.zeros(3)])
def test_what_is_no_table_of_numbers_is_refused(rows):
    with pytest.raises(DataError, match="finite numbers"):
        partition_rows(rows, 1)


def test_clusters_that_cannot_be_are_refused():
    with pytest.raises(DataError, match="n_clusters must be at most the number of samples, 3; got 4"):
        partition_rows(np.eye(3), 4)
    with pytest.raises(ConfigurationError):
        partition_rows(np.eye(3), 0)
    with pytest.raises(ConfigurationError):
        partition_rows(np.eye(3), 2, n_init=0)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30))
def test_numbers_follow_first_appearance_and_keep_the_partition(labels):
    numbered = number_by_appearance(np.array(labels))
    assert adjusted_rand(labels, numbered) == 1.0
    firsts = [int(numbered[i]) for i in range(len(labels)) if labels[i] not in labels[:i]]
    assert firsts == list(range(len(set(labels))))
