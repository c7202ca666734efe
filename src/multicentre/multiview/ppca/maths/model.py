"""The letters of Fed-mv-PPCA (Balelli et al. 2021, section 3): how views stack, and what one centre's law is made of.

Shape letters used in the whole folder: n patients, d features over all views, k views, q latent dimensions, s sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class Layout:
    """How the features of several views stand side by side in one row.

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
        """Where the features of `view` stand in a stacked row."""
        index = self.names.index(view)
        start = int(self.starts[index])
        return slice(start, start + self.sizes[index])

    def features_of(self, views: Sequence[str]) -> Booleans:
        """Mask of the features that belong to `views`, shape (d,)."""
        wanted = np.array([name in views for name in self.names])
        return np.asarray(wanted[self.view_of])

    def keep(self, views: Sequence[str]) -> Layout:
        """Return the layout of `views` alone, in this layout's order."""
        kept = [(n, d) for n, d in zip(self.names, self.sizes, strict=True) if n in views]
        return Layout(tuple(n for n, _ in kept), tuple(d for _, d in kept))

    def split(self, stacked: Floats) -> dict[str, Floats]:
        """Cut the first axis of `stacked`, shape (d, ...), into views."""
        return {name: stacked[self.columns(name)] for name in self.names}

    def stack(self, by_view: Mapping[str, Floats]) -> Floats:
        """Put arrays of shape (d_k, ...) one below the other, shape (d, ...)."""
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
        """Return the law with its covariance drawn to the identity as by `weight` further patients.

        The mode under an inverse Wishart prior. A centre with few patients, or one that lacks a view, does not say
        enough about the spread of its case mix to be believed alone.
        """
        if not weight:
            return self
        covariance = (n_rows * self.covariance + weight * np.eye(len(self.mean))) / (n_rows + weight)
        return LatentLaw(self.mean, covariance)
