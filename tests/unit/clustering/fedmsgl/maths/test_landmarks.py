"""Samples expressed by landmarks: the exact problem, its certificate, lists, and the embedding of samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_array

from multicentre.clustering.fedmsgl.maths.landmarks import (
    BLOCK,
    code_on_all,
    code_on_nearest,
    draw_landmarks,
    embed_samples,
    keep_largest,
    number_landmarks,
    prepare_landmarks,
    spread_codes,
)
from multicentre.clustering.hypergraph import unit_rows
from multicentre.clustering.metrics import accuracy
from multicentre.clustering.partition import partition_rows
from multicentre.errors import DataError


def blobs(n=90, c=3, d=6, seed=0, apart=4.0):
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % c
    rows = apart * rng.normal(size=(c, d))[truth] + rng.normal(size=(n, d))
    rows -= rows.mean(axis=0)
    return rows / np.sqrt((rows**2).sum(axis=1).mean()), truth


def view(n=60, m=20, d=6):
    rows, _ = blobs(n, d=d)
    drawn = draw_landmarks(n, m, 1)
    return rows, number_landmarks(np.arange(n), drawn), prepare_landmarks(rows[drawn])


def suboptimality(rows, own, landmarks, codes, mu, allowed=None):
    """Frank-Wolfe gaps: no point of the simplex is better by more."""
    gradient = codes @ landmarks.gram - rows @ landmarks.points.T + mu * codes
    reachable = np.ones(codes.shape, dtype=bool) if allowed is None else allowed
    reachable = reachable & (np.arange(codes.shape[1]) != own[:, None])
    return (gradient * codes).sum(axis=1) - np.where(reachable, gradient, np.inf).min(axis=1)


@pytest.mark.parametrize(("d", "mu"), [(3, 0.1), (6, 1.0), (40, 5.0)])
def test_codes_on_all_landmarks_are_optimal_and_on_the_simplex(d, mu):
    rows, own, landmarks = view(d=d)
    codes = code_on_all(rows, own, landmarks, mu, tol=1e-6)
    assert codes.min() >= 0
    np.testing.assert_allclose(codes.sum(axis=1), 1.0, atol=1e-5)
    assert not codes[own >= 0, own[own >= 0]].any()
    assert suboptimality(rows, own, landmarks, codes, mu).max() < 1e-4
    loose = code_on_all(rows, own, landmarks, mu)
    assert np.abs(loose - codes).max() < 0.05


@pytest.mark.parametrize("mu", [0.01, 0.1, 5.0])
def test_both_solvers_agree_where_all_landmarks_are_near(mu):
    rows, own, landmarks = view()
    columns, values = code_on_nearest(rows, own, landmarks, mu, 20, tol=1e-10, max_moves=100_000)
    exact = spread_codes(columns, values, 20)
    assert suboptimality(rows, own, landmarks, exact, mu).max() < 1e-9
    np.testing.assert_allclose(code_on_all(rows, own, landmarks, mu, tol=1e-6, max_iterations=5000), exact, atol=2e-3)
    assert (columns[own >= 0, -1] == -1).all()


def test_a_code_is_the_minimiser_that_a_general_solver_finds():
    rows, own, landmarks = view(m=6)
    i = int(np.flatnonzero(own < 0)[0])
    columns, values = code_on_nearest(rows[[i]], own[[i]], landmarks, 0.3, 6, tol=1e-12)

    def loss(z):
        return ((rows[i] - z @ landmarks.points) ** 2).sum() / 2 + 0.15 * (z**2).sum()

    found = minimize(
        loss, np.full(6, 1 / 6), bounds=[(0, 1)] * 6, constraints={"type": "eq", "fun": lambda z: z.sum() - 1},
        tol=1e-14,
    )  # fmt: skip
    np.testing.assert_allclose(spread_codes(columns, values, 6)[0], found.x, atol=1e-5)


@pytest.mark.parametrize("nearest", [1, 4, 9])
def test_codes_on_the_nearest_are_optimal_among_them(nearest):
    rows, own, landmarks = view()
    columns, values = code_on_nearest(rows, own, landmarks, 0.5, nearest, tol=1e-9)
    distances = ((rows[:, None] - landmarks.points) ** 2).sum(axis=2)
    distances[own >= 0, own[own >= 0]] = np.inf
    np.testing.assert_array_equal(columns, np.argsort(distances, axis=1, kind="stable")[:, :nearest])
    assert values.min() >= 0
    np.testing.assert_allclose(values.sum(axis=1), 1.0, atol=1e-12)
    codes = spread_codes(columns, values, 20)
    allowed = np.zeros(codes.shape, dtype=bool)
    np.put_along_axis(allowed, columns, True, axis=1)
    assert suboptimality(rows, own, landmarks, codes, 0.5, allowed).max() < 1e-8


def test_samples_are_coded_the_same_in_blocks_and_at_once():
    rows, _ = blobs(BLOCK + 40)
    landmarks, own = prepare_landmarks(rows[:15]), np.where(np.arange(BLOCK + 40) < 15, np.arange(BLOCK + 40), -1)
    columns, values = code_on_nearest(rows, own, landmarks, 1.0, 5)
    tail = slice(BLOCK, None)
    again = code_on_nearest(rows[tail], own[tail], landmarks, 1.0, 5)
    np.testing.assert_array_equal(columns[tail], again[0])
    np.testing.assert_allclose(values[tail], again[1], atol=1e-9)
    whole, part = (code_on_all(x, o, landmarks, 1.0) for x, o in ((rows, own), (rows[tail], own[tail])))
    np.testing.assert_array_equal(whole[tail], part)


@pytest.mark.parametrize("rows", [np.zeros((8, 3)), np.repeat([[1.0, 2.0]], 8, axis=0)])
def test_samples_that_do_not_differ_are_coded_evenly(rows):
    landmarks, own = prepare_landmarks(rows[:4]), np.array([0, 1, 2, 3, -1, -1, -1, -1])
    codes = code_on_all(rows, own, landmarks, 5.0, tol=1e-6)
    expected = np.full((8, 4), 0.25)
    expected[:4] = (1 - np.eye(4)) / 3
    np.testing.assert_allclose(codes, expected, atol=1e-4)
    np.testing.assert_allclose(spread_codes(*code_on_nearest(rows, own, landmarks, 5.0, 4), 4), expected, atol=1e-6)


@given(st.integers(2, 8), st.integers(1, 30), st.integers(0, 1000))
def test_landmarks_are_drawn_by_a_public_seed_and_numbered(m, more, seed):
    drawn = draw_landmarks(m + more, m, seed)
    assert drawn.tolist() == sorted(set(drawn.tolist()))
    assert 0 <= drawn[0] <= drawn[-1] < m + more
    np.testing.assert_array_equal(drawn, draw_landmarks(m + more, m, seed))
    places = np.random.default_rng(seed).permutation(m + more)
    own = number_landmarks(places, drawn)
    assert (own >= 0).sum() == m
    np.testing.assert_array_equal(drawn[own[own >= 0]], places[own >= 0])


def test_the_largest_of_codes_are_kept():
    codes = np.array(
        [[0.1, 0.4, 0.1, 0.4], [0.0, 0.0, 1.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0] * 4], dtype=np.float32
    )
    expected = [[0.0, 0.4, 0.0, 0.4], [0.0, 0.0, 1.0, 0.0], [0.25, 0.25, 0.0, 0.0], [0.0] * 4]
    np.testing.assert_allclose(keep_largest(codes, 2).toarray(), expected, atol=1e-7)


def test_the_embedding_is_the_singular_vectors_of_the_normalised_codes():
    rng = np.random.default_rng(0)
    codes = rng.random((40, 8)) * (rng.random((40, 8)) < 0.5)
    codes[:, 0] += 0.1
    B = codes / np.sqrt(np.outer(codes.sum(axis=1), codes.sum(axis=0)))
    left, singular, _ = np.linalg.svd(B, full_matrices=False)
    vectors, eigenvalues = embed_samples(csr_array(codes), 4)
    np.testing.assert_allclose(eigenvalues, 1 - singular[:4] ** 2, atol=1e-12)
    np.testing.assert_allclose(vectors @ vectors.T, left[:, :4] @ left[:, :4].T, atol=1e-12)
    assert eigenvalues[0] == pytest.approx(0.0, abs=1e-12)


def test_samples_without_code_and_dimensions_that_codes_lack_are_nought():
    codes = np.zeros((6, 4))
    codes[:3, 0] = codes[3:5, 1] = 1.0
    vectors, eigenvalues = embed_samples(csr_array(codes), 3)
    np.testing.assert_allclose(eigenvalues, [0.0, 0.0, 1.0], atol=1e-12)
    assert not vectors[:, 2].any()
    assert not vectors[5].any()
    assert np.linalg.matrix_rank(vectors[:, :2]) == 2


@pytest.mark.parametrize("code", ["all", "nearest"])
def test_clusters_are_found_from_two_views_by_landmarks(code):
    truth = np.arange(200) % 4
    total = np.zeros((200, 40))
    drawn = draw_landmarks(200, 40, 0)
    own = number_landmarks(np.arange(200), drawn)
    for seed in (1, 2):
        rows, _ = blobs(200, 4, seed=seed, apart=3.0)
        landmarks = prepare_landmarks(rows[drawn])
        if code == "all":
            total += code_on_all(rows, own, landmarks, 5.0) / 2
        else:
            total += spread_codes(*code_on_nearest(rows, own, landmarks, 5.0, 12), 40) / 2
    vectors, _ = embed_samples(keep_largest(total), 4)
    assert accuracy(truth, partition_rows(unit_rows(vectors), 4, random_state=0)) > 0.97


def test_what_cannot_be_is_refused():
    for n, m in ((5, 5), (5, 1)):
        with pytest.raises(DataError, match="landmarks"):
            draw_landmarks(n, m, 0)
    with pytest.raises(DataError, match="landmarks with the view must be at least 2; got 1"):
        prepare_landmarks(np.ones((1, 3)))
    for c in (0, 5):
        with pytest.raises(DataError, match="dimensions"):
            embed_samples(csr_array(np.ones((9, 4))), c)
    for columns, values, why in [
        ([[0, 4]], [[0.5, 0.5]], "must be below 4"),
        ([[0, 1]], [[0.5]], "one share each"),
        ([[1, 1]], [[0.5, 0.5]], "listed once per sample; got a landmark twice"),
        ([[0, 1]], [[np.nan, 0.5]], "finite"),
        ([[0, 1]], [[-0.5, 1.5]], "finite and non-negative"),
    ]:
        with pytest.raises(DataError, match=why):
            spread_codes(np.array(columns), np.array(values), 4)
