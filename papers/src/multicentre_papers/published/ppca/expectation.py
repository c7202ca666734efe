"""E-step from moments: sums over rows of the latents' posterior moments, and the log-likelihood.

All sums are taken about the current mean, which avoids cancellation between large numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from multicentre.multiview.ppca.maths.model import Floats, invert_positive
from multicentre.multiview.ppca.maths.moments import Moments


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
