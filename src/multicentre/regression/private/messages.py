"""Messages of differentially private regression: requests of the coordinator and noised releases of the sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, number, text
from multicentre.core.steps import Release

Floats = NDArray[np.float64]
# Bound of a site's sums, for masking: a patient adds at most 1.
MAX_PATIENTS = 2.0**22


@dataclass(frozen=True)
class Box(Message):
    """Declared bounds of covariates and outcome, beyond which values are cut."""

    family: str = text("gaussian or binomial")
    lower: Floats = array("lower bound of every covariate", ("d",))
    upper: Floats = array("upper bound of every covariate", ("d",))
    outcome_lower: float = number("lower bound of a number to predict; 0 for classes")
    outcome_upper: float = number("upper bound of a number to predict; 1 for classes")


@dataclass(frozen=True)
class PrivateMoments(Release):
    """Sums of products of covariates and outcome between their bounds, scaled so that one patient adds at most 1."""

    products: Floats = array(
        "sums of products of two columns, with patients and column sums",
        ("m",),
        unit="the most that one patient can add",
        bound=MAX_PATIENTS,
        sensitivity=1.0,
    )
    beyond: float = number("patients with a value beyond a bound", bound=MAX_PATIENTS, sensitivity=1.0)


@dataclass(frozen=True)
class PrivateAt(Box):
    """Coefficients at which the sites compute."""

    coefficients: Floats = array("intercept and coefficients of covariates from -1 to 1", ("p",))


@dataclass(frozen=True)
class PrivateDerivatives(Release):
    """Derivatives of a logistic model, scaled so that one patient adds at most 1 to each."""

    gradient: Floats = array("first derivatives", ("p",), bound=MAX_PATIENTS, sensitivity=1.0)
    information: Floats = array("packed information", ("t",), bound=MAX_PATIENTS, sensitivity=1.0)


@dataclass(frozen=True)
class NewtonState(Message):
    """State of the coordinator between rounds of a private logistic fit."""

    coefficients: Floats = array("coefficients of covariates from -1 to 1", ("p",))
    points: Floats = array("coefficients of earlier rounds", ("m", "p"))
    gradients: Floats = array("noised gradients of earlier rounds", ("m", "p"))
    informations: Floats = array("noised information of earlier rounds", ("m", "p", "p"))
    spread: float = number("standard deviation of the noise relative to the plan", default=1.0)


@dataclass(frozen=True)
class Noised(Message):
    """Noised moments in the coordinator's checkpoint, so that a resumed run does not request them again."""

    products: Floats = array("noised sums of products", ("m",))
    beyond: float = number("noised number of patients with a value beyond a bound")
    spread: float = number("standard deviation of the noise relative to the plan")
