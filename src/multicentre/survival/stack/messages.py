"""What FedStack asks of a site, what a site answers with, and what it remembers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, number, text
from multicentre.federation.steps import Release
from multicentre.survival.agreement.messages import PATIENTS, Agreed

Floats = NDArray[np.float64]
LARGEST_ERROR = 16.0


@dataclass(frozen=True)
class Ends(Release):
    """Patients by bin of the end of their follow-up, for the chance of being censored."""

    events: Floats = array("patients with an event, by bin of its time", ("K",), unit="patients", bound=PATIENTS)
    censored: Floats = array("patients without, by bin of their last time", ("K",), unit="patients", bound=PATIENTS)
    n_patients: float = number("patients", unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class Candidates(Message):
    """Models on one grid, and what their squared errors are weighted by."""

    packed: NDArray[np.uint8] = array("the models as bytes", ("b",), dtype="u1")
    lengths: NDArray[np.int64] = array("bytes of each", ("m",), dtype="i8")
    staying: Floats = array("chance of not being censored up to every time of the grid", ("K",))
    n_patients: float = number("patients of all sites")


@dataclass(frozen=True)
class Errors(Release):
    """What a site adds to the integrated Brier score of any mixture, a quadratic function of the weights."""

    products: Floats = array("weighted mean product of two models' curves", ("m", "m"), bound=LARGEST_ERROR)
    targets: Floats = array("weighted mean product of a model's curves and the outcomes", ("m",), bound=LARGEST_ERROR)
    constant: float = number("weighted mean square of the outcomes", bound=LARGEST_ERROR)


@dataclass(frozen=True)
class Memory(Agreed):
    """What a site remembers: the agreement, and which models it was asked about."""

    asked: str = text("digest of the models; empty before")
