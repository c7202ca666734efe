"""What ranks covariates, and what a pilot's ratio says of the bias of folds cut by them: pure functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Calibration:
    """How a ratio inside the sites goes with the ratio over all of them.

    Parameters
    ----------
    intercept, slope : float
        Predicted ratio = intercept + slope * pilot's ratio.
    spread : float
        Standard deviation around the line.

    Examples
    --------
    >>> round(BOOSTED_CLASSES.predict(0.95), 4)
    0.9529
    """

    intercept: float
    slope: float
    spread: float

    def predict(self, ratio: float) -> float:
        """Return the ratio over all sites that goes with a pilot's."""
        return self.intercept + self.slope * ratio


# Boosted trees and the accuracy of two classes: 510 covariates of simulated federations of five sites.
BOOSTED_CLASSES = Calibration(0.096, 0.902, 0.006)

AS_IT_IS = Calibration(0.0, 1.0, 0.0)


def mutual_information(table: NDArray[np.integer] | Floats) -> float:
    """Return the mutual information of rows and columns of a table of counts, in nats, from 0.

    The plug-in estimate less its first-order bias, (r - 1)(c - 1) / 2n over rows and columns that occur (G. A. Miller,
    "Note on the bias of information estimates", 1955).

    Parameters
    ----------
    table : array of shape (r, c)

    Examples
    --------
    >>> round(mutual_information(np.array([[400, 0], [0, 400]])), 3), mutual_information(np.array([[5, 5], [5, 5]]))
    (0.693, 0.0)
    """
    counts = np.asarray(table, dtype=np.float64)
    total = counts.sum()
    if total <= 0:
        return 0.0
    rows, columns = counts.sum(axis=1, keepdims=True), counts.sum(axis=0, keepdims=True)
    some = counts > 0
    plug_in = float((counts[some] * np.log((counts * total)[some] / (rows * columns)[some])).sum() / total)
    bias = ((rows > 0).sum() - 1) * ((columns > 0).sum() - 1) / (2 * total)
    return max(0.0, plug_in - float(bias))


def fold_imbalance(parts: NDArray[np.integer] | Floats, n_splits: int) -> float:
    """Return the largest over the smallest size of folds that consecutive parts can make; infinite where too few.

    Parameters
    ----------
    parts : array of shape (b,)
        Records by part, in the order of the covariate.
    n_splits : int

    Examples
    --------
    >>> fold_imbalance(np.array([20, 20, 20, 20]), 2), fold_imbalance(np.array([90, 10]), 3)
    (1.0, inf)
    """
    sizes = np.asarray(parts, dtype=np.float64)
    ends = np.cumsum(sizes[sizes > 0])
    if len(ends) < n_splits:
        return float("inf")
    targets = ends[-1] * np.arange(1, n_splits) / n_splits
    nearest = np.abs(ends[:-1, None] - targets).argmin(axis=0)
    folds = np.diff(np.concatenate([[0.0], ends[nearest], ends[-1:]]))
    return float(folds.max() / folds.min()) if folds.min() > 0 else float("inf")


def contiguous_folds(values: Floats, patients: Integers, n_splits: int) -> Integers:
    """Return folds cut by a covariate, shape (n,): ties and the records of a patient in one, -1 where it is missing.

    Parameters
    ----------
    values : array of shape (n,)
        NaN where missing. Of a patient with several values the smallest counts.
    patients : array of int, shape (n,)
        Number of every record's patient, from 0.
    n_splits : int

    Examples
    --------
    >>> contiguous_folds(np.array([5.0, 1.0, 3.0, np.nan, 4.0]), np.arange(5), 2).tolist()
    [1, 0, 0, -1, 1]
    """
    smallest = np.full(int(patients.max(initial=-1)) + 1, np.nan)
    np.fmin.at(smallest, patients, values)
    own = smallest[patients]
    known = np.sort(own[~np.isnan(own)])
    ranks = np.arange(1, n_splits) * len(known) // n_splits
    cuts = np.unique(known[ranks[ranks > 0] - 1])
    return np.where(np.isnan(own), -1, np.searchsorted(cuts, own, side="left")).astype(np.int64)


def weighted_mean(weight: float, weight_squared: float, total: float, squared: float, n_sites: int) -> Floats:
    """Return a weighted mean over sites and its standard error, NaN where there are fewer than two.

    Parameters
    ----------
    weight, weight_squared : float
        Sums over sites of w and of its square.
    total, squared : float
        Sums of w x and of w x^2.
    n_sites : int

    Examples
    --------
    >>> weighted_mean(3.0, 3.0, 2.7, 2.45, 3).round(4).tolist()
    [0.9, 0.0577]
    """
    if n_sites < 1 or weight <= 0:
        return np.full(2, np.nan)
    mean = total / weight
    share = weight_squared / weight**2
    if n_sites < 2 or share >= 1:
        return np.array([mean, np.nan])
    variance = max(0.0, squared / weight - mean**2) / (1 - share)
    return np.array([mean, np.sqrt(share * variance)])


def half_width(error: float, n_sites: int, calibration: Calibration, level: float = 0.95) -> float:
    """Return half of the interval of a predicted ratio.

    It adds the squares of the mean's half-width over sites (Student's t) and of what the line leaves open.

    Examples
    --------
    >>> round(half_width(0.0, 5, BOOSTED_CLASSES), 4)
    0.0118
    """
    tail = (1 + level) / 2
    of_sites = float(t.ppf(tail, n_sites - 1)) * calibration.slope * error if n_sites > 1 else np.inf
    return float(np.hypot(of_sites, float(norm.ppf(tail)) * calibration.spread))


def count_parts(values: Floats, cuts: Floats, classes: Integers, shape: tuple[int, int]) -> Integers:
    """Return records with a value by part of a column and class, of the given shape.

    Examples
    --------
    >>> count_parts(np.array([1.0, 3.0, 5.0, np.nan]), np.array([2.0]), np.array([0, 1, 1, 1]), (2, 2)).tolist()
    [[1, 0], [0, 2]]
    """
    known = ~np.isnan(values)
    cells = np.searchsorted(cuts, values[known]) * shape[1] + classes[known]
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)


def split_outcome(values: Floats, cuts: Floats, n_parts: int) -> Integers:
    """Return which of a few parts each outcome is in, shape (n,), from thresholds of more parts.

    Examples
    --------
    >>> split_outcome(np.array([0.5, 2.5, 5.5]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 3).tolist()
    [0, 1, 2]
    """
    ranks = np.arange(1, n_parts) * (len(cuts) + 1) // n_parts - 1
    chosen = cuts[ranks] if len(cuts) >= n_parts - 1 else cuts
    return np.searchsorted(chosen, values).astype(np.int64)


def count_agreement(values: Floats, patients: Integers) -> tuple[int, int]:
    """Return how many patients have known values that differ, and how many have several that agree.

    Examples
    --------
    >>> count_agreement(np.array([1.0, 1.0, 2.0, 3.0, np.nan]), np.array([0, 0, 1, 1, 0]))
    (1, 1)
    """
    known = ~np.isnan(values)
    who, value = patients[known], values[known]
    n_patients = int(patients.max(initial=-1)) + 1
    low, high = np.full(n_patients, np.inf), np.full(n_patients, -np.inf)
    np.minimum.at(low, who, value)
    np.maximum.at(high, who, value)
    several = np.bincount(who, minlength=n_patients) > 1
    return int((several & (low < high)).sum()), int((several & (low == high)).sum())
