"""Co-clustering: the projections and singular vectors against oracles, the rank against the components."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize, sparse

from multicentre_papers.baselines.pooled_clustering.coclustering import (
    Coclustering,
    cocluster,
    embed_bipartite,
    penalise_links,
    project_both_ways,
    sample_components,
)
from support.examples import examples

Floats = NDArray[np.float64]


def blocks(sizes: list[int], anchors: int, noise: float, seed: int = 0) -> tuple[sparse.csr_array, NDArray[np.int64]]:
    """Return rows that sum to 1, with most weight on the anchors of the block and the rest spread over all anchors."""
    draw = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    weights = noise * draw.random((len(group), anchors * len(sizes)))
    weights += np.repeat(np.eye(len(sizes))[group], anchors, axis=1) * (0.5 + draw.random(weights.shape))
    return sparse.csr_array(weights / weights.sum(axis=1, keepdims=True)), group


def same_partition(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    return bool(np.array_equal(one[:, None] == one[None, :], other[:, None] == other[None, :]))


def normalised(graph: sparse.csr_array) -> Floats:
    S = graph.toarray()
    roots = [np.sqrt(np.where(total > 0, total, np.inf)) for total in (S.sum(axis=1), S.sum(axis=0))]
    return np.asarray(S / roots[0][:, None] / roots[1][None, :])


@pytest.mark.parametrize("sizes", [[12, 12], [20, 5, 9], [4, 6, 8, 10, 12]])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
def test_blocks_are_found_and_the_rank_is_that_of_c_components(sizes: list[int], noise: float) -> None:
    affinity, group = blocks(sizes, anchors=4, noise=noise)
    found = cocluster(affinity, len(sizes))
    assert found.n_components == len(sizes)
    assert same_partition(found.labels, group)
    values = np.linalg.svd(normalised(found.graph), compute_uv=False)
    assert np.sum(values > 1 - 1e-10) == len(sizes)


def test_rows_of_the_row_graph_lie_on_the_simplex_and_on_the_support() -> None:
    affinity, _ = blocks([9, 7], anchors=3, noise=0.2)
    affinity.data[affinity.data < 0.03] = 0.0
    affinity.eliminate_zeros()
    found = cocluster(affinity, 2)
    assert np.allclose(found.row_graph.sum(axis=1), 1.0, atol=1e-12)
    assert found.row_graph.data.min() >= 0
    assert not np.any((found.graph.toarray() > 0) & (affinity.toarray() == 0))


def test_the_two_projections_are_the_nearest_points_by_a_quadratic_programme() -> None:
    V = np.random.default_rng(1).normal(size=(3, 4))
    by_rows, graph = project_both_ways(sparse.csr_array(V))
    by_columns = 2 * graph.toarray() - by_rows.toarray()
    for found, wanted in [(by_rows.toarray(), V), (by_columns.T, V.T)]:
        for row, target in zip(found, wanted, strict=True):
            oracle = optimize.minimize(
                lambda s, target=target: np.sum((s - target) ** 2),
                np.full(len(target), 1 / len(target)),
                bounds=[(0, None)] * len(target),
                constraints={"type": "eq", "fun": lambda s: s.sum() - 1},
                tol=1e-12,
            )
            assert np.allclose(row, oracle.x, atol=1e-6)


def test_singular_vectors_are_those_of_the_dense_decomposition() -> None:
    affinity, _ = blocks([6, 5, 4], anchors=2, noise=0.4)
    found = embed_bipartite(affinity, 3)
    left, values, right = np.linalg.svd(normalised(affinity), full_matrices=False)
    assert np.allclose(found.values, values[:3], atol=1e-12)
    assert np.allclose(found.samples @ found.samples.T, left[:, :3] @ left[:, :3].T, atol=1e-9)
    degrees = affinity.sum(axis=0)
    anchors = found.anchor_places * np.sqrt(2 * degrees)[:, None]
    assert np.allclose(anchors @ anchors.T, right[:3].T @ right[:3], atol=1e-9)


def test_the_penalty_is_the_sum_of_the_smallest_eigenvalues_of_the_laplacian() -> None:
    graph, _ = blocks([6, 5, 4], anchors=2, noise=0.4)
    unpenalised = penalise_links(graph, embed_bipartite(graph, 3), 0.0)
    penalised = penalise_links(graph, embed_bipartite(graph, 3), 2.0)
    weighted = np.sum(graph.toarray() * (unpenalised - penalised).toarray())
    both = np.block([[np.zeros((15, 15)), normalised(graph)], [normalised(graph).T, np.zeros((6, 6))]])
    assert weighted == pytest.approx(np.linalg.eigvalsh(np.eye(21) - both)[:3].sum(), rel=1e-9)


def test_an_anchor_that_nobody_chose_is_no_component() -> None:
    graph = sparse.csr_array(np.array([[1.0, 0, 0, 0], [0, 0, 0.5, 0.5], [1.0, 0, 0, 0]]))
    labels, n_components = sample_components(graph)
    assert labels.tolist() == [0, 1, 0]
    assert n_components == 2
    assert np.isfinite(embed_bipartite(graph, 3).samples).all()


def test_components_that_no_strength_can_join_are_reported_after_one_step() -> None:
    affinity, group = blocks([5, 6, 7], anchors=2, noise=0.0)
    affinity.eliminate_zeros()
    found = cocluster(affinity, 2)
    assert (found.n_components, found.n_iter) == (3, 1)
    assert same_partition(found.labels, group)


def test_too_few_steps_leave_too_few_components() -> None:
    affinity, _ = blocks([8, 8], anchors=4, noise=0.8)
    found = cocluster(affinity, 2, strength=1e-6, max_iter=2)
    assert (found.n_components, found.n_iter) == (1, 2)
    assert found.strength == 2e-6


def test_a_strength_that_overshoots_is_halved() -> None:
    affinity, group = blocks([8, 8, 8], anchors=4, noise=0.3)
    assert cocluster(affinity, 3, strength=1e4, max_iter=1).n_components == 4
    found = cocluster(affinity, 3, strength=1e4)
    assert (found.n_components, found.n_iter, found.strength) == (3, 2, 5e3)
    assert same_partition(found.labels, group)


def test_a_start_graph_gives_the_first_vectors_and_negative_affinities_are_allowed() -> None:
    affinity, group = blocks([6, 6], anchors=3, noise=0.3)
    shifted = sparse.csr_array(affinity.toarray() - 0.2)
    found = cocluster(shifted, 2, start=affinity)
    assert same_partition(found.labels, group)
    assert np.isfinite(cocluster(shifted, 2).graph.data).all()


@examples(20)
@given(seed=st.integers(0, 10_000), noise=st.floats(0.0, 0.3))
def test_order_of_samples_and_anchors_does_not_matter(seed: int, noise: float) -> None:
    affinity, _ = blocks([5, 7, 6], anchors=3, noise=noise, seed=seed)
    draw = np.random.default_rng(seed)
    rows, columns = draw.permutation(18), draw.permutation(9)
    found = cocluster(affinity, 3)
    moved = cocluster(sparse.csr_array(affinity.toarray()[rows][:, columns]), 3)
    assert same_partition(moved.labels, found.labels[rows])
    assert np.allclose(moved.graph.toarray(), found.graph.toarray()[rows][:, columns], atol=1e-8)


def test_equal_rows_share_a_component() -> None:
    affinity, _ = blocks([4, 5], anchors=3, noise=0.3)
    twice = sparse.csr_array(np.repeat(affinity.toarray(), 2, axis=0))
    labels = cocluster(twice, 2).labels
    assert np.array_equal(labels[::2], labels[1::2])


def test_two_samples_in_two_clusters() -> None:
    found = cocluster(sparse.csr_array(np.array([[0.9, 0.1], [0.2, 0.8]])), 2)
    assert isinstance(found, Coclustering)
    assert found.labels.tolist() == [0, 1]
