"""Messages of DPFact as published."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import arrays, count, flag, number
from multicentre.core.steps import Release
from multicentre.phenotyping.dpfact.messages import Begin, Factors

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BeginDrawn(Begin):
    """The factors to start from, and the range of random memberships."""

    largest: float = number("memberships are drawn from 0 up to this number")


@dataclass(frozen=True)
class PassEntries(Factors):
    """One round of stochastic gradient descent over the entries above zero."""

    n_passes: int = count("passes over the site's entries, the paper's tau")
    step: float = number("learning rate, the paper's eta")
    elastic_penalty: float = number("elastic term, the paper's gamma")
    shrinkage: float = number("group lasso, the paper's mu")
    nonnegative: bool = flag("factors are kept nonnegative; the paper does not")
    round_number: int = count("number of the round, for the order of the entries")
    noise_sd: float = number("standard deviation of the noise of the paper's algorithm; 0 for none")


@dataclass(frozen=True)
class LocalFactors(Release):
    """A site's factors as terms of a mean."""

    factors: dict[str, Floats] = arrays("factor matrices", ("c", "r"), bound=2.0**30)
    sites: int = count("1 for each site", bound=1.0)
