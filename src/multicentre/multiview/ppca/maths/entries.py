"""Exact EM with entries missing anywhere (at random): sums per feature, and the local update that they feed.

With z = [x; 1] and t taken about the current mean, a site's sums for every feature j, over the rows that hold it, are

    A_j = sum t_j <z>,   Ba_j = sum <z z'>,   D_j = sum t_j^2.

They add over rows, patterns and sites. The loadings and the shift of the mean are then [W, dmu]_j = A_j Ba_j^-1:
:func:`~multicentre.multiview.ppca.maths.invariant.maximise_shared` does it for all sites, and on one site's sums under
the standard latent law it is PX-EM to the local maximum of the likelihood.

References
----------
Balelli, Silva and Lorenzi (2021), section 3.3; Tipping and Bishop (1999), Probabilistic principal component analysis;
Liu, Rubin and Wu (1998), Parameter expansion to accelerate EM: the PX-EM algorithm.
"""

from __future__ import annotations

import numpy as np

from multicentre.multiview.ppca.maths.axes import absorb_law, square_root
from multicentre.multiview.ppca.maths.invariant import SharedSums
from multicentre.multiview.ppca.maths.missing import Rows, sum_outer_grouped
from multicentre.multiview.ppca.maths.model import Floats, LatentLaw, Layout, Parameters
from multicentre.multiview.ppca.maths.predict import project_rows
from multicentre.multiview.ppca.maths.prior import Prior
from multicentre.multiview.ppca.maths.problem import NOISE_FLOOR, Noise

# Floats that the work on one chunk of rows may take, about 128 MB.
CHUNK_FLOATS = 2**24


def sum_entries(
    X: Floats, parameters: Parameters, law: LatentLaw | None = None, *, chunk_rows: int | None = None
) -> SharedSums:
    """Do the E-step over the observed entries of `X`, a chunk of rows at a time.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, NaN where an entry is missing.
    parameters : Parameters
        Current parameters, of the same features; the sums are about their mean.
    law : LatentLaw, optional
        Case mix of the rows' centre; N(0, I) by default.
    chunk_rows : int, optional
        Rows taken at once; by default as many as fit in 128 MB.

    Returns
    -------
    SharedSums
        With one matrix ``second`` a feature, shape (d, q + 1, q + 1); rows that hold feature j are
        ``second[j, -1, -1]``.

    Examples
    --------
    >>> law_of_rows = Parameters(np.ones((2, 1)), np.zeros(2), np.ones(2))
    >>> sums = sum_entries(np.array([[3.0, 3.0], [2.0, np.nan]]), law_of_rows)
    >>> sums.cross.round(9).tolist(), sums.second[:, -1, -1].tolist()
    ([[8.0, 5.0], [6.0, 3.0]], [2.0, 1.0])
    """
    d, q = parameters.loadings.shape
    at_once = chunk_rows or max(1, CHUNK_FLOATS // (4 * d + 3 * (q + 1) ** 2))
    law = law or LatentLaw.standard(q)
    total = _sum_chunk(X[:at_once], parameters, law)
    for start in range(at_once, len(X), at_once):
        total = total + _sum_chunk(X[start : start + at_once], parameters, law)
    return total


def _sum_chunk(X: Floats, parameters: Parameters, law: LatentLaw) -> SharedSums:
    d, q = parameters.loadings.shape
    rows = Rows.read(X)
    projection = project_rows(rows, absorb_law(parameters, law))
    root = square_root(law.covariance)
    z = np.hstack([law.mean + projection.mean @ root, np.ones((len(X), 1))])
    n_patterns = len(rows.patterns)
    by_pattern = sum_outer_grouped(z, rows.pattern_of, n_patterns)
    sizes = np.bincount(rows.pattern_of, minlength=n_patterns)
    by_pattern[:, :q, :q] += sizes[:, None, None] * (root @ projection.covariances @ root)
    by_pattern = (by_pattern + by_pattern.transpose(0, 2, 1)) / 2
    total = by_pattern.sum(axis=0)
    second = rows.patterns.T.astype(np.float64) @ by_pattern.reshape(n_patterns, -1)
    deviations = rows.deviations(parameters.mean)
    return SharedSums(
        cross=deviations.T @ z,
        second=second.reshape(d, q + 1, q + 1),
        squares=np.square(deviations).sum(axis=0),
        latent_first=total[:q, q],
        latent_second=total[:q, :q],
        n_rows=float(len(X)),
        log_likelihood=float(projection.log_likelihood.sum()),
    )


def update_law(latent_first: Floats, latent_second: Floats, n_rows: float) -> LatentLaw:
    """Estimate a centre's case mix from sums of <x>, shape (q,), and <x x'>, shape (q, q) (M-step of its latent law).

    Examples
    --------
    >>> law = update_law(np.array([2.0]), np.array([[6.0]]), 2)
    >>> law.mean.tolist(), law.covariance.tolist()
    ([1.0], [[2.0]])
    """
    mean = latent_first / n_rows
    covariance = latent_second / n_rows - np.outer(mean, mean)
    return LatentLaw(mean, (covariance + covariance.T) / 2)


def settle_noise(left: Floats, sums: SharedSums, prior: Prior, layout: Layout, noise: Noise) -> Floats:
    """Turn the squares `left` of every feature, shape (d,), into noise variances: the mode under the prior."""
    of, counts, squares = layout.view_of, sums.second[:, -1, -1], sums.squares
    if noise == "isotropic":
        left, counts, squares = (np.add.reduceat(each, layout.starts)[of] for each in (left, counts, squares))
    weight = np.maximum(counts, 1.0)
    mode = (left + 2 * prior.noise_scale[of]) / np.maximum(counts + 2 * (prior.noise_shape[of] + 1), 1.0)
    return np.maximum(mode, NOISE_FLOOR * squares / weight)
