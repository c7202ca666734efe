"""The chance of not being censored, by which patients who are seen stand for those who are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from multicentre.survival.times.curves import at_times, kaplan_meier
from multicentre.survival.times.grid import censored_by_bin, to_bins

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Censoring:
    """The reverse Kaplan-Meier curve G(t): the chance that follow-up lasts beyond t where no event ends it.

    Parameters
    ----------
    times : array of shape (K,)
        Times at which the curve may fall, increasing. Nothing is known beyond the last.
    staying : array of shape (K,)
        Its value from each of these times on; 1 before the first.

    Examples
    --------
    >>> known = Censoring.estimate(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    >>> known.at(np.array([0.5, 2.0, 2.5])).tolist()
    [1.0, 0.5, 0.5]
    """

    times: Floats
    staying: Floats

    @classmethod
    def estimate(cls, time: Floats, event: Flags) -> Self:
        """Return the curve of patients' times; at one time, events come before censorings."""
        times = np.unique(time)
        return cls.from_counts(*censored_by_bin(to_bins(time, times), event, len(times)), times)

    @classmethod
    def from_counts(cls, censored: Floats, at_risk: Floats, times: Floats) -> Self:
        """Return the curve of counts, as :func:`multicentre.survival.times.grid.censored_by_bin` gives them."""
        return cls(times, kaplan_meier(censored, at_risk))

    @property
    def last(self) -> float:
        """The last time of which anything is known."""
        return float(self.times[-1])

    def at(self, times: Floats) -> Floats:
        """Return the curve at given times, shape as given."""
        return at_times(self.staying, self.times, times)

    def weights(self, times: Floats) -> Floats:
        """Return 1 / G at given times, shape as given; 0 where G is 0, and nobody could have been seen."""
        chance = self.at(times)
        return np.divide(1.0, chance, out=np.zeros_like(chance), where=chance > 0)

    def cut(self, time: Floats, event: Flags) -> tuple[Floats, Flags]:
        """Return times and events with follow-up ended at the last time of which anything is known."""
        return np.minimum(time, self.last), np.asarray(event & (time <= self.last), dtype=np.bool_)
