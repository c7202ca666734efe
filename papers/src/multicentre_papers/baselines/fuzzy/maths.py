"""Fuzzy clustering of several views via sums over patients, after Hu et al. (2024).

Symbols: n patients, d features over all views, k views, c clusters; u memberships, v centres, alpha view weights, m > 1
the fuzziness. Views are centred and scaled so that the mean squared length of the patients in each view is 1.

With squared distances every function below minimises the same objective in one argument,

    J = sum_p alpha_p^2 sum_ij u_ij^m ||x_ip - v_jp||^2,    sum_j u_ij = 1,    sum_p share_p alpha_p = 1,

so J never rises. The authors' code uses plain instead of squared distances. Memberships are then proportional to
``(sum_p alpha_p^2 d_p)^(-2 / (m - 1))``, which minimises another objective than the means do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
TINY = 1e-300  # replaces 0 in logarithms and divisors
MIN_SINGULAR = 1e-9  # singular values below this share of the largest count as 0
MIN_DISPERSION = 1e-12  # replaces 0 in the weights of the views


@dataclass(frozen=True)
class Rows:
    """Patients in the agreed units.

    Parameters
    ----------
    values : array of shape (n, d)
        All views combined; 0 where a view is missing.
    available : array of shape (n, k)
        1 for the available views of a patient, else 0.
    sizes : sequence of int
        Number of columns of each view.
    """

    values: Floats
    available: Floats
    sizes: Sequence[int]

    @classmethod
    def of(cls, standard: Floats, sizes: Sequence[int]) -> Rows:
        """Return the rows of an array in which a missing view is NaN.

        Examples
        --------
        >>> Rows.of(np.array([[1.0, np.nan], [2.0, 3.0]]), [1, 1]).available.tolist()
        [[1.0, 0.0], [1.0, 1.0]]
        """
        present = [~np.isnan(standard[:, columns]).any(axis=1) for columns in view_columns(sizes)]
        return cls(np.nan_to_num(standard, nan=0.0), np.stack(present, axis=1).astype(np.float64), tuple(sizes))

    @cached_property
    def squares(self) -> Floats:
        """Squared length of each patient in each view, shape (n, k)."""
        return np.stack([np.square(self.values[:, at]).sum(axis=1) for at in view_columns(self.sizes)], axis=1)


@dataclass(frozen=True)
class Sums:
    """Sums over patients that a round needs.

    Parameters
    ----------
    moments : array of shape (c, d)
        Sum of u^m x.
    masses : array of shape (c, k)
        Sum of u^m over the patients with the view.
    dispersions : array of shape (k,)
        Sum of u^m times the distance.
    """

    moments: Floats
    masses: Floats
    dispersions: Floats


def view_columns(sizes: Sequence[int]) -> Iterator[slice]:
    """Yield the columns of each view.

    Examples
    --------
    >>> list(view_columns([2, 1]))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    start = 0
    for size in sizes:
        yield slice(start, start + size)
        start += size


def measure_distances(rows: Rows, centres: Floats, *, plain: bool) -> Floats:
    """Return ||x - v|| by view, patient and cluster, squared unless `plain`; 0 in missing views.

    Parameters
    ----------
    rows : Rows
    centres : array of shape (c, d)
    plain : bool

    Returns
    -------
    array of shape (k, n, c)

    Examples
    --------
    >>> rows = Rows.of(np.array([[3.0, 4.0]]), [2])
    >>> measure_distances(rows, np.zeros((1, 2)), plain=True).tolist()
    [[[5.0]]]
    """
    distances = np.empty((len(rows.sizes), len(rows.values), len(centres)))
    for view, at in enumerate(view_columns(rows.sizes)):
        points = centres[:, at]
        squared = rows.squares[:, view, None] - 2.0 * rows.values[:, at] @ points.T + np.square(points).sum(axis=1)
        distances[view] = np.maximum(squared, 0.0) * rows.available[:, view, None]
    return np.sqrt(distances) if plain else distances


def share_memberships(distances: Floats, alpha: Floats, m: float, *, plain: bool) -> Floats:
    """Return u by patient and cluster, shape (n, c); rows sum to 1 (Hu et al., update of U).

    A patient at a centre belongs to that cluster only. Missing views are ignored: memberships depend on the ratios of a
    patient's distances only, so fewer views need no correction.

    Parameters
    ----------
    distances : array of shape (k, n, c)
    alpha : array of shape (k,)
        View weights.
    m : float
        Fuzziness, above 1.
    plain : bool
        Use plain distances and the doubled exponent.

    Examples
    --------
    >>> share_memberships(np.array([[[1.0, 3.0]]]), np.array([1.0]), 2.0, plain=False).tolist()
    [[0.75, 0.25]]
    """
    combined = np.einsum("p,pij->ij", np.square(alpha), distances)
    logs = np.log(np.maximum(combined, TINY)) * (-(2.0 if plain else 1.0) / (m - 1.0))
    u = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(u / u.sum(axis=1, keepdims=True))


def add_up(rows: Rows, weights: Floats, distances: Floats) -> Sums:
    """Return the sums over patients for weights u^m, shape (n, c).

    Examples
    --------
    >>> rows = Rows.of(np.array([[1.0], [3.0]]), [1])
    >>> add_up(rows, np.ones((2, 1)), np.ones((1, 2, 1))).moments.tolist()
    [[4.0]]
    """
    return Sums(weights.T @ rows.values, weights.T @ rows.available, np.einsum("ij,pij->p", weights, distances))


def weighted_means(sums: Sums, centres: Floats, sizes: Sequence[int]) -> Floats:
    """Return v = sum u^m x / sum u^m, shape (c, d) (FedMVFCM); an empty cluster keeps its centre.

    The authors' sites send gradients, and the coordinator takes a gradient step; the fixed points are the same.

    Examples
    --------
    >>> sums = Sums(np.array([[4.0], [0.0]]), np.array([[2.0], [0.0]]), np.ones(1))
    >>> weighted_means(sums, np.array([[9.0], [7.0]]), [1]).tolist()
    [[2.0], [7.0]]
    """
    masses = np.repeat(sums.masses, sizes, axis=1)
    return np.where(masses > TINY, sums.moments / np.maximum(masses, TINY), centres)


def orthonormal_centres(sums: Sums, centres: Floats, sizes: Sequence[int]) -> Floats:
    """Return the polar factor of sum u^m x, view by view, shape (c, d) (FedMVFPC).

    The authors write a centre as W v, with W and V orthonormal, W = polar(M' V), V = polar(sum alpha^2 M W). With one W
    for all sites, W v is the polar factor of M for every V, and V keeps its initial value. V is therefore left out.

    Parameters
    ----------
    sums : Sums
    centres : array of shape (c, d)
        Returned for a view without patients.
    sizes : sequence of int

    Examples
    --------
    >>> sums = Sums(np.array([[3.0, 0.0], [0.0, 5.0]]), np.ones((2, 1)), np.ones(1))
    >>> orthonormal_centres(sums, np.zeros((2, 2)), [2]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    updated = centres.copy()
    for at in view_columns(sizes):
        left, scale, right = np.linalg.svd(sums.moments[:, at], full_matrices=False)
        nonzero = scale > MIN_SINGULAR * max(float(scale[0]), TINY)
        if scale[0] > 0:
            updated[:, at] = left[:, nonzero] @ right[nonzero]
    return updated


def weigh_views(dispersions: Floats, patients: Floats) -> Floats:
    """Return alpha, the inverse of a view's dispersion per patient (Hu et al., update of alpha), shape (k,).

    The weights sum to 1 if all patients have all views. Otherwise a view counts by its share of patients.

    Parameters
    ----------
    dispersions : array of shape (k,)
    patients : array of shape (k,)
        Patients with each view.

    Examples
    --------
    >>> weigh_views(np.array([1.0, 3.0]), np.array([10.0, 10.0])).round(12).tolist()
    [0.75, 0.25]
    """
    inverse = 1.0 / np.maximum(dispersions / patients, MIN_DISPERSION)
    return np.asarray(inverse / (inverse @ patients) * patients.max())


def objective(dispersions: Floats, alpha: Floats) -> float:
    """Return J = sum alpha^2 sum u^m d.

    Examples
    --------
    >>> objective(np.array([4.0, 8.0]), np.array([0.5, 0.5]))
    3.0
    """
    return float(np.square(alpha) @ dispersions)


def draw_centres(n_clusters: int, sizes: Sequence[int], generator: np.random.Generator) -> Floats:
    """Return random centres of length 1 in every view, shape (c, d), independent of the patients.

    The first clusters are the patients nearest in direction.

    Examples
    --------
    >>> np.square(draw_centres(3, [4], np.random.default_rng(0))).sum(axis=1).round(12).tolist()
    [1.0, 1.0, 1.0]
    """
    drawn = generator.normal(size=(n_clusters, sum(sizes)))
    for at in view_columns(sizes):
        drawn[:, at] /= np.linalg.norm(drawn[:, at], axis=1, keepdims=True)
    return drawn
