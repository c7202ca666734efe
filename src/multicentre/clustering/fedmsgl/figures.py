"""Figures and tables of a FedMSGL fit, from the coordinator's results and, in a simulation, from the sites' data.

Clusters, groups and cells of fewer than ten patients are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from multicentre.clustering.fedmsgl.fitted import FedMSGLModel
from multicentre.clustering.fedmsgl.maths.preparation import profile_columns
from multicentre.data import MultiViewData
from multicentre.estimator.figures import Bars, Cloud, Figure, HeatMap, Lines, Points, Table

# Fewest patients behind a value, as in the profiles of sites: a mean does not describe single patients.
MIN_SHOWN = 10
SIMULATED = "Drawn from the sites' files, which only a simulation has"
PROFILED = f'{SIMULATED}; over real sites a profile needs relations = "listed".'
FEW = f"<{MIN_SHOWN}"
# Rows and columns of the map of the affinity: the number that fits one page.
MAX_BINS = 48
# Points of the map of clusters: more make the file larger and overlap.
MAX_POINTS = 2_000
# Columns of a profile: with more, the map is hard to read.
N_PROFILED = 24
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Cell = str | float | None


def show_clusters(
    model: FedMSGLModel, sites: Mapping[str, MultiViewData], labels: Mapping[str, Sequence[str]]
) -> list[Figure]:
    """Return the figures of a fitted model.

    Parameters
    ----------
    model : FedMSGLModel
    sites : mapping of str to MultiViewData
        Views by site, with the identifiers of the alignment; empty where the caller has none.
    labels : mapping of str to sequence of str
        Known group of each patient by site, of one site at least; empty where there are none.
    """
    groups = find_groups(model, sites, labels)
    profiles = [profile_map(model, site, view, data) for site, data in sites.items() for view in data.views]
    return [
        cluster_map(model, groups),
        cluster_table(model, groups),
        affinity_map(model),
        *profiles,
        view_weights(model),
        *eigenvalues(model),
    ]


def find_groups(
    model: FedMSGLModel, sites: Mapping[str, MultiViewData], labels: Mapping[str, Sequence[str]]
) -> NDArray[np.str_]:
    """Return the known group of every patient in the common order, shape (n,); "" where no site has one."""
    groups = np.full(len(model.labels_), "", dtype=object)
    for site, data in sites.items():
        site_groups = np.asarray(list(labels.get(site, ())), dtype=object)
        if not len(site_groups):
            continue
        places = model.places_for(data)
        free = (places >= 0) & (groups[places] == "")
        groups[places[free]] = site_groups[free]
    return groups.astype(str)


def cluster_map(model: FedMSGLModel, groups: NDArray[np.str_]) -> Points:
    """Return the embedding in its two directions of largest variance, by cluster and known group."""
    x, y = project(model.embedding_).T
    chosen = np.sort(np.random.default_rng(0).permutation(len(x))[:MAX_POINTS])
    clouds = []
    for cluster in range(model.n_clusters_):
        for group in dict.fromkeys(groups.tolist()):
            every = (model.labels_ == cluster) & (groups == group)
            if every.sum() >= MIN_SHOWN:
                members = chosen[every[chosen]]
                clouds.append(Cloud(group, _name(cluster), x[members].tolist(), y[members].tolist()))
    some = f" {MAX_POINTS} patients drawn at random." if len(x) > MAX_POINTS else ""
    shapes, drawn = (", one shape per known group", f" {SIMULATED}.") if (groups != "").any() else ("", "")
    return Points(
        "Clusters",
        f"The embedding of the patients in its two directions of largest variance: one colour per cluster{shapes}. "
        f"Fewer than {MIN_SHOWN} patients of one colour and shape are left out.{some}{drawn}",
        "model",
        "first direction",
        "second direction",
        clouds,
        group_label="cluster",
        centre_label="known group",
    )


def project(embedding: Floats) -> Floats:
    """Return the two principal components of rows, shape (n, 2), each with its largest entry above 0.

    >>> project(np.array([[0.0, 0.0], [2.0, 0.0], [5.0, 0.0]])).round(1).tolist()
    [[-2.3, 0.0], [-0.3, 0.0], [2.7, 0.0]]
    """
    centred = embedding - embedding.mean(axis=0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:2]
    scores = centred @ directions.T
    leading = scores[np.abs(scores).argmax(axis=0), np.arange(scores.shape[1])]
    scores = scores * np.where(leading < 0, -1.0, 1.0)
    return np.hstack([scores, np.zeros((len(scores), 2 - scores.shape[1]))])


def cluster_table(model: FedMSGLModel, groups: NDArray[np.str_]) -> Table:
    """Return the sizes of the clusters, and the share of every known group in each."""
    names = sorted(set(groups.tolist()) - {""})
    sizes = suppress(np.bincount(model.labels_[model.labels_ >= 0], minlength=model.n_clusters_).tolist())
    rows: list[list[Cell]] = []
    for cluster, size in enumerate(sizes):
        cluster_groups = groups[model.labels_ == cluster]
        rows.append(
            [
                _name(cluster),
                size,
                *(round_share(int((cluster_groups == name).sum()), len(cluster_groups)) for name in names),
            ]
        )
    shares = ", and the share of each known group among them, to 5 %; few: under ten patients" if names else ""
    return Table(
        "Sizes of the clusters",
        f"Patients of each cluster{shares}. Sizes below {MIN_SHOWN} are given as a bound. If only one size is below, "
        f"the next larger one is hidden as well.{f' {SIMULATED}.' if names else ''}",
        "model",
        ["cluster", "patients", *names],
        rows,
    )


def suppress(counts: Sequence[int]) -> list[Cell]:
    """Return counts with small ones hidden; a second one is hidden if a single one would follow from the total.

    >>> suppress([40, 3, 12]), suppress([40, 0, 12]), suppress([40, 3, 4])
    ([40.0, '<10', 'hidden'], [40.0, 0.0, 12.0], [40.0, '<10', '<10'])
    """
    cells: list[Cell] = [FEW if 0 < count < MIN_SHOWN else float(count) for count in counts]
    large = [place for place, count in enumerate(counts) if count >= MIN_SHOWN]
    if cells.count(FEW) == 1 and large:
        cells[min(large, key=lambda place: counts[place])] = "hidden"
    return cells


def round_share(count: int, n: int) -> str:
    """Return a share to 5 %, or "few" for fewer than ten patients.

    >>> round_share(98, 101), round_share(3, 101), round_share(0, 101)
    ('95 %', 'few', '–')
    """
    if count < MIN_SHOWN:
        return "few" if count else "–"
    return f"{5 * round(20 * count / n)} %"


def affinity_map(model: FedMSGLModel) -> HeatMap:
    """Return the mean affinity of groups of patients, ordered by cluster."""
    bins, names = bin_clusters(model.labels_, project(model.embedding_)[:, 0])
    cells = mean_affinity(model.affinity_, bins) if bins else np.zeros((0, 0))
    cells = cells / max(float(cells.mean()), 1e-300) if bins else cells
    few = " Clusters of fewer than ten patients are left out." if len(bins) and _has_few(model.labels_) else ""
    return HeatMap(
        "Affinity",
        "Mean affinity, over that of all cells, of groups of ten or more patients. Groups are ordered by cluster, and "
        f"within a cluster by the first direction of the map of clusters: blocks on the diagonal are clusters.{few}",
        "model",
        names,
        names,
        cells.tolist(),
        "affinity, over the mean",
        0.0,
        max(float(cells.max(initial=0.0)), 1e-300),
    )


def bin_clusters(labels: Integers, order: Floats) -> tuple[list[Integers], list[str]]:
    """Return groups of ten or more patients of one cluster each, at most 48 in all, and their names.

    Parameters
    ----------
    labels : int array of shape (n,)
        Cluster of every patient, -1 for none.
    order : array of shape (n,)
        Values by which the patients of a cluster are ordered.

    Returns
    -------
    list of int arrays
        Places of the patients of each group.
    list of str
        The cluster's name at its first group, "" at its others.

    Examples
    --------
    >>> bins, names = bin_clusters(np.repeat([0, 1, 2], [25, 10, 3]), np.arange(38.0))
    >>> [len(one) for one in bins], names
    ([13, 12, 10], ['cluster 1', '', 'cluster 2'])
    """
    sizes = np.bincount(labels[labels >= 0])
    large = np.flatnonzero(sizes >= MIN_SHOWN)[:MAX_BINS]
    share = (MAX_BINS - len(large)) / max(1, int(sizes[large].sum()))
    bins, names = [], []
    for cluster in large:
        members = np.flatnonzero(labels == cluster)
        members = members[np.argsort(order[members], kind="stable")]
        n_bins = min(len(members) // MIN_SHOWN, 1 + int(len(members) * share))
        bins += np.array_split(members, n_bins)
        names += [_name(cluster), *[""] * (n_bins - 1)]
    return bins, names


def mean_affinity(affinity: csr_array, bins: Sequence[Integers]) -> Floats:
    """Return the mean affinity between any two groups of patients, without that of a patient with itself.

    Parameters
    ----------
    affinity : csr_array of shape (n, n), or (n, m)
        Between patients; or between patients and landmarks, by which patients are then compared.
    bins : sequence of int arrays
        Places of the patients of each group.

    Examples
    --------
    >>> affinity = csr_array(np.array([[0.0, 1.0, 0.5], [1.0, 0.0, 0.0], [0.5, 0.0, 0.0]]))
    >>> mean_affinity(affinity, [np.array([0, 1]), np.array([2])]).tolist()
    [[1.0, 0.25], [0.25, 0.0]]
    """
    n, sizes = affinity.shape[0], np.array([len(one) for one in bins], dtype=np.float64)
    column = np.repeat(np.arange(len(bins)), sizes.astype(int))
    member = csr_array((np.ones(len(column)), (np.concatenate(bins), column)), shape=(n, len(bins)))
    if affinity.shape[1] == n:
        sums = (member.T @ affinity @ member).toarray()
        pairs = np.outer(sizes, sizes) - np.diag(sizes)
    else:
        codes = (member.T @ affinity).toarray()
        weight = np.maximum(np.asarray(affinity.sum(axis=0)).ravel(), 1e-300)
        sums, pairs = (codes / weight) @ codes.T, np.outer(sizes, sizes)
    return np.asarray(sums / np.maximum(pairs, 1.0))


def profile_map(model: FedMSGLModel, site: str, view: str, data: MultiViewData) -> HeatMap:
    """Return the columns of a view that differ most between clusters, as means per cluster."""
    places = model.places_for(data)
    here = places >= 0
    profile = profile_columns(data.array(view)[here], model.labels_[places[here]], model.n_clusters_, MIN_SHOWN)
    large = np.flatnonzero(profile.sizes)
    means = profile.means[large]
    spread = means.max(axis=0, initial=-np.inf) - means.min(axis=0, initial=np.inf)
    chosen = np.sort(np.argsort(-spread, kind="stable")[:N_PROFILED])
    n_columns = means.shape[1]
    some = f" The {N_PROFILED} columns of {n_columns} that differ most." if n_columns > N_PROFILED else ""
    reach = max(float(np.abs(means).max(initial=0.0)), 1.0)
    return HeatMap(
        f"Profile of {view} at {site}",
        "Mean of each column in each cluster, in standard deviations from the mean of all patients, to a quarter. "
        f"Clusters of fewer than {MIN_SHOWN} patients with the view are left out.{some} {PROFILED}",
        "model",
        [data.columns[view][column] for column in chosen],
        [_name(int(cluster)) for cluster in large],
        means[:, chosen].T.tolist(),
        "standard deviations",
        -reach,
        reach,
    )


def view_weights(model: FedMSGLModel) -> Bars:
    """Return the weight of every view."""
    return Bars(
        "Weights of the views",
        "Weight of each view in what the views share. After one round all are equal. With more rounds, a view "
        "far from the others has a smaller weight.",
        "model",
        "weight",
        list(model.view_weights_),
        {"weight": list(model.view_weights_.values())},
        {},
    )


def eigenvalues(model: FedMSGLModel) -> list[Lines]:
    """Return the smallest eigenvalues of the hypergraph's Laplacian; no figure of a single one."""
    values = np.asarray(model.eigenvalues_, dtype=np.float64)
    if len(values) < 2:
        return []
    chosen = "requested clusters" if model.n_clusters else "clusters chosen, by the largest gap"
    return [
        Lines(
            "Eigenvalues",
            "Smallest eigenvalues of the hypergraph's normalised Laplacian. The number of separate clusters "
            "is the number of eigenvalues before a large step.",
            "model",
            "number",
            "eigenvalue",
            [float(number) for number in range(1, len(values) + 1)],
            {"eigenvalue": values.tolist()},
            {chosen: float(model.n_clusters_)},
        )
    ]


def _has_few(labels: Integers) -> bool:
    sizes = np.bincount(labels[labels >= 0])
    return bool(((sizes > 0) & (sizes < MIN_SHOWN)).any())


def _name(cluster: int) -> str:
    return f"cluster {cluster + 1}"
