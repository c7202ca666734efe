"""Messages of an evaluation: requests of the coordinator and releases of the sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, ModelMessage, array, digest_of_model, number, texts
from multicentre.core.steps import Release
from multicentre.survival.agreement.messages import Prepared

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Largest magnitudes of a site's values, for masking: patients, sums of weights, pairs, squared numbers of pairs.
PATIENTS = 2.0**24
# 2^24 patients, with a mean weight for censoring of up to 2^6.
WEIGHTS = 2.0**30
# PAIRS and SQUARES fit n = 2^20 patients per site: less than n^2 pairs, and n squares of up to n^2 each.
PAIRS = 2.0**40
SQUARES = 2.0**60
# Derivatives are summed as multiples of 2^-24, so that their rounding does not stop the rounds.
FIXED, MULTIPLES = 2.0**24, 2.0**52


@dataclass(frozen=True)
class Scored(ModelMessage):
    """Model to evaluate, and times of the evaluation."""

    packed: NDArray[np.uint8] = array("model as bytes", ("b",), dtype="u1")
    fill: Floats = array("values that replace missing entries of the columns", ("d",))
    grid: Floats = array("times at which follow-up is counted", ("K",))
    places: Integers = array("places on the grid of the times of scoring", ("T",), dtype="i8")
    at: Integers = array("places on the grid of the times of calibration", ("H",), dtype="i8")

    @property
    def model_digest(self) -> str:
        """SHA-256 of the model; its packed form includes its kind."""
        return digest_of_model("SurvivalModel", self.packed.tobytes())


@dataclass(frozen=True)
class Memory(Prepared):
    """State of a site between requests, which does not leave the site."""

    packed: NDArray[np.uint8] = array("model as bytes; empty before it is received", ("b",), dtype="u1")
    fill: Floats = array("values that replace missing entries of the columns", ("f",))
    grid: Floats = array("times at which follow-up is counted", ("G",))
    places: Integers = array("places on the grid of the times of scoring", ("T",), dtype="i8")
    at: Integers = array("places on the grid of the times of calibration", ("H",), dtype="i8")
    request_digests: tuple[str, ...] = texts("digests of the requests, one per step")


@dataclass(frozen=True)
class FineTimes(Release):
    """Acknowledgement of a grid of more than 256 times, which needs the permission for recorded times."""

    concerns_patients: ClassVar[bool] = False

    n_times: Floats = array("number of times", (1,), bound=PATIENTS, permission="exact_times")


@dataclass(frozen=True)
class FollowUp(Release):
    """Patients by time, and by predictions of the model."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    events: Floats = array("patients with an event, by time", ("K",), unit="patients", bound=PATIENTS)
    censored: Floats = array(
        "other patients by end of follow-up, the last beyond", ("L",), unit="patients", bound=PATIENTS
    )
    means: Floats = array("patients by predicted restricted mean", ("b",), unit="patients", bound=PATIENTS)
    chances: Floats = array("patients by predicted risk at each time", ("H", "c"), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class ByMean(Message):
    """Bins of the predicted restricted mean."""

    edges: Floats = array("edges between the bins", ("e",))


@dataclass(frozen=True)
class Pairs(Release):
    """Patients by predicted restricted mean and time."""

    events: Floats = array("patients with an event, by bin and time", ("R", "C"), unit="patients", bound=PATIENTS)
    censored: Floats = array("other patients, by bin and end of follow-up", ("R", "L"), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class OwnPairs(Release):
    """Pairs of patients of the site, and sums over patients of their numbers of pairs."""

    comparable: float = number("comparable pairs", unit="pairs", bound=PAIRS)
    won: float = number("pairs with risks in the right order, ties as 1/2", unit="pairs", bound=PAIRS)
    won_squared: float = number("sum of patients' squared numbers of pairs in order", bound=SQUARES)
    crossed: float = number("sum of products of the two numbers", bound=SQUARES)
    comparable_squared: float = number("sum of patients' squared numbers of pairs", bound=SQUARES)


@dataclass(frozen=True)
class CensoringCurve(Message):
    """Censoring curve of all sites."""

    staying: Floats = array("probability of follow-up beyond each time", ("K",))


@dataclass(frozen=True)
class Errors(Release):
    """Squared errors of the survival curves, weighted for censoring."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    errors: Floats = array("sum of weighted squared errors, by time", ("T",), bound=WEIGHTS)
    squares: float = number("sum of patients' squared errors averaged over time, squared", bound=WEIGHTS)
    cases: Floats = array("weights of patients with an event by each time", ("T",), bound=WEIGHTS)
    controls: Floats = array("patients followed beyond each time", ("T",), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class CensoringByMean(CensoringCurve):
    """Censoring curve, and bins of the predicted restricted mean."""

    edges: Floats = array("edges between the bins", ("e",))


@dataclass(frozen=True)
class Ranks(Release):
    """Patients by predicted restricted mean, with an event between times or followed beyond."""

    cases: Floats = array("weights of those with an event, by bin and stretch of time", ("R", "T"), bound=WEIGHTS)
    leaving: Floats = array("patients by bin and stretch of time", ("R", "L"), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class ByChance(Message):
    """Groups of predicted risk at each time of calibration."""

    edges: Floats = array("predicted risks between the groups", ("H", "g"))


@dataclass(frozen=True)
class Groups(Release):
    """Patients of each group by time, and their predicted risks."""

    n_patients: Floats = array("patients", ("H", "g"), unit="patients", bound=PATIENTS, counts=True)
    predicted: Floats = array("sum of predicted risks", ("H", "g"), bound=PATIENTS)
    events: Floats = array("patients with an event, by time", ("H", "g", "K"), unit="patients", bound=PATIENTS)
    censored: Floats = array("other patients by end of follow-up", ("H", "g", "L"), unit="patients", bound=PATIENTS)
    spread: Floats = array("patients by survival at their event", ("b",), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class ByThreshold(CensoringCurve):
    """Censoring curve, and thresholds of predicted risk."""

    thresholds: Floats = array("predicted risks above which patients are treated", ("p",))


@dataclass(frozen=True)
class Benefits(Release):
    """Weighted patients between thresholds of predicted risk, at each time of calibration."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    cases: Floats = array("weights of patients with an event by that time", ("H", "t"), bound=WEIGHTS)
    controls: Floats = array("weights of patients followed beyond that time", ("H", "t"), bound=WEIGHTS)


@dataclass(frozen=True)
class AtLines(Message):
    """Intercepts and slopes of the calibration at which derivatives are summed."""

    lines: Floats = array("intercept and slope at each time: with a slope of 1, and with another", (2, "H", 2))


@dataclass(frozen=True)
class LineDerivatives(Release):
    """Derivatives of the log-likelihood of the events by each time, by intercept and slope."""

    deviances: Integers = array("deviances, times 2^24", (2, "H"), dtype="i8", bound=MULTIPLES)
    gradients: Integers = array("first derivatives, times 2^24", (2, "H", 2), dtype="i8", bound=MULTIPLES)
    informations: Integers = array("second derivatives, times 2^24", (2, "H", 3), dtype="i8", bound=MULTIPLES)


@dataclass(frozen=True)
class Lines(Message):
    """Calibration lines of all sites, and their standard errors; NaN without convergence."""

    lines: Floats = array("intercept and slope at each time", (2, "H", 2), finite=False)
    errors: Floats = array("their standard errors", (2, "H", 2), finite=False)


@dataclass(frozen=True)
class OwnScores(Release):
    """Scores of the model at one site."""

    concordance: float | None = number("concordance; absent if few patients have an event", optional=True, bound=1.0)
    standard_error: float | None = number("standard error of the concordance", optional=True)
    predicted: Floats | None = array("mean predicted risk at each time", ("H",), optional=True)
    observed: Floats | None = array("observed risk and its interval at each time", ("H", 3), optional=True)
    ibs: float | None = number(
        "integrated Brier score, weighted by the censoring of the site", optional=True, bound=10.0
    )
