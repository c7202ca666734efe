"""E-step from moments: sums over rows of the latents' posterior moments, and the log-likelihood.

All sums are taken about the current mean, which avoids cancellation between large numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from multicentre.multiview.ppca.maths.model import Floats, Integers
from multicentre.multiview.ppca.maths.moments import Moments

LOG_TWO_PI = float(np.log(2.0 * np.pi))


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
class PartSums:
    """E-step of one part.

    Parameters
    ----------
    cross : array of shape (d, q)
        ``A``, sum of (t - mu) <x>'.
    latent : array of shape (q, q)
        ``B``, sum of <x x'>.
    latent_sum : array of shape (q,)
        Sum of <x>.
    squares : array of shape (d,)
        ``D``, sum of (t - mu)^2.
    information : array of shape (q, q)
        ``H = W' Psi^-1 W``.
    signal : array of shape (q, q)
        ``G = P' S_mu P``, P = Psi^-1 W.
    mahalanobis : float
        ``-2 log L`` without the terms n (d ln 2 pi + ln|Psi|), which the caller adds.
    """

    cross: Floats
    latent: Floats
    latent_sum: Floats
    squares: Floats
    information: Floats
    signal: Floats
    mahalanobis: float


def invert_positive(matrix: Floats) -> tuple[Floats, float]:
    """Return the inverse and the log determinant of a positive definite matrix of shape (q, q)."""
    root, failed = dpotrf(matrix, lower=1, clean=1)
    if failed:
        raise np.linalg.LinAlgError(
            "the latent precision must be positive definite; got a matrix without a Cholesky factor."
        )
    inverse_root, _ = dtrtri(root, lower=1)
    return inverse_root.T @ inverse_root, 2.0 * float(np.log(root.diagonal()).sum())


def expect_part(moments: Moments, loadings: Floats, mean: Floats, noise: Floats) -> PartSums:
    """Do the E-step under the standard latent law (Tipping and Bishop 1999, equations 25 and 26, noise per view)."""
    n = moments.n
    inverse_noise = 1.0 / noise
    weighted = loadings * inverse_noise[:, None]
    information = loadings.T @ weighted
    covariance, log_determinant = invert_positive(information + np.eye(len(information)))
    residual = moments.mean - mean
    projection = residual @ weighted
    product = moments.scatter_times(weighted)
    product += residual[:, None] * (n * projection)
    signal = weighted.T @ product
    cross = product @ covariance
    squares = moments.scatter_diagonal + n * residual * residual
    explained = covariance @ signal
    latent = n * covariance + explained @ covariance
    mahalanobis = n * log_determinant + float(squares @ inverse_noise) - float(explained.trace())
    return PartSums(
        cross=cross,
        latent=0.5 * (latent + latent.T),
        latent_sum=n * (covariance @ projection),
        squares=squares,
        information=information,
        signal=0.5 * (signal + signal.T),
        mahalanobis=mahalanobis,
    )
