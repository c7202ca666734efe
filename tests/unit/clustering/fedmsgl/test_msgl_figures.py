"""What a report shows of a FedMSGL fit, and that nothing in it rests on few patients."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import multicentre as mc
from multicentre.clustering import FedMSGL
from multicentre.clustering.fedmsgl.figures import (
    MAX_BINS,
    MAX_POINTS,
    MIN_SHOWN,
    affinity_map,
    bin_clusters,
    cluster_map,
    cluster_table,
    eigenvalues,
    find_groups,
    mean_affinity,
    profile_map,
    project,
    show_clusters,
    suppress,
)
from multicentre.estimator.figures import read_figure
from multicentre.reports.alt_texts import describe
from multicentre.reports.figures import draw
from multicentre.reports.parts import fit_to_pages

SIZES = (30, 25, 4)


def model_of(sizes=SIZES, *, n_clusters=None, seed=0):
    """Return what figures need of a fit, with clusters of given sizes in blocks."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    embedding = np.eye(len(sizes))[labels] + 0.05 * random.normal(size=(len(labels), len(sizes)))
    affinity = np.where(labels[:, None] == labels, 0.9, 0.1)
    np.fill_diagonal(affinity, 0.0)
    return SimpleNamespace(
        labels_=labels,
        embedding_=embedding,
        affinity_=csr_array(affinity),
        eigenvalues_=np.array([0.0, 0.01, 0.02, 0.6]),
        view_weights_={"lab/blood": 0.5, "ward/scores": 0.5},
        n_clusters_=len(sizes),
        n_clusters=n_clusters,
        places_for=lambda data: np.array([int(one) for one in data.ids]),
    )


def data_of(places, values):
    return mc.data.MultiViewData({"blood": values}, ids=[str(place) for place in places])


@given(st.lists(st.integers(1, 700), min_size=1, max_size=12), st.integers(0, 9))
def test_no_group_of_the_affinity_map_is_small_or_crosses_clusters(sizes, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    bins, names = bin_clusters(labels, np.arange(len(labels), dtype=float))
    assert len(bins) == len(names) <= MAX_BINS
    assert all(len(one) >= MIN_SHOWN and len(set(labels[one])) == 1 for one in bins)
    shown = np.concatenate([np.zeros(0, dtype=int), *bins])
    assert len(set(shown.tolist())) == len(shown) == sum(size for size in sizes if size >= MIN_SHOWN)
    assert [name for name in names if name] == [
        f"cluster {number}" for number, size in enumerate(sizes, 1) if size >= MIN_SHOWN
    ]


def test_cells_of_the_affinity_map_are_means_over_pairs_of_patients():
    model = model_of()
    bins, _ = bin_clusters(model.labels_, np.zeros(59))
    cells = mean_affinity(model.affinity_, bins)
    dense = model.affinity_.toarray()
    for row, own in enumerate(bins):
        for column, other in enumerate(bins):
            pairs = [dense[i, j] for i in own for j in other if i != j]
            assert cells[row, column] == pytest.approx(np.mean(pairs))
    shown = affinity_map(model)
    assert list(shown.rows) == ["cluster 1", "", "", "cluster 2", ""]
    assert "fewer than ten" in shown.caption
    assert np.mean(shown.values) == pytest.approx(1.0)
    assert len(fit_to_pages(shown)) == 1


def test_patients_coded_on_landmarks_are_compared_by_them():
    model = model_of((20, 20))
    codes = np.where((np.arange(40) < 20)[:, None], [0.9, 0.1], [0.2, 0.8])
    model.affinity_ = csr_array(codes)
    values = np.array(affinity_map(model).values)
    related = codes / codes.sum(axis=0) @ codes.T
    means = np.array([[related[a, b] for b in (0, 20)] for a in (0, 20)])
    expected = np.kron(means, np.ones((2, 2)))
    np.testing.assert_allclose(values, expected / expected.mean())


def test_only_clusters_without_ten_patients_leave_an_empty_map_that_can_be_drawn():
    shown = affinity_map(model_of((5, 6)))
    assert (list(shown.rows), list(shown.values)) == ([], [])
    assert "<svg" in draw(shown)


def test_map_of_clusters_shows_groups_of_ten_at_least():
    model = model_of()
    groups = np.array(["ill"] * 18 + ["well"] * 12 + ["ill"] * 9 + ["well"] * 16 + ["ill"] * 4)
    shown = cluster_map(model, groups)
    assert [(cloud.centre, cloud.group, len(cloud.x)) for cloud in shown.clouds] == [
        ("ill", "cluster 1", 18),
        ("well", "cluster 1", 12),
        ("well", "cluster 2", 16),
    ]
    assert "known groups ill; well" in describe(shown)
    assert "Known group" in draw(shown)
    assert read_figure(shown.to_dict()).group_label == "cluster"


@pytest.mark.slow
def test_map_of_many_patients_draws_some_of_them():
    shown = cluster_map(model_of((1500, 1500)), np.full(3000, ""))
    assert sum(len(cloud.x) for cloud in shown.clouds) == MAX_POINTS
    assert f"{MAX_POINTS} patients drawn" in shown.caption


def test_projection_is_that_of_largest_variance():
    random = np.random.default_rng(3)
    rows = random.normal(size=(50, 4)) * [1.0, 5.0, 0.1, 2.0]
    found = project(rows)
    variances = np.sort(np.linalg.eigvalsh(np.cov(rows.T)))[::-1]
    np.testing.assert_allclose(found.var(axis=0, ddof=1), variances[:2])
    np.testing.assert_allclose(np.abs(project(-rows)), np.abs(found))
    assert project(rows[:, :1]).shape == (50, 2)


def test_sizes_and_shares_hide_the_few():
    groups = np.array(["ill"] * 27 + ["well"] * 3 + ["ill"] * 25 + ["well"] * 4)
    shown = cluster_table(model_of(), groups)
    assert list(shown.columns) == ["cluster", "patients", "ill", "well"]
    assert [list(row) for row in shown.rows] == [
        ["cluster 1", 30.0, "90 %", "few"],
        ["cluster 2", "hidden", "100 %", "–"],
        ["cluster 3", "<10", "–", "few"],
    ]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_no_small_count_follows_from_the_total(counts):
    shown = suppress(counts)
    hidden = [count for count, cell in zip(counts, shown, strict=True) if isinstance(cell, str)]
    assert all(cell == count for count, cell in zip(counts, shown, strict=True) if not isinstance(cell, str))
    assert all(count in hidden for count in counts if 0 < count < MIN_SHOWN)
    if hidden and max(counts) >= MIN_SHOWN:
        assert len(hidden) >= 2


def test_profiles_are_of_the_patients_who_were_aligned():
    model = model_of((20, 20))
    values = np.repeat([[0.0, 5.0], [2.0, 5.0]], 20, axis=0)
    order = np.random.default_rng(1).permutation(40)
    data = data_of([*order, -1], np.vstack([values[order], [[900.0, 900.0]]]))
    shown = profile_map(model, "lab", "blood", data)
    assert list(shown.rows) == ["blood_0", "blood_1"]
    assert list(shown.columns) == ["cluster 1", "cluster 2"]
    assert np.array(shown.values).tolist() == [[-1.0, 1.0], [0.0, 0.0]]


def test_profiles_leave_out_small_clusters_and_columns_that_differ_little():
    values = np.random.default_rng(2).normal(size=(59, 30))
    values[:30, 29] += 9.0
    shown = profile_map(model_of(), "lab", "blood", data_of(range(59), values))
    assert list(shown.columns) == ["cluster 1", "cluster 2"]
    assert len(shown.rows) == 24
    assert "blood_29" in shown.rows
    assert "24 columns of 30" in shown.caption


def test_groups_come_from_whichever_site_knows_them():
    model = model_of((20, 20))
    values = np.ones((3, 1)) * [[1.0], [2.0], [3.0]]
    sites = {name: data_of(places, values) for name, places in {"a": [0, 1, 2], "b": [2, 3, -1]}.items()}
    groups = find_groups(model, sites, {"a": (), "b": ("x", "y", "z")})
    assert groups.tolist() == ["", "", "x", "y", *[""] * 36]
    groups = find_groups(model, sites, {"a": ("k", "l", "m"), "b": ("x", "y", "z")})
    assert groups.tolist() == ["k", "l", "m", "y", *[""] * 36]


def test_eigenvalues_tell_whether_the_number_was_chosen():
    assert eigenvalues(model_of())[0].marks == {"clusters chosen, by the largest gap": 3.0}
    assert eigenvalues(model_of(n_clusters=3))[0].marks == {"requested clusters": 3.0}
    single = model_of()
    single.eigenvalues_ = np.array([0.0])
    assert eigenvalues(single) == []


def test_a_fit_shows_all_of_it_with_and_without_the_sites_data():
    drawn = mc.datasets.simulate_views(66, 2, (6, 5, 7), random_state=4)
    sites = mc.datasets.split_views(drawn)
    model = FedMSGL(2).fit(mc.Federation.in_process(sites, secure_sum=True))
    shown = show_clusters(model, sites, {"view_2": drawn.labels.tolist()})
    titles = [one.title for one in shown]
    assert titles == [
        "Clusters", "Sizes of the clusters", "Affinity", "Profile of view_1 at view_1", "Profile of view_2 at view_2",
        "Profile of view_3 at view_3", "Weights of the views", "Eigenvalues",
    ]  # fmt: skip
    clouds = shown[0].clouds
    assert {cloud.centre for cloud in clouds} == set(drawn.groups)
    assert sum(len(cloud.x) for cloud in clouds) >= 56
    assert [one.title for one in show_clusters(model, {}, {})] == [title for title in titles if "Profile" not in title]
    assert read_figure(shown[2].to_dict()) == shown[2]
