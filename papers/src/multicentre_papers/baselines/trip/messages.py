"""What TRIP sends: asks of the coordinator and releases of the sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, arrays, count, flag, number, texts
from multicentre.federation.steps import Release
from multicentre.phenotyping.agreement import TensorMemory
from multicentre.phenotyping.fitted.checks import PRODUCTS

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Agreed(Message):
    """The codes that the sites agreed on, and the largest count."""

    codes: dict[str, tuple[str, ...]] = texts("agreed codes of every mode", keyed=True)
    cap: int = count("higher counts are set to this; 0 leaves them")


@dataclass(frozen=True)
class Consensus(Message):
    """The factors on which the sites are to agree."""

    factors: dict[str, Floats] = arrays("factor matrix of each mode", ("c", "r"))


@dataclass(frozen=True)
class Draw(Consensus):
    """The same, and how strongly they draw."""

    penalty: float = number("weight of the squared distance to the consensus, w")


@dataclass(frozen=True)
class Begin(Consensus):
    """The factors to start from, and what stays fixed during the fit."""

    distinct: float = number("weight of the pairwise distinctness of the first mode's columns; 0 for none")
    nonnegative: bool = flag("memberships are nonnegative")
    n_sweeps: int = count("sweeps of coordinate descent for nonnegative memberships")


@dataclass(frozen=True)
class SiteMemory(TensorMemory):
    """What a site remembers between rounds; it never leaves."""

    cap: int = count("higher counts are set to this; 0 leaves them")
    distinct: float = number("weight of the pairwise distinctness of the first mode's columns; 0 for none")
    nonnegative: bool = flag("memberships are nonnegative")
    n_sweeps: int = count("sweeps of coordinate descent for nonnegative memberships")
    factors: dict[str, Floats] = arrays("the site's own factor matrices", ("c", "r"))
    multipliers: dict[str, Floats] = arrays("the site's multipliers", ("c", "r"))
    memberships: Floats = array("membership of each patient in each phenotype", ("n", "r"))


@dataclass(frozen=True)
class LocalTerms(Release):
    """A site's factors and multipliers as terms of means over sites."""

    factors: dict[str, Floats] = arrays("factor matrices of the site", ("c", "r"), bound=PRODUCTS)
    multipliers: dict[str, Floats] = arrays("multipliers of the site", ("c", "r"), bound=PRODUCTS)
    sites: int = count("one of each site, to divide the sums by", bound=2.0**16)


@dataclass(frozen=True)
class Final(Consensus):
    """Factors to be held against the sites' patients."""

    threshold: float = number("share of a patient's own total from which a membership counts")
    n_sweeps: int = count("sweeps of coordinate descent for nonnegative memberships")
