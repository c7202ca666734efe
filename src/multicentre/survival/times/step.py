"""A curve that can be called at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.federation.errors import DataError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StepFunction:
    """A right-continuous step function, after the conventions of scikit-survival.

    Parameters
    ----------
    x : array of shape (K,)
        Times at which it jumps, increasing.
    y : array of shape (K,)
        Value from each of these times on.
    start : float
        Value before the first: 1 for survival, 0 for a cumulative hazard.

    Examples
    --------
    >>> curve = StepFunction(np.array([1.0, 3.0]), np.array([0.5, 0.2]), 1.0)
    >>> curve([0.0, 1.0, 2.0]).tolist(), curve.domain
    ([1.0, 0.5, 0.5], (0.0, 3.0))
    """

    x: Floats
    y: Floats
    start: float

    @property
    def domain(self) -> tuple[float, float]:
        """First and last time at which the function is defined."""
        return 0.0, float(self.x[-1])

    def __call__(self, time: ArrayLike) -> Floats:
        """Return the values at given times, shape as given.

        Raises
        ------
        DataError
            A time is outside the domain.
        """
        asked = np.asarray(time, dtype=np.float64)
        if not ((asked >= 0) & (asked <= self.x[-1])).all():
            raise DataError("a time is outside the curve's domain", where="time", mend=f"Stay within {self.domain}.")
        places = np.searchsorted(self.x, asked, side="right")
        return np.asarray(np.concatenate([[self.start], self.y])[places], dtype=np.float64)
