"""Starting values of the shared fit: leading directions of the within-site second moments, summed over sites.

Second moments of two views are averaged over the rows that hold both. For few features, one sum of d x d numbers
suffices. For more, each of several rounds of subspace iteration sums d x (q + 5) numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.sparse.csgraph import connected_components

from multicentre.errors import DataError
from multicentre.multiview.ppca.maths.model import Floats, Integers, Layout, Parameters
from multicentre.multiview.ppca.maths.moments import PatternMoments

# Least share of an eigenvalue that becomes a squared loading: EM does not leave an axis of zero loadings.
MIN_SIGNAL = 1e-3
# Least share of a view's variance that becomes noise: the first E-step divides by the noise, which EM then estimates.
MIN_NOISE = 1e-2
# Directions of the subspace iteration beyond those of the fit, without which the last of these converges slowly (Halko,
# Martinsson and Tropp 2011 advise 5 to 10).
EXTRA_DIRECTIONS = 5


@dataclass(frozen=True)
class StartSums:
    """Counts, sums and squares of one site; they add over sites.

    Parameters
    ----------
    pairs : array of shape (k, k)
        Number of rows that hold both views.
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
    """Return a site's counts per pair of views, its sums and its within-site squares."""
    pairs = np.zeros((layout.n_views, layout.n_views))
    total, squares = np.zeros(layout.n_features), np.zeros(layout.n_features)
    centre = _site_mean(patterns, layout)
    for pattern in patterns:
        views_held, features, moments = pattern.views(layout).astype(np.float64), pattern.features, pattern.moments
        pairs += moments.n * np.outer(views_held, views_held)
        total[features] += moments.n * moments.mean
        squares[features] += moments.scatter_diagonal + moments.n * (moments.mean - centre[features]) ** 2
    return StartSums(pairs, total, squares)


def multiply_second_moments(
    patterns: list[PatternMoments], layout: Layout, directions: Floats, pairs: Floats
) -> Floats:
    """Return a site's term of ``C V``, where C is the available-case covariance over all sites.

    Parameters
    ----------
    patterns : list of PatternMoments
        Moments of the site's rows.
    layout : Layout
        Views and their columns.
    directions : array of shape (d, p)
        ``V``. With the identity, the result is the site's term of C.
    pairs : array of shape (k, k)
        Row counts of the :class:`StartSums` over all sites.

    Returns
    -------
    array of shape (d, p)
    """
    out = np.zeros_like(directions)
    centre = _site_mean(patterns, layout)
    weights = np.where(pairs > 0, 1.0 / np.maximum(pairs, 1.0), 0.0)
    for pattern in patterns:
        features, moments = pattern.features, pattern.moments
        views = layout.view_of[features]
        shift = moments.mean - centre[features]
        for equal_views, partners in _group_equal_weights(weights, np.flatnonzero(pattern.views(layout))):
            weighted = directions[features] * partners[views][:, None]
            product = moments.scatter_times(weighted) + np.outer(shift, moments.n * (shift @ weighted))
            rows = np.isin(views, equal_views)
            out[np.flatnonzero(features)[rows]] += product[rows]
    return out


def _group_equal_weights(weights: Floats, views_held: Integers) -> list[tuple[Integers, Floats]]:
    """Group the views of a pattern that have equal weights, so that one product per group suffices."""
    rows, group = np.unique(weights[np.ix_(views_held, views_held)], axis=0, return_inverse=True)
    grouped = []
    for index, row in enumerate(rows):
        partners = np.zeros(len(weights))
        partners[views_held] = row
        grouped.append((views_held[group.ravel() == index], partners))
    return grouped


def start_from_covariance(sums: StartSums, covariance: Floats, layout: Layout, n_components: int) -> Parameters:
    """Return starting values from the available-case covariance, shape (d, d).

    Views are scaled to equal variance first, so that the result does not depend on their units.
    """
    require_views(sums, layout)
    scale = _view_scales(sums, layout)
    return _from_products(sums, layout, np.eye(layout.n_features), covariance / np.outer(scale, scale), n_components)


def draw_directions(layout: Layout, n_components: int, rng: np.random.Generator) -> Floats:
    """Draw orthonormal directions for the subspace iteration, shape (d, q + 5)."""
    width = min(n_components + EXTRA_DIRECTIONS, layout.n_features)
    return np.asarray(np.linalg.qr(rng.normal(size=(layout.n_features, width)))[0])


def scale_directions(sums: StartSums, layout: Layout, directions: Floats) -> Floats:
    """Return `directions` over the views' scales, for the products at the sites."""
    return directions / _view_scales(sums, layout)[:, None]


def next_directions(sums: StartSums, layout: Layout, products: Floats) -> Floats:
    """Orthonormalise the sites' summed products, shape (d, p)."""
    return np.asarray(np.linalg.qr(products / _view_scales(sums, layout)[:, None])[0])


def start_from_products(
    sums: StartSums, layout: Layout, directions: Floats, products: Floats, n_components: int
) -> Parameters:
    """Return starting values from orthonormal `directions` and the products summed over sites (Rayleigh-Ritz)."""
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
    loadings = directions @ vectors[:, leading] * np.sqrt(np.maximum(values - rest, MIN_SIGNAL * values))
    explained = _by_view((loadings**2).sum(axis=1), layout) / np.asarray(layout.sizes)
    noise = np.where(variances > 0, variances, 1.0) * np.maximum(1.0 - explained, MIN_NOISE)
    mean = sums.total / _rows(sums, layout)
    return Parameters(loadings * scale[:, None], mean, noise[layout.view_of])


def group_unlinked_views(pairs: Floats, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the groups of views linked by common rows.

    The relative rotation of two groups is not identified.

    Examples
    --------
    >>> group_unlinked_views(np.array([[5, 2, 0], [2, 5, 0], [0, 0, 3]]), ("a", "b", "c"))
    [('a', 'b'), ('c',)]
    """
    count, label = connected_components(np.asarray(pairs) > 0, directed=False)
    return [tuple(name for name, group in zip(names, label, strict=True) if group == index) for index in range(count)]


def _site_mean(patterns: list[PatternMoments], layout: Layout) -> Floats:
    total, rows = np.zeros(layout.n_features), np.zeros(layout.n_features)
    for pattern in patterns:
        total[pattern.features] += pattern.moments.n * pattern.moments.mean
        rows[pattern.features] += pattern.moments.n
    return total / np.maximum(rows, 1.0)


def require_views(sums: StartSums, layout: Layout) -> None:
    """Raise DataError unless each view is held by at least one row of some site."""
    absent = [name for name, n in zip(layout.names, np.diagonal(sums.pairs), strict=True) if n < 1]
    if absent:
        raise DataError(
            f"each view must be held by at least one site; got no site with {', '.join(absent)}",
            hint="Leave them out of the study.",
        )


def _rows(sums: StartSums, layout: Layout) -> Floats:
    return np.maximum(np.diagonal(sums.pairs), 1.0)[layout.view_of]


def _view_scales(sums: StartSums, layout: Layout) -> Floats:
    variances = _by_view(sums.variances / _rows(sums, layout), layout) / np.asarray(layout.sizes)
    return np.sqrt(np.where(variances > 0, variances, 1.0))[layout.view_of]


def _by_view(values: Floats, layout: Layout) -> Floats:
    return np.asarray(np.add.reduceat(values, layout.starts))
