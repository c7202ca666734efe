"""CDMGC: exact steps, an objective that falls, and clusters that are components."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from multicentre.errors import ConfigurationError, DataError
from multicentre_papers.baselines.pooled_clustering.cdmgc import (
    CDMGC,
    fuse_views,
    join_graphs,
    objective,
    split_views,
    weigh_views,
)
from multicentre_papers.baselines.pooled_clustering.graphs import (
    connected_labels,
    laplacian_eigenvectors,
    neighbour_graph,
)

TRUTH = np.repeat([0, 1, 2], 20)


def views(spread=1.0, seed=0):
    rng = np.random.default_rng(seed)
    centres = 6.0 * np.eye(3)[TRUTH]
    return {view: centres + spread * rng.normal(size=(60, 3)) for view in ("a", "b", "c")}


def problem(diversity=1e5, sparsity=1e-5, rank=2.0, seed=0):
    edges = join_graphs([neighbour_graph(X, 5) for X in views(2.5, seed).values()])
    rng = np.random.default_rng(seed)
    S = fuse_views(edges.A, np.ones(3), np.zeros((60, 1)), 1.0, edges) * rng.uniform(0.2, 1.5, edges.A.shape[1])
    C = edges.A * rng.uniform(size=edges.A.shape)
    F = laplacian_eigenvectors(edges.graph(S), 3)[1]
    mu = weigh_views(S, C)
    weights = {"diversity": diversity, "sparsity": sparsity}
    return edges, C, S, mu, lambda C, S: objective(C, S, mu, F, rank, edges, **weights), weights, F, rank


def test_edges_hold_every_graph_in_both_directions():
    graphs = [neighbour_graph(X, 4) for X in views().values()]
    edges = join_graphs(graphs)
    for graph, values in zip(graphs, edges.A, strict=True):
        np.testing.assert_allclose(edges.graph(values).toarray(), (graph + graph.T).toarray() / 2, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(edges.rows[edges.reverse], edges.columns)
    np.testing.assert_array_equal(edges.columns[edges.reverse], edges.rows)


@pytest.mark.parametrize("diversity", [1e-3, 1.0, 1e5])
@pytest.mark.parametrize("sparsity", [1e-5, 10.0])
def test_neither_step_raises_the_objective(diversity, sparsity):
    edges, C, S, mu, value, weights, F, rank = problem(diversity, sparsity)
    trace = [value(C, S)]
    for _ in range(6):
        C = split_views(C, S, mu, edges, **weights)
        trace.append(value(C, S))
        S = fuse_views(C, mu, F, rank, edges)
        trace.append(value(C, S))
    assert all(after <= before + 1e-9 * abs(before) for before, after in pairwise(trace))
    assert trace[-1] < 0.9 * trace[0]


def test_the_split_of_one_view_is_the_minimiser_within_its_bounds():
    edges = join_graphs([neighbour_graph(views(2.5)["a"], 5)])
    S = np.random.default_rng(0).uniform(0, 0.4, edges.A.shape[1])
    S = (S + S[edges.reverse]) / 2
    mu = np.array([0.7])
    C = split_views(edges.A, S, mu, edges, diversity=3.0, sparsity=2.0)
    A = edges.A[0]
    for e in range(0, len(A), 29):
        found = minimize(
            lambda c, e=e: 0.7 * (S[e] - c[0]) ** 2 + 2.0 * 0.49 * (A[e] - c[0]) ** 2,
            [0.0],
            bounds=[(0, A[e])],
            tol=1e-14,
        )
        assert C[0, e] == pytest.approx(found.x[0], abs=1e-6)


def test_one_view_of_an_edge_gives_way_the_one_with_most_to_gain():
    edges, _, S, mu, _, weights, _, _ = problem()
    rests = edges.A - split_views(edges.A, S, mu, edges, **weights)
    target = (S + S[edges.reverse]) / 2
    gain = np.sqrt(mu)[:, None] * np.maximum(edges.A - target, 0.0)
    assert np.sort(rests, axis=0)[:-1].max() < 1e-3 < rests.max()
    moved = gain.max(axis=0) > 0.01
    np.testing.assert_array_equal(rests.argmax(axis=0)[moved], gain.argmax(axis=0)[moved])


def test_the_order_of_views_does_not_count_in_a_split():
    edges, C, S, mu, _, weights, _, _ = problem()
    order = [2, 0, 1]
    other = join_graphs([neighbour_graph(X, 5) for X in [list(views(2.5).values())[v] for v in order]])
    np.testing.assert_allclose(
        split_views(C[order], S, mu[order], other, **weights),
        split_views(C, S, mu, edges, **weights)[order],
        atol=1e-12,
    )


def test_the_fused_rows_are_the_minimiser_on_the_simplex():
    edges, C, _, mu, _, _, F, rank = problem(rank=20.0)
    S = fuse_views(C, mu, F, rank, edges)
    row = edges.rows == 7
    apart = np.sum((F[7] - F[edges.columns[row]]) ** 2, axis=1)
    found = minimize(
        lambda s: mu @ np.sum((s - C[:, row]) ** 2, axis=1) + rank * s @ apart,
        np.full(row.sum(), 1 / row.sum()),
        bounds=[(0, 1)] * row.sum(),
        constraints={"type": "eq", "fun": lambda s: s.sum() - 1},
        tol=1e-12,
    )
    np.testing.assert_allclose(S[row], found.x, rtol=0, atol=1e-5)
    assert np.count_nonzero(S[row]) < row.sum()


def test_separate_groups_are_found_as_components():
    model = CDMGC(3, random_state=0).fit(views())
    assert adjusted_rand_score(TRUTH, model.labels_) == 1.0
    assert model.converged_
    assert model.n_components_ == 3
    assert model.n_iter_ < 30
    np.testing.assert_array_equal(connected_labels(model.affinity_)[0], model.labels_)
    assert model.labelled_by_ == "components"
    np.testing.assert_allclose(model.affinity_.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert sum(model.view_weights_.values()) == pytest.approx(1.0)


def test_groups_that_touch_are_cut_into_components():
    data = views(2.2)
    whole = sum(neighbour_graph(X, 10) for X in data.values())
    assert connected_labels(whole)[1] == 1
    model = CDMGC(3, random_state=0).fit(data)
    assert model.converged_
    assert adjusted_rand_score(TRUTH, model.labels_) > 0.8


def test_a_view_that_disagrees_weighs_less():
    data = views()
    data["noise"] = np.random.default_rng(9).normal(size=(60, 3))
    weights = CDMGC(3, random_state=0).fit(data).view_weights_
    assert list(weights) == ["a", "b", "c", "noise"]
    assert min(weights, key=weights.get) == "noise"


def test_orders_of_samples_and_views_do_not_count_and_a_seed_repeats_a_fit():
    data = views(1.8)
    order = np.random.default_rng(1).permutation(60)
    model = CDMGC(3, rank=3.0, random_state=0).fit(data)
    moved = clone(model).fit({view: data[view][order] for view in ("c", "a", "b")})
    assert adjusted_rand_score(model.labels_[order], moved.labels_) == 1.0
    assert model.n_iter_ == moved.n_iter_
    for view, weight in moved.view_weights_.items():
        assert model.view_weights_[view] == pytest.approx(weight, rel=1e-6)
    np.testing.assert_array_equal(model.labels_, clone(model).fit(data).labels_)


def test_too_few_components_are_cut_by_the_spectrum():
    data = views(1.8)
    model = CDMGC(3, rank=1e-6, max_iter=1, random_state=0).fit(data)
    assert not model.converged_
    assert model.n_components_ < 3
    assert model.labelled_by_ == "k-means"
    assert len(np.unique(model.labels_)) == 3
    assert adjusted_rand_score(TRUTH, model.labels_) > 0.9


def test_too_many_components_are_joined_by_their_means():
    X = np.repeat([[0.0], [1.0], [10.0], [30.0]], 12, axis=0)
    model = CDMGC(2, n_neighbours=5, random_state=0).fit({"a": X, "b": 2 * X + 1})
    assert not model.converged_
    assert model.n_components_ == 4
    assert model.components_.max() == 3
    assert model.labelled_by_ == "joined components"
    assert adjusted_rand_score(np.repeat([0, 1], [36, 12]), model.labels_) == 1.0


@pytest.mark.parametrize("n_clusters", [2, 6])
def test_constant_views_few_samples_and_as_many_clusters_do_no_harm(n_clusters):
    data = {"a": np.random.default_rng(0).normal(size=(6, 2)), "constant": np.ones((6, 1))}
    model = CDMGC(n_clusters, random_state=0).fit(data)
    assert len(np.unique(model.labels_)) == n_clusters
    assert all(np.isfinite(weight) for weight in model.view_weights_.values())


def test_one_view_that_the_graph_meets_exactly():
    model = CDMGC(2, random_state=0).fit({"a": np.array([[0.0], [0.0], [5.0], [5.0], [0.0], [5.0]])})
    assert adjusted_rand_score([0, 0, 1, 1, 0, 1], model.labels_) == 1.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_neighbours", 0), ("diversity", 0.0), ("sparsity", -1.0), ("rank", np.inf), ("max_iter", 0), ("tol", 0.0)],
)
def test_parameters_that_cannot_be_used_are_refused(name, value):
    with pytest.raises(ConfigurationError) as refused:
        CDMGC(2, **{name: value}).fit(views())
    assert refused.value.where == name


def test_missing_entries_are_refused():
    data = views()
    data["b"][3, 1] = np.nan
    with pytest.raises(DataError, match=r"view 'b'.*missing"):
        CDMGC(3).fit(data)
