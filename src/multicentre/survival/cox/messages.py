"""Messages of the federated Cox model: requests of the coordinator and releases of the sites."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, flag, number, text, texts
from multicentre.core.steps import Release
from multicentre.core.withdrawal import TENTATIVE, WITHDRAWN
from multicentre.survival.agreement.messages import PATIENTS

Floats = NDArray[np.float64]
# Largest magnitudes of a site's sums, for masking: 2^24 patients (PATIENTS), with 4 bits more for sums of hazard
# ratios, 6 for sums of columns and 8 for products of columns.
RATIOS = 2.0**28
# 2^24 * 2^6: a mean of up to 64 per patient, for standardised columns and log likelihoods.
SUMS = 2.0**30
# 2^24 * 2^8: a mean product of up to 256 per patient, the square of 16 standard deviations.
PRODUCTS = 2.0**32


@dataclass(frozen=True)
class At(Message):
    """Coefficients at which the sites compute."""

    coefficients: Floats = array("log hazard ratio per standard deviation of each column", ("d",))
    efron: bool = flag("ties by Efron's correction instead of Breslow's")
    _: KW_ONLY
    tentative: bool = flag(TENTATIVE, default=False)


@dataclass(frozen=True)
class AtShared(At):
    """Current coefficients, for sums at times that all sites share."""

    shift: float = number("logarithm by which hazard ratios are divided, to keep sums near counts")


@dataclass(frozen=True)
class Hazards(AtShared):
    """Baseline hazard of all sites, which weights the products of columns."""

    first: Floats = array("increment of the hazard of those at risk at each time", ("K",))
    first_tied: Floats = array("reduction of that increment for those with the event at the time", ("K",))


@dataclass(frozen=True)
class Means(Hazards):
    """Means over the risk sets of all sites, from which residuals are computed."""

    mean: Floats = array("mean of the columns over those at risk, weighted by hazard", ("K", "d"))
    mean_hazard: Floats = array("increment of the hazard at each time, times that mean", ("K", "d"))
    mean_hazard_tied: Floats = array("reduction of that product for those with the event at the time", ("K", "d"))
    transform: Floats = array("value of each time in a test, from 0 to 1", ("K",))


@dataclass(frozen=True)
class Transform(At):
    """Values of the times in a test of proportional hazards."""

    transform: Floats = array("value of each time in a test, from 0 to 1", ("K",))
    recorded: str = text("function of the recorded times instead: identity or log; empty for the values")


@dataclass(frozen=True)
class Penalty(Message):
    """Settings of a fit to the patients of a single site."""

    alpha: float = number("weight of half the squared coefficients")
    efron: bool = flag("ties by Efron's correction instead of Breslow's")


@dataclass(frozen=True)
class Surrogate(At):
    """Derivatives over all sites, at the coefficients where the lead site starts."""

    alpha: float = number("weight of half the squared coefficients")
    n_events: float = number("events behind the derivatives")
    gradient: Floats = array("first derivatives", ("d",))
    information: Floats = array("minus the second derivatives", ("d", "d"))


@dataclass(frozen=True)
class Derivatives(Release):
    """Partial likelihood of a site's patients and its derivatives."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_events: float = number("events", unit="patients", bound=PATIENTS)
    log_likelihood: float = number("log partial likelihood", bound=SUMS)
    gradient: Floats = array("first derivatives", ("d",), bound=SUMS)
    information: Floats = array("minus the second derivatives", ("d", "d"), bound=PRODUCTS)
    squares: Floats = array("sum of squared differences from the mean of all sites", ("d",), bound=PRODUCTS)
    within: Floats = array("sum of squared differences from the site's mean", ("d",), bound=PRODUCTS)
    n_withdrawn: float = number(WITHDRAWN, unit="sites", bound=PATIENTS, default=0.0)


@dataclass(frozen=True)
class Risk(Release):
    """Sums over the patients at risk, at the times of the grid."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    event_offset: float = number("sum of the offset over the events", bound=SUMS)
    event_sum: Floats = array("sum of the columns over the events", ("d",), bound=SUMS)
    events: Floats = array("events, or the sum of their weights", ("K",), unit="patients", bound=PATIENTS)
    cases: Floats = array("events, if patients have weights", ("c",), unit="patients", bound=PATIENTS)
    risk: Floats = array("sum of hazard ratios over those at risk", ("K",), bound=RATIOS)
    risk_sum: Floats = array("sum of hazard ratios times columns over those at risk", ("K", "d"), bound=SUMS)
    tied: Floats = array("sum of hazard ratios over those with the event", ("t",), bound=RATIOS)
    tied_sum: Floats = array("sum of hazard ratios times columns over those with the event", ("t", "d"), bound=SUMS)
    n_withdrawn: float = number(WITHDRAWN, unit="sites", bound=PATIENTS, default=0.0)


@dataclass(frozen=True)
class ExactRisk(Risk):
    """Sums over the patients at risk, at the times of the events."""

    risk: Floats = array("sum of hazard ratios over those at risk", ("K",), bound=RATIOS, permission="exact_times")


@dataclass(frozen=True)
class Products(Release):
    """Weighted products of the columns."""

    products: Floats = array("sum of weighted products of columns", ("d", "d"), bound=PRODUCTS)
    n_withdrawn: float = number(WITHDRAWN, unit="sites", bound=PATIENTS, default=0.0)


@dataclass(frozen=True)
class Curvatures(Release):
    """Information about columns whose effects change with time, for a score test of proportional hazards."""

    mixed: Floats = array("sum over events of a time's value times its information", ("d", "d"), bound=PRODUCTS)
    squared: Floats = array("sum over events of its squared value times its information", ("d", "d"), bound=PRODUCTS)


@dataclass(frozen=True)
class ExactProducts(Products):
    """Products of the columns with weights that follow from the times of the events."""

    products: Floats = array(
        "sum of weighted products of columns", ("d", "d"), bound=PRODUCTS, permission="exact_times"
    )


@dataclass(frozen=True)
class Baseline(Release):
    """Sums that give the baseline hazard on the grid."""

    events: Floats = array("events, or the sum of their weights", ("K",), unit="patients", bound=PATIENTS)
    risk: Floats = array("sum of hazard ratios over those at risk", ("K",), bound=RATIOS)


@dataclass(frozen=True)
class Residuals(Release):
    """Sums of Schoenfeld residuals and of the values of the events' times."""

    n_events: float = number("events, or the sum of their weights", unit="patients", bound=PATIENTS)
    value: float = number("sum of the times' values", bound=PATIENTS)
    squared_value: float = number("sum of the squares of the times' values", bound=PATIENTS)
    plain: Floats = array("sum of the residuals", ("d",), bound=SUMS)
    weighted: Floats = array("sum of the residuals times the times' values", ("d",), bound=SUMS)


@dataclass(frozen=True)
class ExactResiduals(Residuals):
    """Sums of Schoenfeld residuals, at the times of the events."""

    weighted: Floats = array(
        "sum of the residuals times the times' values", ("d",), bound=SUMS, permission="exact_times"
    )


@dataclass(frozen=True)
class Estimates(Release):
    """Estimate from a site's patients only, weighted by its information."""

    information: Floats = array("information of the site's fit", ("d", "d"), bound=PRODUCTS)
    weighted: Floats = array("that information times the site's coefficients", ("d",), bound=PRODUCTS)


@dataclass(frozen=True)
class LeadOffer(Release):
    """Number of events of a site that can lead a fit in one round."""

    n_events: float = number("events of the site", unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class OwnFit(Release):
    """Coefficients of a fit to one site; both arrays are zero for columns, or sites, without an estimate."""

    coefficients: Floats = array("log hazard ratio per standard deviation of each column", ("d",))
    errors: Floats = array("standard errors of the coefficients", ("d",))


@dataclass(frozen=True)
class Solution(Release):
    """Coefficients from the derivatives of all sites and the shape of the lead site's likelihood."""

    coefficients: Floats = array("log hazard ratio per standard deviation of each column", ("d",))


@dataclass(frozen=True)
class Leads(Message):
    """Sites that can lead a fit in one round, best first."""

    sites: tuple[str, ...] = texts("sites, by decreasing number of events")


@dataclass(frozen=True)
class Led(Message):
    """Solution of a fit in one round, and the site that computed it."""

    lead: str = text("site that led; empty if it did not answer")
    coefficients: Floats = array("log hazard ratio per standard deviation of each column", ("d",))
