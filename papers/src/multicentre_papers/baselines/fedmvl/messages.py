"""Messages of FedMVL: requests of the coordinator, releases of the sites and the state of both sides.

A site keeps its columns, their bases U and its factors V_m. Releases about patients are terms of masked sums over sites
and, at the end, the weights of the site's views. All of them depend only on the inner products of the patients' rows,
so they determine the columns at most up to a rotation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, count, number, text, texts
from multicentre.core.steps import Release

Floats = NDArray[np.float64]

# Bounds of released numbers.
MAX_FACTOR = 2.0**20
# 16 times MAX_VIEWS: a scaled view has mean squared row length 1, so it adds at most 1 to a product.
MAX_PRODUCT = 2.0**16
# One term of a weight is at most exp(20), below 2**29 (MAX_EXPONENT); two such terms fit.
MAX_TERM = 2.0**30
# 4096 views: far above any study, but low enough for MAX_PRODUCT to hold with a margin.
MAX_VIEWS = 2.0**12


def _summed(description: str, bound: float) -> Any:
    return number(description, bound=bound, permission="relations=summed")


@dataclass(frozen=True)
class Terms(Message):
    """Settings of the factorisation, the same at all sites."""

    n_clusters: int = count("number of clusters c")
    scale: str = text("initial standardisation: sample, feature or none")
    lam: float = number("lambda; the exponent of the views' weights is r = 10^lambda")
    rho: float = number("penalty that draws the views' factors to the common factor, in units of n / c")
    fraction: float = number("smallest share of its rows that a view updates per round")
    max_iter: int = count("maximum number of rounds")
    seed: int = count("seed of the draws of rows")


@dataclass(frozen=True)
class Memory(Terms):
    """State that a site keeps between rounds."""

    round_number: int = count("last answered round")
    n_sketches: int = count("number of answered products")
    factors: Floats = array("factors V_m of the site's views", ("k", "n", "c"))
    duals: Floats = array("scaled multipliers Y_m of V_m = V", ("k", "n", "c"))
    weight_terms: Floats = array("terms of the views' weights", ("k",))


@dataclass(frozen=True)
class Views(Release):
    """Names of a site's views."""

    views: tuple[str, ...] = texts("names of the views", public=True)


@dataclass(frozen=True)
class Directions(Message):
    """Directions over the patients, to be multiplied by the inner products of their rows."""

    directions: Floats = array("orthonormal directions", ("n", "p"))


@dataclass(frozen=True)
class Products(Release):
    """Inner products of the patients' rows times the directions, summed over views."""

    individual: ClassVar[bool] = True
    products: Floats = array(
        "inner products of the patients' rows times the directions, divided by the number of patients",
        ("n", "p"),
        bound=MAX_PRODUCT,
        permission="relations=summed",
    )


@dataclass(frozen=True)
class Common(Message):
    """Common factor and the terms of the views' weights."""

    round_number: int = count("number of the round, from 1")
    common: Floats = array("common factor V", ("n", "c"))
    n_views: float = number("number of views of all sites")
    total_term: float = number("sum of the terms of the views' weights")
    reference: float = number("mean logarithm of the views' errors")


@dataclass(frozen=True)
class Sums(Release):
    """Factors of a site after its updates of a round, summed over its views."""

    individual: ClassVar[bool] = True
    total: Floats = array(
        "factors V_m plus their multipliers, summed over views",
        ("n", "c"),
        bound=MAX_FACTOR,
        permission="relations=summed",
    )
    n_views: float = _summed("number of views", MAX_VIEWS)
    term: float = _summed("sum of the terms of the views' weights", MAX_TERM)
    log_error: float = _summed("sum of the logarithms of the views' unexplained shares", 2.0**20)
    error: float = _summed("sum of the unexplained shares", MAX_TERM)
    gap: float = _summed("sum of the squared distances of the factors to the common factor", MAX_TERM)


@dataclass(frozen=True)
class Listing(Message):
    """Views of all sites, in the order of their weights."""

    sites: tuple[str, ...] = texts("site of each view")
    views: tuple[str, ...] = texts("name of each view")
    total_term: float = number("sum of the terms of the views' weights")


@dataclass(frozen=True)
class Shares(Release):
    """Weights of a site's views."""

    weights: Floats = array("weight alpha of each of the site's views", ("k",), bound=1.0)


@dataclass(frozen=True)
class Progress(Message):
    """State of the coordinator between rounds."""

    common: Floats = array("common factor V", ("n", "c"))
    guide: Floats = array("factor G that keeps the columns of V orthogonal", ("n", "c"))
    psi: Floats = array("multiplier of G = V", ("n", "c"))
    n_views: float = number("views in the last sum")
    total_term: float = number("sum of the terms of the views' weights")
    reference: float = number("mean logarithm of the views' errors")


@dataclass(frozen=True)
class Sketch(Message):
    """Directions and their products in the initial sketch."""

    directions: Floats = array("orthonormal directions", ("n", "p"))
    products: Floats = array("products of the directions", ("n", "p"))
