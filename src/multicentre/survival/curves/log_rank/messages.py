"""What a test by strata asks of the sites, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import array, number, text
from multicentre.federation.steps import Release
from multicentre.survival.curves.tables.messages import PATIENTS, ByGroup

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Compared(ByGroup):
    """Which groups are compared, and how times are weighted."""

    weights: str = text("how times are weighted")
    rho: float = number("power of survival, for Fleming and Harrington's weights")
    gamma: float = number("power of its complement")


@dataclass(frozen=True)
class Scores(Release):
    """What a site adds to a test by strata; no time is in it."""

    n_patients: float = number("patients, those left out among them", unit="patients", bound=PATIENTS)
    n_compared: float = number("patients who were compared", unit="patients", bound=PATIENTS)
    score: Floats = array("observed less expected events by group, over the site's own times", ("g",), bound=PATIENTS)
    covariance: Floats = array("their covariance", ("g", "g"), bound=PATIENTS)
