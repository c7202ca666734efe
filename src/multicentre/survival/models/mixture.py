"""Several models whose survival curves are averaged."""

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
from multicentre.survival.models.packing import Bytes, join, split

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
