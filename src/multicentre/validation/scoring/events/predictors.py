"""Phenotypes as a message that sites take, and memberships of patients in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.data.events.tensor import EventTensor
from multicentre.federation.errors import MessageError, SchemaMismatch
from multicentre.federation.messages import Message, arrays, count, flag, texts
from multicentre.phenotyping.fitted.model import N_SWEEPS
from multicentre.phenotyping.kernels.memberships import fit_memberships
from multicentre.phenotyping.kernels.poisson import fit_rates
from multicentre.phenotyping.kernels.sparse import SparseTensor

Floats = NDArray[np.float64]
N_RATE_STEPS = 100
MOST_PHENOTYPES = 1000
LARGEST = 1e30


@dataclass(frozen=True)
class Factors(Message):
    """Factors of every mode, and how a patient's memberships are fitted to them."""

    codes: dict[str, tuple[str, ...]] = texts("codes of every mode", keyed=True)
    factors: dict[str, Floats] = arrays("factor of every mode", ("codes", "r"))
    nonnegative: bool = flag("memberships are not below 0")
    rates: bool = flag("memberships are fitted under the Poisson likelihood")
    cap: int = count("higher counts are set to this; 0 for none")

    @property
    def rank(self) -> int:
        """Number of phenotypes."""
        return int(next(iter(self.factors.values())).shape[1])

    def valid_for(self, data: EventTensor) -> Self:
        """Return the factors if they are those of the modes of such patients.

        Raises
        ------
        MessageError
            They do not fit the codes.
        SchemaMismatch
            The modes are others.
        """
        self.checked()
        if tuple(self.codes) != data.modes:
            raise SchemaMismatch(
                f"the modes are {', '.join(self.codes)}, here they are {', '.join(data.modes)}",
                where="modes",
                mend="Give every site the same modes in the same order.",
            )
        if set(self.factors) != set(self.codes) or not 1 <= self.rank <= MOST_PHENOTYPES or self.cap < 0:
            raise MessageError("the factors do not fit the modes", where="Factors")
        for mode, names in self.codes.items():
            if self.factors[mode].shape != (len(names), self.rank) or len(set(names)) != len(names) or not names:
                raise MessageError("a factor does not fit its codes", where=f"Factors.factors[{mode}]")
            if np.abs(self.factors[mode]).max() > LARGEST:
                raise MessageError("a factor is out of range", where=f"Factors.factors[{mode}]")
            if self.rates and (self.factors[mode] < 0).any():
                raise MessageError("a rate is below 0", where=f"Factors.factors[{mode}]")
        return self

    def fit(self, tensor: SparseTensor, factors: Sequence[Floats]) -> Floats:
        """Return patients' memberships, shape (n, r), as the method's own ``transform`` fits them."""
        start = np.ones((tensor.shape[0], self.rank))
        if self.rates:
            return fit_rates(tensor, list(factors), start, N_RATE_STEPS)
        counts = np.minimum(tensor.counts, float(self.cap)) if self.cap else tensor.counts
        limited = SparseTensor(tensor.coordinates, counts, tensor.shape)
        return fit_memberships(limited, factors, start, n_sweeps=N_SWEEPS, nonnegative=self.nonnegative)


def factors_of(model: Any) -> Factors:
    """Return fitted phenotypes as the message that sites take."""
    given = model.get_params(deep=False)
    return Factors(
        codes={mode: tuple(names) for mode, names in model.codes_.items()},
        factors={mode: np.ascontiguousarray(factor) for mode, factor in model.factors_.items()},
        nonnegative=bool(model.nonnegative),
        rates=given.get("solver") == "poisson",
        cap=int(given.get("cap") or 0),
    )
