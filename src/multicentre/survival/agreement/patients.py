"""A site's patients as a method sees them: gaps filled, columns scaled or binned, times on the grid."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.times.grid import to_bins

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Patients:
    """The patients of one site under an agreement.

    Parameters
    ----------
    data : SurvivalData
    agreed : Agreed
    least : int
        A column in which fewer patients (but some) differ from its commonest value is flat here.

    Examples
    --------
    >>> from multicentre.survival.agreement.messages import Agreed
    >>> none = np.zeros(0)
    >>> agreed = Agreed(("x0",), "", 1, False, 2.0, 1.0, np.array([1.0, 4.0]), np.array([3.0]), np.array([2.0]), none,
    ...                 np.zeros(2, dtype=np.int64))
    >>> patients = Patients(SurvivalData([[1.0], [np.nan]], [0.5, 9.0], [1, 1]), agreed, 0)
    >>> patients.standardised.tolist(), patients.bins.tolist(), patients.happened.tolist()
    ([[-1.0], [0.0]], [0, 2], [True, False])
    """

    def __init__(self, data: SurvivalData, agreed: Agreed, least: int) -> None:
        self.agreed = agreed
        self.data = data
        self._least = least

    def __len__(self) -> int:
        return len(self.data)

    @cached_property
    def rows(self) -> Floats:
        """Columns with gaps filled, shape (n, d)."""
        X = flatten_rare(drop_scarce(self.data.X, self._least), self._least)
        return np.where(np.isnan(X), self.agreed.centre, X)

    @cached_property
    def standardised(self) -> Floats:
        """Columns less their means, over their standard deviations, shape (n, d)."""
        return (self.rows - self.agreed.centre) / self.agreed.spread

    @cached_property
    def binned(self) -> NDArray[np.uint8]:
        """Bin of every value, shape (n, d): the number of thresholds below it."""
        return bin_columns(self.rows, self.agreed)

    @cached_property
    def bins(self) -> NDArray[np.int64]:
        """Bin of every time on the grid, shape (n,); K beyond the horizon."""
        return to_bins(self.data.time, self.agreed.times)

    @cached_property
    def happened(self) -> Flags:
        """Whether the event happened up to the horizon, shape (n,)."""
        of_cause = self.data.event == self.agreed.cause
        return np.asarray(of_cause & (self.bins < len(self.agreed.times)), dtype=np.bool_)

    @property
    def time(self) -> Floats:
        """Times, cut at the horizon, shape (n,)."""
        return np.asarray(np.minimum(self.data.time, self.agreed.times[-1]), dtype=np.float64)


def bin_columns(rows: Floats, agreed: Agreed) -> NDArray[np.uint8]:
    """Return the bin of every value, shape (n, d): the number of thresholds below it."""
    binned = np.empty(rows.shape, dtype=np.uint8, order="F")
    for column in range(rows.shape[1]):
        binned[:, column] = np.searchsorted(agreed.edges_of(column), rows[:, column], side="left")
    return binned


def drop_scarce(X: Floats, least: int) -> Floats:
    """Return the columns, those all missing that fewer than `least` patients have.

    Examples
    --------
    >>> drop_scarce(np.array([[1.0, 2.0], [np.nan, 3.0]]), 2).tolist()
    [[nan, 2.0], [nan, 3.0]]
    """
    scarce = (~np.isnan(X)).sum(axis=0) < least
    return np.where(scarce, np.nan, X) if scarce.any() else X


def flatten_rare(X: Floats, least: int) -> Floats:
    """Return the columns, those flat at their commonest value from which fewer than `least` patients differ.

    Examples
    --------
    >>> flatten_rare(np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 3.0]]), 2).tolist()
    [[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]]
    """
    rare = rare_columns(X, least)
    if not rare:
        return X
    flat = X.copy()
    for column, common in rare.items():
        known = ~np.isnan(X[:, column])
        flat[known, column] = common
    return flat


def rare_columns(X: Floats, least: int) -> dict[int, float]:
    """Return the commonest value of each column from which some patients differ, but fewer than `least`."""
    rare = {}
    for column in range(X.shape[1]) if least > 1 else ():
        values, counts = np.unique(X[~np.isnan(X[:, column]), column], return_counts=True)
        if len(values) > 1 and 0 < counts.sum() - counts.max() < least:
            rare[column] = float(values[np.argmax(counts)])
    return rare
