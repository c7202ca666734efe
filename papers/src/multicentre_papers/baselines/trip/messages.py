"""Messages of TRIP: requests of the coordinator and releases of the sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, arrays, count, flag, number, texts
from multicentre.core.steps import Release
from multicentre.phenotyping.agreement import TensorMemory
from multicentre.phenotyping.fitted.fit_sums import PRODUCTS

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Prepared(Message):
    """Agreed codes and the upper limit of the counts."""

    codes: dict[str, tuple[str, ...]] = texts("agreed codes of every mode", keyed=True)
    cap: int = count("upper limit of the counts; 0 for none")


@dataclass(frozen=True)
class Consensus(Message):
    """Consensus factors of all sites."""

    factors: dict[str, Floats] = arrays("factor matrix of each mode", ("c", "r"))


@dataclass(frozen=True)
class Draw(Consensus):
    """Consensus factors and the penalty that draws sites to them."""

    penalty: float = number("weight of the squared distance to the consensus, w")


@dataclass(frozen=True)
class Begin(Consensus):
    """Initial factors and the settings that stay fixed during the fit."""

    distinct: float = number("weight of the distinctness penalty on the first mode's columns; 0 for none")
    nonnegative: bool = flag("memberships are non-negative")
    n_sweeps: int = count("coordinate descent sweeps for non-negative memberships")


@dataclass(frozen=True)
class SiteMemory(TensorMemory):
    """State that a site keeps between rounds; it never leaves the site."""

    cap: int = count("upper limit of the counts; 0 for none")
    distinct: float = number("weight of the distinctness penalty on the first mode's columns; 0 for none")
    nonnegative: bool = flag("memberships are non-negative")
    n_sweeps: int = count("coordinate descent sweeps for non-negative memberships")
    factors: dict[str, Floats] = arrays("factor matrices of the site", ("c", "r"))
    multipliers: dict[str, Floats] = arrays("multipliers of the site", ("c", "r"))
    memberships: Floats = array("membership of each patient in each phenotype", ("n", "r"))


@dataclass(frozen=True)
class LocalTerms(Release):
    """A site's factors and multipliers as terms of means over sites."""

    factors: dict[str, Floats] = arrays("factor matrices of the site", ("c", "r"), bound=PRODUCTS)
    multipliers: dict[str, Floats] = arrays("multipliers of the site", ("c", "r"), bound=PRODUCTS)
    sites: int = count("1 per site; divides the sums", bound=2.0**16)


@dataclass(frozen=True)
class Final(Consensus):
    """Final factors, to be compared with the sites' patients."""

    threshold: float = number("smallest share of a patient's total at which a membership counts")
    n_sweeps: int = count("coordinate descent sweeps for non-negative memberships")
