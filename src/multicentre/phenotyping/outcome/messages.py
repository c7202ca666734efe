"""Messages of the outcome model: requests of the coordinator and releases of the sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, arrays, count, flag, number, text, texts
from multicentre.core.steps import Release

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# Bounds of numbers in messages: 4 million patients per site, with 2**14 and 2**12 for each of them.
PATIENTS = 2.0**22
# PATIENTS times 2**14: memberships of up to 2**7 have products of up to 2**14.
PRODUCTS = 2.0**36
# PATIENTS times 2**12: a log-likelihood of -4096 per patient is a predicted probability of exp(-4096).
LOG_LIKELIHOODS = 2.0**34


@dataclass(frozen=True)
class Prepare(Message):
    """The phenotypes, and how patients are split."""

    codes: dict[str, tuple[str, ...]] = texts("codes of every mode", keyed=True)
    factors: dict[str, Floats] = arrays("factor matrix of each mode", ("c", "r"))
    nonnegative: bool = flag("memberships are fitted without negative ones")
    test_size: float = number("share of the patients who are held out, in tenths")
    seed: int = count("seed of the sites' random streams")
    n_bins: int = count("bins in which scores are counted")


@dataclass(frozen=True)
class SiteMemory(Message):
    """State of a site between rounds; it stays at the site."""

    memberships: Floats = array("membership of each patient in each phenotype", ("n", "r"))
    held_out: Flags = array("whether the patient is held out", ("n",), dtype="b1")
    n_bins: int = count("bins in which scores are counted")
    ask_digest: str = text("digest of the request that prepared the site")
    training_scale: Floats | None = array("mean and deviation of the training patients", (2, "r"), optional=True)
    whole_scale: Floats | None = array("mean and deviation of all patients", (2, "r"), optional=True)
    scored: Floats | None = array("coefficients by which held-out patients were scored", ("p",), optional=True)


@dataclass(frozen=True)
class PatientSubset(Message):
    """Patients of a sum: the training patients or all patients."""

    everyone: bool = flag("held-out patients are among them")


@dataclass(frozen=True)
class Moments(Release):
    """Sums by which memberships are standardised."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_outcomes: float = number("patients with the outcome", unit="patients", bound=PATIENTS)
    total: Floats = array("sum of the memberships", ("r",), bound=PRODUCTS)
    products: Floats = array("sums of products of memberships", ("r", "r"), bound=PRODUCTS)


@dataclass(frozen=True)
class Model(PatientSubset):
    """A logistic regression on standardised memberships."""

    coefficients: Floats = array("intercept, then log odds of one standard deviation of each phenotype", ("p",))
    centre: Floats = array("mean membership", ("r",))
    spread: Floats = array("standard deviation of the membership", ("r",))


@dataclass(frozen=True)
class Sums(Release):
    """Log-likelihood of the outcomes and its derivatives."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    log_likelihood: float = number("log-likelihood", bound=LOG_LIKELIHOODS)
    gradient: Floats = array("first derivatives", ("p",), bound=PATIENTS)
    information: Floats = array("minus the second derivatives", ("p", "p"), bound=PATIENTS)


@dataclass(frozen=True)
class ScoreCounts(Release):
    """Held-out patients by score and outcome."""

    with_outcome: Floats = array("patients with it, by bin of the score", ("b",), unit="patients", bound=PATIENTS)
    without: Floats = array("patients without it, by bin of the score", ("b",), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class SiteArea(Release):
    """Area under the curve of the model for the held-out patients of one site."""

    area: float | None = number(
        "area under the curve; absent if all patients have the same outcome", optional=True, bound=1.0
    )
