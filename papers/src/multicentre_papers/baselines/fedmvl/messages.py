"""What FedMVL asks of a site, and what a site answers with.

A site keeps its columns, their bases U and its own factors V_m. What leaves about patients are terms of masked sums
over sites and, at the end, the weights of the site's own views. All of it follows from the products of its patients'
rows with each other: the columns can be found from it up to a rotation at best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, count, number, text, texts
from multicentre.federation.steps import Release

Floats = NDArray[np.float64]

LARGEST_FACTOR = 2.0**20
LARGEST_PRODUCT = 2.0**16
LARGEST_TERM = 2.0**30
MOST_VIEWS = 2.0**12


def _summed(what: str, bound: float) -> Any:
    return number(what, bound=bound, permission="relations=summed")


@dataclass(frozen=True)
class Terms(Message):
    """How a site factorises its views; the same at all sites."""

    n_clusters: int = count("clusters c")
    scale: str = text("what is standardised first: sample, feature, none")
    lam: float = number("lambda, of the exponent r = 10^lambda of the views' weights")
    rho: float = number("pull of the views' factors towards the common one, in units of n / c")
    fraction: float = number("least share of its rows that a view renews in a round")
    max_iter: int = count("rounds that may be asked for")
    seed: int = count("seed of the draws of rows")


@dataclass(frozen=True)
class Memory(Terms):
    """What a site remembers between rounds."""

    round_number: int = count("last round that was answered")
    n_sketches: int = count("products that were answered")
    factors: Floats = array("factors V_m of the site's views", ("k", "n", "c"))
    duals: Floats = array("scaled multipliers Y_m of V_m = V", ("k", "n", "c"))
    weight_terms: Floats = array("terms of the views' weights", ("k",))


@dataclass(frozen=True)
class Views(Release):
    """Which views a site has."""

    views: tuple[str, ...] = texts("names of the views", public=True)


@dataclass(frozen=True)
class Directions(Message):
    """Directions over the patients, to be multiplied with the products of their rows."""

    directions: Floats = array("orthonormal directions", ("n", "p"))


@dataclass(frozen=True)
class Products(Release):
    """Products of the patients' rows with each other, times the directions, summed over views."""

    individual: ClassVar[bool] = True
    products: Floats = array(
        "mean over patients of the products of two rows, times the directions",
        ("n", "p"),
        bound=LARGEST_PRODUCT,
        permission="relations=summed",
    )


@dataclass(frozen=True)
class Common(Message):
    """The common factor and what the views' weights are made of."""

    round_number: int = count("number of the round, from 1")
    common: Floats = array("common factor V", ("n", "c"))
    n_views: float = number("views of all sites")
    total_term: float = number("sum of the terms of their weights")
    reference: float = number("mean logarithm of their errors")


@dataclass(frozen=True)
class Sums(Release):
    """A site's factors after its share of a round, summed over its views."""

    individual: ClassVar[bool] = True
    total: Floats = array(
        "factors V_m and their multipliers, added over views",
        ("n", "c"),
        bound=LARGEST_FACTOR,
        permission="relations=summed",
    )
    n_views: float = _summed("views", MOST_VIEWS)
    term: float = _summed("terms of the views' weights, added", LARGEST_TERM)
    log_error: float = _summed("logarithms of the views' unexplained shares, added", 2.0**20)
    error: float = _summed("unexplained shares, added", LARGEST_TERM)
    gap: float = _summed("squared distances of the factors to the common one, added", LARGEST_TERM)


@dataclass(frozen=True)
class Listing(Message):
    """The views of all sites, in the order in which their weights are wanted."""

    sites: tuple[str, ...] = texts("site of each view")
    views: tuple[str, ...] = texts("name of each view")
    total_term: float = number("sum of the terms of their weights")


@dataclass(frozen=True)
class Shares(Release):
    """The weights of a site's views."""

    weights: Floats = array("weight alpha of each of the site's views", ("k",), bound=1.0)


@dataclass(frozen=True)
class Progress(Message):
    """What the coordinator carries from round to round."""

    common: Floats = array("common factor V", ("n", "c"))
    guide: Floats = array("factor G that holds the columns of V orthogonal", ("n", "c"))
    psi: Floats = array("multiplier of G = V", ("n", "c"))
    n_views: float = number("views in the last sum")
    total_term: float = number("sum of the terms of the views' weights")
    reference: float = number("mean logarithm of the views' errors")


@dataclass(frozen=True)
class Sketch(Message):
    """Directions and their products, of the start."""

    directions: Floats = array("orthonormal directions", ("n", "p"))
    products: Floats = array("their products", ("n", "p"))
