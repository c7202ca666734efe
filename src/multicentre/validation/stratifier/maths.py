"""Rank covariates, and predict the bias of folds cut by them from a pilot: pure functions of arrays.

A pilot compares two scores of a small model at each site: one with folds cut by the covariate, one with random folds.
The ratio of the first to the second is the ratio of the pilot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Calibration:
    """Line that predicts the ratio over all sites from the mean ratio of the pilot.

    Parameters
    ----------
    intercept, slope : float
        Predicted ratio = intercept + slope * ratio of the pilot.
    spread : float
        Residual standard deviation of the line.

    Examples
    --------
    >>> round(BOOSTED_CLASSES.predict(0.95), 4)
    0.9529
    """

    intercept: float
    slope: float
    spread: float

    def predict(self, ratio: float) -> float:
        """Return the predicted ratio over all sites for the ratio of a pilot."""
        return self.intercept + self.slope * ratio


# Fitted to 510 covariates of simulated federations of five sites: boosted trees, accuracy of two classes.
BOOSTED_CLASSES = Calibration(0.096, 0.902, 0.006)

# Without a fitted line the ratio of the pilot is the prediction.
IDENTITY = Calibration(0.0, 1.0, 0.0)


def mutual_information(table: NDArray[np.integer] | Floats) -> float:
    """Return the mutual information of rows and columns of a table of counts, in nats, from 0.

    The plug-in estimate minus its first-order bias, (r - 1)(c - 1) / 2n, where r and c are the numbers of rows and
    columns with records (G. A. Miller, "Note on the bias of information estimates", 1955).

    Parameters
    ----------
    table : array of shape (r, c)
        Counts.

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
    positive = counts > 0
    log_ratio = np.log((counts * total)[positive] / (rows * columns)[positive])
    plug_in = float((counts[positive] * log_ratio).sum() / total)
    bias = ((rows > 0).sum() - 1) * ((columns > 0).sum() - 1) / (2 * total)
    return max(0.0, plug_in - float(bias))


def fold_imbalance(parts: NDArray[np.integer] | Floats, n_splits: int) -> float:
    """Return the ratio of the largest to the smallest fold made of consecutive parts; infinite with too few parts.

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
    """Return the fold of each record, shape (n,), cut by thresholds of a covariate; -1 where it is missing.

    Ties are in one fold, and so are the records of a patient.

    Parameters
    ----------
    values : array of shape (n,)
        NaN where missing. A patient with several values has the smallest of them.
    patients : array of int, shape (n,)
        Number of the patient of each record, from 0.
    n_splits : int

    Examples
    --------
    >>> contiguous_folds(np.array([5.0, 1.0, 3.0, np.nan, 4.0]), np.arange(5), 2).tolist()
    [1, 0, 0, -1, 1]
    """
    smallest = np.full(int(patients.max(initial=-1)) + 1, np.nan)
    np.fmin.at(smallest, patients, values)
    patient_values = smallest[patients]
    in_order = np.sort(patient_values[~np.isnan(patient_values)])
    ranks = np.arange(1, n_splits) * len(in_order) // n_splits
    cuts = np.unique(in_order[ranks[ranks > 0] - 1])
    folds = np.searchsorted(cuts, patient_values, side="left")
    return np.where(np.isnan(patient_values), -1, folds).astype(np.int64)


def weighted_mean(weight: float, weight_squared: float, total: float, squared: float, n_sites: int) -> Floats:
    """Return a weighted mean over sites and its standard error; the error of fewer than two sites is NaN.

    Parameters
    ----------
    weight, weight_squared : float
        Sums over sites of the weight w and of its square.
    total, squared : float
        Sums over sites of w x and of w x^2.
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
    """Return half of the width of the interval of a predicted ratio.

    The square of the half-width is the sum of two squares: the half-width of the mean over sites (Student's t), and
    that of the residuals of the line.

    Examples
    --------
    >>> round(half_width(0.0, 5, BOOSTED_CLASSES), 4)
    0.0118
    """
    tail = (1 + level) / 2
    of_sites = float(t.ppf(tail, n_sites - 1)) * calibration.slope * error if n_sites > 1 else np.inf
    return float(np.hypot(of_sites, float(norm.ppf(tail)) * calibration.spread))


def count_parts(values: Floats, cuts: Floats, classes: Integers, shape: tuple[int, int]) -> Integers:
    """Return the number of records by part of a column and class; records without a value do not count.

    Examples
    --------
    >>> count_parts(np.array([1.0, 3.0, 5.0, np.nan]), np.array([2.0]), np.array([0, 1, 1, 1]), (2, 2)).tolist()
    [[1, 0], [0, 2]]
    """
    has_value = ~np.isnan(values)
    cells = np.searchsorted(cuts, values[has_value]) * shape[1] + classes[has_value]
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)


def split_outcome(values: Floats, cuts: Floats, n_parts: int) -> Integers:
    """Return the part of each outcome, shape (n,); the parts join those of finer thresholds.

    Examples
    --------
    >>> split_outcome(np.array([0.5, 2.5, 5.5]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 3).tolist()
    [0, 1, 2]
    """
    ranks = np.arange(1, n_parts) * (len(cuts) + 1) // n_parts - 1
    coarse = cuts[ranks] if len(cuts) >= n_parts - 1 else cuts
    return np.searchsorted(coarse, values).astype(np.int64)


def count_agreement(values: Floats, patients: Integers) -> tuple[int, int]:
    """Return the number of patients with different values, and of those with several equal values.

    Examples
    --------
    >>> count_agreement(np.array([1.0, 1.0, 2.0, 3.0, np.nan]), np.array([0, 0, 1, 1, 0]))
    (1, 1)
    """
    has_value = ~np.isnan(values)
    patient, value = patients[has_value], values[has_value]
    n_patients = int(patients.max(initial=-1)) + 1
    low, high = np.full(n_patients, np.inf), np.full(n_patients, -np.inf)
    np.minimum.at(low, patient, value)
    np.maximum.at(high, patient, value)
    several = np.bincount(patient, minlength=n_patients) > 1
    return int((several & (low < high)).sum()), int((several & (low == high)).sum())
