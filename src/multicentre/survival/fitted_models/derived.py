"""Models derived from other models: mixtures, recalibrated models, and models on another grid of times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array, count, number, texts
from multicentre.data.categories import read_level
from multicentre.data.table import rows_for
from multicentre.errors import MessageError, SchemaMismatch
from multicentre.formula.columns import Table
from multicentre.formula.fitted import FittedDesign
from multicentre.survival.fitted_models.base import (
    MAX_TIME,
    MAX_VALUE,
    Bytes,
    SurvivalModel,
    join,
    pack,
    split,
    unpack,
)
from multicentre.survival.times import cumulative_hazard

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mixture(SurvivalModel):
    """S(t | x) = sum of share_m S_m(t | x), all components on one grid.

    Parameters
    ----------
    times : array of shape (K,)
    n_columns : int
        Number of columns of the components.
    shares : array of shape (M,)
        Non-negative weight of each component; the sum is 1.
    packed : array of bytes
        Components, which are not mixtures.
    lengths : array of shape (M,)
        Number of bytes of each component.
    """

    times: Floats = array("times of the grid", ("K",), bound=MAX_TIME)
    n_columns: int = count("columns of the components")
    shares: Floats = array("weight of each component", ("M",), bound=1)
    packed: Bytes = array("components as bytes", ("b",), dtype="u1", bound=256)
    lengths: NDArray[np.int64] = array("bytes of each component", ("M",), dtype="i8", bound=2**40)

    @classmethod
    def of(cls, models: Sequence[SurvivalModel], shares: Floats, n_columns: int) -> Self:
        """Mix models with shares scaled to sum to 1; mixtures among them are replaced by their components."""
        parts: list[tuple[SurvivalModel, float]] = []
        for model, share in zip(models, (shares / shares.sum()).tolist(), strict=True):
            inner = model if isinstance(model, Mixture) else None
            if inner is None:
                parts += [(model, share)]
            else:
                parts += zip(inner.components, (share * inner.shares).tolist(), strict=True)
        weighted = [(model, share) for model, share in parts if share > 0]
        packed, lengths = join(model for model, _ in weighted)
        weights = np.array([share for _, share in weighted])
        return cls(models[0].times, n_columns, weights / weights.sum(), packed, lengths)

    @cached_property
    def components(self) -> Sequence[SurvivalModel]:
        """Models that are averaged."""
        from multicentre.survival.fitted_models import KINDS

        kinds = {name: kind for name, kind in KINDS.items() if kind is not Mixture}
        return split(self.packed, self.lengths, kinds, self.n_columns)

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        mean = np.zeros((len(X), len(self.times)))
        for share, model in zip(self.shares.tolist(), self.components, strict=True):
            mean += share * model.survival(X)
        return np.minimum(mean, 1.0)

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless components are valid and on this grid, and shares sum to 1."""
        good = len(self.shares) > 0 and (self.shares >= 0).all() and abs(float(self.shares.sum()) - 1) < 1e-9
        if not good or self.n_columns != n_columns:
            raise MessageError(
                f"the mixture must have shares with sum 1, and {n_columns} columns; got other shares, or "
                f"{self.n_columns} "
                "columns",
                where="Mixture",
            )
        if not all(np.array_equal(model.times, self.times) for model in self.components):
            raise MessageError("components must be on the grid of the mixture; got another grid", where="Mixture")


@dataclass(frozen=True)
class Named(SurvivalModel):
    """Model of some columns of the data, by their names; for a given model that was fitted elsewhere.

    Parameters
    ----------
    times : array of shape (K,)
    names : tuple of str
        Columns of the inner model, in order.
    packed : array of bytes
        Inner model, which is not named.

    Examples
    --------
    >>> from multicentre.survival.fitted_models.cox import CoxModel
    >>> model = Named.of(CoxModel(np.array([1.0]), np.ones(1), np.zeros(1), np.array([0.5])), ("age",))
    >>> model.select(np.array([[7.0, 1.0]]), ("dose", "age"), ()).tolist()
    [[1.0]]
    """

    times: Floats = array("times of the grid", ("K",), bound=MAX_TIME)
    names: tuple[str, ...] = texts("columns of the inner model, in order")
    packed: Bytes = array("inner model as bytes", ("b",), dtype="u1", bound=256)

    @classmethod
    def of(cls, inner: SurvivalModel, names: Sequence[str]) -> Self:
        """Return an inner model with the names of its columns."""
        return cls(inner.times, tuple(names), np.frombuffer(pack(inner), dtype=np.uint8))

    @cached_property
    def inner(self) -> SurvivalModel:
        """Inner model."""
        from multicentre.survival.fitted_models import KINDS

        return unpack(self.packed.tobytes(), KINDS, len(self.names))

    def select(self, X: Floats, columns: Sequence[str], levels: Sequence[str]) -> Floats:
        """Return the columns of the inner model by their names, shape (n, len(names))."""
        selected = {name: read_level(X, columns, levels, name) for name in self.names}
        if absent := [name for name, values in selected.items() if values is None]:
            raise SchemaMismatch(
                f"patients must have the {len(self.names)} columns of the model; they lack {', '.join(absent[:8])}",
                where="columns",
                hint=f"The columns of the patients are {', '.join(list(columns)[:20])}.",
            )
        return np.column_stack([values for values in selected.values() if values is not None])

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K), for the selected columns."""
        return self.inner.survival(X)

    def restricted_mean(self, X: Floats) -> Floats:
        """Return each patient's mean time survived up to the horizon, shape (n,), for the selected columns."""
        return self.inner.restricted_mean(X)

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless names are unique and few enough, and the inner model is on this grid."""
        if not 0 < len(self.names) == len(set(self.names)) or not np.array_equal(self.inner.times, self.times):
            raise MessageError(
                f"the model must have different names of columns, and its grid; got {len(self.names)}, or another grid",
                where="Named",
            )


# Largest magnitude of a log hazard ratio of a recalibrated model.
MAX_RATIO = 50.0

# Largest magnitude of the cumulative hazard and of the other numbers of a recalibrated model.
MAX_HAZARD = 1e9

# Smallest divisor of the risk.
SMALLEST_SPREAD = 1e-100


@dataclass(frozen=True)
class Recalibrated(SurvivalModel):
    """S(t | x) = exp(-H0(t) exp(slope (r(x) - centre) / spread)), with the risk r(x) of an inner model.

    The risk is minus the inner model's mean time survived, divided by the horizon.

    Parameters
    ----------
    times : array of shape (K,)
    n_columns : int
        Number of columns of the inner model.
    slope : float
        Log hazard ratio per standard deviation of the risk.
    centre, spread : float
        Mean and standard deviation of the risk of patients who were not used to fit the inner model.
    baseline : array of shape (K,)
        Cumulative hazard at the mean risk.
    packed : array of bytes
        Inner model, which must not be recalibrated.

    Examples
    --------
    >>> from multicentre.survival.fitted_models.cox import CoxModel
    >>> inner = CoxModel(np.array([1.0, 2.0]), np.ones(1), np.zeros(1), np.array([0.1, 0.3]))
    >>> model = Recalibrated.of(inner, 1, 0.0, -0.9, 0.1, np.array([0.2, 0.4]))
    >>> model.survival(np.zeros((1, 1))).round(4).tolist()
    [[0.8187, 0.6703]]
    """

    times: Floats = array("times of the grid", ("K",), bound=MAX_TIME)
    n_columns: int = count("columns of the inner model")
    slope: float = number("log hazard ratio per standard deviation of the risk", bound=MAX_HAZARD)
    centre: float = number("mean risk", bound=MAX_HAZARD)
    spread: float = number("standard deviation of the risk", bound=MAX_HAZARD)
    baseline: Floats = array("cumulative hazard at the mean risk, on the grid", ("K",), bound=MAX_HAZARD)
    packed: Bytes = array("inner model as bytes", ("b",), dtype="u1", bound=256)

    @classmethod
    def of(
        cls, inner: SurvivalModel, n_columns: int, slope: float, centre: float, spread: float, baseline: Floats
    ) -> Self:
        """Return the recalibrated model of an inner model."""
        packed = np.frombuffer(pack(inner), dtype=np.uint8)
        return cls(inner.times, n_columns, slope, centre, spread, baseline, packed)

    @cached_property
    def inner(self) -> SurvivalModel:
        """Inner model, whose risk is used."""
        from multicentre.survival.fitted_models import KINDS

        kinds = {name: kind for name, kind in KINDS.items() if kind is not Recalibrated}
        return unpack(self.packed.tobytes(), kinds, self.n_columns)

    def risk(self, X: Floats) -> Floats:
        """Return minus the inner model's mean time survived, divided by the horizon, shape (n,)."""
        return np.asarray(-self.inner.restricted_mean(X) / self.times[-1], dtype=np.float64)

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        return recalibrate_curves(self.risk(X), self.slope, self.centre, self.spread, self.baseline)

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless the baseline does not decrease and the inner model is valid and on this grid."""
        if self.n_columns != n_columns or self.spread < SMALLEST_SPREAD:
            raise MessageError(
                f"the model must have {n_columns} columns and a positive spread; got {self.n_columns} and "
                f"{self.spread:g}",
                where="Recalibrated",
            )
        if self.baseline[0] < 0 or (np.diff(self.baseline) < 0).any():
            raise MessageError(
                "baseline must be non-negative and not decrease; got another", where="Recalibrated.baseline"
            )
        try:
            inner = self.inner
        except RecursionError:
            raise MessageError("models must be nested in few levels; got too many", where="Recalibrated") from None
        parts = inner.components if isinstance(inner, Mixture) else [inner]
        if any(isinstance(part, Recalibrated) for part in parts):
            raise MessageError(
                "the inner model must not be recalibrated; got a model that is recalibrated again", where="Recalibrated"
            )
        if not np.array_equal(inner.times, self.times):
            raise MessageError("the inner model must be on this grid; got another grid", where="Recalibrated")


def recalibrate_curves(risks: Floats, slope: float, centre: float, spread: float, baseline: Floats) -> Floats:
    """Return survival curves of proportional hazards on risks, shape (n, K).

    Parameters
    ----------
    risks : array of shape (n,)
    slope : float
        Log hazard ratio per standard deviation.
        centre, spread : float
            Mean and standard deviation of the risks.
    baseline : array of shape (K,)
        Cumulative hazard at the centre.

    Examples
    --------
    >>> recalibrate_curves(np.zeros(1), 1.0, 0.0, 1.0, np.array([0.0, np.log(2)])).round(6).tolist()
    [[1.0, 0.5]]
    """
    exponent = np.clip(slope * (risks - centre) / spread, -MAX_RATIO, MAX_RATIO)
    return np.asarray(np.exp(-np.exp(exponent)[:, None] * baseline), dtype=np.float64)


@dataclass(frozen=True)
class Designed(FittedDesign, SurvivalModel):
    """Model of the columns of a formula, which it builds from those of the data.

    Parameters
    ----------
    times : array of shape (K,)
    fill : array of shape (d,)
        Value that replaces missing entries of every column of the inner model.
    inner_columns : tuple of str
        Columns of the inner model, among those of the formula.
    packed : array of bytes
        Inner model.
    """

    times: Floats = array("times of the grid", ("K",), bound=MAX_TIME)
    fill: Floats = array("value that replaces missing entries of every column", ("d",), bound=MAX_VALUE)
    inner_columns: tuple[str, ...] = texts("columns of the inner model, in order")
    packed: Bytes = array("inner model as bytes", ("b",), dtype="u1", bound=256)

    @classmethod
    def of_model(cls, inner: SurvivalModel, design: FittedDesign, fill: Floats, columns: Sequence[str]) -> Self:
        """Return an inner model with the design of its columns."""
        fields = {name: getattr(design, name) for name in FittedDesign.declarations()}
        packed = np.frombuffer(pack(inner), dtype=np.uint8)
        return cls(**fields, times=inner.times, fill=fill, inner_columns=tuple(columns), packed=packed)

    @cached_property
    def inner(self) -> SurvivalModel:
        """Inner model."""
        from multicentre.survival.fitted_models import KINDS

        return unpack(self.packed.tobytes(), KINDS, len(self.fill))

    def complete_rows(self, X: Floats, fill: Floats, columns: Sequence[str], levels: Sequence[str]) -> Floats:
        """Return the columns of the formula, shape (n, d); missing entries are the means of the fit."""
        names = tuple(self.used)
        values = rows_for(Table(X, tuple(columns), tuple(levels)), names, self.data_levels)
        built = self.build(values, names)[:, [self.column_names.index(name) for name in self.inner_columns]]
        return np.where(np.isnan(built), self.fill, built)

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K), for the columns of the formula."""
        return self.inner.survival(X)

    def restricted_mean(self, X: Floats) -> Floats:
        """Return each patient's mean time survived up to the horizon, shape (n,), for the columns of the formula."""
        return self.inner.restricted_mean(X)

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless the design is valid, and the inner model is of its columns and on this grid."""
        self.check()
        fits = set(self.inner_columns) <= set(self.column_names) and len(self.inner_columns) == len(self.fill)
        if not fits or not np.array_equal(self.inner.times, self.times):
            raise MessageError("the model must be of the columns of its formula, and its grid", where="Designed")


# Largest number of times of a shared grid.
MAX_JOINT_TIMES = 256


@dataclass(frozen=True)
class Regridded(SurvivalModel):
    """S(t | x) of an inner model on another grid, with linear cumulative hazard between the inner model's times.

    After the inner model's horizon the curves are constant.

    Parameters
    ----------
    times : array of shape (K,)
    n_columns : int
        Number of columns of the inner model.
    packed : array of bytes
        Inner model, on a separate grid; it must not be a `Regridded`.

    Examples
    --------
    >>> from multicentre.survival.fitted_models.cox import CoxModel
    >>> inner = CoxModel(np.array([2.0, 4.0]), np.ones(1), np.zeros(1), np.array([0.2, 0.6]))
    >>> model = Regridded.of(inner, np.array([1.0, 2.0, 3.0, 9.0]), 1)
    >>> (-np.log(model.survival(np.zeros((1, 1))))).round(6).tolist()
    [[0.1, 0.2, 0.4, 0.6]]
    """

    times: Floats = array("times of the grid", ("K",), bound=MAX_TIME)
    n_columns: int = count("columns of the inner model")
    packed: Bytes = array("inner model as bytes", ("b",), dtype="u1", bound=256)

    @classmethod
    def of(cls, inner: SurvivalModel, times: Floats, n_columns: int) -> Self:
        """Return a model on the given times."""
        return cls(times, n_columns, np.frombuffer(pack(inner), dtype=np.uint8))

    @cached_property
    def inner(self) -> SurvivalModel:
        """Inner model, on its grid."""
        from multicentre.survival.fitted_models import KINDS

        kinds = {name: kind for name, kind in KINDS.items() if kind is not Regridded}
        return unpack(self.packed.tobytes(), kinds, self.n_columns)

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        return interpolate_curves(self.inner.survival(X), self.inner.times, self.times)

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless there is a valid inner model of `n_columns` columns."""
        if self.n_columns != n_columns:
            raise MessageError(f"the model must have {n_columns} columns; got {self.n_columns}", where="Regridded")
        try:
            inner = self.inner
        except RecursionError:
            raise MessageError("models must be nested in few levels; got too many", where="Regridded") from None
        if inner.is_empty:
            raise MessageError("the inner model must have times; got an empty model", where="Regridded")


def interpolate_curves(survival: Floats, grid: Floats, times: Floats) -> Floats:
    """Interpolate survival curves at other times, shape (n, T); the cumulative hazard is linear between times.

    Parameters
    ----------
    survival : array of shape (n, K)
    grid : array of shape (K,)
    times : array of shape (T,)
        Times of the result. After the grid's last time the curves are constant; at time 0 they are 1.

    Examples
    --------
    >>> interpolate_curves(np.array([[0.25]]), np.array([2.0]), np.array([0.0, 1.0, 2.0, 3.0])).tolist()
    [[1.0, 0.5, 0.25, 0.25]]
    """
    knots = np.append(0.0, grid)
    hazards = np.concatenate([np.zeros((len(survival), 1)), cumulative_hazard(survival)], axis=1)
    after = np.clip(np.searchsorted(knots, times, side="left"), 1, len(grid))
    width, distance = knots[after] - knots[after - 1], np.minimum(times, knots[after]) - knots[after - 1]
    fraction = np.divide(distance, width, out=np.ones_like(distance), where=width > 0)
    return np.asarray(
        np.exp(-(hazards[:, after - 1] * (1.0 - fraction) + hazards[:, after] * fraction)), dtype=np.float64
    )


def on_one_grid(models: Sequence[SurvivalModel], n_columns: int) -> list[SurvivalModel]:
    """Bring models to one grid: all their times up to the earliest horizon, at most 256.

    Examples
    --------
    >>> from multicentre.survival.fitted_models.cox import CoxModel
    >>> grids = np.array([1.0, 4.0]), np.array([2.0, 3.0])
    >>> one, two = (CoxModel(grid, np.ones(1), np.zeros(1), np.array([0.1, 0.2])) for grid in grids)
    >>> [model.times.tolist() for model in on_one_grid([one, two], 1)]
    [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]
    """
    times = np.unique(np.concatenate([model.times for model in models]))
    times = times[times <= min(model.times[-1] for model in models)]
    if len(times) > MAX_JOINT_TIMES:
        times = times[np.unique(np.linspace(0, len(times) - 1, MAX_JOINT_TIMES).round().astype(int))]
    return [_moved(model, times, n_columns) for model in models]


def _moved(model: SurvivalModel, times: Floats, n_columns: int) -> SurvivalModel:
    if np.array_equal(model.times, times):
        return model
    if isinstance(model, Mixture):
        parts = [_moved(part, times, n_columns) for part in model.components]
        return Mixture.of(parts, model.shares, n_columns)
    inner = model.inner if isinstance(model, Regridded) else model
    return Regridded.of(inner, times, n_columns)
