"""One site's fitting problem, written on the features that the site has; wide data are reduced exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from multicentre.errors import DataError
from multicentre.multiview.ppca.maths.model import (
    NOISE_FLOOR,
    Booleans,
    Floats,
    Integers,
    Layout,
    NoiseModel,
    Parameters,
)
from multicentre.multiview.ppca.maths.moments import Moments, PatternMoments, RowMoments, ScatterMoments
from multicentre.multiview.ppca.maths.prior import Prior


@dataclass(frozen=True)
class Blocks:
    """Blocks of consecutive features: one block per view, or one per noise variance.

    Parameters
    ----------
    starts : int array of shape (g,)
        First feature of each block.
    widths : int array of shape (g,)
        Number of stored features per block.
    sizes : array of shape (g,)
        Number of original features per block; larger than `widths` after an exact reduction of wide data.
    view : int array of shape (g,)
        View of each block.
    """

    starts: Integers
    widths: Integers
    sizes: Floats
    view: Integers

    @classmethod
    def of_views(cls, widths: Integers, sizes: Integers) -> Blocks:
        """Return one block per view."""
        starts = np.concatenate([[0], np.cumsum(widths)[:-1]]).astype(np.int64)
        return cls(starts, widths, sizes.astype(np.float64), np.arange(len(widths)))

    @classmethod
    def of_features(cls, sizes: Integers) -> Blocks:
        """Return one block per feature, for views with `sizes` features."""
        d = int(sizes.sum())
        views = np.repeat(np.arange(len(sizes)), sizes)
        return cls(np.arange(d), np.ones(d, dtype=np.int64), np.ones(d), views)

    def total(self, values: Floats) -> Floats:
        """Sum values of shape (d,) within each block, shape (g,)."""
        return np.asarray(np.add.reduceat(values, self.starts))

    def spread(self, values: Floats) -> Floats:
        """Repeat values of shape (g,) over the features of their block, shape (d,)."""
        return np.repeat(values, self.widths)


@dataclass(frozen=True)
class Part:
    """Rows of one site with the same views: their stacked features, views and moments."""

    features: slice | Integers
    views: Integers
    moments: Moments


@dataclass(frozen=True)
class Target:
    """Prior of a local fit: centres, shape (d, ...), and precisions, shape (k,); 0 is flat."""

    loadings: Floats
    mean: Floats
    loadings_precision: Floats
    mean_precision: Floats
    noise_shape: Floats
    noise_scale: Floats

    @property
    def is_flat(self) -> bool:
        """Flatness: the prior acts on neither the loadings nor the mean."""
        return not (self.loadings_precision.any() or self.mean_precision.any())


@dataclass(frozen=True)
class Problem:
    """Everything that stays fixed during one local fit.

    Parameters
    ----------
    parts : tuple of Part
    views : Blocks
        Stacked features by view.
    noise : Blocks
        Stacked features by shared noise variance.
    target : Target
    start : Parameters
        On the stacked features.
    n_view : array of shape (k,)
        Rows that show each view.
    floor : array of shape (g,)
        Smallest noise variance.
    """

    parts: tuple[Part, ...]
    views: Blocks
    noise: Blocks
    target: Target
    start: Parameters
    n_view: Floats
    floor: Floats


@dataclass(frozen=True)
class Frame:
    """Position of a site's stacked coordinates in the layout: its features, and orthonormal bases where reduced."""

    features: Booleans
    views: Booleans
    bases: tuple[Floats, ...] | None
    origin: Floats

    def expand(self, inner: Parameters, outside: Parameters, layout: Layout) -> Parameters:
        """Return `inner` on the whole layout; features that the site lacks are taken from `outside`."""
        loadings, mean, noise = outside.loadings.copy(), outside.mean.copy(), outside.noise.copy()
        if self.bases is None:
            rows, centre, variance = inner.loadings, inner.mean, inner.noise
        else:
            cuts = np.cumsum([basis.shape[1] for basis in self.bases])[:-1]
            pieces = zip(self.bases, np.split(inner.loadings, cuts), np.split(inner.mean, cuts), strict=True)
            both = [basis @ np.column_stack([w, m]) for basis, w, m in pieces]
            rows = np.concatenate([piece[:, :-1] for piece in both])
            centre = np.concatenate([piece[:, -1] for piece in both]) + self.origin
            first = np.concatenate([[0], cuts]).astype(np.int64)
            variance = np.repeat(inner.noise[first], [len(basis) for basis in self.bases])
        loadings[self.features], mean[self.features], noise[self.features] = rows, centre, variance
        return Parameters(loadings, mean, noise)


def pose_problem(
    patterns: list[PatternMoments], layout: Layout, start: Parameters, prior: Prior | None, noise: NoiseModel
) -> tuple[Problem, Frame]:
    """Write the fit of one site on the features that it has, reduced exactly where rows are few and views wide."""
    if not patterns:
        raise DataError("rows of a site must be at least one; got none", hint="Leave the site out of this fit.")
    features = np.logical_or.reduce([pattern.features for pattern in patterns])
    views = features[layout.starts]
    sizes = np.asarray(layout.sizes, dtype=np.int64)[views]
    inner = start.restrict(features)
    target = _write_target(prior, views, layout, inner)
    only = patterns[0].moments
    if len(patterns) == 1 and noise == "isotropic" and _worth_reducing(only, sizes, inner.n_components):
        assert isinstance(only, RowMoments)
        return _reduce_wide(only, sizes, inner, target, features, views)
    place = np.cumsum(features) - 1
    parts = tuple(
        Part(
            slice(None) if pattern.features[features].all() else place[pattern.features],
            np.flatnonzero(pattern.views(layout)[views]),
            pattern.moments,
        )
        for pattern in patterns
    )
    blocks = Blocks.of_views(sizes, sizes)
    groups = blocks if noise == "isotropic" else Blocks.of_features(sizes)
    frame = Frame(features, views, None, np.zeros(len(place)))
    return _close_problem(parts, blocks, groups, target, inner), frame


def _write_target(prior: Prior | None, views: Booleans, layout: Layout, inner: Parameters) -> Target:
    if prior is None:
        k = int(views.sum())
        zero = np.zeros(k)
        return Target(inner.loadings, inner.mean, zero, zero, np.full(k, -1.0), zero)
    restricted = prior.restrict(views, layout)
    return Target(
        restricted.loadings,
        restricted.mean,
        1.0 / restricted.loadings_variance,
        1.0 / restricted.mean_variance,
        restricted.noise_shape,
        restricted.noise_scale,
    )


def _close_problem(
    parts: tuple[Part, ...], views: Blocks, groups: Blocks, target: Target, start: Parameters
) -> Problem:
    n_view, scatter = np.zeros(len(views.starts)), np.zeros(len(start.mean))
    for part in parts:
        n_view[part.views] += part.moments.n
        scatter[part.features] += part.moments.scatter_diagonal
    view_variance = views.total(scatter) / (n_view * views.sizes)
    typical = float(view_variance.mean()) or 1.0
    view_variance = np.where(view_variance > 0, view_variance, typical)
    floor = NOISE_FLOOR * view_variance[groups.view]
    return Problem(parts, views, groups, target, start, n_view, floor)


def _worth_reducing(moments: Moments, sizes: Integers, q: int) -> bool:
    reduced = np.minimum(sizes, moments.n + 2 * q + 2).sum()
    return isinstance(moments, RowMoments) and bool(2 * reduced <= sizes.sum())


def _reduce_wide(
    moments: RowMoments, sizes: Integers, start: Parameters, target: Target, features: Booleans, views: Booleans
) -> tuple[Problem, Frame]:
    """Rotate every view to an orthonormal basis of its rows, starting and prior loadings, and means.

    Isotropic noise does not see the rotation, and no update ever leaves the span.
    """
    offsets = np.column_stack([start.mean - moments.mean, target.mean - moments.mean])
    spans = np.column_stack([moments.centred.T, start.loadings, target.loadings, offsets])
    cuts = np.cumsum(sizes)[:-1]
    bases = tuple(
        np.eye(len(span)) if len(span) <= span.shape[1] else np.linalg.qr(span)[0] for span in np.split(spans, cuts)
    )
    rotated = np.concatenate([q.T @ span for q, span in zip(bases, np.split(spans, cuts), strict=True)])
    n, q = moments.n, start.n_components
    rows = np.ascontiguousarray(rotated[:, :n].T)
    widths = np.array([basis.shape[1] for basis in bases], dtype=np.int64)
    centre = np.zeros(len(rotated))
    inner_moments: Moments = RowMoments(n, centre, rows)
    if 2 * n >= len(rotated):
        inner_moments = ScatterMoments(n, centre, rows.T @ rows)
    part = Part(slice(None), np.arange(len(sizes)), inner_moments)
    blocks = Blocks.of_views(widths, sizes)
    first = np.concatenate([[0], cuts]).astype(np.int64)
    inner = Parameters(rotated[:, n : n + q], rotated[:, -2].copy(), blocks.spread(start.noise[first]))
    inner_target = Target(
        rotated[:, n + q : n + 2 * q],
        rotated[:, -1].copy(),
        target.loadings_precision,
        target.mean_precision,
        target.noise_shape,
        target.noise_scale,
    )
    frame = Frame(features, views, bases, moments.mean)
    return _close_problem((part,), blocks, blocks, inner_target, inner), frame
