"""Parameters of Fed-mv-PPCA (Balelli et al. 2021, section 3), and changes of the axes of their latent space.

With x = origin + axes x', the law of the rows stays the same and its parameters change.

Shape letters used in the whole folder: n patients, d features over all views, k views, q latent dimensions, s sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
NoiseModel = Literal["isotropic", "diagonal"]
# Smallest noise variance as a share of the view's variance. At zero the likelihood is unbounded (a Heywood case). About
# the square root of the rounding error of doubles, so that the floor does not affect noise that the data can determine.
NOISE_FLOOR = 1e-8
LOG_TWO_PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Layout:
    """Order and widths of several views in a stacked row.

    Parameters
    ----------
    names : tuple of str
        View names, in stacking order.
    sizes : tuple of int
        Number of features of each view, ``d_k``.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def n_views(self) -> int:
        """Number of views."""
        return len(self.names)

    @property
    def n_features(self) -> int:
        """Number of features of all views."""
        return sum(self.sizes)

    @cached_property
    def view_of(self) -> Integers:
        """View index of every feature, shape (d,)."""
        return np.repeat(np.arange(self.n_views), self.sizes)

    @cached_property
    def starts(self) -> Integers:
        """First feature of every view, shape (k,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    def columns(self, view: str) -> slice:
        """Slice of the features of `view` in a stacked row."""
        index = self.names.index(view)
        start = int(self.starts[index])
        return slice(start, start + self.sizes[index])

    def features_of(self, views: Sequence[str]) -> Booleans:
        """Mask of the features that belong to `views`, shape (d,)."""
        wanted = np.array([name in views for name in self.names])
        return np.asarray(wanted[self.view_of])

    def keep(self, views: Sequence[str]) -> Layout:
        """Return the layout of `views` only, in this layout's order."""
        selected = [(n, d) for n, d in zip(self.names, self.sizes, strict=True) if n in views]
        return Layout(tuple(n for n, _ in selected), tuple(d for _, d in selected))

    def split(self, stacked: Floats) -> dict[str, Floats]:
        """Cut the first axis of `stacked`, shape (d, ...), into views."""
        return {name: stacked[self.columns(name)] for name in self.names}

    def stack(self, by_view: Mapping[str, Floats]) -> Floats:
        """Concatenate arrays of shape (d_k, ...), shape (d, ...)."""
        return np.concatenate([by_view[name] for name in self.names])


@dataclass(frozen=True)
class Parameters:
    """One law of a stacked row: t = W x + mu + eps with x ~ N(0, I) (equations 1 and 3).

    Parameters
    ----------
    loadings : array of shape (d, q)
        ``W``, the views' loadings one below the other.
    mean : array of shape (d,)
        ``mu``.
    noise : array of shape (d,)
        Noise variance of every feature; constant within a view when the noise is isotropic.
    """

    loadings: Floats
    mean: Floats
    noise: Floats

    @property
    def n_components(self) -> int:
        """Number of latent dimensions."""
        return int(self.loadings.shape[1])

    def restrict(self, features: Booleans) -> Parameters:
        """Return the law of the rows' `features`, a mask of shape (d,)."""
        return Parameters(self.loadings[features], self.mean[features], self.noise[features])


@dataclass(frozen=True)
class LatentLaw:
    """The latent case mix of one centre, x ~ N(mean, covariance); the standard law is N(0, I).

    Parameters
    ----------
    mean : array of shape (q,)
    covariance : array of shape (q, q)
    """

    mean: Floats
    covariance: Floats

    @classmethod
    def standard(cls, n_components: int) -> LatentLaw:
        """Return N(0, I)."""
        return cls(np.zeros(n_components), np.eye(n_components))

    def shrunk(self, n_rows: float, weight: float) -> LatentLaw:
        """Return the law with its covariance shrunk to the identity, with the weight of `weight` patients.

        The mode under an inverse Wishart prior. A centre with few patients, or one that lacks a view, does not
        determine the spread of its case mix well enough without it.
        """
        if not weight:
            return self
        covariance = (n_rows * self.covariance + weight * np.eye(len(self.mean))) / (n_rows + weight)
        return LatentLaw(self.mean, covariance)

    def log_prior(self, weight: float, *, on_mean: bool) -> float:
        """Return the log density of that prior, less that at its mode; the mean is standard normal if `on_mean`."""
        values = np.linalg.eigvalsh(self.covariance)
        spread = weight * float((np.log(values) + 1.0 / values - 1.0).sum()) if weight else 0.0
        return -0.5 * (spread + (float(self.mean @ self.mean) if on_mean else 0.0))

    def pull(self, weight: float, *, on_mean: bool) -> Floats:
        """Return the slope of that prior along the logarithm of the scale of its modes."""
        identity = np.eye(len(self.mean))
        slope = weight * (identity - np.linalg.inv(self.covariance))
        return np.asarray(slope + np.outer(self.mean, self.mean) - identity if on_mean else slope)


def absorb_axes(parameters: Parameters, origin: Floats, axes: Floats) -> Parameters:
    """Return the parameters for latents in the new axes.

    Parameters
    ----------
    parameters : Parameters
    origin : array of shape (q,)
    axes : array of shape (q, q), invertible

    Examples
    --------
    >>> old = Parameters(np.array([[2.0]]), np.array([1.0]), np.ones(1))
    >>> new = absorb_axes(old, np.array([3.0]), np.array([[0.5]]))
    >>> new.loadings.tolist(), new.mean.tolist()
    ([[1.0]], [7.0])
    """
    loadings = parameters.loadings
    return Parameters(loadings @ axes, parameters.mean + loadings @ origin, parameters.noise)


def change_axes(law: LatentLaw, origin: Floats, axes: Floats, *, prior_share: float = 0.0) -> LatentLaw:
    """Return a site's latent law for latents in the new axes.

    `prior_share`, from 0 to 1, is the weight of the prior in the covariance: that part stays at the identity, which is
    the mode of the prior in old and new axes.
    """
    inverse = np.linalg.inv(axes)
    q = len(law.mean)
    covariance = inverse @ (law.covariance - prior_share * np.eye(q)) @ inverse.T + prior_share * np.eye(q)
    return LatentLaw(np.asarray(inverse @ (law.mean - origin)), 0.5 * (covariance + covariance.T))


def square_root(covariance: Floats) -> Floats:
    """Return the symmetric square root of a positive semi-definite matrix, shape (q, q)."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def absorb_law(parameters: Parameters, law: LatentLaw) -> Parameters:
    """Return the same law of rows with a standard latent law: W Phi^(1/2) and mu + W m."""
    return absorb_axes(parameters, law.mean, square_root(law.covariance))


def invert_positive(matrix: Floats) -> tuple[Floats, float]:
    """Return the inverse and the log determinant of a positive definite matrix of shape (q, q)."""
    root, failed = dpotrf(matrix, lower=1, clean=1)
    if failed:
        raise np.linalg.LinAlgError(
            "the latent precision must be positive definite; got a matrix without a Cholesky factor."
        )
    inverse_root, _ = dtrtri(root, lower=1)
    return inverse_root.T @ inverse_root, 2.0 * float(np.log(root.diagonal()).sum())
