"""Histograms of numeric variables: counts by group in the fine bins, and the wide bins that are printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from multicentre.analytics.describe.bins import Grid, join_bins, shown_borders
from multicentre.analytics.describe.ranks import RankTest, mean_ranks, rank_test
from multicentre.core.messages import Message, array

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Histograms(Message):
    """Counts of all sites in the fine bins; empty if they were not requested."""

    counts: Integers = array(
        "patients by group, variable and bin; the last group has no group", ("g", "d", "b"), dtype="i8"
    )
    low: Floats = array("lower edge of the first bin of each variable", ("d",))
    width: Floats = array("width of the bins of each variable", ("d",))
    step: Floats = array("step of all values, if a bin contains one value only; otherwise 0", ("d",))
    centre: Floats = array("median or mean of each variable", ("d",))
    spread: Floats = array("spread of each variable", ("d",))

    @classmethod
    def none(cls) -> Histograms:
        """Return the message of a fit without histograms."""
        empty = np.zeros(0)
        return cls(np.zeros((0, 0, 0), dtype=np.int64), empty, empty, empty, empty, empty)

    @property
    def is_empty(self) -> bool:
        """True for a fit without histograms."""
        return not self.counts.size

    @property
    def grid(self) -> Grid:
        """Fine bins."""
        return Grid(self.low, self.width, self.step)

    def mean_ranks(self) -> Floats:
        """Return the mean rank of each bin of each variable over all patients, shape (d, b)."""
        return np.array([mean_ranks(column) for column in self.counts.sum(axis=0).astype(np.float64)])

    def is_exact(self, variable: int) -> bool:
        """Return whether each bin with two patients or more contains one value."""
        ends = self.counts[:, variable][:, [0, -1]].sum(axis=0)
        return bool(self.step[variable] > 0 and (ends <= 1).all())

    def printed(self, variable: int) -> Integers:
        """Return counts of the printed bins, shape (bins, G + 1)."""
        return join_bins(self.counts[:, variable], self._borders(variable)).T[self._occupied(variable)]

    def labels(self, variable: int) -> list[str]:
        """Return the names of the printed bins."""
        values = self.grid.first_values(variable)[self._borders(variable)[1:] - 1]
        step = float(self.step[variable])
        if not len(values):
            return ["all"][self._occupied(variable)]
        below = f"below {values[0]:.6g}"
        inner = [
            _range_label(first, last, step)
            for first, last in zip(values[:-1].tolist(), values[1:].tolist(), strict=True)
        ]
        return [below, *inner, f"{values[-1]:.6g} or more"][self._occupied(variable)]

    def rank_test(self, variable: int, groups: slice) -> RankTest:
        """Return the rank test of some groups."""
        counts = self.counts[groups, variable].astype(np.float64)
        is_single: NDArray[np.bool_] = np.full(counts.shape[1], self.step[variable] > 0)
        is_single[[0, -1]] = False
        return rank_test(counts, is_single)

    def _occupied(self, variable: int) -> slice:
        """Return the printed bins without empty ones at both ends."""
        totals = join_bins(self.counts[:, variable], self._borders(variable)).sum(axis=0)
        places = np.flatnonzero(totals)
        return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, len(totals))

    def _borders(self, variable: int) -> Integers:
        return shown_borders(self.grid, variable, float(self.centre[variable]), float(self.spread[variable]))


def _range_label(first: float, last: float, step: float) -> str:
    if not step:
        return f"{first:.6g} to below {last:.6g}"
    greatest = round(last - step, 9)
    return f"{first:.6g}" if greatest <= first + step / 2 else f"{first:.6g} to {greatest:.6g}"


def histogram_frame(labels: list[str], counts: Floats, groups: list[str]) -> pd.DataFrame:
    """Return counts by bin and group; NaN for counts that are left out."""
    import pandas as pd

    return pd.DataFrame(counts, index=pd.Index(labels, name="bin"), columns=groups)
