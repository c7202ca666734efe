"""Models made of other models: mixtures, recalibrated models, and models on another grid of times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import array, count, number
from multicentre.survival.models.base import LATEST, Bytes, SurvivalModel, join, pack, split, unpack
from multicentre.survival.times import cumulative_hazard

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mixture(SurvivalModel):
    """S(t | x) = sum of share_m S_m(t | x), all components on one grid.

    Parameters
    ----------
    times : array of shape (K,)
    n_columns : int
        Number of columns that the components take.
    shares : array of shape (M,)
        Weight of each component, above or equal to 0, summing to 1.
    packed : array of bytes
        The components, none of them a mixture.
    lengths : array of shape (M,)
        Bytes of each.
    """

    times: Floats = array("times of the grid", ("K",), bound=LATEST)
    n_columns: int = count("columns that the components take")
    shares: Floats = array("weight of each component", ("M",), bound=1)
    packed: Bytes = array("the components as bytes", ("b",), dtype="u1", bound=256)
    lengths: NDArray[np.int64] = array("bytes of each component", ("M",), dtype="i8", bound=2**40)

    @classmethod
    def of(cls, models: Sequence[SurvivalModel], shares: Floats, n_columns: int) -> Self:
        """Return the mixture of models, mixtures among them taken apart; shares are made to sum to 1."""
        parts: list[tuple[SurvivalModel, float]] = []
        for model, share in zip(models, (shares / shares.sum()).tolist(), strict=True):
            inner = model if isinstance(model, Mixture) else None
            if inner is None:
                parts += [(model, share)]
            else:
                parts += zip(inner.components, (share * inner.shares).tolist(), strict=True)
        kept = [(model, share) for model, share in parts if share > 0]
        packed, lengths = join(model for model, _ in kept)
        weights = np.array([share for _, share in kept])
        return cls(models[0].times, n_columns, weights / weights.sum(), packed, lengths)

    @cached_property
    def components(self) -> Sequence[SurvivalModel]:
        """The models that are averaged."""
        from multicentre.survival.models import KINDS

        kinds = {name: kind for name, kind in KINDS.items() if kind is not Mixture}
        return split(self.packed, self.lengths, kinds, self.n_columns)

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        mean = np.zeros((len(X), len(self.times)))
        for share, model in zip(self.shares.tolist(), self.components, strict=True):
            mean += share * model.survival(X)
        return np.minimum(mean, 1.0)

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless components are valid, on this grid, and shares sum to 1."""
        good = len(self.shares) > 0 and (self.shares >= 0).all() and abs(float(self.shares.sum()) - 1) < 1e-9
        if not good or self.n_columns != n_columns:
            raise MessageError("the shares or the columns do not fit", where="Mixture")
        if not all(np.array_equal(model.times, self.times) for model in self.components):
            raise MessageError("a component is on another grid", where="Mixture")


LARGEST_RATIO = 50.0

LARGEST_HAZARD = 1e9

SMALLEST_SPREAD = 1e-100


@dataclass(frozen=True)
class Recalibrated(SurvivalModel):
    """S(t | x) = exp(-H0(t) exp(slope (r(x) - centre) / spread)), r minus the inner model's mean time over the horizon.

    Parameters
    ----------
    times : array of shape (K,)
    n_columns : int
        Number of columns that the inner model takes.
    slope : float
        Log hazard ratio of one deviation of the risk.
    centre, spread : float
        Mean and deviation of the risk among patients whom the inner model did not see.
    baseline : array of shape (K,)
        Cumulative hazard at the mean risk.
    packed : array of bytes
        The inner model, which is not recalibrated itself.

    Examples
    --------
    >>> from multicentre.survival.models.cox import CoxModel
    >>> inner = CoxModel(np.array([1.0, 2.0]), np.ones(1), np.zeros(1), np.array([0.1, 0.3]))
    >>> model = Recalibrated.of(inner, 1, 0.0, -0.9, 0.1, np.array([0.2, 0.4]))
    >>> model.survival(np.zeros((1, 1))).round(4).tolist()
    [[0.8187, 0.6703]]
    """

    times: Floats = array("times of the grid", ("K",), bound=LATEST)
    n_columns: int = count("columns that the inner model takes")
    slope: float = number("log hazard ratio of one deviation of the risk", bound=LARGEST_HAZARD)
    centre: float = number("mean risk", bound=LARGEST_HAZARD)
    spread: float = number("deviation of the risk", bound=LARGEST_HAZARD)
    baseline: Floats = array("cumulative hazard at the mean risk, on the grid", ("K",), bound=LARGEST_HAZARD)
    packed: Bytes = array("the inner model as bytes", ("b",), dtype="u1", bound=256)

    @classmethod
    def of(
        cls, inner: SurvivalModel, n_columns: int, slope: float, centre: float, spread: float, baseline: Floats
    ) -> Self:
        """Return a model with the curves of another recalibrated."""
        packed = np.frombuffer(pack(inner), dtype=np.uint8)
        return cls(inner.times, n_columns, slope, centre, spread, baseline, packed)

    @cached_property
    def inner(self) -> SurvivalModel:
        """The model whose risk is used."""
        from multicentre.survival.models import KINDS

        kinds = {name: kind for name, kind in KINDS.items() if kind is not Recalibrated}
        return unpack(self.packed.tobytes(), kinds, self.n_columns)

    def risk(self, X: Floats) -> Floats:
        """Return minus the inner model's mean time survived, over the horizon, shape (n,)."""
        return np.asarray(-self.inner.restricted_mean(X) / self.times[-1], dtype=np.float64)

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        return recalibrate_curves(self.risk(X), self.slope, self.centre, self.spread, self.baseline)

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless the baseline rises and the inner model is valid, on this grid, not recalibrated."""
        if self.n_columns != n_columns or self.spread < SMALLEST_SPREAD:
            raise MessageError("the columns or the deviation do not fit", where="Recalibrated")
        if self.baseline[0] < 0 or (np.diff(self.baseline) < 0).any():
            raise MessageError("the baseline falls", where="Recalibrated.baseline")
        try:
            inner = self.inner
        except RecursionError:
            raise MessageError("models are nested too deeply", where="Recalibrated") from None
        parts = inner.components if isinstance(inner, Mixture) else [inner]
        if any(isinstance(part, Recalibrated) for part in parts):
            raise MessageError("a recalibrated model is recalibrated again", where="Recalibrated")
        if not np.array_equal(inner.times, self.times):
            raise MessageError("the inner model is on another grid", where="Recalibrated")


def recalibrate_curves(risks: Floats, slope: float, centre: float, spread: float, baseline: Floats) -> Floats:
    """Return survival curves of proportional hazards on risks, shape (n, K).

    Parameters
    ----------
    risks : array of shape (n,)
    slope : float
        Log hazard ratio of one deviation.
    centre, spread : float
        By which risks are standardised.
    baseline : array of shape (K,)
        Cumulative hazard at the centre.

    Examples
    --------
    >>> recalibrate_curves(np.zeros(1), 1.0, 0.0, 1.0, np.array([0.0, np.log(2)])).round(6).tolist()
    [[1.0, 0.5]]
    """
    exponent = np.clip(slope * (risks - centre) / spread, -LARGEST_RATIO, LARGEST_RATIO)
    return np.asarray(np.exp(-np.exp(exponent)[:, None] * baseline), dtype=np.float64)


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
