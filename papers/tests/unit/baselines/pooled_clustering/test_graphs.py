"""Graphs of samples, their spectra and the projection on the simplex."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import sparse

from multicentre_papers.baselines.pooled_clustering import graphs
from multicentre_papers.baselines.pooled_clustering.graphs import (
    connected_labels,
    laplacian_eigenvectors,
    neighbour_graph,
    normalised_eigenvectors,
    project_rows,
    self_tuning_graph,
    spectral_embedding,
    unit_length_rows,
)
from support.examples import examples


def samples(n=40, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def squared_distances(X):
    return np.sum((X[:, None, :] - X[None, :, :]) ** 2, axis=2)


def project_by_bisection(v):
    low, high = v.min() - 1.0, v.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(v - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(v - (low + high) / 2, 0)


@examples(60)
@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=8), elements=st.floats(-50, 50)))
def test_rows_are_projected_as_by_bisection(V):
    P = project_rows(V)
    np.testing.assert_allclose(P, [project_by_bisection(row) for row in V], rtol=0, atol=1e-12)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=0, atol=1e-12)


def test_a_projection_of_extreme_rows_is_exact():
    V = np.array([[1e300, 1e300, -1e300], [-1e300, -1e300, -1e300], [2.0, 2.0, -5.0]])
    expected = [[0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]]
    np.testing.assert_allclose(project_rows(V), expected, rtol=0, atol=1e-15)


def test_rows_of_a_sparse_graph_are_projected_on_their_entries():
    stored = sparse.csr_array((np.array([3.0, 2.5, 7.0]), np.array([0, 2, 1]), np.array([0, 2, 2, 3])), shape=(3, 3))
    P = project_rows(stored)
    assert P.toarray().tolist() == [[0.75, 0.0, 0.25], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert stored.data.tolist() == [3.0, 2.5, 7.0]


@pytest.mark.parametrize(("n", "k"), [(40, 10), (40, 1), (5, 3), (600, 4)])
def test_neighbours_weigh_as_in_the_closed_form(n, k):
    X = samples(n)
    D = squared_distances(X)
    np.fill_diagonal(D, np.inf)
    expected = np.zeros((n, n))
    for i, row in enumerate(D):
        nearest = np.argsort(row)[: k + 1]
        d = row[nearest]
        expected[i, nearest[:k]] = (d[k] - d[:k]) / (k * d[k] - d[:k].sum())
    np.testing.assert_allclose(neighbour_graph(X, k).toarray(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n", [2, 3, 4, 12])
def test_few_samples_have_fewer_neighbours(n):
    W = neighbour_graph(samples(n), k=50).toarray()
    np.testing.assert_allclose(W.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert not W.diagonal().any()
    assert np.count_nonzero(W, axis=1).tolist() == [max(1, n - 2)] * n


@pytest.mark.parametrize("build", [neighbour_graph, self_tuning_graph])
def test_a_graph_is_the_same_for_a_view_that_is_moved_scaled_or_turned(build):
    X = samples()
    turn = np.linalg.qr(samples(3, 3, seed=1))[0]
    W = sparse.csr_array(build(X, 5)).toarray()
    for other in (X + 100.0, 1e-9 * X, 1e200 * X, X @ turn):
        np.testing.assert_allclose(sparse.csr_array(build(other, 5)).toarray(), W, rtol=0, atol=1e-9)
    order = np.random.default_rng(2).permutation(len(X))
    permuted = sparse.csr_array(build(X[order], 5)).toarray()
    np.testing.assert_allclose(permuted, W[np.ix_(order, order)], rtol=0, atol=1e-9)


def test_a_crowd_of_duplicates_is_one_component():
    X = np.repeat([[0.1, 0.3], [5.7, 0.3]], 30, axis=0)
    W = neighbour_graph(X, k=4)
    np.testing.assert_allclose(W.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert connected_labels(W)[1] == 2
    np.testing.assert_allclose(neighbour_graph(np.ones((6, 2)), k=2).data, 0.5)


def test_a_self_tuning_graph_is_its_formula():
    X, k = samples(), 7
    D = squared_distances(X)
    scale = np.sqrt(np.sort(D, axis=1)[:, k])
    expected = np.exp(-D / np.outer(scale, scale))
    np.fill_diagonal(expected, 0.0)
    W = self_tuning_graph(X, k)
    np.testing.assert_allclose(W, expected, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(W, W.T)


def test_a_self_tuning_graph_stands_duplicates_and_constants():
    X = np.concatenate([np.zeros((10, 2)), samples(5, 2) + 4.0])
    W = self_tuning_graph(X, 3)
    np.testing.assert_array_equal(W[:10, :10], 1.0 - np.eye(10))
    assert 0 < W[0, 10:].max() < 1
    np.testing.assert_array_equal(self_tuning_graph(np.full((4, 2), 3.0)), 1.0 - np.eye(4))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_an_embedding_spans_the_leading_eigenvectors(form):
    W = self_tuning_graph(samples()) ** 2
    degree = W.sum(axis=1)
    values, vectors = np.linalg.eigh(W / np.sqrt(np.outer(degree, degree)))
    found, F = normalised_eigenvectors(form(W), 4)
    np.testing.assert_allclose(found, values[::-1][:4], rtol=0, atol=1e-12)
    np.testing.assert_allclose(F @ F.T, vectors[:, -4:] @ vectors[:, -4:].T, rtol=0, atol=1e-10)
    np.testing.assert_allclose(F @ F.T, spectral_embedding(form(W), 4, unit_rows=False) @ F.T, rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(spectral_embedding(form(W), 4), axis=1), 1.0, rtol=0, atol=1e-12)


def test_lanczos_finds_what_lapack_finds(monkeypatch):
    X = np.concatenate([samples(60), samples(60, seed=1) + 60.0, samples(60, seed=2) - 60.0])
    W = neighbour_graph(X)
    expected = normalised_eigenvectors(W, 5), laplacian_eigenvectors(W, 5)
    monkeypatch.setattr(graphs, "N_DENSE", 10)
    for (values, F), (found, G) in zip(
        expected, (normalised_eigenvectors(W, 5), laplacian_eigenvectors(W, 5)), strict=True
    ):
        np.testing.assert_allclose(found, values, rtol=0, atol=1e-9)
        np.testing.assert_allclose(G @ G.T, F @ F.T, rtol=0, atol=1e-6)


def test_a_sample_without_neighbours_has_a_row_of_zeros():
    W = np.zeros((5, 5))
    W[:2, :2] = W[2:4, 2:4] = 1.0
    F = spectral_embedding(W, 2)
    assert F[4].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(F @ F.T, np.where(W > 0, 1.0, 0.0), rtol=0, atol=1e-12)


def test_rows_of_zeros_stay_when_others_get_unit_length():
    assert unit_length_rows(np.array([[0.0, 0.0], [0.0, -2.0]])).tolist() == [[0.0, 0.0], [0.0, -1.0]]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_a_laplacian_has_a_zero_for_each_component(form):
    X = np.concatenate([samples(15), samples(15, seed=1) + 50.0, samples(15, seed=2) - 50.0])
    W = neighbour_graph(X, 6).toarray()
    symmetric = (W + W.T) / 2
    expected, vectors = np.linalg.eigh(np.diag(symmetric.sum(axis=1)) - symmetric)
    values, F = laplacian_eigenvectors(form(W), 5)
    np.testing.assert_allclose(values, expected[:5], rtol=0, atol=1e-12)
    np.testing.assert_allclose(F @ F.T, vectors[:, :5] @ vectors[:, :5].T, rtol=0, atol=1e-9)
    assert int((values < 1e-12).sum()) == connected_labels(form(W))[1] == 3


def test_components_are_numbered_from_the_first_sample_and_the_graph_is_left_alone():
    W = sparse.csr_array((np.array([0.0, 1.0, 2.0]), np.array([2, 3, 0]), np.array([0, 2, 2, 2, 3])), shape=(4, 4))
    labels, n_components = connected_labels(W)
    assert labels.tolist() == [0, 1, 2, 0]
    assert n_components == 3
    assert W.data.tolist() == [0.0, 1.0, 2.0]
    assert W.indices.tolist() == [2, 3, 0]
