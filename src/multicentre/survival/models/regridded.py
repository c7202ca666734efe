"""A model on another grid, so that models whose grids differ can be averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import array, count
from multicentre.survival.models.base import LATEST, SurvivalModel
from multicentre.survival.models.mixture import Mixture
from multicentre.survival.models.packing import Bytes, pack, unpack
from multicentre.survival.times.curves import cumulative_hazard

Floats = NDArray[np.float64]
MOST_TIMES = 256


@dataclass(frozen=True)
class Regridded(SurvivalModel):
    """S(t | x) of an inner model: its own values at its own times, and a straight cumulative hazard between them.

    After the inner model's horizon the curves are flat.

    Parameters
    ----------
    times : array of shape (K,)
    n_columns : int
        Number of columns that the inner model takes.
    packed : array of bytes
        The inner model, on a grid of its own; not one that was brought to another grid itself.

    Examples
    --------
    >>> from multicentre.survival.models.cox import CoxModel
    >>> inner = CoxModel(np.array([2.0, 4.0]), np.ones(1), np.zeros(1), np.array([0.2, 0.6]))
    >>> model = Regridded.of(inner, np.array([1.0, 2.0, 3.0, 9.0]), 1)
    >>> (-np.log(model.survival(np.zeros((1, 1))))).round(6).tolist()
    [[0.1, 0.2, 0.4, 0.6]]
    """

    times: Floats = array("times of the grid", ("K",), bound=LATEST)
    n_columns: int = count("columns that the inner model takes")
    packed: Bytes = array("the inner model as bytes", ("b",), dtype="u1", bound=256)

    @classmethod
    def of(cls, inner: SurvivalModel, times: Floats, n_columns: int) -> Self:
        """Return a model on the given times."""
        return cls(times, n_columns, np.frombuffer(pack(inner), dtype=np.uint8))

    @cached_property
    def inner(self) -> SurvivalModel:
        """The model on its own grid."""
        from multicentre.survival.models import KINDS

        kinds = {name: kind for name, kind in KINDS.items() if kind is not Regridded}
        return unpack(self.packed.tobytes(), kinds, self.n_columns)

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        return interpolate_curves(self.inner.survival(X), self.inner.times, self.times)

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless there is a valid inner model of so many columns."""
        if self.n_columns != n_columns:
            raise MessageError("the columns do not fit", where="Regridded")
        try:
            inner = self.inner
        except RecursionError:
            raise MessageError("models are nested too deeply", where="Regridded") from None
        if inner.is_empty:
            raise MessageError("there is no inner model", where="Regridded")


def interpolate_curves(survival: Floats, grid: Floats, times: Floats) -> Floats:
    """Return survival curves at other times, shape (n, T): the cumulative hazard is straight between grid times.

    Parameters
    ----------
    survival : array of shape (n, K)
    grid : array of shape (K,)
    times : array of shape (T,)
        Beyond the grid's last time the curves are flat; before its first they come down from 1 at time 0.

    Examples
    --------
    >>> interpolate_curves(np.array([[0.25]]), np.array([2.0]), np.array([0.0, 1.0, 2.0, 3.0])).tolist()
    [[1.0, 0.5, 0.25, 0.25]]
    """
    knots = np.append(0.0, grid)
    known = np.concatenate([np.zeros((len(survival), 1)), cumulative_hazard(survival)], axis=1)
    after = np.clip(np.searchsorted(knots, times, side="left"), 1, len(grid))
    width, passed = knots[after] - knots[after - 1], np.minimum(times, knots[after]) - knots[after - 1]
    way = np.divide(passed, width, out=np.ones_like(passed), where=width > 0)
    return np.asarray(np.exp(-(known[:, after - 1] * (1.0 - way) + known[:, after] * way)), dtype=np.float64)


def on_one_grid(models: Sequence[SurvivalModel], n_columns: int) -> list[SurvivalModel]:
    """Return the models on one grid: all their times up to the first horizon, at most 256 of them.

    Examples
    --------
    >>> from multicentre.survival.models.cox import CoxModel
    >>> grids = np.array([1.0, 4.0]), np.array([2.0, 3.0])
    >>> one, two = (CoxModel(grid, np.ones(1), np.zeros(1), np.array([0.1, 0.2])) for grid in grids)
    >>> [model.times.tolist() for model in on_one_grid([one, two], 1)]
    [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]
    """
    times = np.unique(np.concatenate([model.times for model in models]))
    times = times[times <= min(model.times[-1] for model in models)]
    if len(times) > MOST_TIMES:
        times = times[np.unique(np.linspace(0, len(times) - 1, MOST_TIMES).round().astype(int))]
    return [_moved(model, times, n_columns) for model in models]


def _moved(model: SurvivalModel, times: Floats, n_columns: int) -> SurvivalModel:
    if np.array_equal(model.times, times):
        return model
    if isinstance(model, Mixture):
        parts = [_moved(part, times, n_columns) for part in model.components]
        return Mixture.of(parts, model.shares, n_columns)
    inner = model.inner if isinstance(model, Regridded) else model
    return Regridded.of(inner, times, n_columns)
