"""What FedMVFCM and FedMVFPC ask of a site, what a site answers with, and what either remembers.

Letters: d features over all views, k views, c clusters, n the site's patients.
"""

from __future__ import annotations

from dataclasses import dataclass

from multicentre.federation.messages import Message, array, count, flag, number, texts
from multicentre.federation.steps import Release
from multicentre_papers.baselines.fuzzy.maths import Floats

PATIENTS = 2.0**30
MOMENT = 2.0**30
DISPERSION = 2.0**32
RAW_SUM = 2.0**36


@dataclass(frozen=True)
class Description(Release):
    """Names of a site's views and columns; nothing about any patient."""

    views: tuple[str, ...] = texts("names of the views", public=True)
    columns: dict[str, tuple[str, ...]] = texts("names of the columns", keyed=True, public=True)
    kinds: dict[str, tuple[str, ...]] = texts("kind of each column: number or boolean", keyed=True, public=True)


@dataclass(frozen=True)
class Layout(Message):
    """The agreed views and columns, in stacking order."""

    views: tuple[str, ...] = texts("names of the views")
    columns: dict[str, tuple[str, ...]] = texts("names of the columns", keyed=True)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of columns of each view."""
        return {view: len(self.columns[view]) for view in self.views}


@dataclass(frozen=True)
class Measured(Layout):
    """The agreed columns, and a unit for each so that masked sums neither drown nor overflow."""

    units: Floats = array("power of two near the column's spread", ("d",), unit="column's")


@dataclass(frozen=True)
class Centred(Measured):
    """The agreed columns, a unit and a centre for each."""

    centre: Floats = array("mean over all sites", ("d",), unit="column's")


@dataclass(frozen=True)
class Orders(Release):
    """How widely one site's columns spread, to a power of two; zeros for views that it lacks."""

    sites: Floats = array("1 for each column that the site has", ("d",), bound=1.0)
    orders: Floats = array("exponent of the power of two nearest to the standard deviation", ("d",), bound=2.0**10)


@dataclass(frozen=True)
class Totals(Release):
    """Counts and column sums of one site; zeros for views that it lacks."""

    patients_by_view: Floats = array("patients who have the view", ("k",), unit="patients", bound=PATIENTS)
    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    total: Floats = array("sum of the entries", ("d",), unit="the agreed one", bound=RAW_SUM)


@dataclass(frozen=True)
class Squares(Release):
    """Sums of squares of one site about the agreed centres."""

    squares: Floats = array("sum of squared distances to the centre", ("d",), unit="the agreed one", bound=RAW_SUM)


@dataclass(frozen=True)
class Standards(Layout):
    """How a site is to bring its rows to the agreed units."""

    centre: Floats = array("taken from each column", ("d",), unit="column's")
    spread: Floats = array("by which each column is divided", ("d",), unit="column's")


@dataclass(frozen=True)
class Agreement(Standards):
    """What the coordinator knows before the first round."""

    kinds: dict[str, tuple[str, ...]] = texts("kind of each column: number or boolean", keyed=True)
    patients_by_view: Floats = array("patients who have each view", ("k",), unit="patients")
    n_patients: float = number("patients of all sites", unit="patients")

    @property
    def standards(self) -> Standards:
        """What the sites are told of it."""
        return Standards(self.views, self.columns, self.centre, self.spread)


@dataclass(frozen=True)
class Memory(Standards):
    """What a site remembers: the units, and how often it was asked."""

    n_asked: int = count("sums asked for so far")


@dataclass(frozen=True)
class Clusters(Message):
    """Where the clusters are, and how memberships follow from distances."""

    centres: Floats = array("centre of every cluster, in the agreed units", ("c", "d"))
    view_weights: Floats = array("weight alpha of every view", ("k",))
    fuzziness: float = number("the exponent m of the memberships")
    plain: bool = flag("distances are not squared")


@dataclass(frozen=True)
class MembershipSums(Release):
    """Sums over the patients of a site, each with the membership to the power of m as weight."""

    moments: Floats = array("weighted sum of the rows by cluster", ("c", "d"), unit="the agreed one", bound=MOMENT)
    masses: Floats = array("sum of the weights by cluster and view", ("c", "k"), bound=PATIENTS)
    dispersions: Floats = array("weighted sum of the distances to the centres by view", ("k",), bound=DISPERSION)
