"""Where the shared fit starts: the leading directions of the sites' summed within-site second moments.

Entries for two views are averaged over the rows that show both. One sum suffices while d x d numbers are little to
send; above that a few rounds of subspace iteration send d x (q + extra) each.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.sparse.csgraph import connected_components

from multicentre.federation.errors import DataError
from multicentre.multiview.ppca.maths.model import Floats, Integers, Layout, Parameters
from multicentre.multiview.ppca.maths.moments import PatternMoments


@dataclass(frozen=True)
class StartSums:
    """First sums over sites.

    Parameters
    ----------
    pairs : array of shape (k, k)
        Rows that show both views.
    total : array of shape (d,)
        Sum of t.
    variances : array of shape (d,)
        Sum of squares about the site's own mean.
    """

    pairs: Floats
    total: Floats
    variances: Floats

    def __add__(self, other: StartSums) -> StartSums:
        return StartSums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def sum_first_moments(patterns: list[PatternMoments], layout: Layout) -> StartSums:
    """Write a site's counts per pair of views, sums and within-site squares."""
    pairs = np.zeros((layout.n_views, layout.n_views))
    total, squares = np.zeros(layout.n_features), np.zeros(layout.n_features)
    centre = _site_mean(patterns, layout)
    for pattern in patterns:
        shown, own, moments = pattern.views(layout).astype(np.float64), pattern.features, pattern.moments
        pairs += moments.n * np.outer(shown, shown)
        total[own] += moments.n * moments.mean
        squares[own] += moments.scatter_diagonal + moments.n * (moments.mean - centre[own]) ** 2
    return StartSums(pairs, total, squares)


def multiply_second_moments(
    patterns: list[PatternMoments], layout: Layout, directions: Floats, pairs: Floats
) -> Floats:
    """Write a site's term of ``C V``, C the available-case covariance over all sites.

    Parameters
    ----------
    patterns : list of PatternMoments
    layout : Layout
    directions : array of shape (d, p)
        ``V``; the identity gives the site's term of C itself.
    pairs : array of shape (k, k)
        Of the :class:`StartSums` over all sites.

    Returns
    -------
    array of shape (d, p)
    """
    out = np.zeros_like(directions)
    centre = _site_mean(patterns, layout)
    weights = np.where(pairs > 0, 1.0 / np.maximum(pairs, 1.0), 0.0)
    for pattern in patterns:
        own, moments = pattern.features, pattern.moments
        views = layout.view_of[own]
        shift = moments.mean - centre[own]
        for alike, partners in _alike_rows(weights, np.flatnonzero(pattern.views(layout))):
            given = directions[own] * partners[views][:, None]
            product = moments.scatter_times(given) + np.outer(shift, moments.n * (shift @ given))
            rows = np.isin(views, alike)
            out[np.flatnonzero(own)[rows]] += product[rows]
    return out


def _alike_rows(weights: Floats, shown: Integers) -> list[tuple[Integers, Floats]]:
    """Group the views of a pattern whose weights with its views are equal: one product serves them all."""
    rows, group = np.unique(weights[np.ix_(shown, shown)], axis=0, return_inverse=True)
    grouped = []
    for index, row in enumerate(rows):
        partners = np.zeros(len(weights))
        partners[shown] = row
        grouped.append((shown[group.ravel() == index], partners))
    return grouped


def start_from_covariance(sums: StartSums, covariance: Floats, layout: Layout, n_components: int) -> Parameters:
    """Start from the available-case covariance, shape (d, d).

    Views are brought to the same variance first, so that the start does not depend on their units.
    """
    require_views(sums, layout)
    scale = _view_scales(sums, layout)
    return _from_products(sums, layout, np.eye(layout.n_features), covariance / np.outer(scale, scale), n_components)


def draw_directions(layout: Layout, n_components: int, rng: np.random.Generator, *, extra: int = 5) -> Floats:
    """Draw orthonormal directions for the subspace iteration, shape (d, q + extra)."""
    width = min(n_components + extra, layout.n_features)
    return np.asarray(np.linalg.qr(rng.normal(size=(layout.n_features, width)))[0])


def scale_directions(sums: StartSums, layout: Layout, directions: Floats) -> Floats:
    """Return what to broadcast for `directions`: the sites' sum times the same scales is one step of the iteration."""
    return directions / _view_scales(sums, layout)[:, None]


def next_directions(sums: StartSums, layout: Layout, products: Floats) -> Floats:
    """Orthonormalise the sites' summed products, shape (d, p)."""
    return np.asarray(np.linalg.qr(products / _view_scales(sums, layout)[:, None])[0])


def start_from_products(
    sums: StartSums, layout: Layout, directions: Floats, products: Floats, n_components: int
) -> Parameters:
    """Start from orthonormal `directions` and the sites' summed products with them as broadcast (Rayleigh-Ritz)."""
    require_views(sums, layout)
    scaled = products / _view_scales(sums, layout)[:, None]
    return _from_products(sums, layout, directions, scaled, n_components)


def _from_products(
    sums: StartSums, layout: Layout, directions: Floats, products: Floats, n_components: int
) -> Parameters:
    small = directions.T @ products
    values, vectors = np.linalg.eigh(0.5 * (small + small.T))
    leading = np.argsort(values)[::-1][:n_components]
    values, scale = np.maximum(values[leading], 0.0), _view_scales(sums, layout)
    variances = _by_view(sums.variances / _rows(sums, layout), layout) / np.asarray(layout.sizes)
    rest = max(layout.n_features - float(values.sum()), 0.0) / max(layout.n_features - n_components, 1)
    loadings = directions @ vectors[:, leading] * np.sqrt(np.maximum(values - rest, 1e-3 * values))
    explained = _by_view((loadings**2).sum(axis=1), layout) / np.asarray(layout.sizes)
    noise = np.where(variances > 0, variances, 1.0) * np.maximum(1.0 - explained, 1e-2)
    mean = sums.total / _rows(sums, layout)
    return Parameters(loadings * scale[:, None], mean, noise[layout.view_of])


def group_unlinked_views(pairs: Floats, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the groups of views that rows link; more than one group leaves their relative rotation undecided.

    Examples
    --------
    >>> group_unlinked_views(np.array([[5, 2, 0], [2, 5, 0], [0, 0, 3]]), ("a", "b", "c"))
    [('a', 'b'), ('c',)]
    """
    count, label = connected_components(np.asarray(pairs) > 0, directed=False)
    return [tuple(name for name, own in zip(names, label, strict=True) if own == g) for g in range(count)]


def _site_mean(patterns: list[PatternMoments], layout: Layout) -> Floats:
    total, rows = np.zeros(layout.n_features), np.zeros(layout.n_features)
    for pattern in patterns:
        total[pattern.features] += pattern.moments.n * pattern.moments.mean
        rows[pattern.features] += pattern.moments.n
    return total / np.maximum(rows, 1.0)


def require_views(sums: StartSums, layout: Layout) -> None:
    """Raise DataError where no row of any site shows a view."""
    absent = [name for name, n in zip(layout.names, np.diagonal(sums.pairs), strict=True) if n < 1]
    if absent:
        raise DataError(f"no site has the views {', '.join(absent)}", hint="Leave them out of the study.")


def _rows(sums: StartSums, layout: Layout) -> Floats:
    return np.maximum(np.diagonal(sums.pairs), 1.0)[layout.view_of]


def _view_scales(sums: StartSums, layout: Layout) -> Floats:
    variances = _by_view(sums.variances / _rows(sums, layout), layout) / np.asarray(layout.sizes)
    return np.sqrt(np.where(variances > 0, variances, 1.0))[layout.view_of]


def _by_view(values: Floats, layout: Layout) -> Floats:
    return np.asarray(np.add.reduceat(values, layout.starts))
