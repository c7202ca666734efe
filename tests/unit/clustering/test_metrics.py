"""Scores of partitions against scikit-learn, brute force, and what must hold between them."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as oracle

from multicentre.clustering.metrics import (
    accuracy,
    adjusted_rand,
    clustering_scores,
    contingency,
    normalised_mutual_information,
    purity,
    stability,
)
from multicentre.errors import ConfigurationError, DataError

PAIRS = st.integers(1, 25).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 4), min_size=n, max_size=n), st.lists(st.integers(0, 3), min_size=n, max_size=n)
    )
)


@given(PAIRS)
def test_scores_equal_scikit_learn_s(pair):
    truth, found = pair
    for average in ("max", "arithmetic"):
        ours = normalised_mutual_information(truth, found, average)
        theirs = oracle.normalized_mutual_info_score(truth, found, average_method=average)
        assert ours == pytest.approx(theirs, abs=1e-9)
    assert adjusted_rand(truth, found) == pytest.approx(oracle.adjusted_rand_score(truth, found), abs=1e-12)
    np.testing.assert_array_equal(
        np.sort(contingency(truth, found), axis=None),
        np.sort(oracle.cluster.contingency_matrix(truth, found), axis=None),
    )


def entropy(labels):
    shares = np.unique(np.array(labels), axis=0, return_counts=True)[1] / len(labels)
    return -np.sum(shares * np.log(shares))


@given(PAIRS)
def test_mutual_information_is_the_one_of_entropies(pair):
    truth, found = pair
    entropies = entropy(truth), entropy(found)
    information = sum(entropies) - entropy(list(zip(truth, found, strict=True)))
    for average, scale in (("max", max(entropies)), ("arithmetic", sum(entropies) / 2)):
        expected = information / scale if min(entropies) > 0 else float(max(entropies) == 0)
        assert normalised_mutual_information(truth, found, average) == pytest.approx(expected, abs=1e-9)


@given(PAIRS)
def test_the_rand_index_counts_pairs(pair):
    same = np.array([[labels[i] == labels[j] for i, j in combinations(range(len(labels)), 2)] for labels in pair])
    both, (of_truth, of_found) = np.sum(same.all(axis=0)), same.sum(axis=1)
    expected = of_truth * of_found / max(same.shape[1], 1)
    largest = (of_truth + of_found) / 2
    index = 1.0 if of_truth == of_found == both else (both - expected) / (largest - expected)
    assert adjusted_rand(*pair) == pytest.approx(index, abs=1e-12)


@given(PAIRS)
def test_accuracy_is_the_best_of_all_matches(pair):
    truth, found = pair
    best = max(np.mean([match[f] == t for t, f in zip(truth, found, strict=True)]) for match in permutations(range(5)))
    assert accuracy(truth, found) == pytest.approx(best)


@given(PAIRS)
def test_purity_is_above_accuracy_and_above_the_largest_class(pair):
    truth, found = pair
    assert accuracy(truth, found) <= purity(truth, found) + 1e-12
    assert purity(truth, found) >= np.bincount(truth).max() / len(truth) - 1e-12


@given(PAIRS)
def test_scores_know_groups_by_their_members_alone(pair):
    truth, found = pair
    named = np.array(["zeta", "alpha", "mu", "beta", "xi"])[truth]
    renumbered = [10.5 - f for f in found]
    expected = clustering_scores(truth, found)
    assert clustering_scores(named, renumbered) == pytest.approx(expected)
    assert clustering_scores(list(named), np.array(renumbered)) == pytest.approx(expected)


def test_a_table_may_have_more_clusters_than_classes_or_fewer():
    assert accuracy([0, 0, 0, 0], [1, 1, 2, 3]) == 0.5
    assert accuracy([1, 1, 2, 3], [0, 0, 0, 0]) == 0.5
    assert purity([0, 0, 0, 0], [1, 1, 2, 3]) == 1.0
    assert purity([1, 1, 2, 3], [0, 0, 0, 0]) == 0.5


def test_the_larger_entropy_normalises_more_severely():
    truth, found = [0, 0, 1, 1], [0, 1, 2, 3]
    assert normalised_mutual_information(truth, found) == pytest.approx(0.5)
    assert normalised_mutual_information(truth, found, "arithmetic") == pytest.approx(2 / 3)


@pytest.mark.parametrize("found", [["x"] * 4, [0, 1, 2, 3]])
def test_labellings_without_information_score_as_in_scikit_learn(found):
    scores = clustering_scores(["a"] * 4, found)
    assert scores["nmi"] == oracle.normalized_mutual_info_score(["a"] * 4, found, average_method="max")
    assert scores["ari"] == oracle.adjusted_rand_score(["a"] * 4, found)


def test_pairs_are_counted_in_whole_numbers_for_many_samples():
    truth, found = np.repeat([0, 1], 200_000), np.tile([0, 1], 200_000)
    assert adjusted_rand(truth, found) == pytest.approx(oracle.adjusted_rand_score(truth, found), abs=1e-15)


def test_stability_is_the_mean_over_pairs():
    rng = np.random.default_rng(0)
    labellings = [rng.integers(0, 3, 30) for _ in range(3)]
    pairs = [(0, 1), (0, 2), (1, 2)]
    expected = np.mean([oracle.adjusted_rand_score(labellings[i], labellings[j]) for i, j in pairs])
    assert stability(labellings) == pytest.approx(expected)
    with pytest.raises(DataError, match="at least 2; got 1"):
        stability(labellings[:1])
    with pytest.raises(DataError, match="must have the same length"):
        stability([labellings[0], labellings[1][:-1]])


def test_bad_input_is_refused():
    for truth, found, why in [
        ([], [], "at least one; got none"),
        ([1, 2], [1], "got 2 and 1 labels"),
        ([1.0, np.nan], [0, 1], "samples without a label"),
        ([None, "a"], [0, 1], "samples without a label"),
        ([[1], [2]], [0, 1], "must be a number or a string"),
        (np.eye(2), [0, 1], "must be a number or a string"),
    ]:
        with pytest.raises(DataError, match=why):
            accuracy(truth, found)
    with pytest.raises(ConfigurationError, match="arithmetic"):
        normalised_mutual_information([0, 1], [0, 1], "geometric")
