"""Linear and logistic regression from noised sums in which the weight of each patient is bounded.

Covariates and a number to predict are brought to the interval from -1 to 1 by declared bounds; values beyond are cut. A
row u of a one, the covariates and the outcome then has at most the length sqrt(k) for k entries. The outer products
uu', divided by k, are summed ("analyze Gauss" [1]_): one patient more or less changes the sum by at most 1 in the
Frobenius norm. The terms of a logistic model, ``z (y - p)`` and ``p (1 - p) zz'``, are bounded in the same way.

Independent noise of standard deviation sd on the packed upper triangle is, on the matrix, noise N of variance sd^2 on
the diagonal and sd^2 / 2 off it. For a fixed vector v, ``N v`` has the covariance ``sd^2 / 2 (|v|^2 I + vv')``. By the
delta method, standard errors of the coefficients have a part from sampling and one from the noise, as in [2]_.

References
----------
.. [1] C. Dwork, K. Talwar, A. Thakurta, L. Zhang (2014), Analyze Gauss: optimal bounds for privacy-preserving principal
   component analysis, STOC.
.. [2] M. Avella-Medina, C. Bradshaw, P.-L. Loh (2023), Differentially private inference via noisy optimization, Annals
   of Statistics 51, 2067-2092.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from multicentre.statistics.symmetric import pack_symmetric, unpack_symmetric

Floats = NDArray[np.float64]
# Steps of the rows per unit length. Products of two entries are then multiples of 2**-30 and at most 1, so that sums
# over 2**22 patients have 52 binary digits, which doubles represent exactly, whatever their order.
GRID, GRID_OF_TERMS = 2.0**15, 2.0**30
# Relative room for the rounding of doubles: far above 2**-53 per operation, and a millionth of the length.
SLACK = 2.0**-20
# The smallest eigenvalue of the information must be this many times the largest one that noise has, sd sqrt(2 p). In
# simulations intervals had their level from there on; below, noise changes the information too much.
MIN_SIGNAL = 2.0
# Logistic coefficients of covariates from -1 to 1 are kept within this during the rounds: a ratio of odds of e^20.
MAX_COEFFICIENT = 20.0


def scale_to_box(values: Floats, lower: Floats, upper: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return values brought from their bounds to the interval from -1 to 1, and flags of those cut, shape (n, d).

    Examples
    --------
    >>> scaled, cut = scale_to_box(np.array([[60.0], [130.0]]), np.array([20.0]), np.array([100.0]))
    >>> scaled.tolist(), cut.tolist()
    ([[0.0], [1.0]], [[False], [True]])
    """
    middle, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
    with np.errstate(over="ignore"):
        scaled = (values - middle) / half
    return np.clip(scaled, -1.0, 1.0), (values < lower) | (values > upper)


def row_unit(n_entries: int) -> float:
    """Return the factor with which rows of entries from -1 to 1 are shorter than 1, also after rounding to the grid."""
    room = np.sqrt(n_entries) / (2.0 * GRID)
    return float((1.0 - room - SLACK) / np.sqrt(n_entries))


def sum_row_products(rows: Floats) -> Floats:
    """Return the packed sum of outer products of rows of length below 1, exact in floating-point arithmetic."""
    steps = np.rint(GRID * rows)
    return pack_symmetric(steps.T @ steps / GRID**2)


def sum_moments(rows: Floats) -> Floats:
    """Return the packed sum of outer products of rows, which one row changes by at most 1.

    Parameters
    ----------
    rows : array of shape (n, k)
        Entries from -1 to 1; the first is 1.

    Examples
    --------
    >>> bool(0.99 < np.linalg.norm(sum_moments(np.ones((1, 4)))) < 1)
    True
    """
    return sum_row_products(row_unit(rows.shape[1]) * rows)


def read_moments(packed: Floats, n_entries: int) -> Floats:
    """Return the sum of outer products of the rows, shape (k, k), from a sum of :func:`sum_moments`."""
    unit = row_unit(n_entries)
    scale = np.full(n_entries, unit)
    scale[0] = np.rint(GRID * unit) / GRID  # the column of ones is rounded in all rows alike
    return np.asarray(unpack_symmetric(packed) / np.outer(scale, scale), dtype=np.float64)


def sum_logistic(rows: Floats, outcome: Floats, coefficients: Floats) -> tuple[Floats, Floats]:
    """Return gradient and packed information of a logistic model, each of which one patient changes by at most 1.

    Parameters
    ----------
    rows : array of shape (n, p)
        Entries from -1 to 1; the first is 1.
    outcome : array of shape (n,)
        0 or 1.
    coefficients : array of shape (p,)
    """
    share, unit = expit(rows @ coefficients), row_unit(rows.shape[1])
    terms = np.rint(GRID_OF_TERMS * unit * rows * (outcome - share)[:, None])
    weighted = 2.0 * np.sqrt(share * (1.0 - share))[:, None] * rows
    return np.asarray(terms.sum(axis=0) / GRID_OF_TERMS), sum_row_products(unit * weighted)


def read_logistic(gradient: Floats, packed: Floats) -> tuple[Floats, Floats]:
    """Return gradient, shape (p,), and information, shape (p, p), from sums of :func:`sum_logistic`."""
    unit = row_unit(len(gradient))
    return gradient / unit, np.asarray(unpack_symmetric(packed) / (4.0 * unit**2), dtype=np.float64)


@dataclass(frozen=True)
class PrivateFit:
    """Coefficients of covariates from -1 to 1, and their uncertainty.

    Parameters
    ----------
    coefficients : array of shape (p,)
    sampling, noise : arrays of shape (p, p)
        Covariance by the sampling of patients, and by the noise of privacy.
    dispersion : float
        Residual variance of a number; 1 for classes.
    n_patients : float
        Noised number of patients.
    is_usable : bool
        False if noise may hide a direction of the covariates, so that coefficients and errors mean nothing.
    """

    coefficients: Floats
    sampling: Floats
    noise: Floats
    dispersion: float
    n_patients: float
    is_usable: bool


def is_clear(information: Floats, noise_sd: float) -> bool:
    """Return whether every direction of the covariates is clearly above the noise."""
    return bool(np.linalg.eigvalsh(information)[0] > MIN_SIGNAL * noise_sd * np.sqrt(2.0 * len(information)))


def raise_eigenvalues(information: Floats, noise_sd: float) -> Floats:
    """Return the information with eigenvalues of at least the largest one of the noise, shape (p, p)."""
    values, axes = np.linalg.eigh(information)
    floor = max(noise_sd * np.sqrt(2.0 * len(information)), np.finfo(np.float64).tiny)
    return np.asarray((axes * np.maximum(values, floor)) @ axes.T, dtype=np.float64)


def product_noise(vector: Floats, noise_sd: float, size: int) -> Floats:
    """Return the covariance of the first entries of a noise matrix times a vector, shape (size, size)."""
    first = vector[:size]
    return np.asarray(0.5 * noise_sd**2 * ((vector @ vector) * np.eye(size) + np.outer(first, first)))


def fit_linear(moments: Floats, noise_sd: float) -> PrivateFit:
    """Fit a linear model to noised moments.

    Parameters
    ----------
    moments : array of shape (p + 1, p + 1)
        Sums of products of a one, covariates and outcome, from -1 to 1.
    noise_sd : float
        Standard deviation of the noise on the diagonal.

    Examples
    --------
    >>> rows = np.array([[1.0, -1.0, -0.4], [1.0, 0.0, 0.1], [1.0, 1.0, 0.6]])
    >>> fit_linear(rows.T @ rows, 0.0).coefficients.round(6).tolist()
    [0.1, 0.5]
    """
    p = len(moments) - 1
    products, cross = moments[:p, :p], moments[:p, p]
    usable = is_clear(products, noise_sd)
    information = products if usable else raise_eigenvalues(products, noise_sd)
    inverse = np.asarray(np.linalg.inv(information), dtype=np.float64)
    coefficients = np.asarray(inverse @ cross, dtype=np.float64)
    contrast = np.append(-coefficients, 1.0)
    n_patients = float(moments[0, 0])
    dispersion = float(contrast @ moments @ contrast) / max(n_patients - p, 1.0)
    noise = inverse @ product_noise(contrast, noise_sd, p) @ inverse
    return PrivateFit(
        coefficients, max(dispersion, 0.0) * inverse, noise, dispersion, n_patients, usable and dispersion > 0
    )


def start_logistic(moments: Floats, noise_sd: float) -> Floats:
    """Return coefficients by linear discriminant analysis from noised moments, shape (p,).

    Parameters
    ----------
    moments : array of shape (p + 1, p + 1)
        As for :func:`fit_linear`, with an outcome of -1 or 1.
    noise_sd : float
    """
    n = max(float(moments[0, 0]), 1.0)
    mean = moments[0, 1:] / n
    centred = moments[1:, 1:] - n * np.outer(mean, mean)
    share = float(np.clip(0.5 * (1.0 + mean[-1]), 1.0 / n, 1.0 - 1.0 / n)) if n > 2 else 0.5
    cross, spread = 0.5 * centred[:-1, -1], n * share * (1.0 - share)
    within = raise_eigenvalues(centred[:-1, :-1] - np.outer(cross, cross) / spread, noise_sd)
    slopes = np.clip(np.linalg.solve(within, cross * n / spread), -MAX_COEFFICIENT, MAX_COEFFICIENT)
    intercept = np.log(share / (1.0 - share)) - float(mean[:-1] @ slopes)
    return np.append(np.clip(intercept, -MAX_COEFFICIENT, MAX_COEFFICIENT), slopes)


def newton_step(coefficients: Floats, gradient: Floats, information: Floats, noise_sd: float) -> Floats:
    """Return coefficients after a Newton step with noised derivatives, shape (p,)."""
    moved = coefficients + np.linalg.solve(raise_eigenvalues(information, noise_sd), gradient)
    return np.clip(moved, -MAX_COEFFICIENT, MAX_COEFFICIENT)


def fit_logistic(
    points: Floats,
    gradients: Floats,
    informations: Floats,
    gradient_sd: float,
    information_sd: float,
    n_patients: float,
) -> PrivateFit:
    """Combine the derivatives of m rounds: each gives an estimate by a Newton step, and their noise is independent.

    Parameters
    ----------
    points, gradients : arrays of shape (m, p)
        Coefficients of the rounds, and noised gradients there.
    informations : array of shape (m, p, p)
    gradient_sd, information_sd : float
        Standard deviation of the noise of one round, in a gradient and on the diagonal of an information.
    n_patients : float
        Noised number of patients.
    """
    m, p = points.shape
    mean_sd = information_sd / np.sqrt(m)
    pooled = informations.mean(axis=0)
    usable = is_clear(pooled, mean_sd)
    inverse = np.linalg.inv(pooled if usable else raise_eigenvalues(pooled, mean_sd))
    step = inverse @ gradients.mean(axis=0)
    noise = gradient_sd**2 / m * np.eye(p) + product_noise(step, mean_sd, p)
    return PrivateFit(points.mean(axis=0) + step, inverse, inverse @ noise @ inverse, 1.0, n_patients, usable)
