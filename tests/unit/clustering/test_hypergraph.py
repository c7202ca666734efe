"""Hyperedges, their Laplacian and its spectrum against dense formulas, and against what theory says of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import block_diag, csr_array
from scipy.sparse.csgraph import connected_components

from multicentre.clustering.hypergraph import (
    choose_n_clusters,
    diffuse,
    embed,
    embed_graph,
    fit_sizes,
    hyperedge_factor,
    incidence,
    rank_neighbours,
    scale_locally,
    unit_rows,
)
from multicentre.clustering.kernels import spectrum
from multicentre.clustering.kernels.spectrum import largest_of_rows
from multicentre.errors import ConfigurationError, DataError, NotConverged

KINDS = ("binary", "soft", "sqrt")


def affinity(n=40, seed=0, kept=0.4, ties=False):
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 4, (n, n)).astype(float) if ties else rng.random((n, n))
    upper = np.triu(values * (rng.random((n, n)) < kept), 1)
    return upper + upper.T


def with_entry(A, value):
    spoilt = A.copy()
    spoilt[2, 5] = spoilt[5, 2] = value
    return spoilt


def cliques(number, size):
    return csr_array(block_diag([csr_array(np.ones((size, size)) - np.eye(size))] * number))


def dense_incidence(A, size, kind):
    """Hyperedge by hyperedge, as the words say."""
    n = len(A)
    H = np.eye(n)
    for j in range(n):
        others = sorted((i for i in range(n) if i != j and A[i, j] > 0), key=lambda i: (-A[i, j], i))[: size - 1]
        for i in others:
            ratio = A[i, j] / A[others[0], j]
            H[i, j] = {"binary": 1.0, "soft": ratio, "sqrt": np.sqrt(ratio)}[kind]
    return H


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("make", [np.asarray, csr_array, lambda A: np.asfortranarray(A, dtype=np.float32)])
def test_incidence_is_as_defined(kind, ties, make):
    A = affinity(ties=ties).astype(np.float32).astype(float)
    np.testing.assert_allclose(incidence(make(A), 6, kind).toarray(), dense_incidence(A, 6, kind), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_factor_is_equation_8_averaged_over_the_scales(kind):
    A = affinity()
    B = hyperedge_factor(A, (3, 5, 9), kind)
    laplacians = []
    for size in (3, 5, 9):
        H = dense_incidence(A, size, kind)
        root = np.diag(H.sum(axis=1) ** -0.5)
        laplacians.append(np.eye(40) - root @ H @ np.diag(1 / H.sum(axis=0)) @ H.T @ root)
    np.testing.assert_allclose(np.eye(40) - (B @ B.T).toarray(), np.mean(laplacians, axis=0), atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_the_laplacian_is_between_zero_and_one_and_has_its_known_null_vector(kind):
    A = affinity(kept=0.1)
    A[:, 7] = A[7] = 0.0
    H = incidence(A, 5, kind)
    degrees = H.sum(axis=1)
    assert (degrees >= 1.0).all()
    L = np.eye(40) - (lambda B: (B @ B.T).toarray())(hyperedge_factor(A, (5,), kind))
    values = np.linalg.eigvalsh(L)
    assert values.min() > -1e-12
    assert values.max() < 1 + 1e-12
    np.testing.assert_allclose(L @ np.sqrt(degrees), 0.0, atol=1e-12)


@given(st.integers(0, 10**6), st.floats(0.01, 0.2))
def test_zero_eigenvalues_count_the_components(seed, kept):
    A = affinity(25, seed, kept)
    H = incidence(A, 4)
    n_components = connected_components(H @ H.T, directed=False)[0]
    eigenvalues = embed(hyperedge_factor(A, (4,)), 25)[1]
    assert (eigenvalues < 1e-9).sum() == n_components
    everything = connected_components(csr_array(A), directed=False)[0]
    assert (embed_graph(A, 25)[1] < 1e-9).sum() == everything


@pytest.mark.parametrize("kind", KINDS)
def test_samples_in_another_order_are_embedded_the_same(kind):
    A = affinity()
    order = np.random.default_rng(1).permutation(40)
    here, there = (embed(hyperedge_factor(X, (3, 6), kind), 4) for X in (A, A[np.ix_(order, order)]))
    np.testing.assert_allclose(here[1], there[1], atol=1e-13)
    projection = here[0] @ here[0].T
    np.testing.assert_allclose(there[0] @ there[0].T, projection[np.ix_(order, order)], atol=1e-12)


@pytest.mark.parametrize("n", [300, 900])
def test_the_embedding_is_the_dense_one_below_and_above_the_size_where_the_solver_changes(n):
    factor = hyperedge_factor(affinity(n, kept=0.05), (5, 10))
    S = (factor @ factor.T).toarray()
    vectors, eigenvalues = embed(factor, 6)
    np.testing.assert_allclose(eigenvalues, 1 - np.linalg.eigvalsh(S)[::-1][:6], atol=1e-12)
    assert np.linalg.norm(S @ vectors - vectors * (1 - eigenvalues), axis=0).max() < 1e-8
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-12)
    assert (vectors[np.abs(vectors).argmax(axis=0), np.arange(6)] > 0).all()


@pytest.mark.parametrize(("number", "size"), [(110, 6), (9, 100)])
def test_every_copy_of_an_eigenvalue_is_found(number, size):
    for eigenvalues in (
        embed(hyperedge_factor(cliques(number, size), (4,)), 12)[1],
        embed_graph(cliques(number, size), 12)[1],
    ):
        assert (eigenvalues < 1e-9).sum() == min(number, 12)


def test_a_missed_eigenvector_is_put_in():
    diagonal = np.linspace(0.0, 0.5, 700)
    diagonal[[3, 50, 600]] = [1.0, 0.9, 0.8]
    apply = lambda x: (diagonal * x.T).T  # noqa: E731
    found = np.eye(700)[:, [3, 600]]
    values, vectors = spectrum._complete(apply, np.array([1.0, 0.8]), found)
    assert sorted(values.round(9)) == [0.9, 1.0]
    assert set(np.abs(vectors).argmax(axis=0)) == {3, 50}


def test_a_solver_that_does_not_settle_says_so(monkeypatch):
    monkeypatch.setattr(spectrum, "ACCEPTED", 0.0)
    with pytest.raises(NotConverged, match="embedding must converge"):
        embed(hyperedge_factor(affinity(700, kept=0.05), (5,)), 3)


def test_the_plain_graph_s_laplacian_is_the_textbook_one():
    A = affinity(30)
    A[:, 4] = A[4] = 0.0
    degrees = A.sum(axis=1)
    loops = A + np.diag((degrees == 0).astype(float))
    root = np.diag(loops.sum(axis=1) ** -0.5)
    expected = np.linalg.eigvalsh(np.eye(30) - root @ loops @ root)
    np.testing.assert_allclose(embed_graph(A, 30)[1], expected, atol=1e-12)


def test_a_graph_of_neighbours_has_the_edges_of_either_side():
    A = affinity(30)
    columns, _ = rank_neighbours(A, 3)
    chosen = np.zeros((30, 30), dtype=bool)
    chosen[np.repeat(np.arange(30), 3), columns.ravel()] = True
    kept = A * (chosen | chosen.T)
    for given_affinity in (A, csr_array(A)):
        np.testing.assert_allclose(embed_graph(given_affinity, 8, 3)[1], embed_graph(kept, 8)[1], atol=1e-12)


@given(st.integers(1, 12), st.integers(0, 10**6))
def test_largest_entries_are_in_order_and_ties_go_left(most, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-2, 4, (5, 9)).astype(float)
    columns, values = largest_of_rows(matrix, most, -5)
    for row, chosen, value in zip(matrix, columns, values, strict=True):
        expected = [j for j in np.argsort(-row, kind="stable") if row[j] > 0][:most]
        assert chosen[chosen >= 0].tolist() == expected
        assert value.tolist() == row[expected].tolist() + [0.0] * (most - len(expected))


def test_hyperedges_are_cut_to_what_the_samples_can_fill():
    A = affinity(8, kept=1.0)
    with pytest.warns(UserWarning, match="Hyperedges of 20 samples do not fit 8 samples: cut to 7"):
        factor = hyperedge_factor(A, (5, 10, 20))
    assert factor.shape == (8, 16)
    np.testing.assert_array_equal(factor.toarray(), hyperedge_factor(A, (5, 7)).toarray())
    with pytest.raises(DataError, match="at least 3; got 2"):
        fit_sizes((5,), 2)
    for sizes in ((), (1, 5)):
        with pytest.raises(ConfigurationError, match="sizes must be integers of at least 2"):
            hyperedge_factor(A, sizes)


def test_an_affinity_without_any_relation_leaves_every_sample_alone():
    eigenvalues = embed(hyperedge_factor(csr_array((6, 6)), (3,)), 6)[1]
    np.testing.assert_allclose(eigenvalues, 0.0, atol=1e-14)
    np.testing.assert_allclose(embed_graph(np.zeros((6, 6)), 6)[1], 0.0, atol=1e-14)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda A: A[:, :-1], "square"),
        (lambda A: with_entry(A, np.nan), "finite"),
        (lambda A: with_entry(A, np.inf), "finite"),
        (lambda A: -A, "finite and non-negative"),
        (lambda A: np.triu(A), "must be symmetric"),
    ],
)
@pytest.mark.parametrize("make", [np.asarray, csr_array])
def test_what_is_no_affinity_is_refused(spoil, why, make):
    with pytest.raises(DataError, match=why):
        hyperedge_factor(make(spoil(affinity(12, kept=1.0))), (3,))


def test_arguments_that_cannot_be_are_refused():
    A = affinity(12)
    with pytest.raises(ConfigurationError, match="kind must be one of"):
        incidence(A, 3, "hard")
    for n_dimensions in (0, 13):
        with pytest.raises(DataError, match="dimensions"):
            embed(hyperedge_factor(A, (3,)), n_dimensions)
    for eigenvalues, most in (([0.0, 0.1], 5), ([0.0, 0.1, 0.2], 1), ([0.0, np.nan, 0.2], 2)):
        with pytest.raises(ConfigurationError):
            choose_n_clusters(eigenvalues, most)


def test_the_number_of_clusters_is_where_the_eigenvalues_jump():
    rng = np.random.default_rng(0)
    A = 0.02 * rng.random((60, 60)) + np.kron(np.eye(4), np.ones((15, 15))) * rng.uniform(0.5, 1, (60, 60))
    A = (A + A.T) / 2
    np.fill_diagonal(A, 0.0)
    eigenvalues = embed(hyperedge_factor(A, (5, 10)), 10)[1]
    assert choose_n_clusters(eigenvalues, 9) == 4
    assert choose_n_clusters(eigenvalues, 3) in (2, 3)
    assert choose_n_clusters([0.0, 0.5, 0.6, 0.61], 9) == 2


def test_unit_rows_leave_no_row_without_a_number():
    rows = unit_rows([[3.0, 4.0], [0.0, 0.0], [1e-17, 0.0]])
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize("make", [np.asarray, csr_array])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_local_scales_are_means_of_the_largest_affinities(power, make):
    A = affinity(60, kept=0.9)
    scale = np.sort(A, axis=1)[:, -20:].mean(axis=1)
    found = scale_locally(make(A), power).toarray()
    assert found == pytest.approx(A / np.outer(scale, scale) ** (power / 2), rel=1e-12)
    assert np.array_equal(found, found.T)


def test_full_local_scaling_makes_a_loose_group_like_a_dense_one_and_leaves_lonely_samples():
    dense = affinity(25, kept=1.0)
    A = block_diag([csr_array(one) for one in (dense, dense / 50, np.zeros((1, 1)))]).toarray()
    scaled = scale_locally(A, 1.0).toarray()
    assert scaled[:25, :25] == pytest.approx(scaled[25:50, 25:50])
    assert not scaled[50].any()


def test_diffusion_weights_eigenvectors_by_powers_of_the_walk():
    vectors, eigenvalues = embed(hyperedge_factor(affinity(), (5,)), 12)
    expected = vectors[:, :7] * (1 - eigenvalues[:7]) ** 4
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert diffuse(vectors, eigenvalues, 3, 4) == pytest.approx(expected)
    assert diffuse(vectors, eigenvalues, 3, 0) == pytest.approx(unit_rows(vectors[:, :3]))
    assert diffuse(vectors[:, :4], eigenvalues[:4], 3, 2).shape == (40, 4)
