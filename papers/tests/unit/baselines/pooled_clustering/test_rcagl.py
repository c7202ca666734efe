"""RCAGL: the updates against oracles, their descent, clusters of simulated views, data that degenerate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize
from scipy.stats import ortho_group

from multicentre.data.multiview import MultiViewData
from multicentre.errors import ConfigurationError, DataError
from multicentre_papers.baselines.pooled_clustering.graphs import project_rows
from multicentre_papers.baselines.pooled_clustering.rcagl import (
    RCAGL,
    keep_links,
    leading_left_vectors,
    mean_affinity,
    measure_fit,
    update_anchors,
    update_view_graph,
)
from support.examples import examples

Floats = NDArray[np.float64]


def groups_of(sizes: list[int], distance: float = 6.0, seed: int = 0) -> tuple[dict[str, Floats], NDArray[np.int64]]:
    draw = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    draw.shuffle(group)
    widths = {"blood": 5, "image": 8, "scores": 4}
    return {
        view: distance * draw.normal(size=(len(sizes), d))[group] + draw.normal(size=(len(group), d))
        for view, d in widths.items()
    }, group


def same_partition(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    return bool(np.array_equal(one[:, None] == one[None, :], other[:, None] == other[None, :]))


def one_view(seed: int, n: int = 9, d: int = 5, m: int = 3) -> tuple[Floats, Floats, Floats, Floats]:
    """Data X (n, d), orthonormal anchors (d, m), and two graphs (n, m)."""
    draw = np.random.default_rng(seed)
    graphs = project_rows(draw.normal(size=(2 * n, m)))
    return draw.normal(size=(n, d)), np.linalg.qr(draw.normal(size=(d, m)))[0], graphs[:n], graphs[n:]


@pytest.mark.slow
@pytest.mark.parametrize("anchors_per_cluster", [1, 2])
@pytest.mark.parametrize("penalty", [1.0, 1000.0])
def test_separate_groups_are_found(anchors_per_cluster: int, penalty: float) -> None:
    views, group = groups_of([30, 40, 25])
    model = RCAGL(3, anchors_per_cluster=anchors_per_cluster, penalty=penalty, random_state=0).fit(views)
    assert same_partition(model.labels_, group)
    assert model.labels_.dtype == np.int64
    assert model.graph_.shape == (95, 3 * anchors_per_cluster)
    assert np.allclose(model.graph_.sum(axis=1), 1.0)
    assert len(model.objective_) == model.n_iter_ <= 50


def test_groups_that_touch_are_separated_by_the_rank_alone() -> None:
    views, group = groups_of([40, 40], distance=1.5, seed=3)
    model = RCAGL(2, random_state=0).fit(views)
    assert (model.labelled_by_, model.n_components_) == ("components", 2)
    assert np.array_equal(model.labels_, model.components_)
    found = np.mean(model.labels_ == group)
    assert max(found, 1 - found) > 0.95


@pytest.mark.slow
def test_k_means_labels_a_shared_graph_of_too_many_components() -> None:
    views, group = groups_of([20] * 6, distance=8.0, seed=2)
    model = RCAGL(3, anchors_per_cluster=2, random_state=0).fit(views)
    assert model.labelled_by_ == "k-means"
    assert model.n_components_ == len(np.unique(model.components_)) > 3
    assert len(np.unique(model.labels_)) == 3
    assert all(len(np.unique(model.labels_[group == g])) == 1 for g in range(6))


def test_a_round_ends_by_the_change_of_the_objective() -> None:
    views, _ = groups_of([20, 20], distance=1.0, seed=4)
    loose = RCAGL(2, tol=1e-2, random_state=0).fit(views)
    tight = RCAGL(2, tol=1e-12, max_iter=7, random_state=0).fit(views)
    assert loose.n_iter_ <= tight.n_iter_ <= 7
    changes = np.abs(np.diff(loose.objective_)) / loose.objective_[1:]
    assert changes[-1] <= 1e-2
    assert np.all(changes[:-1] > 1e-2)


@examples(30)
@given(seed=st.integers(0, 10_000), penalty=st.floats(0.01, 1e4))
def test_anchors_and_own_graphs_only_lower_the_objective(seed: int, penalty: float) -> None:
    X, A, C, D = one_view(seed)
    before = measure_fit([X], [A], [D], C, penalty)
    A = update_anchors(X, C, D)
    between = measure_fit([X], [A], [D], C, penalty)
    after = measure_fit([X], [A], [update_view_graph(X, A, C, penalty)], C, penalty)
    assert after <= between * (1 + 1e-12)
    assert between <= before * (1 + 1e-12)


def test_no_rotation_of_the_anchors_fits_better() -> None:
    X, _, C, D = one_view(5)
    A = update_anchors(X, C, D)
    assert np.allclose(A.T @ A, np.eye(3), atol=1e-12)
    best = measure_fit([X], [A], [D], C, 1.0)
    for turn in ortho_group.rvs(5, size=50, random_state=1):
        assert measure_fit([X], [turn @ A], [D], C, 1.0) >= best


def test_the_own_graph_is_the_minimum_of_a_quadratic_programme() -> None:
    X, A, C, _ = one_view(6, n=4)
    D = update_view_graph(X, A, C, 0.7)
    for row, x, c in zip(D, X, C, strict=True):
        oracle = optimize.minimize(
            lambda d, x=x, c=c: np.sum((x - 0.5 * A @ (c + d)) ** 2) + 0.7 * d @ d,
            np.full(3, 1 / 3),
            bounds=[(0, None)] * 3,
            constraints={"type": "eq", "fun": lambda d: d.sum() - 1},
            tol=1e-12,
        )
        assert np.allclose(row, oracle.x, atol=1e-6)


def test_the_objectives_own_minimiser_is_twice_the_mean_affinity() -> None:
    X, A, _, D = one_view(7)
    views, anchors, own = [X, X + 1.0], [A, A[::-1].copy()], [D, D[::-1].copy()]
    C = 2 * mean_affinity(views, anchors, own)
    best = measure_fit(views, anchors, own, C, 1.0)
    for step in 1e-3 * np.random.default_rng(0).normal(size=(20, *C.shape)):
        assert measure_fit(views, anchors, own, C + step, 1.0) > best


@pytest.mark.parametrize("shape", [(7, 4), (4, 7)])
def test_leading_left_vectors_are_those_of_the_decomposition(shape: tuple[int, int]) -> None:
    X = np.random.default_rng(0).normal(size=shape)
    left = np.linalg.svd(X)[0][:, :3]
    found = leading_left_vectors(X, 3)
    assert np.allclose(np.abs(np.sum(found * left, axis=0)), 1.0, atol=1e-9)


def test_every_sample_keeps_a_link() -> None:
    B = np.random.default_rng(0).normal(size=(30, 2)) - 1.0
    links = keep_links(B)
    assert np.all(np.diff(links.indptr) >= 1)
    assert np.array_equal(links.toarray()[B > 0], B[B > 0])
    assert np.count_nonzero(links.toarray()[np.all(B <= 0, axis=1)]) == np.sum(np.all(B <= 0, axis=1))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_order_of_samples_does_not_matter(seed: int) -> None:
    views, _ = groups_of([15, 12, 10], seed=seed)
    order = np.random.default_rng(seed).permutation(37)
    model = RCAGL(3, random_state=0).fit(views)
    moved = RCAGL(3, random_state=1).fit({view: X[order] for view, X in views.items()})
    assert same_partition(moved.labels_, model.labels_[order])
    assert np.allclose(moved.objective_, model.objective_, rtol=1e-6)


def test_constant_columns_duplicates_and_narrow_views_do_no_harm() -> None:
    views, group = groups_of([10, 12, 9])
    twice = {view: np.repeat(X, 2, axis=0) for view, X in views.items()}
    twice["nothing"] = np.full((62, 2), 3.0)
    twice["scores"][:, 0] = 7.0
    twice["narrow"] = twice["blood"][:, :1]
    model = RCAGL(3, random_state=0).fit(twice)
    assert same_partition(model.labels_, np.repeat(group, 2))
    assert np.isfinite(model.objective_).all()


def test_samples_that_are_all_the_same() -> None:
    model = RCAGL(2, random_state=0).fit({"a": np.ones((9, 3)), "b": np.zeros((9, 2))})
    assert model.labels_.shape == (9,)
    assert np.isfinite(model.objective_).all()


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize("anchors_per_cluster", [1, 3])
def test_few_samples(n: int, anchors_per_cluster: int) -> None:
    X = np.array([[0.0, 1.0], [10.0, -9.0], [10.1, -9.1], [0.2, 1.1], [0.1, 0.9]])[:n]
    model = RCAGL(2, anchors_per_cluster=anchors_per_cluster, random_state=0).fit({"a": X})
    assert same_partition(model.labels_, np.array([0, 1, 1, 0, 0])[:n])


def test_multi_view_data_and_arrays_give_the_same() -> None:
    views, _ = groups_of([15, 15])
    model = RCAGL(2, random_state=0).fit(MultiViewData(views))
    assert model.views_ == ("blood", "image", "scores")
    assert np.array_equal(model.labels_, RCAGL(2, random_state=0).fit(views).labels_)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"anchors_per_cluster": 0}, "anchors_per_cluster"),
        ({"penalty": 0.0}, "penalty"),
        ({"tol": -1.0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
    ],
)
def test_parameters_that_cannot_be_used_are_named(change: dict[str, float], name: str) -> None:
    views, _ = groups_of([5, 5])
    with pytest.raises(ConfigurationError, match=name):
        RCAGL(2, **change).fit(views)  # type: ignore[arg-type]


def test_missing_entries_and_too_many_clusters_are_refused() -> None:
    views, _ = groups_of([5, 5])
    with pytest.raises(DataError, match="clusters"):
        RCAGL(11).fit(views)
    views["blood"][3, 1] = np.nan
    with pytest.raises(DataError, match="missing"):
        RCAGL(2).fit(views)
