"""Figures and tables of a FedMSGL fit, on what the coordinator has and, in a simulation, on the sites' data.

Clusters, groups and cells of few patients are left out: no value rests on fewer than ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from multicentre.clustering.fedmsgl.maths.profiles import profile_columns
from multicentre.data import MultiViewData
from multicentre.estimator.figures import Bars, Cloud, Figure, HeatMap, Lines, Points, Table

if TYPE_CHECKING:
    from multicentre.clustering.fedmsgl.estimator import FedMSGL

LEAST_SHOWN = 10
SIMULATED = "Drawn from the sites' files, which only a simulation has"
PROFILED = f'{SIMULATED}; over real sites a profile needs relations = "listed".'
FEW = f"<{LEAST_SHOWN}"
MOST_BINS = 48
"""Rows and columns of the affinity's map: what one page holds."""
MOST_POINTS = 2_000
N_PROFILED = 24
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Cell = str | float | None


def show_clusters(
    model: FedMSGL, sites: Mapping[str, MultiViewData], labels: Mapping[str, Sequence[str]]
) -> list[Figure]:
    """Return the figures of a fitted model.

    Parameters
    ----------
    model : FedMSGL
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
    model: FedMSGL, sites: Mapping[str, MultiViewData], labels: Mapping[str, Sequence[str]]
) -> NDArray[np.str_]:
    """Return the known group of every patient in the common order, shape (n,), "" where no site knows it."""
    groups = np.full(len(model.labels_), "", dtype=object)
    for site, data in sites.items():
        known = np.asarray(list(labels.get(site, ())), dtype=object)
        if not len(known):
            continue
        places = model.places_for(data)
        free = (places >= 0) & (groups[places] == "")
        groups[places[free]] = known[free]
    return groups.astype(str)


def cluster_map(model: FedMSGL, groups: NDArray[np.str_]) -> Points:
    """The embedding in its two directions of largest variance, by cluster and known group."""
    x, y = project(model.embedding_).T
    chosen = np.sort(np.random.default_rng(0).permutation(len(x))[:MOST_POINTS])
    clouds = []
    for cluster in range(model.n_clusters_):
        for group in dict.fromkeys(groups.tolist()):
            every = (model.labels_ == cluster) & (groups == group)
            if every.sum() >= LEAST_SHOWN:
                own = chosen[every[chosen]]
                clouds.append(Cloud(group, _name(cluster), x[own].tolist(), y[own].tolist()))
    some = f" {MOST_POINTS} patients drawn at random." if len(x) > MOST_POINTS else ""
    shapes, drawn = (", a shape a known group", f" {SIMULATED}.") if (groups != "").any() else ("", "")
    return Points(
        "Clusters",
        f"The embedding of the patients in its two directions of largest variance: a colour a cluster{shapes}. Fewer "
        f"than {LEAST_SHOWN} patients of one colour and shape are left out.{some}{drawn}",
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


def cluster_table(model: FedMSGL, groups: NDArray[np.str_]) -> Table:
    """Patients of every cluster, and of every known group in it."""
    names = sorted(set(groups.tolist()) - {""})
    sizes = suppress(np.bincount(model.labels_[model.labels_ >= 0], minlength=model.n_clusters_).tolist())
    rows: list[list[Cell]] = []
    for cluster, size in enumerate(sizes):
        own = groups[model.labels_ == cluster]
        rows.append([_name(cluster), size, *(tell_share(int((own == name).sum()), len(own)) for name in names)])
    known = ", and the share of each known group among them, to 5 %; few: under ten patients" if names else ""
    return Table(
        "Sizes of the clusters",
        f"Patients of each cluster{known}. Sizes below {LEAST_SHOWN} are told as a bound; where one alone would be, "
        f"the next larger is hidden with it.{f' {SIMULATED}.' if names else ''}",
        "model",
        ["cluster", "patients", *names],
        rows,
    )


def suppress(counts: Sequence[int]) -> list[Cell]:
    """Return counts with small ones hidden, and one more where a single one would follow from the total.

    >>> suppress([40, 3, 12]), suppress([40, 0, 12]), suppress([40, 3, 4])
    ([40.0, '<10', 'hidden'], [40.0, 0.0, 12.0], [40.0, '<10', '<10'])
    """
    shown: list[Cell] = [FEW if 0 < count < LEAST_SHOWN else float(count) for count in counts]
    large = [place for place, count in enumerate(counts) if count >= LEAST_SHOWN]
    if shown.count(FEW) == 1 and large:
        shown[min(large, key=lambda place: counts[place])] = "hidden"
    return shown


def tell_share(count: int, n: int) -> str:
    """Return a share so coarsely that no few patients show.

    >>> tell_share(98, 101), tell_share(3, 101), tell_share(0, 101)
    ('95 %', 'few', '–')
    """
    if count < LEAST_SHOWN:
        return "few" if count else "–"
    return f"{5 * round(20 * count / n)} %"


def affinity_map(model: FedMSGL) -> HeatMap:
    """Mean affinity of groups of patients, ordered by cluster."""
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
        By what the patients of a cluster are ordered.

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
    shown = np.flatnonzero(sizes >= LEAST_SHOWN)[:MOST_BINS]
    share = (MOST_BINS - len(shown)) / max(1, int(sizes[shown].sum()))
    bins, names = [], []
    for cluster in shown:
        own = np.flatnonzero(labels == cluster)
        own = own[np.argsort(order[own], kind="stable")]
        n_bins = min(len(own) // LEAST_SHOWN, 1 + int(len(own) * share))
        bins += np.array_split(own, n_bins)
        names += [_name(cluster), *[""] * (n_bins - 1)]
    return bins, names


def mean_affinity(affinity: csr_array, bins: Sequence[Integers]) -> Floats:
    """Return the mean affinity between any two groups of patients, a patient's with itself apart.

    Parameters
    ----------
    affinity : csr_array of shape (n, n), or (n, m)
        Of patients; or of patients and landmarks, by which patients are then compared.
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


def profile_map(model: FedMSGL, site: str, view: str, data: MultiViewData) -> HeatMap:
    """The columns of a view that differ most between clusters, as means in each cluster."""
    places = model.places_for(data)
    here = places >= 0
    found = profile_columns(data.array(view)[here], model.labels_[places[here]], model.n_clusters_, LEAST_SHOWN)
    shown = np.flatnonzero(found.sizes)
    means = found.means[shown]
    spread = means.max(axis=0, initial=-np.inf) - means.min(axis=0, initial=np.inf)
    chosen = np.sort(np.argsort(-spread, kind="stable")[:N_PROFILED])
    n_columns = means.shape[1]
    some = f" The {N_PROFILED} columns of {n_columns} that differ most." if n_columns > N_PROFILED else ""
    reach = max(float(np.abs(means).max(initial=0.0)), 1.0)
    return HeatMap(
        f"Profile of {view} at {site}",
        "Mean of each column in each cluster, in standard deviations from the mean of all patients, to a quarter. "
        f"Clusters of fewer than {LEAST_SHOWN} patients with the view are left out.{some} {PROFILED}",
        "model",
        [data.columns[view][column] for column in chosen],
        [_name(int(cluster)) for cluster in shown],
        means[:, chosen].T.tolist(),
        "standard deviations",
        -reach,
        reach,
    )


def view_weights(model: FedMSGL) -> Bars:
    """Weight of every view."""
    return Bars(
        "Weights of the views",
        "Weight of each view in what the views share. After one round all are equal; with more rounds a view weighs "
        "the less, the farther it is from the others.",
        "model",
        "weight",
        list(model.view_weights_),
        {"weight": list(model.view_weights_.values())},
        {},
    )


def eigenvalues(model: FedMSGL) -> list[Lines]:
    """Smallest eigenvalues of the hypergraph's Laplacian; nothing of a single one."""
    values = np.asarray(model.eigenvalues_, dtype=np.float64)
    if len(values) < 2:
        return []
    chosen = "clusters asked for" if model.n_clusters else "clusters chosen, by the largest gap"
    return [
        Lines(
            "Eigenvalues",
            "Smallest eigenvalues of the hypergraph's normalised Laplacian. As many clusters stand apart as there are "
            "eigenvalues before a large step.",
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
    return bool(((sizes > 0) & (sizes < LEAST_SHOWN)).any())


def _name(cluster: int) -> str:
    return f"cluster {cluster + 1}"
