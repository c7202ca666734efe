"""SFMC: anchors, graphs and weights against oracles; clusters of simulated views; data that degenerate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize

from multicentre.data.multiview import MultiViewData
from multicentre.errors import ConfigurationError, DataError
from multicentre_papers.baselines.pooled_clustering.sfmc import (
    SFMC,
    anchor_graph,
    choose_anchors,
    scale_view,
    weigh_views,
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


def test_separate_groups_are_found() -> None:
    views, group = groups_of([30, 40, 25])
    model = SFMC(3, random_state=0).fit(views)
    assert same_partition(model.labels_, group)
    assert model.labels_.dtype == np.int64
    assert model.view_weights_.sum() == pytest.approx(1.0, abs=1e-12)
    assert model.graph_.shape == (95, 47) == (95, len(model.anchors_))


@pytest.mark.slow
def test_groups_that_touch_are_separated_by_the_rank_alone() -> None:
    views, group = groups_of([40, 40], distance=1.5, seed=3)
    model = SFMC(2).fit(views)
    assert (model.labelled_by_, model.n_components_) == ("components", 2)
    assert np.array_equal(model.labels_, model.components_)
    found = np.mean(model.labels_ == group)
    assert max(found, 1 - found) > 0.95


def test_the_weights_are_the_best_for_the_graph() -> None:
    views, _ = groups_of([20, 20], distance=1.5, seed=3)
    model = SFMC(2).fit(views)
    graphs = [anchor_graph(X, X[model.anchors_], model.n_neighbors_).toarray() for X in map(scale_view, views.values())]

    def misfit(weights: Floats) -> float:
        mean = sum(weight * graph for weight, graph in zip(weights, graphs, strict=True))
        return float(np.sum((mean - model.graph_.toarray()) ** 2))

    best = misfit(model.view_weights_)
    for i, j in itertools.permutations(range(3), 2):
        moved = model.view_weights_.copy()
        step = min(0.01, moved[i])
        moved[i], moved[j] = moved[i] - step, moved[j] + step
        assert misfit(moved) >= best - 1e-9


@pytest.mark.slow
def test_more_components_than_clusters_widen_the_graph_and_keep_the_published_answer() -> None:
    views, group = groups_of([30, 30, 30, 30], distance=8.0, seed=1)
    model = SFMC(2, n_neighbours=3, random_state=0).fit(views)
    assert model.n_components_ > 2
    assert len(np.unique(model.components_)) == model.n_components_
    assert model.labelled_by_ != "components"
    assert model.n_neighbors_ > 3
    assert len(np.unique(model.labels_)) == 2
    assert all(len(np.unique(model.labels_[group == g])) == 1 for g in range(4))


def test_k_means_labels_what_too_few_steps_leave_in_one_component() -> None:
    views, group = groups_of([30, 30], distance=1.5, seed=3)
    model = SFMC(2, max_inner=1, max_outer=1, random_state=0).fit(views)
    assert (model.labelled_by_, model.n_components_) == ("k-means", 1)
    found = np.mean(model.labels_ == group)
    assert max(found, 1 - found) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_order_of_samples_does_not_matter(seed: int) -> None:
    views, _ = groups_of([15, 12, 10], seed=seed)
    order = np.random.default_rng(seed).permutation(37)
    model = SFMC(3, random_state=0).fit(views)
    moved = SFMC(3, random_state=0).fit({view: X[order] for view, X in views.items()})
    assert np.array_equal(np.sort(order[moved.anchors_]), model.anchors_)
    assert same_partition(moved.labels_, model.labels_[order])


def test_anchors_are_those_of_a_calculation_by_hand() -> None:
    X = np.array([[5.0], [8.0], [9.9], [14.0], [15.0]])  # 0, .3, .49, .9, 1; then 0, .84, 1, .36, 0; then 3 leads 1
    assert choose_anchors(X, 1).tolist() == [4]
    assert choose_anchors(X, 2).tolist() == [2, 4]
    assert choose_anchors(X, 3).tolist() == [2, 3, 4]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.data())
def test_anchors_are_distinct_whatever_the_ties(values: list[int], data: st.DataObject) -> None:
    m = data.draw(st.integers(1, len(values)))
    anchors = choose_anchors(np.array(values, dtype=float)[:, None], m)
    assert len(np.unique(anchors)) == m
    assert np.array_equal(anchors, np.sort(anchors))


def test_the_anchor_graph_solves_its_quadratic_programme() -> None:
    draw = np.random.default_rng(0)
    X, anchors, k = draw.normal(size=(4, 3)), draw.normal(size=(7, 3)), 3
    graph = anchor_graph(X, anchors, k).toarray()
    assert np.allclose(graph.sum(axis=1), 1.0)
    for row, x in zip(graph, X, strict=True):
        distances = np.sum((anchors - x) ** 2, axis=1)
        ascending = np.sort(distances)
        gamma = k / 2 * ascending[k] - ascending[:k].sum() / 2
        oracle = optimize.minimize(
            lambda w, d=distances, gamma=gamma: d @ w + gamma * w @ w,
            np.full(7, 1 / 7),
            bounds=[(0, None)] * 7,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
            tol=1e-12,
        )
        assert np.allclose(row, oracle.x, atol=1e-5)
        assert np.sum(row > 0) == k


@examples(50)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 6), rank=st.integers(1, 6))
def test_view_weights_meet_the_optimality_conditions(seed: int, k: int, rank: int) -> None:
    draw = np.random.default_rng(seed)
    factor = draw.random((rank, k))
    Q, b = factor.T @ factor, factor.T @ draw.random(rank)
    a = weigh_views(Q, b)
    slope = Q @ a - b
    assert a.min() >= 0
    assert a.sum() == pytest.approx(1.0, abs=1e-12)
    assert slope @ a - slope.min() <= 1e-6


def test_constant_views_and_duplicates_do_no_harm() -> None:
    views, group = groups_of([10, 12])
    twice = {view: np.repeat(X, 2, axis=0) for view, X in views.items()}
    twice["nothing"] = np.zeros((44, 2))
    twice["scores"][:, 0] = 7.0
    model = SFMC(2, random_state=0).fit(twice)
    assert same_partition(model.labels_, np.repeat(group, 2))
    assert np.isfinite(model.view_weights_).all()
    assert np.isfinite(model.embedding_).all()


def test_samples_that_are_all_the_same() -> None:
    model = SFMC(2, random_state=0).fit({"a": np.ones((9, 3)), "b": np.zeros((9, 2))})
    assert model.labels_.shape == (9,)
    assert np.isfinite(model.embedding_).all()


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_few_samples(n: int) -> None:
    X = np.array([[0.0], [10.0], [10.1], [0.2], [0.1]])[:n]
    labels = SFMC(2, anchor_rate=1.0, random_state=0).fit({"a": X}).labels_
    assert same_partition(labels, np.array([0, 1, 1, 0, 0])[:n])


@pytest.mark.slow
def test_multi_view_data_and_arrays_give_the_same() -> None:
    views, _ = groups_of([15, 15])
    model = SFMC(2).fit(MultiViewData(views))
    assert model.views_ == ("blood", "image", "scores")
    assert np.array_equal(model.labels_, SFMC(2).fit(views).labels_)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"anchor_rate": 1.5}, "anchor_rate"),
        ({"anchor_rate": 0.0}, "anchor_rate"),
        ({"n_neighbours": 0}, "n_neighbours"),
        ({"max_inner": 0}, "max_inner"),
        ({"max_outer": 0.5}, "max_outer"),
    ],
)
def test_parameters_that_cannot_be_used_are_named(change: dict[str, float], name: str) -> None:
    views, _ = groups_of([5, 5])
    with pytest.raises(ConfigurationError, match=name):
        SFMC(2, **change).fit(views)  # type: ignore[arg-type]


def test_missing_entries_and_too_many_clusters_are_refused() -> None:
    views, _ = groups_of([5, 5])
    with pytest.raises(DataError, match="n_clusters"):
        SFMC(11).fit(views)
    views["blood"][3, 1] = np.nan
    with pytest.raises(DataError, match="missing"):
        SFMC(2).fit(views)
