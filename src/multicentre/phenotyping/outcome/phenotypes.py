"""Factors of fitted phenotypes as input of a model of an outcome; they hold no patient's data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from multicentre.data.events.tensor import EventTensor
from multicentre.errors import ConfigurationError
from multicentre.phenotyping.fitted.model import N_SWEEPS, PhenotypeModel
from multicentre.phenotyping.kernels.factors import SMALLEST
from multicentre.phenotyping.kernels.mttkrp import Floats, SparseTensor
from multicentre.phenotyping.kernels.patients import fit_memberships

_FACTOR = "factor/"


def refit_memberships(
    data: EventTensor,
    codes: Mapping[str, tuple[str, ...]],
    factors: Mapping[str, Floats],
    *,
    nonnegative: bool = True,
) -> Floats:
    """Fit every patient's memberships to the patient's counts, shape (n, r), as ``transform`` of a factorisation does.

    Codes that are not listed are left out. A patient's memberships depend on no other patient. What rounding leaves of
    a membership of 0 is set to 0, so that patients without a phenotype are not counted among those who have it.

    Raises
    ------
    DataError
        The modes differ.

    Examples
    --------
    >>> data = EventTensor([[0, 0, 0]], [3.0], {"procedure": ["p1"], "diagnosis": ["d1"]})
    >>> refit_memberships(data, data.codes, {"procedure": np.ones((1, 1)), "diagnosis": np.ones((1, 1))}).tolist()
    [[3.0]]
    """
    aligned = data.align(codes)
    tensor = SparseTensor(aligned.coordinates, aligned.counts, aligned.shape)
    matrices = list(factors.values())
    start = np.ones((len(data), matrices[0].shape[1]))
    memberships = fit_memberships(tensor, matrices, start, n_sweeps=N_SWEEPS, nonnegative=nonnegative)
    return np.where(np.abs(memberships) > SMALLEST, memberships, 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class PhenotypeFactors:
    """The factors of a factorisation as they stood when it was handed over.

    Parameters
    ----------
    factors : mapping of str to array of shape (codes, r)
        Factor matrix of every mode.
    codes : mapping of str to tuple of str
        Codes of every mode.
    weights : array of shape (r,)
        Length of each phenotype's memberships over all patients of the factorisation.
    members : array of shape (r,) or None
        Patients of each phenotype, if the factorisation has them.
    n_patients : float
        Patients of the factorisation; 0 if unknown.
    nonnegative : bool
        Whether memberships are fitted without negative ones.

    Examples
    --------
    >>> PhenotypeFactors({"procedure": np.eye(2)}, {"procedure": ("p1", "p2")}, np.ones(2))
    PhenotypeFactors(2 over 2 procedure codes; ...)
    """

    factors: Mapping[str, Floats]
    codes: Mapping[str, tuple[str, ...]]
    weights: Floats
    members: Floats | None = None
    n_patients: float = 0.0
    nonnegative: bool = True

    @classmethod
    def of(cls, source: object) -> PhenotypeFactors:
        """Return the phenotypes of a fitted factorisation, or of the folder that one was saved in.

        Raises
        ------
        ConfigurationError
            The factorisation was not fitted, or it is none.
        IntegrityError
            The folder cannot be read.
        """
        if isinstance(source, cls):
            return source
        model: Any = PhenotypeModel.load(source) if isinstance(source, str | Path) else source
        factors, codes = getattr(model, "factors_", None), getattr(model, "codes_", None)
        if not factors or not codes:
            raise ConfigurationError(
                f"phenotypes must be a fitted factorisation; got {type(model).__name__} without factors",
                where="phenotypes",
                hint="Pass DPFact(...).fit(federation), for example, or the folder of a saved factorisation.",
            )
        rank = next(iter(factors.values())).shape[1]
        return cls(
            {mode: np.asarray(factor, dtype=np.float64) for mode, factor in factors.items()},
            {mode: tuple(names) for mode, names in codes.items()},
            np.asarray(getattr(model, "weights_", np.ones(rank)), dtype=np.float64),
            getattr(model, "members_", None),
            float(getattr(model, "n_patients_", None) or 0.0),
            bool(getattr(model, "nonnegative", True)),
        )

    @property
    def rank(self) -> int:
        """Number of phenotypes."""
        return len(self.weights)

    def memberships(self, data: EventTensor) -> Floats:
        """Return the memberships of patients whom the caller holds, shape (n, r); see `refit_memberships`."""
        return refit_memberships(data, self.codes, self.factors, nonnegative=self.nonnegative)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return arrays and plain facts from which `from_state` makes the same phenotypes."""
        arrays: dict[str, Any] = {_FACTOR + mode: factor for mode, factor in self.factors.items()}
        arrays["weights"] = self.weights
        if self.members is not None:
            arrays["members"] = self.members
        codes = {mode: list(names) for mode, names in self.codes.items()}
        facts = {"codes": codes, "n_patients_of_phenotypes": self.n_patients, "nonnegative": self.nonnegative}
        return arrays, facts

    @classmethod
    def from_state(cls, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> Self:
        """Return the phenotypes that `state` described."""
        codes = {mode: tuple(names) for mode, names in facts["codes"].items()}
        factors = {mode: np.asarray(arrays[_FACTOR + mode], dtype=np.float64) for mode in codes}
        weights = np.asarray(arrays["weights"], dtype=np.float64)
        n_patients, nonnegative = float(facts["n_patients_of_phenotypes"]), bool(facts["nonnegative"])
        return cls(factors, codes, weights, arrays.get("members"), n_patients, nonnegative)

    def __repr__(self) -> str:
        sizes = " x ".join(f"{len(names)} {mode} codes" for mode, names in self.codes.items())
        digest = hashlib.sha256(repr((list(self.codes.items()), self.nonnegative)).encode())
        for factor in self.factors.values():
            digest.update(factor.tobytes())
        return f"PhenotypeFactors({self.rank} over {sizes}; {digest.hexdigest()[:12]})"
