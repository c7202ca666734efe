"""Messages of the Cox model with effects of sites: requests of the coordinator and releases of the sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array, number, text
from multicentre.core.steps import Release
from multicentre.core.withdrawal import WITHDRAWN
from multicentre.survival.agreement.messages import PATIENTS
from multicentre.survival.cox.messages import PRODUCTS, RATIOS, SUMS, AtShared

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AtEffects(AtShared):
    """Coefficients, baseline hazard, and the distribution of the effects of sites."""

    increments: Floats = array("increment of the baseline hazard at each time", ("K",))
    distribution: str = text("fixed, gamma or gaussian")
    variance: float = number("variance of the effects; 0 for fixed effects")
    reference: str = text("site whose fixed effect is 0; empty for random effects")


@dataclass(frozen=True)
class Effects(Release):
    """Likelihood of a site with its effect integrated or maximised out, and its derivatives."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_events: float = number("events", unit="patients", bound=PATIENTS)
    n_sites: float = number("sites: 1", bound=PATIENTS)
    n_infinite: float = number("sites without a finite effect", bound=PATIENTS)
    effect: float = number("logarithm of the effect times patients", bound=SUMS)
    squared_effect: float = number("square of the logarithm of the effect", bound=PATIENTS)
    uncertainty: float = number("variance of the logarithm of the effect at these parameters", bound=PATIENTS)
    value: float = number("log-likelihood without the logarithms of the baseline hazard", bound=PRODUCTS)
    event_sum: Floats = array("sum of the columns over the events", ("d",), bound=SUMS)
    risk: Floats = array("sum of hazard ratios over those at risk, times the effect", ("K",), bound=RATIOS)
    risk_sum: Floats = array(
        "sum of hazard ratios times columns over those at risk, times the effect", ("K", "d"), bound=SUMS
    )
    products: Floats = array(
        "products of columns weighted by cumulative hazards and effect", ("d", "d"), bound=PRODUCTS
    )
    bends: Floats = array(
        "weighted products of the derivatives of the site's cumulative hazard by columns and times, each pair once",
        ("u",),
        bound=PRODUCTS,
    )
    moves: Floats = array(
        "these products with the weights of the effect's uncertainty; none unless gaussian", ("g",), bound=PRODUCTS
    )
    variance_slope: float = number("derivative by the logarithm of the variance", bound=SUMS)
    variance_bend: float = number("second derivative by the logarithm of the variance", bound=SUMS)
    variance_cross: Floats = array("derivatives by that logarithm and by columns and times", ("w",), bound=PRODUCTS)
    n_withdrawn: float = number(WITHDRAWN, unit="sites", bound=PATIENTS, default=0.0)


@dataclass(frozen=True)
class ExactEffects(Effects):
    """Likelihood and derivatives, at the times of the events."""

    risk: Floats = array(
        "sum of hazard ratios over those at risk, times the effect", ("K",), bound=RATIOS, permission="exact_times"
    )


@dataclass(frozen=True)
class OwnEffect(Release):
    """Effect of one site."""

    effect: float = number("logarithm of the effect; 0 if it is not finite")
    error: float = number("its standard error at these parameters; 0 for a reference site, or if it is not finite")
