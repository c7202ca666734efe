"""Hypergraphs of the historical variants of FedMSGL: hyperedges of k samples, from similarities or from distances.

A hyperedge belongs to every sample, and holds it and its k - 1 neighbours. Of the Laplacian L = I - B B' (equation 8)
only the factor B = Dv^-1/2 H W^1/2 De^-1/2 is formed.

References
----------
D. Li, Z. Yang and S. Xie (2025), FedMSGL: a self-expressive hypergraph based federated multi-view learning, AAAI.
N. Perraudin et al. (2014), GSPBOX: a toolbox for signal processing on graphs, arXiv:1408.5781 (what its hypergraph of
nearest neighbours computes).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from multicentre.clustering.hypergraph import normalise_incidence

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Lower limit of a hyperedge weight, so that no vertex has degree 0.
MIN_WEIGHT = 1e-12


def measure_squares(points: Floats) -> Floats:
    """Return the squared distances between rows, shape (n, n), symmetric with diagonal 0 (z of equation 23).

    Examples
    --------
    >>> measure_squares(np.array([[0.0, 0.0], [3.0, 4.0]])).tolist()
    [[0.0, 25.0], [25.0, 0.0]]
    """
    products = points @ points.T
    norms = np.diag(products).copy()
    products *= -2.0
    products += norms[:, None]
    products += norms
    np.maximum(products, 0.0, out=products)
    np.fill_diagonal(products, 0.0)
    return products


def find_nearest(points: Floats, k: int) -> tuple[Integers, Floats]:
    """Return the k rows nearest to each row, itself first, and their distances, by ascending distance.

    Parameters
    ----------
    points : array of shape (n, p)
    k : int
        Cut to n.

    Returns
    -------
    members : int64 array of shape (n, k)
    distances : array of shape (n, k)
        Euclidean; the first column is 0.

    Examples
    --------
    >>> find_nearest(np.array([[0.0], [1.0], [3.0]]), 2)[0].tolist()
    [[0, 1], [1, 0], [2, 1]]
    """
    squares = measure_squares(points)
    np.fill_diagonal(squares, -1.0)
    members = _smallest(squares, k)
    return members, np.sqrt(np.maximum(np.take_along_axis(squares, members, axis=1), 0.0))


def find_similar(affinity: Floats, k: int) -> Integers:
    """Return each sample and the k - 1 others of largest affinity to it, shape (n, k), itself first.

    Parameters
    ----------
    affinity : array of shape (n, n)
        Any finite values, negative ones too; the diagonal does not count.
    k : int
        Cut to n.

    Examples
    --------
    >>> find_similar(np.array([[0.0, 4.0, 1.0], [4.0, 0.0, 2.0], [1.0, 2.0, 0.0]]), 2).tolist()
    [[0, 1], [1, 0], [2, 1]]
    """
    reversed_affinity = -affinity
    np.fill_diagonal(reversed_affinity, -np.inf)
    return _smallest(reversed_affinity, k)


def weigh_misplaced(members: Integers, distances: Floats) -> Floats:
    """Return the hyperedge weights of gspbox's hypergraph of nearest neighbours, shape (n,), with its fault.

    The Gaussian kernel exp(-d^2 / s^2), s the mean of all distances, has one value for each of the n k memberships,
    listed hyperedge by hyperedge. A hyperedge's weight should be the sum of its own k values. gspbox looks the values
    up by the numbers of its samples instead, as if they were places in that list: it only ever reads the first n.

    Parameters
    ----------
    members, distances : arrays of shape (n, k)
        From `find_nearest`.

    Examples
    --------
    >>> members, distances = find_nearest(np.array([[0.0], [1.0], [3.0]]), 2)
    >>> weigh_misplaced(members, distances).round(3).tolist()
    [1.105, 1.105, 1.105]
    """
    kernel = weigh_members(distances).ravel()
    return np.asarray(kernel[members].sum(axis=1), dtype=np.float64)


def weigh_members(distances: Floats) -> Floats:
    """Return exp(-d^2 / s^2) of each membership, shape (n, k), s the mean of all distances; 1 where all are 0.

    Examples
    --------
    >>> weigh_members(np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 2.0]])).round(3).tolist()
    [[1.0, 0.105], [1.0, 0.105], [1.0, 0.0]]
    """
    scale = float(distances.mean()) or 1.0
    return np.asarray(np.exp(-((distances / scale) ** 2)), dtype=np.float64)


def factor_hypergraph(members: Integers, weights: Floats) -> csr_array:
    """Return B = Dv^-1/2 H W^1/2 De^-1/2 (equation 8) of hyperedges of k samples each, shape (n, n).

    Parameters
    ----------
    members : int64 array of shape (n, k)
        Row j lists hyperedge j (equation 7).
    weights : array of shape (n,)
        W, at least 0; below 1e-12 they count as 1e-12, so that every sample has a degree.

    Examples
    --------
    >>> factor_hypergraph(np.array([[0, 1], [1, 0]]), np.ones(2)).toarray().round(3).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    n, k = members.shape
    repeated = np.repeat(np.maximum(weights, MIN_WEIGHT), k)
    edges = csr_array((repeated, members.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    return normalise_incidence(csr_array(edges.T))


def link_similar(affinity: Floats, k: int) -> csr_array:
    """Return the factor B of the hypergraph as printed: each sample's k - 1 largest affinities, W = I.

    Examples
    --------
    >>> link_similar(1.0 - np.eye(3), 3).toarray().round(3)[0].tolist()
    [0.333, 0.333, 0.333]
    """
    return factor_hypergraph(find_similar(affinity, k), np.ones(len(affinity)))


def link_nearest(affinity: Floats, k: int) -> csr_array:
    """Return the factor B of the hypergraph behind the printed table: nearest rows of A, weights as gspbox has them.

    Examples
    --------
    >>> link_nearest(1.0 - np.eye(3), 3).toarray().round(3)[0].tolist()
    [0.333, 0.333, 0.333]
    """
    members, distances = find_nearest(affinity, k)
    return factor_hypergraph(members, weigh_misplaced(members, distances))


def _smallest(values: Floats, k: int) -> Integers:
    """Return the columns of the k smallest entries of each row, in ascending order."""
    most = min(k, values.shape[1])
    nearest = np.sort(np.argpartition(values, most - 1, axis=1)[:, :most], axis=1)
    order = np.argsort(np.take_along_axis(values, nearest, axis=1), axis=1, kind="stable")
    return np.take_along_axis(nearest, order, axis=1).astype(np.int64, copy=False)
