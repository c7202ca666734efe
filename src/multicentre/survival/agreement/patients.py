"""A site's patients as a method sees them: gaps filled, columns scaled or binned, times on the grid."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.times.grid import to_bins
from multicentre.survival.times.joining import joined_bins

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Patients:
    """The patients of one site under an agreement.

    Parameters
    ----------
    data : SurvivalData
    agreed : Agreed
    least : int
        A column in which fewer patients (but some) differ from its commonest value is flat here, and no bin of times
        holds fewer.

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
        binned = np.empty(self.data.X.shape, dtype=np.uint8, order="F")
        for column in range(len(self.agreed.columns)):
            values = self._filled_column(column)
            binned[:, column] = np.searchsorted(self.agreed.edges_of(column), values, side="left")
        return binned

    @property
    def bins(self) -> NDArray[np.int64]:
        """Bin of every time on the grid, shape (n,); K beyond the horizon.

        Where a minimum is asked for, patients of neighbouring times leave together: in each bin so many have an event,
        or none, and so many leave, or none. Borders of what is joined do not depend on anybody's time.
        """
        return self._joined[0]

    @property
    def happened(self) -> Flags:
        """Whether the event happened up to the horizon, shape (n,); to none where fewer than the minimum had it."""
        return self._joined[1]

    @cached_property
    def _joined(self) -> tuple[NDArray[np.int64], Flags]:
        bins, n_times = to_bins(self.data.time, self.agreed.times), len(self.agreed.times)
        happened = np.asarray((self.data.event == self.agreed.cause) & (bins < n_times), dtype=np.bool_)
        return joined_bins(bins, happened, n_times, self._least)

    @property
    def time(self) -> Floats:
        """Times, cut at the horizon, shape (n,)."""
        return np.asarray(np.minimum(self.data.time, self.agreed.times[-1]), dtype=np.float64)

    @cached_property
    def _hidden(self) -> dict[int, float]:
        return hidden_columns(self.data.X, self._least)

    def _filled(self) -> Floats:
        filled = np.empty(self.data.X.shape)
        for column in range(len(self.agreed.columns)):
            filled[:, column] = self._filled_column(column)
        return filled

    def _filled_column(self, column: int) -> Floats:
        values = shown_column(self.data.X, column, self._hidden)
        values[np.isnan(values)] = self.agreed.centre[column]
        return values


def shown_column(X: Floats, column: int, hidden: Mapping[int, float]) -> Floats:
    """Return a column as it may be seen, shape (n,), a copy.

    Parameters
    ----------
    X : array of shape (n, d)
    column : int
    hidden : mapping of int to float
        Of :func:`hidden_columns`.

    Examples
    --------
    >>> shown_column(np.array([[0.0], [1.0], [np.nan]]), 0, {0: 0.0}).tolist()
    [0.0, 0.0, nan]
    """
    values = np.array(X[:, column])
    if column in hidden:
        values[~np.isnan(values)] = hidden[column]
    return values


def hidden_columns(X: Floats, least: int) -> dict[int, float]:
    """Return what is seen in place of columns that would show a few patients, by column.

    NaN where fewer than `least` patients have a value; the commonest value where some differ from it, but fewer than
    `least`.

    Examples
    --------
    >>> hidden_columns(np.array([[0.0, 1.0, 2.0], [0.0, 2.0, np.nan], [1.0, 3.0, np.nan]]), 2)
    {0: 0.0, 2: nan}
    """
    hidden = {}
    for column in range(X.shape[1]) if least > 1 else ():
        values = X[:, column]
        known = values[~np.isnan(values)]
        common = np.nan if len(known) < least else rare_value(known, least)
        if common is not None:
            hidden[column] = common
    return hidden


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


def flatten_rare(X: Floats, least: int) -> Floats:
    """Return the columns as :func:`hidden_columns` has them seen, shape (n, d).

    Examples
    --------
    >>> flatten_rare(np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 3.0]]), 2).tolist()
    [[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]]
    """
    hidden = hidden_columns(X, least)
    return np.column_stack([shown_column(X, column, hidden) for column in range(X.shape[1])]) if hidden else X
