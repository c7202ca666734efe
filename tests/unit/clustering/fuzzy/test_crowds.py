"""How many patients stand behind a cluster, and what leaves in clear."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from multicentre.clustering.fuzzy.crowds import (
    count_behind,
    effective_number,
    have_many_moved,
    is_of_many,
    span,
    weigh_many,
)

seeds = st.integers(0, 10_000)


@given(seeds)
def test_effective_numbers_lie_between_one_and_all_and_ignore_scale(seed):
    weights = np.random.default_rng(seed).exponential(size=(20, 3)) ** 3
    found = effective_number(weights)
    assert ((found >= 1) & (found <= 20 + 1e-9)).all()
    assert np.allclose(found, effective_number(weights * 1e-200))
    assert np.allclose(effective_number(np.ones((20, 1))), 20)


def test_a_view_that_nobody_has_is_no_crowd_of_none():
    shown = np.array([[1.0, 0.0]] * 5)
    assert count_behind(np.ones((5, 2)), shown).tolist() == [5.0, 5.0]


@given(seeds, st.integers(2, 12), st.booleans())
def test_every_cluster_that_leaves_amounts_to_many_or_is_the_only_one(seed, least, plain):
    rng = np.random.default_rng(seed)
    distances = rng.exponential(size=(2, 25, 5))
    shown = (rng.random((25, 2)) < 0.8).astype(float)
    shown[:, 0] = np.where(shown.any(axis=1), shown[:, 0], 1.0)
    weights = weigh_many(distances * shown.T[:, :, None], np.full(2, 0.5), 1.2, shown, plain=plain, least=least)
    kept = weights.any(axis=0)
    assert kept.sum() == 1 or count_behind(weights, shown)[kept].min() >= least - 1e-6
    assert np.allclose((weights ** (1 / 1.2)).sum(axis=1), 1)


def test_with_many_behind_all_nothing_is_left_out():
    distances = np.random.default_rng(0).exponential(size=(1, 60, 2))
    weights = weigh_many(distances, np.ones(1), 2.0, np.ones((60, 1)), plain=False, least=5)
    shares = 1 / distances[0] / (1 / distances[0]).sum(axis=1, keepdims=True)
    assert np.allclose(weights, shares**2)


def test_a_few_who_move_are_told_from_many():
    before = np.repeat(np.eye(2), 10, axis=0)
    shown = np.ones((20, 1))
    for n_moved, many in ((0, True), (1, False), (4, False), (5, True)):
        after = before.copy()
        after[:n_moved] = [0.0, 1.0]
        assert have_many_moved(before, after, shown, 5) is many


def test_one_who_moves_among_many_who_hardly_move_is_one():
    before = np.full((20, 2), 0.5)
    after = before + 1e-4
    after[0] = [1.0, 0.0]
    assert not have_many_moved(before, after, np.ones((20, 1)), 5)


def test_clusters_are_compared_in_every_place():
    before, after = np.repeat(np.eye(2), 10, axis=0), np.repeat(np.eye(2)[::-1], 10, axis=0)
    assert have_many_moved(before, after, np.ones((20, 1)), 5)
    after[0] = [1.0, 0.0]
    assert not have_many_moved(before, after, np.ones((20, 1)), 5)


@given(seeds, st.integers(1, 4))
def test_bases_span_the_weights_of_each_view_and_nothing_else(seed, t):
    rng = np.random.default_rng(seed)
    shown = np.column_stack([np.ones(15), rng.random(15) < 0.7]).astype(float)
    answers = rng.random((t, 15, 3))
    answers[-1] = answers[0] * 2.0
    for basis, has in zip(span(answers, shown), shown.T, strict=True):
        columns = answers.transpose(1, 0, 2).reshape(15, -1) * has[:, None]
        assert basis.shape[1] == np.linalg.matrix_rank(columns)
        assert np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
        assert np.allclose(basis @ (basis.T @ columns), columns, atol=1e-9)


def test_weights_that_differ_in_one_patient_by_very_little_still_tell_of_it():
    before = np.tile(np.random.default_rng(0).random((40, 1)), (1, 1))
    after = before.copy()
    after[7] += 1e-9
    assert is_of_many(span(before[None], np.ones((40, 1))))
    assert not is_of_many(span(np.stack([before, after]), np.ones((40, 1))))
