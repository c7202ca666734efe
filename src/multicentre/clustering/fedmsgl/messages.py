"""What FedMSGL asks of a site, and what a site answers with.

Relations are between pairs of patients under pseudonyms: how much of one patient's row of a view is made up of the
other's. A pair stands once, for the two directions are averaged before anything leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, arrays, count, number, text, texts
from multicentre.federation.steps import Release

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Integers = NDArray[np.int64]

MOST_VIEWS = 64.0
LARGEST_LOSS = 2.0**40


@dataclass(frozen=True)
class Terms(Message):
    """How a site expresses its patients by one another; the same at all sites."""

    norm: str = text("how a patient's row is scaled: l2, z, mms, raw")
    lambda_1: float = number("penalty of the part that views share")
    lambda_2: float = number("further penalty of the shared part by distance")
    lambda_3: float = number("penalty of the part that a view has for itself")
    tolerance: float = number("residual at which the solver stops")
    top: int = count("relations that are kept of each patient")


@dataclass(frozen=True)
class Sizes(Release):
    """Which views a site has."""

    views: tuple[str, ...] = texts("names of the views", public=True)
    n_incomplete: int = count("views that some of the aligned patients lack")


@dataclass(frozen=True)
class Relations(Release):
    """Relations of all pairs, summed over a site's views."""

    individual: ClassVar[bool] = True
    relations: Floats = array(
        "how much two patients are made up of each other, a pair once, summed over views",
        ("pairs",),
        bound=MOST_VIEWS,
        permission="relations=summed",
    )


@dataclass(frozen=True)
class Shared(Release):
    """How many of a site's views have both patients of a pair."""

    individual: ClassVar[bool] = True
    views: Floats = array(
        "views that have both patients of a pair", ("pairs",), bound=MOST_VIEWS, permission="relations=summed"
    )


@dataclass(frozen=True)
class Lists(Release):
    """Each patient's largest relations in every view of a site, as they are."""

    individual: ClassVar[bool] = True
    places: dict[str, Integers] = arrays(
        "places of the patients who have the view", ("m",), dtype="i8", permission="relations=listed"
    )
    neighbours: dict[str, Integers] = arrays(
        "places of the patients that each is made up of, -1 for none",
        ("m", "t"),
        dtype="i8",
        permission="relations=listed",
    )
    shares: dict[str, Floats] = arrays(
        "how much of the patient each of them makes up", ("m", "t"), permission="relations=listed"
    )


@dataclass(frozen=True)
class Told(Message):
    """What sites told of the distance of their views, from which weights follow; each site looks for its own."""

    sites: tuple[str, ...] = texts("site of each view")
    views: tuple[str, ...] = texts("name of each view")
    distances: Floats = array("distance of each view, as its site told it", ("k",))


@dataclass(frozen=True)
class Refining(Terms):
    """The next round: what the views share so far, and how hard each is pulled towards it."""

    sites: tuple[str, ...] = texts("site of each view")
    views: tuple[str, ...] = texts("name of each view")
    distances: Floats = array("distance of each view, as its site told it in the round before", ("k",))
    coupling: float = number("pull towards what views share, of a view with weight 1; 0 in the first round")
    consensus: Singles = array(
        "what views share so far: the shares in the columns that make up each row", ("n", "n"), dtype="f4"
    )


@dataclass(frozen=True)
class Held(Message):
    """What a site remembers between rounds."""

    distances: dict[str, Floats] = arrays("the distance of every view that was told last", (1,))
    coupling: float = number("the pull of the rounds after the first; 0 before")
    n_rounds: int = count("rounds so far")


@dataclass(frozen=True)
class Distances(Release):
    """How far a site's views are from what all share, to two digits: no single relation shows in it."""

    distances: dict[str, Floats] = arrays(
        "distance of a view's shared part, to two digits", (1,), permission="relations=summed"
    )


@dataclass(frozen=True)
class Parts(Release):
    """Both parts of the relations, summed over a site's views."""

    individual: ClassVar[bool] = True
    shared: Floats = array(
        "the part that views share, weighted", ("n", "n"), bound=MOST_VIEWS, permission="relations=summed"
    )
    own: Floats = array(
        "the part that views have for themselves, a pair once",
        ("pairs",),
        bound=MOST_VIEWS,
        permission="relations=summed",
    )
    loss: float = number(
        "what is left of the views unexplained, penalties and pull", bound=LARGEST_LOSS, permission="relations=summed"
    )


@dataclass(frozen=True)
class Coding(Terms):
    """Which patients serve as landmarks, and which rows to code on them."""

    landmarks: Integers = array("places of the landmarks", ("m",), dtype="i8")
    nearest: int = count("landmarks that a patient is coded on; 0 for all")
    first: int = count("first place of the block")
    last: int = count("place after the last of the block")


@dataclass(frozen=True)
class Codes(Release):
    """What patients are made up of, in landmarks, summed over a site's views."""

    individual: ClassVar[bool] = True
    codes: Floats = array(
        "how much of a patient each landmark makes up, summed over views",
        ("b", "m"),
        bound=MOST_VIEWS,
        permission="relations=summed",
    )


@dataclass(frozen=True)
class Coded(Release):
    """The landmarks that make up most of each patient, in every view of a site, as they are."""

    individual: ClassVar[bool] = True
    nearest: dict[str, Integers] = arrays(
        "numbers of the landmarks", ("b", "t"), dtype="i8", permission="relations=listed"
    )
    shares: dict[str, Floats] = arrays(
        "how much of the patient each of them makes up", ("b", "t"), permission="relations=listed"
    )


@dataclass(frozen=True)
class Grouping(Message):
    """The clusters that were found."""

    labels: Integers = array("cluster of every patient", ("n",), dtype="i8")
    n_clusters: int = count("clusters")


@dataclass(frozen=True)
class Profiles(Release):
    """What a site's columns look like in each cluster, coarsely."""

    sizes: dict[str, Integers] = arrays(
        "patients of a cluster who have the view; 0 for few", ("c",), dtype="i8", permission="relations=listed"
    )
    means: dict[str, Floats] = arrays(
        "mean of a column in a cluster: standard deviations from the mean of all, to a quarter",
        ("c", "d"),
        permission="relations=listed",
    )
