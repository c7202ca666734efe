"""A site's patients as a method sees them: gaps filled, columns scaled or binned, times on the grid."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.agreement.sketch import to_column_bins
from multicentre.survival.times.grid import to_bins

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Patients:
    """The patients of one site under an agreement.

    Parameters
    ----------
    data : SurvivalData
    agreed : Agreed
    times : array of shape (K,), optional
        Times at which follow-up is cut, in place of the agreed ones.

    Examples
    --------
    >>> from multicentre.survival.agreement.messages import Agreed
    >>> none = np.zeros(0)
    >>> agreed = Agreed(("x0",), "", 1, 2.0, 1.0, np.array([1.0, 4.0]), np.array([3.0]), np.array([2.0]), none,
    ...                 np.zeros(2, dtype=np.int64))
    >>> patients = Patients(SurvivalData([[1.0], [np.nan]], [0.5, 9.0], [1, 1]), agreed)
    >>> patients.standardised.tolist(), patients.bins.tolist(), patients.happened.tolist()
    ([[-1.0], [0.0]], [0, 2], [True, False])
    """

    def __init__(self, data: SurvivalData, agreed: Agreed, times: Floats | None = None) -> None:
        self.agreed = agreed
        self.data = data
        self.times = agreed.times if times is None else times

    def __len__(self) -> int:
        return len(self.data)

    @cached_property
    def rows(self) -> Floats:
        """Columns with gaps filled, shape (n, d)."""
        return self._filled()

    @cached_property
    def standardised(self) -> Floats:
        """Columns less their means, over their standard deviations, shape (n, d)."""
        scaled = self._filled()
        scaled -= self.agreed.centre
        scaled /= self.agreed.spread
        return scaled

    @cached_property
    def binned(self) -> NDArray[np.uint8]:
        """Bin of every value, shape (n, d): the number of thresholds below it; a column lies together in memory."""
        return self.bin_columns(self.data.X)

    @cached_property
    def bins(self) -> NDArray[np.int64]:
        """Bin of every time on the grid, shape (n,); K beyond the horizon."""
        return to_bins(self.data.time, self.times)

    @cached_property
    def happened(self) -> Flags:
        """Whether the event happened up to the horizon, shape (n,)."""
        of_cause = self.data.event == self.agreed.cause
        return np.asarray(of_cause & (self.bins < len(self.times)), dtype=np.bool_)

    @property
    def time(self) -> Floats:
        """Times, cut at the horizon, shape (n,)."""
        return np.asarray(np.minimum(self.data.time, self.times[-1]), dtype=np.float64)

    def bin_columns(self, X: Floats) -> NDArray[np.uint8]:
        """Return the bin of every value of X, shape (n, d), with gaps filled."""
        binned = np.empty(X.shape, dtype=np.uint8, order="F")
        for column in range(len(self.agreed.columns)):
            values = self._filled_column(X, column)
            binned[:, column] = to_column_bins(values, self.agreed.edges_of(column))
        return binned

    def _filled(self) -> Floats:
        filled = np.empty(self.data.X.shape)
        for column in range(len(self.agreed.columns)):
            filled[:, column] = self._filled_column(self.data.X, column)
        return filled

    def _filled_column(self, X: Floats, column: int) -> Floats:
        values = np.array(X[:, column])
        values[np.isnan(values)] = self.agreed.centre[column]
        return values


def flatten_rare(X: Floats, least: int) -> Floats:
    """Return the columns without what only a few patients have, shape (n, d).

    A column that fewer than `least` patients have a value of is missing for all; one in which some values differ from
    the commonest, but fewer than `least`, is constant.

    Examples
    --------
    >>> flatten_rare(np.array([[0.0, 1.0, 2.0], [0.0, 2.0, np.nan], [1.0, 3.0, np.nan]]), 2).tolist()
    [[0.0, 1.0, nan], [0.0, 2.0, nan], [0.0, 3.0, nan]]
    """
    flat = X.copy()
    for values in flat.T if least > 1 else ():
        present = ~np.isnan(values)
        common = np.nan if present.sum() < least else rare_value(values[present], least)
        if common is not None:
            values[present] = common
    return flat


def rare_value(values: Floats, least: int) -> float | None:
    """Return the commonest value where some values differ from it, but fewer than `least`; long columns are not sorted.

    Examples
    --------
    >>> rare_value(np.array([0.0, 0.0, 1.0]), 2), rare_value(np.array([0.0, 1.0, 2.0]), 2), rare_value(np.zeros(3), 2)
    (0.0, None, None)
    """
    # Such a value is most of any 2 least - 1 values: it need be sought among the first of them only.
    found, counts = np.unique(values[: 2 * least - 1], return_counts=True)
    if not len(found):
        return None
    common = float(found[np.argmax(counts)])
    return common if 0 < np.count_nonzero(values != common) < least else None
