"""What the model of an outcome sends: asks of the coordinator and releases of the sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, arrays, count, flag, number, text, texts
from multicentre.federation.steps import Release

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
PATIENTS = 2.0**22
PRODUCTS = 2.0**36
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
    """What a site remembers between rounds; it never leaves."""

    memberships: Floats = array("membership of each patient in each phenotype", ("n", "r"))
    held_out: Flags = array("whether the patient is held out", ("n",), dtype="b1")
    n_bins: int = count("bins in which scores are counted")
    asked: str = text("digest of the ask that it was prepared for")
    training_scale: Floats | None = array("mean and deviation given for the training patients", (2, "r"), optional=True)
    whole_scale: Floats | None = array("mean and deviation given for everyone", (2, "r"), optional=True)
    scored: Floats | None = array("coefficients by which held-out patients were scored", ("p",), optional=True)


@dataclass(frozen=True)
class Among(Message):
    """Which patients a sum is over."""

    everyone: bool = flag("held-out patients are among them")


@dataclass(frozen=True)
class Moments(Release):
    """Sums by which memberships are standardised."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_outcomes: float = number("patients with the outcome", unit="patients", bound=PATIENTS)
    total: Floats = array("sum of the memberships", ("r",), bound=PRODUCTS)
    products: Floats = array("sums of products of memberships", ("r", "r"), bound=PRODUCTS)


@dataclass(frozen=True)
class Model(Among):
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
class Ascent(Message):
    """Where the coordinator stands on its way to the maximum."""

    coefficients: Floats = array("best coefficients so far", ("p",))
    step: Floats = array("where the next ones lie from there", ("p",))
    share: float = number("how much of the step is taken")
    objective: float = number("penalised log-likelihood of the best", finite=False)
    information: Floats = array("information at the best", ("p", "p"))
    n_patients: float = number("patients behind it", unit="patients")


@dataclass(frozen=True)
class ScoreCounts(Release):
    """Held-out patients by score and outcome."""

    with_outcome: Floats = array("patients with it, by bin of the score", ("b",), unit="patients", bound=PATIENTS)
    without: Floats = array("patients without it, by bin of the score", ("b",), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class OwnArea(Release):
    """How well the model ranks the held-out patients of one site."""

    area: float | None = number(
        "area under the curve; absent where nobody has either outcome", optional=True, bound=1.0
    )
