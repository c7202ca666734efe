"""What every survival model can do, whichever method fitted it, and whoever holds it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import array, place
from multicentre.federation.steps import Release
from multicentre.survival.times.curves import restricted_mean

Floats = NDArray[np.float64]
MOST_TIMES = 4096
LATEST = 1e12


@dataclass(frozen=True)
class SurvivalModel(Release):
    """A function from a patient's columns to a survival curve on a grid.

    It is a message: arrays that are checked when they arrive, and no code. Sites may release one, and the coordinator
    sends one back to be judged. A model without times is the answer of a site that could not fit one.

    Parameters
    ----------
    times : array of shape (K,)
        The grid; its last time is the horizon.
    """

    times: Floats = array("times of the grid", ("K",), bound=LATEST)

    @classmethod
    def empty(cls) -> Self:
        """Return what stands for no model: the answer of a site that could not fit one."""
        fields: dict[str, Any] = {}
        for name, declared in cls.declarations().items():
            shape = tuple(0 for _ in declared.shape)
            fields[name] = np.zeros(shape, dtype=declared.dtype) if declared.kind == "array" else 0
        return cls(**fields, patients=0)

    @property
    def is_empty(self) -> bool:
        """Whether there is no model."""
        return len(self.times) == 0

    @abstractmethod
    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K), of patients' columns without gaps, shape (n, d)."""

    def restricted_mean(self, X: Floats) -> Floats:
        """Return each patient's mean time survived up to the horizon, shape (n,)."""
        return restricted_mean(self.survival(X), self.times)

    @abstractmethod
    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless the arrays make a model of so many columns."""

    def valid(self, n_columns: int) -> Self:
        """Return the model if it is as declared, its grid is one, and its arrays make a model.

        Raises
        ------
        MessageError
            They do not. No array is trusted before.
        """
        self.checked()
        self._check_bounds()
        times = self.times
        if not 0 < len(times) <= MOST_TIMES or times[0] < 0 or (np.diff(times) <= 0).any() or times[-1] > LATEST:
            raise MessageError("the grid's times do not increase", where=type(self).__name__)
        self.check_meaning(n_columns)
        return self

    def _check_bounds(self) -> None:
        for name, key, declared, value in self.items():
            bound, values = declared.bound, np.asarray(value)
            if bound is not None and values.size and not -bound <= values.min().item() <= values.max().item() <= bound:
                raise MessageError("a value is out of range", where=place(type(self), name, key))
