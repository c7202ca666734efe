"""A search for thresholds at a site: the site counts its records by cell, exactly, and sends nothing else.

Under a mask only the total over sites shows. Unmasked the guard refuses counts in which a cell that is not empty holds
fewer records than the policy's minimum.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.federation.messages import Lengths
from multicentre.federation.steps import SitePart, step
from multicentre.statistics.quantiles import messages as sent
from multicentre.statistics.quantiles.maths import Codes, count_in_cells, encode_doubles, split_cells
from multicentre.statistics.quantiles.messages import MOST_PARTS, MOST_STARTS, check_cells, check_fineness


class CountingPart(SitePart):
    """Base of the site parts whose coordinator looks for thresholds of columns.

    A subclass says which columns (`quantile_values`).

    Attributes
    ----------
    finest : int
        Maximum number of binary digits of a code that are used if the policy has a minimum of patients. 24 digits
        distinguish numbers with a relative difference above 1/4096; 36 digits distinguish any two float32 numbers.

    Notes
    -----
    Under masks this is what keeps values apart from their patients, whatever is asked how often: a coordinator that
    forges cells follows single records to so many digits, without learning whose they are.
    """

    sums_fields: ClassVar[bool] = True
    counts_persons: ClassVar[bool] = True
    finest: ClassVar[int] = 24
    lengths: ClassVar[Lengths] = {
        "q": "cells in which thresholds are looked for",
        "b": "sub-cells of a cell",
    }
    _before: sent.Cells | None = None
    _starts: int = 0
    _sorted: tuple[int, list[Codes]] | None = None

    def quantile_values(self) -> NDArray[np.float64]:
        """Return the columns to be cut, shape (n, m), one row per patient or record; NaN where missing."""
        raise NotImplementedError

    def most_parts(self) -> int:
        """Return in how many parts a column may be cut, and so how many of its cells are looked at, at most."""
        return MOST_PARTS

    @step(releases=sent.CellCounts, when="every round", summed=True)
    def count_below(self, ask: sent.Cells) -> sent.CellCounts:
        """Count records by sub-cell of the values' range, for thresholds that cut a column in parts of as many."""
        n_records, columns = self._codes()
        check_cells(ask, self._before, len(columns), self.most_parts())
        check_fineness(ask, self.finest, self.least_behind)
        self._starts += ask.level == 0
        if self._starts > MOST_STARTS:
            raise ConfigurationError("too many searches in one fit", where="count_below", hint="Begin a new fit.")
        self._before = ask
        starts = split_cells(ask.prefix, ask.level, ask.bits)
        below = np.empty(starts.shape, dtype=np.int64)
        for column in np.unique(ask.column).tolist():
            here = ask.column == column
            below[here] = count_in_cells(columns[column], starts[here], ask.level, ask.bits)
        missing = [n_records - len(columns[column]) for column in np.unique(ask.column).tolist()]
        counts = np.concatenate([np.diff(below, axis=1, prepend=0).ravel(), missing])
        fewest = n_records if self.masked else int(counts[counts > 0].min(initial=n_records))
        return sent.CellCounts(below, patients=fewest)

    def _codes(self) -> tuple[int, list[Codes]]:
        """Return how many records there are, and the sorted codes of each column."""
        if self._sorted is None:
            values = self.quantile_values()
            if np.isinf(values).any():
                raise DataError("a value is infinite", where="count_below", hint="Write nothing where it is missing.")
            known = [column[~np.isnan(column)] for column in values.T]
            self._sorted = len(values), [np.sort(encode_doubles(column)) for column in known]
        return self._sorted
