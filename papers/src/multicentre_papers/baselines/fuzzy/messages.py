"""Messages of FedMVFCM and FedMVFPC: requests, releases of the sites and the state of both sides.

Symbols: d features over all views, k views, c clusters, n patients of the site.
"""

from __future__ import annotations

from dataclasses import dataclass

from multicentre.core.messages import Message, array, count, flag, number, texts
from multicentre.core.steps import Release
from multicentre_papers.baselines.fuzzy.maths import Floats

# Bounds of released numbers.
PATIENTS = 2.0**30
# One agreed unit for each of 2**30 patients; weights are at most 1.
MOMENT = 2.0**30
# Four times PATIENTS: a mean distance of up to 4 per patient and view, since weights are at most 1.
DISPERSION = 2.0**32
# As for the same sums in `multicentre.multiview.agreement`; 2**6 for each of 2**30 patients.
RAW_SUM = 2.0**36


@dataclass(frozen=True)
class Description(Release):
    """Names of a site's views and columns."""

    views: tuple[str, ...] = texts("names of the views", public=True)
    columns: dict[str, tuple[str, ...]] = texts("names of the columns", keyed=True, public=True)
    kinds: dict[str, tuple[str, ...]] = texts("kind of each column: number or boolean", keyed=True, public=True)


@dataclass(frozen=True)
class Layout(Message):
    """Agreed views and columns, in stacking order."""

    views: tuple[str, ...] = texts("names of the views")
    columns: dict[str, tuple[str, ...]] = texts("names of the columns", keyed=True)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of columns of each view."""
        return {view: len(self.columns[view]) for view in self.views}


@dataclass(frozen=True)
class Measured(Layout):
    """Agreed columns with a unit each, which keeps masked sums within their range and precision."""

    units: Floats = array("power of two near the column's spread", ("d",), unit="column's")


@dataclass(frozen=True)
class Centred(Measured):
    """Agreed columns with a unit and a centre each."""

    centre: Floats = array("mean over all sites", ("d",), unit="column's")


@dataclass(frozen=True)
class Orders(Release):
    """Spread of one site's columns as a power of two; zeros for absent views."""

    sites: Floats = array("1 per column of the site's views, else 0", ("d",), bound=1.0)
    orders: Floats = array("exponent of the power of two nearest to the standard deviation", ("d",), bound=2.0**10)


@dataclass(frozen=True)
class Totals(Release):
    """Counts and column sums of one site; zeros for absent views."""

    patients_by_view: Floats = array("patients with the view", ("k",), unit="patients", bound=PATIENTS)
    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    total: Floats = array("sum of the entries", ("d",), unit="the agreed one", bound=RAW_SUM)


@dataclass(frozen=True)
class Squares(Release):
    """Sums of squared deviations of one site from the agreed centres."""

    squares: Floats = array("sum of squared distances to the centre", ("d",), unit="the agreed one", bound=RAW_SUM)


@dataclass(frozen=True)
class Standards(Layout):
    """Centre and divisor of every column, which convert rows to the agreed units."""

    centre: Floats = array("centre of each column", ("d",), unit="column's")
    spread: Floats = array("divisor of each column", ("d",), unit="column's")


@dataclass(frozen=True)
class Agreement(Standards):
    """Agreement of all sites before the first round."""

    kinds: dict[str, tuple[str, ...]] = texts("kind of each column: number or boolean", keyed=True)
    patients_by_view: Floats = array("patients with each view", ("k",), unit="patients")
    n_patients: float = number("patients of all sites", unit="patients")

    @property
    def standards(self) -> Standards:
        """Part of the agreement that is sent to the sites."""
        return Standards(self.views, self.columns, self.centre, self.spread)


@dataclass(frozen=True)
class Memory(Standards):
    """State of a site: the agreed units and the number of answered requests."""

    n_requests: int = count("sums returned so far")


@dataclass(frozen=True)
class Clusters(Message):
    """Cluster centres and the parameters of the memberships."""

    centres: Floats = array("centre of every cluster, in the agreed units", ("c", "d"))
    view_weights: Floats = array("weight alpha of every view", ("k",))
    fuzziness: float = number("exponent m of the memberships")
    plain: bool = flag("distances are not squared")


@dataclass(frozen=True)
class MembershipSums(Release):
    """Sums over the patients of a site, weighted by the membership to the power of m."""

    moments: Floats = array("weighted sum of the rows by cluster", ("c", "d"), unit="the agreed one", bound=MOMENT)
    masses: Floats = array("sum of the weights by cluster and view", ("c", "k"), bound=PATIENTS)
    dispersions: Floats = array("weighted sum of the distances to the centres by view", ("k",), bound=DISPERSION)
