"""Fed-mv-PPCA from one sum of outer products in which the weight of each patient is bounded.

A row z in public units is shortened to at most length R, a constant kappa is appended, and the outer products of u =
[z, kappa] are summed: patients, sums and second moments in one matrix ("analyze Gauss" [1]_). One patient more or less
changes the matrix by uu', whose Frobenius norm is |u|^2 <= R^2 + kappa^2.

Noise is added to the packed upper triangle, whose entries off the diagonal carry a factor sqrt(2): the packed vector's
l2 norm is the matrix's Frobenius norm. Independent noise of standard deviation sd on it is, on the matrix, noise of
variance sd^2 on the diagonal and sd^2 / 2 off it.

References
----------
.. [1] C. Dwork, K. Talwar, A. Thakurta, L. Zhang, "Analyze Gauss: optimal bounds for privacy-preserving principal
   component analysis", STOC 2014.
.. [2] F. Benaych-Georges, R. R. Nadakuditi, "The eigenvalues and eigenvectors of finite, low rank perturbations of
   large random matrices", Advances in Mathematics 227 (2011), theorems 2.1 and 2.2, section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.multiview.ppca.maths.gauge import VarianceSums
from multicentre.multiview.ppca.maths.model import Floats, Layout, Parameters
from multicentre.multiview.ppca.maths.moments import Moments
from multicentre.statistics.symmetric import pack_symmetric, unpack_symmetric

# kappa as a share of the radius; see the notes of Clipping.
WEIGHT_SHARE = 1 / 3
# Entries beyond are cut, so that no infinity enters a length.
LARGEST = 1e300
# Steps of the rows per unit length. Products of two entries are then multiples of 2**-30 and at most 1, so that sums
# over 2**22 patients have 52 binary digits, which doubles represent exactly.
GRID = 2.0**15
# Relative room for the rounding of doubles in the unit: far above 2**-53 per operation, and a millionth of the radius.
SLACK = 2.0**-20
# Share of the squared radius above which the mean squared length indicates that many rows were shortened. With the
# default radius and a reference that fits, the share is at most 1 / 1.2**2, about 0.7. A smaller limit would warn of
# such references too, a larger one would warn only when nearly all rows were shortened.
CROWDED = 0.9


@dataclass(frozen=True)
class Clipping:
    """Bound on the contribution of one patient.

    Parameters
    ----------
    radius : float
        ``R``, the largest length of a row in public units.
    n_features : int
        ``d``.

    Notes
    -----
    ``kappa`` is a third of ``R``: a larger one increases the sensitivity, a smaller one makes the number of patients
    noisier. Rows are brought to whole steps of ``1 / GRID``, so that the sums over up to 2**22 patients are exact in
    float64 whatever their order, and the bound holds in floating-point arithmetic too. `unit` leaves room for the
    rounding, which lengthens a row by at most ``sqrt(d + 1) / (2 GRID)``.
    """

    radius: float
    n_features: int

    @property
    def unit(self) -> float:
        """Factor of the rows, with which the longest [z, kappa] is just below 1."""
        room = np.sqrt(self.n_features + 1.0) / (2 * GRID)
        return float((1 - room - SLACK) / (self.radius * np.hypot(1.0, WEIGHT_SHARE)))

    @property
    def weight(self) -> float:
        """``kappa`` after the same multiplication and rounding."""
        return float(np.rint(GRID * WEIGHT_SHARE * self.radius * self.unit) / GRID)


def default_radius(n_features: int) -> float:
    """Return ``1.2 sqrt(d)``: the squared length of rows whose d columns have variance 1 is d on average.

    The noise grows with the square of the radius: 1.2 instead of ``sqrt(2)`` reduces it by 28 in 100. Standard
    deviations are then about 6 in 100 too small on simulated rows. With a factor below 1, rows of average length would
    be shortened.

    Examples
    --------
    >>> default_radius(25)
    6.0
    """
    return float(1.2 * np.sqrt(n_features))


def clip_rows(rows: Floats, radius: float) -> Floats:
    """Shorten every row of more than `radius` to that length, shape (n, d), for any rows and any radius.

    Examples
    --------
    >>> clip_rows(np.array([[3.0, 4.0], [0.0, 0.5]]), 1.0).round(12).tolist()
    [[0.6, 0.8], [0.0, 0.5]]
    """
    rows = np.nan_to_num(np.clip(rows, -LARGEST, LARGEST), nan=0.0)
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    length = np.linalg.norm(rows / largest, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        inside = length <= radius / largest
    return np.where(inside, rows, rows / largest * (radius / np.where(length > 0, length, 1.0)))


def sum_outer_products(
    blocks: Iterable[Floats], clipping: Clipping, clip: Callable[[Floats, float], Floats] = clip_rows
) -> Floats:
    """Sum ``[z, kappa] [z, kappa]'`` over clipped rows, packed, over the most that one row can add.

    Parameters
    ----------
    blocks : iterable of arrays of shape (m, d)
        Rows in public units, no entry missing.
    clipping : Clipping
    clip : callable, default clip_rows
        From rows and radius to rows no longer than it.

    Returns
    -------
    array of shape ((d + 1) (d + 2) / 2,)
        One row more or less moves it by at most 1 in the l2 norm.

    Examples
    --------
    >>> clipping = Clipping(radius=1.0, n_features=2)
    >>> bool(0.999 < np.linalg.norm(sum_outer_products([np.array([[3.0, 4.0]])], clipping)) <= 1)
    True
    """
    d = clipping.n_features
    total = np.zeros((d + 1, d + 1))
    for rows in blocks:
        short = np.rint(GRID * clipping.unit * clip(rows, clipping.radius))
        steps = np.column_stack([short, np.full(len(rows), GRID * clipping.weight)])
        total += steps.T @ steps
    return pack_symmetric(total / GRID**2)


def mean_by_person(blocks: Iterable[Floats], persons: NDArray[np.int64], radius: float) -> Floats:
    """Return the mean of each person's clipped rows, shape (n_persons, d): all of them together reach `radius` at most.

    Rows are clipped before the mean, so that one outlying record does not dominate the others of its person.

    Parameters
    ----------
    blocks : iterable of arrays of shape (m, d)
        Rows in public units, no entry missing.
    persons : array of int, shape (n,)
        Number of each row's person, counted from 0.
    radius : float

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0], [0.0, 9.0], [0.0, 1.0]])
    >>> mean_by_person([rows[:2], rows[2:]], np.array([0, 1, 0]), 2.0).tolist()
    [[0.5, 0.5], [0.0, 2.0]]
    """
    rows = np.concatenate([clip_rows(block, radius) for block in blocks])
    total = np.zeros((persons.max() + 1, rows.shape[1]))
    np.add.at(total, persons, rows)
    return np.asarray(total / np.bincount(persons)[:, None])


@dataclass(frozen=True)
class NoisedMoments:
    """Moments of the rows, read from a noised sum of outer products, in public units.

    Parameters
    ----------
    n : float
        Patients, at least 1.
    mean : array of shape (d,)
    covariance : array of shape (d, d)
        As read: symmetric, with eigenvalues that noise may have taken below zero.
    error : float
        Standard deviation of the noise in a diagonal entry of the covariance.
    radius : float
        No row was longer.
    """

    n: float
    mean: Floats
    covariance: Floats
    error: float
    radius: float

    @property
    def possible_covariance(self) -> Floats:
        """The nearest covariance that rows can have, shape (d, d).

        Noise spreads the small eigenvalues about their mean and leaves the mean unchanged. Negative ones are therefore
        raised at a constant trace; without this constraint each noise variance would be too large. The floor is the
        standard error of the mean eigenvalue, ``error / sqrt(d)``: the noise hides smaller values.
        """
        d = len(self.mean)
        floor = min(self.error / np.sqrt(d), self.radius**2 / d)
        values, axes = np.linalg.eigh(self.covariance)
        values = project_eigenvalues(values, floor, min(float(values.sum()), self.radius**2))
        return np.asarray((axes * values) @ axes.T)

    @property
    def is_crowded(self) -> bool:
        """Mark of shortened rows: their mean squared length is near the largest, beyond the noise."""
        doubt = 3 * self.error * np.sqrt(len(self.mean))
        return bool(np.trace(self.covariance) + self.mean @ self.mean - doubt > CROWDED * self.radius**2)

    def expected_angle(self, n_components: int) -> float:
        """Return the expected angle in degrees by which the noise turns the weakest of the leading axes.

        Of a covariance ``theta vv' + s I`` with symmetric noise of standard deviation tau off the diagonal, the
        leading eigenvalue is ``s + theta + d tau^2 / theta``, and its axis makes an angle of sine ``tau sqrt(d) /
        theta`` with v [2]_; where theta is below ``tau sqrt(d)``, the axis has no relation to v: 90. The sampling
        error of the patients is not included.
        """
        values = np.linalg.eigvalsh(self.covariance)[::-1]
        reach = self.error * np.sqrt(0.5 * len(values))
        gap = float(values[n_components - 1] - values[n_components:].mean())
        if gap <= 2 * reach:
            return 90.0
        theta = 0.5 * (gap + np.sqrt(gap**2 - 4 * reach**2))
        return float(np.degrees(np.arcsin(reach / theta)))


def read_moments(packed: Floats, clipping: Clipping, noise_sd: float) -> NoisedMoments:
    """Read patients, mean and covariance from a noised sum of :func:`sum_outer_products`.

    Parameters
    ----------
    packed : array of shape ((d + 1) (d + 2) / 2,)
    clipping : Clipping
    noise_sd : float
        Standard deviation of the noise in each of its entries.

    Returns
    -------
    NoisedMoments
        The number of patients is at least 1, and the mean is at most as long as a clipped row.
    """
    products, unit = unpack_symmetric(packed), clipping.unit
    n = max(float(products[-1, -1]) / clipping.weight**2, 1.0)
    mean = clip_rows(products[None, :-1, -1] / (clipping.weight * unit * n), clipping.radius)[0]
    covariance = products[:-1, :-1] / (unit**2 * n) - np.outer(mean, mean)
    return NoisedMoments(n, mean, covariance, noise_sd / (unit**2 * n), clipping.radius)


def project_eigenvalues(values: Floats, floor: float, total: float) -> Floats:
    """Return the nearest values of at least `floor` with the given sum (Euclidean projection onto a simplex).

    Parameters
    ----------
    values : array of shape (d,)
        In any order.
    floor : float
    total : float
        Raised to ``d floor`` where it is less.

    Examples
    --------
    >>> project_eigenvalues(np.array([-1.0, 1.0, 6.0]), 0.0, 6.0).tolist()
    [0.0, 0.5, 5.5]
    """
    above = values - floor
    excess = max(total - floor * len(values), 0.0)
    falling = np.sort(above)[::-1]
    shifts = (np.cumsum(falling) - excess) / np.arange(1, len(values) + 1)
    last = np.flatnonzero(falling >= shifts)[-1]
    return np.asarray(np.maximum(above - shifts[last], 0.0) + floor)


def sum_moment_variances(moments: Moments, law: Parameters, layout: Layout) -> VarianceSums:
    """Return what :func:`~multicentre.multiview.ppca.maths.gauge.sum_variances` does, from moments of complete rows.

    Expected latents are linear in a row, ``x = G'(t - mu)``, so every sum of squares is one of second moments.
    """
    W, residual = law.loadings, moments.mean - law.mean
    weighted = W / law.noise[:, None]
    gain = weighted @ np.linalg.inv(np.eye(law.n_components) + W.T @ weighted)
    cross = moments.scatter_times(gain) + moments.n * np.outer(residual, residual @ gain)
    second = gain.T @ cross
    total = moments.scatter_diagonal + moments.n * residual**2
    change = W**2 * np.diagonal(second) - 2 * W * cross
    after_all = total + np.einsum("dq,dq->d", W, W @ second - 2 * cross)
    return VarianceSums(
        np.add.reduceat(total, layout.starts),
        np.add.reduceat(total[:, None] + change, layout.starts, axis=0),
        np.add.reduceat(after_all, layout.starts),
        moments.n * np.asarray(layout.sizes, dtype=np.float64),
    )
