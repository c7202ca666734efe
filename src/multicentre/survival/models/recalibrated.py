"""A model whose ranks are kept and whose curves are those of proportional hazards on its risk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import array, count, number
from multicentre.survival.models.base import LATEST, SurvivalModel
from multicentre.survival.models.mixture import Mixture
from multicentre.survival.models.packing import Bytes, pack, unpack

Floats = NDArray[np.float64]
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
