"""One phenotype, as people read it: how heavy and how frequent it is, and the codes that make it up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CodeWeight:
    """A code of a phenotype.

    Parameters
    ----------
    code : str
    title : str
        The code itself where no title is known.
    weight : float
        Its entry in the phenotype's column, which has length 1 over the codes of the mode.
    """

    code: str
    title: str
    weight: float


@dataclass(frozen=True)
class Phenotype:
    """One component of a factorisation.

    Parameters
    ----------
    number : int
        From 1, the heaviest first.
    weight : float
        Length of its memberships over all patients, ``lambda`` of the paper.
    prevalence : float or None
        Share of the patients, 0 to 1; None where it is not known or rests on few.
    codes : mapping of str to tuple of CodeWeight
        Leading codes by mode, the heaviest first; codes without weight are left out.
    coefficient : float or None
        Log odds of an outcome for one standard deviation of the membership, where a model of it was fitted.
    p_value : float or None
    """

    number: int
    weight: float
    prevalence: float | None
    codes: Mapping[str, tuple[CodeWeight, ...]]
    coefficient: float | None = None
    p_value: float | None = None
