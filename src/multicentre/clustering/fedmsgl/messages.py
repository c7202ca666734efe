"""Messages between the coordinator and the sites of FedMSGL.

A relation belongs to a pair of patients under pseudonyms. It is the weight of one patient's row in the self-expression
of the other's row of the same view. The site averages both directions, so each pair has one value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, arrays, count, number, text, texts
from multicentre.core.steps import Release

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Integers = NDArray[np.int64]

# Bound of relations summed over a site's views: a relation is at most 1 per view, so a site may have up to 64 views. A
# larger bound would make the rounding of masked sums coarser.
MAX_VIEWS = 64.0
# Bound of a summed loss, far above any loss of prepared views, so that masked sums of losses cannot overflow.
MAX_LOSS = 2.0**40


@dataclass(frozen=True)
class Settings(Message):
    """Settings of the self-expression, the same at all sites."""

    norm: str = text("scaling of the rows or columns: auto, l2, z, mms, raw")
    lambda_1: float = number("penalty of the part that views share")
    lambda_2: float = number("additional penalty of the shared part by distance")
    lambda_3: float = number("penalty of the view-specific part")
    tolerance: float = number("residual at which the solver stops")
    top: int = count("number of largest relations per patient")


@dataclass(frozen=True)
class ViewNames(Release):
    """Names of a site's views."""

    views: tuple[str, ...] = texts("names of the views", public=True)
    n_incomplete: int = count("views that some of the aligned patients lack")


@dataclass(frozen=True)
class Relations(Release):
    """Relations of all pairs, summed over a site's views."""

    individual: ClassVar[bool] = True
    relations: Floats = array(
        "relation of each pair of patients, summed over views",
        ("pairs",),
        bound=MAX_VIEWS,
        permission="relations=summed",
    )


@dataclass(frozen=True)
class PairCounts(Release):
    """Number of a site's views that have both patients, for each pair."""

    individual: ClassVar[bool] = True
    views: Floats = array(
        "views that have both patients of a pair", ("pairs",), bound=MAX_VIEWS, permission="relations=summed"
    )


@dataclass(frozen=True)
class NeighbourLists(Release):
    """Largest relations of each patient in every view of a site, unmasked."""

    individual: ClassVar[bool] = True
    places: dict[str, Integers] = arrays(
        "places of the patients who have the view", ("m",), dtype="i8", permission="relations=listed"
    )
    neighbours: dict[str, Integers] = arrays(
        "places of the patients with the largest weights, -1 for none",
        ("m", "t"),
        dtype="i8",
        permission="relations=listed",
    )
    shares: dict[str, Floats] = arrays(
        "weight of each of them in the patient's self-expression", ("m", "t"), permission="relations=listed"
    )


@dataclass(frozen=True)
class ViewDistances(Message):
    """Distances of all views, from which every site computes the weights.

    Each site checks that its views have the distances that it returned.
    """

    sites: tuple[str, ...] = texts("site of each view")
    views: tuple[str, ...] = texts("name of each view")
    distances: Floats = array("distance of each view, as its site returned it", ("k",))


@dataclass(frozen=True)
class RefinementRequest(Settings):
    """Request of a round: the current consensus, and the penalty that draws the views to it."""

    sites: tuple[str, ...] = texts("site of each view")
    views: tuple[str, ...] = texts("name of each view")
    distances: Floats = array("distance of each view, as its site returned it in the previous round", ("k",))
    coupling: float = number("penalty that draws a view of weight 1 to the consensus; 0 in the first round")
    consensus: Singles = array(
        "consensus: weights of the columns in the self-expression of each row", ("n", "n"), dtype="f4"
    )


@dataclass(frozen=True)
class SiteState(Message):
    """State of a site between rounds."""

    distances: dict[str, Floats] = arrays("distance of every view, as last returned", (1,))
    coupling: float = number("coupling of the rounds after the first; 0 before")
    n_rounds: int = count("rounds so far")


@dataclass(frozen=True)
class Distances(Release):
    """Distances of a site's views from the consensus, to two digits, so that no single relation can be inferred."""

    distances: dict[str, Floats] = arrays(
        "distance of a view's shared part, to two digits", (1,), permission="relations=summed"
    )


@dataclass(frozen=True)
class RefinedRelations(Release):
    """Shared and view-specific part of the relations, summed over a site's views."""

    individual: ClassVar[bool] = True
    shared: Floats = array("shared part, weighted by view", ("n", "n"), bound=MAX_VIEWS, permission="relations=summed")
    specific: Floats = array(
        "view-specific part of each pair",
        ("pairs",),
        bound=MAX_VIEWS,
        permission="relations=summed",
    )
    loss: float = number(
        "unexplained share of the views, penalties and coupling", bound=MAX_LOSS, permission="relations=summed"
    )


@dataclass(frozen=True)
class CodingRequest(Settings):
    """Landmarks, and the block of patients to express by them."""

    landmarks: Integers = array("places of the landmarks", ("m",), dtype="i8")
    nearest: int = count("number of landmarks per patient; 0 for all")
    first: int = count("first place of the block")
    last: int = count("place after the last of the block")


@dataclass(frozen=True)
class LandmarkCodes(Release):
    """Weights of the landmarks in each patient, summed over a site's views."""

    individual: ClassVar[bool] = True
    codes: Floats = array(
        "weight of each landmark in a patient, summed over views",
        ("b", "m"),
        bound=MAX_VIEWS,
        permission="relations=summed",
    )


@dataclass(frozen=True)
class LandmarkLists(Release):
    """Landmarks with the largest weights in each patient, in every view of a site, unmasked."""

    individual: ClassVar[bool] = True
    nearest: dict[str, Integers] = arrays(
        "numbers of the landmarks", ("b", "t"), dtype="i8", permission="relations=listed"
    )
    shares: dict[str, Floats] = arrays(
        "weight of each of them in the patient", ("b", "t"), permission="relations=listed"
    )


@dataclass(frozen=True)
class ClusterLabels(Message):
    """Clusters of all patients."""

    labels: Integers = array("cluster of every patient", ("n",), dtype="i8")
    n_clusters: int = count("clusters")


@dataclass(frozen=True)
class Profiles(Release):
    """Rounded column means of a site's views by cluster."""

    sizes: dict[str, Integers] = arrays(
        "patients of a cluster who have the view; 0 for few", ("c",), dtype="i8", permission="relations=listed"
    )
    means: dict[str, Floats] = arrays(
        "mean of a column in a cluster: standard deviations from the mean of all, to a quarter",
        ("c", "d"),
        permission="relations=listed",
    )
