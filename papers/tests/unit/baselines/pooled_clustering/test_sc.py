"""Spectral clustering of views, and what every pooled method refuses."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler, normalize

from multicentre.data.multiview import MultiViewData
from multicentre.errors import ConfigurationError, DataError
from multicentre_papers.baselines.pooled_clustering.base import merge_groups, nearest_orthonormal, standardise
from multicentre_papers.baselines.pooled_clustering.graphs import neighbour_graph, self_tuning_graph
from multicentre_papers.baselines.pooled_clustering.plain import Plain
from multicentre_papers.baselines.pooled_clustering.sc import SC

TRUTH = np.repeat([0, 1, 2], 20)


def views(seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    centres = 8.0 * np.eye(3)[TRUTH]
    return {"a": centres + spread * rng.normal(size=(60, 3)), "noise": rng.normal(size=(60, 2))}


@pytest.mark.parametrize(("graph", "build"), [("self_tuning", self_tuning_graph), ("neighbours", neighbour_graph)])
def test_the_clusters_are_those_of_scikit_learn_on_the_same_graph(graph, build):
    X = views(spread=2.2)["a"]
    W = build(X)
    W = np.asarray((W + W.T).todense() if graph == "neighbours" else W)
    oracle = SpectralClustering(3, affinity="precomputed", random_state=0).fit_predict(W)
    found = SC(3, graph=graph, random_state=0).fit_predict({"a": X})
    assert adjusted_rand_score(TRUTH, oracle) > 0.5
    assert adjusted_rand_score(oracle, found) > 0.9


@pytest.mark.parametrize("graph", ["self_tuning", "neighbours"])
def test_the_view_of_the_largest_eigengap_gives_the_clusters(graph):
    model = SC(3, graph=graph, random_state=0).fit(views())
    assert model.view_ == "a"
    assert model.eigengap_by_view_["a"] > model.eigengap_by_view_["noise"] >= 0
    assert adjusted_rand_score(TRUTH, model.labels_) == 1.0
    assert adjusted_rand_score(TRUTH, model.labels_by_view_["noise"]) < 0.3
    np.testing.assert_array_equal(model.labels_, model.labels_by_view_["a"])
    assert model.embedding_.shape == (60, 3)
    assert model.labels_.dtype == np.int64
    assert (model.views_, model.n_features_in_) == (("a", "noise"), 5)


def test_the_mean_graph_of_noisy_views_is_better_than_each():
    data = {f"view {seed}": views(seed, spread=3.0)["a"] for seed in range(4)}
    each = SC(3, random_state=0).fit(data).labels_by_view_
    fused = SC(3, fuse=True, random_state=0).fit(data)
    assert adjusted_rand_score(TRUTH, fused.labels_) > max(adjusted_rand_score(TRUTH, found) for found in each.values())
    assert list(fused.labels_by_view_) == ["mean"]


def test_the_order_of_samples_does_not_count_and_a_seed_repeats_a_fit():
    data = views(spread=1.5)
    order = np.random.default_rng(1).permutation(60)
    labels = SC(3, random_state=0).fit_predict(data)
    moved = SC(3, random_state=0).fit_predict({view: X[order] for view, X in data.items()})
    assert adjusted_rand_score(labels[order], moved) == 1.0
    np.testing.assert_array_equal(labels, SC(3, random_state=0).fit_predict(data))


def test_data_of_the_package_and_a_mapping_give_the_same():
    data = views()
    model = SC(3, random_state=0)
    np.testing.assert_array_equal(model.fit_predict(data), clone(model).fit_predict(MultiViewData(data)))


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("graph", ["self_tuning", "neighbours"])
def test_constant_columns_and_duplicates_do_no_harm(graph, fuse):
    X = np.repeat([[0.0, 3.0], [5.0, 3.0]], 15, axis=0)
    data = {"a": X, "constant": np.full((30, 2), 7.0)}
    model = SC(2, graph=graph, fuse=fuse, random_state=0).fit(data)
    assert len(model.labels_) == 30
    assert all(np.isfinite(gap) for gap in model.eigengap_by_view_.values())
    assert adjusted_rand_score(X[:, 0], SC(2, graph=graph, random_state=0).fit_predict({"a": X})) == 1.0


def test_as_many_clusters_as_samples():
    assert sorted(SC(4, random_state=0).fit_predict({"a": np.array([[0.0], [1.0], [3.0], [7.0]])})) == [0, 1, 2, 3]


GOOD = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "at least one view"),
        (GOOD, "mapping of tables; got ndarray"),
        ({"a": GOOD[:, 0]}, "table with rows and columns"),
        ({"a": [["high", "low"]] * 6}, "must be numbers"),
        ({"a": np.where(GOOD == 3, np.nan, GOOD)}, "needs complete views"),
        ({"a": np.where(GOOD == 3, np.inf, GOOD)}, "must be finite"),
        ({"a": GOOD, "b": GOOD[:5]}, "same number of samples"),
        ({"a": GOOD[:1]}, "at least two samples"),
        ({"a": GOOD[:3]}, "number of samples, 3; got 4"),
    ],
)
def test_data_that_cannot_be_used_are_refused(data, said):
    with pytest.raises(DataError, match=said):
        SC(4).fit(data)


def test_missing_entries_of_the_package_s_data_are_refused():
    with pytest.raises(DataError, match=r"view 'b'.*got 1 missing entries"):
        SC(2).fit(MultiViewData({"a": GOOD, "b": np.where(GOOD == 3, np.nan, GOOD)}))


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"n_clusters": 1}, "n_clusters"),
        ({"n_clusters": 2.0}, "n_clusters"),
        ({"n_clusters": True}, "n_clusters"),
        ({"n_clusters": 2, "graph": "complete"}, "graph"),
        ({"n_clusters": 2, "n_neighbours": 0}, "n_neighbours"),
        ({"n_clusters": 2, "n_init": 0}, "n_init"),
    ],
)
def test_parameters_that_cannot_be_used_are_refused(parameters, name):
    with pytest.raises(ConfigurationError) as refused:
        SC(**parameters).fit({"a": GOOD})
    assert refused.value.where == name


def test_columns_are_standardised_at_any_scale():
    X = np.random.default_rng(0).normal(size=(50, 3)) * [1e-200, 1.0, 1e200] + [0.0, 5.0, 0.0]
    Z = standardise(np.column_stack([X, np.full(50, 0.1)]))
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(Z.std(axis=0), [1, 1, 1, 0], atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_the_nearest_orthonormal_matrix_has_the_largest_inner_product(shape):
    rng = np.random.default_rng(0)
    M = rng.normal(size=shape)
    R = nearest_orthonormal(M)
    np.testing.assert_allclose(R.T @ R if shape[0] > shape[1] else R @ R.T, np.eye(3), atol=1e-12)
    assert np.vdot(R, M) == pytest.approx(np.linalg.svd(M)[1].sum())


def test_groups_whose_means_are_nearest_are_joined():
    X = np.array([0.0, 0.2, 5.0, 5.1, 5.3, 9.0])[:, None]
    labels = np.arange(6)
    assert merge_groups(labels, {"a": X, "b": 3 * X}, 3).tolist() == [0, 0, 1, 1, 1, 2]
    assert merge_groups(labels, {"a": np.ones((6, 1))}, 2).max() == 1
    assert merge_groups(labels, {"a": X}, 6).tolist() == labels.tolist()


@pytest.mark.parametrize("scaling", ["rows", "columns"])
@pytest.mark.parametrize("algorithm", ["spectral", "kmeans"])
def test_the_plain_baselines_are_two_lines_of_scikit_learn(algorithm, scaling):
    data = views(seed=3, spread=2.0)
    scale = normalize if scaling == "rows" else StandardScaler().fit_transform
    rows = np.hstack([scale(X) for X in data.values()])
    oracle = (
        SpectralClustering(3, affinity="nearest_neighbors", n_neighbors=10, random_state=0)
        if algorithm == "spectral"
        else KMeans(3, n_init=10, random_state=0)
    ).fit_predict(rows)
    labels = Plain(3, algorithm=algorithm, scaling=scaling, random_state=0).fit(data).labels_
    assert adjusted_rand_score(oracle, labels) == 1.0
