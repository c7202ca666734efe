"""What the federated Cox model sends: asks of the coordinator and releases of the sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, flag, number, text, texts
from multicentre.federation.steps import Release
from multicentre.survival.agreement.messages import PATIENTS

Floats = NDArray[np.float64]
RATIOS = 2.0**28
SUMS = 2.0**30
PRODUCTS = 2.0**32


@dataclass(frozen=True)
class At(Message):
    """Where the coordinator stands."""

    coefficients: Floats = array("log hazard ratio of a standard deviation of every column", ("d",))
    efron: bool = flag("ties by Efron's correction, not Breslow's")


@dataclass(frozen=True)
class AtShared(At):
    """The same, at times that all sites share."""

    shift: float = number("logarithm by which hazard ratios are divided, to keep sums near counts")


@dataclass(frozen=True)
class Hazards(AtShared):
    """The baseline of all sites, by which their products are weighted."""

    first: Floats = array("what a time adds to the hazard of those at risk", ("K",))
    first_tied: Floats = array("how much less it adds for those with the event then", ("K",))


@dataclass(frozen=True)
class Means(Hazards):
    """Means over the risk sets of all sites, from which residuals are taken."""

    mean: Floats = array("mean of the columns over those at risk, weighted by hazard", ("K", "d"))
    spent: Floats = array("what a time adds to the hazard, times that mean", ("K", "d"))
    spent_tied: Floats = array("how much less for those with the event then", ("K", "d"))
    transform: Floats = array("value of each time in a test, from 0 to 1", ("K",))


@dataclass(frozen=True)
class Transform(At):
    """How a test of proportional hazards weighs the times."""

    transform: Floats = array("value of each time in a test, from 0 to 1", ("K",))


@dataclass(frozen=True)
class Penalty(Message):
    """How a site fits its own patients."""

    alpha: float = number("weight of half the squared coefficients")
    efron: bool = flag("ties by Efron's correction, not Breslow's")


@dataclass(frozen=True)
class Surrogate(At):
    """Derivatives over all sites, at coefficients from which one site goes on."""

    alpha: float = number("weight of half the squared coefficients")
    n_events: float = number("events behind the derivatives")
    gradient: Floats = array("first derivatives", ("d",))
    information: Floats = array("minus the second derivatives", ("d", "d"))


@dataclass(frozen=True)
class Derivatives(Release):
    """A site's own partial likelihood and its derivatives."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_events: float = number("events", unit="patients", bound=PATIENTS)
    log_likelihood: float = number("log partial likelihood", bound=SUMS)
    gradient: Floats = array("first derivatives", ("d",), bound=SUMS)
    information: Floats = array("minus the second derivatives", ("d", "d"), bound=PRODUCTS)


@dataclass(frozen=True)
class Risk(Release):
    """Sums over the patients at risk, at the times of the grid."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    event_sum: Floats = array("sum of the columns over the events", ("d",), bound=SUMS)
    events: Floats = array("events", ("K",), unit="patients", bound=PATIENTS)
    risk: Floats = array("sum of hazard ratios over those at risk", ("K",), bound=RATIOS)
    risk_sum: Floats = array("sum of hazard ratios times columns over those at risk", ("K", "d"), bound=SUMS)
    tied: Floats = array("sum of hazard ratios over those with the event", ("t",), bound=RATIOS)
    tied_sum: Floats = array("sum of hazard ratios times columns over those", ("t", "d"), bound=SUMS)


@dataclass(frozen=True)
class ExactRisk(Risk):
    """The same, at the times of the events."""

    risk: Floats = array("sum of hazard ratios over those at risk", ("K",), bound=RATIOS, permission="exact_times")


@dataclass(frozen=True)
class Products(Release):
    """Weighted products of the columns."""

    products: Floats = array("sum of weighted products of columns", ("d", "d"), bound=PRODUCTS)


@dataclass(frozen=True)
class ExactProducts(Products):
    """The same, of weights that follow from the times of the events."""

    products: Floats = array(
        "sum of weighted products of columns", ("d", "d"), bound=PRODUCTS, permission="exact_times"
    )


@dataclass(frozen=True)
class Baseline(Release):
    """What the baseline hazard on the grid is made of."""

    events: Floats = array("events", ("K",), unit="patients", bound=PATIENTS)
    risk: Floats = array("sum of hazard ratios over those at risk", ("K",), bound=RATIOS)


@dataclass(frozen=True)
class Residuals(Release):
    """Sums of Schoenfeld's residuals, and of the values of the events' times."""

    n_events: float = number("events", unit="patients", bound=PATIENTS)
    value: float = number("sum of the times' values", bound=PATIENTS)
    squared_value: float = number("sum of their squares", bound=PATIENTS)
    plain: Floats = array("sum of the residuals", ("d",), bound=SUMS)
    weighted: Floats = array("sum of the residuals times the times' values", ("d",), bound=SUMS)


@dataclass(frozen=True)
class ExactResiduals(Residuals):
    """The same, at the times of the events."""

    weighted: Floats = array(
        "sum of the residuals times the times' values", ("d",), bound=SUMS, permission="exact_times"
    )


@dataclass(frozen=True)
class Estimates(Release):
    """A site's own estimate, weighted by its information."""

    information: Floats = array("information of the site's own fit", ("d", "d"), bound=PRODUCTS)
    weighted: Floats = array("the same times the site's own coefficients", ("d",), bound=PRODUCTS)


@dataclass(frozen=True)
class LeadOffer(Release):
    """Events of a site that could lead a fit in one round."""

    n_events: float = number("events of the site", unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class OwnFit(Release):
    """A site's own coefficients; both arrays are zero for a column, or a site, that gives none."""

    coefficients: Floats = array("log hazard ratio of a standard deviation of every column", ("d",))
    errors: Floats = array("their standard errors", ("d",))


@dataclass(frozen=True)
class Solution(Release):
    """Coefficients that one site found by the derivatives of all and the shape of its own likelihood."""

    coefficients: Floats = array("log hazard ratio of a standard deviation of every column", ("d",))


@dataclass(frozen=True)
class Leads(Message):
    """Sites that can lead a fit in one round, the best first."""

    sites: tuple[str, ...] = texts("sites, by falling number of events")


@dataclass(frozen=True)
class Led(Message):
    """A solution, and the site that it comes from."""

    lead: str = text("site that led; empty where it did not answer")
    coefficients: Floats = array("log hazard ratio of a standard deviation of every column", ("d",))
