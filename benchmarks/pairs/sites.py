"""Sites and federations that several groups use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import multicentre as mc
from multicentre.core.rounds import Listener

N_SITES = 5
# Nothing is left out and nothing is refused: all ways see the same patients, and the work follows the sizes.
OPEN = mc.Policy(min_patients=0, relations="listed", exact_times=True, max_parameters_per_patient=1e6)


def fit(estimator: Any, sites: Mapping[str, Any], *, masked: bool) -> Any:
    """Return an estimator fitted to sites of this process."""
    with mc.Federation.in_process(sites, policy=OPEN, secure_sum=masked, listener=Listener()) as federation:
        return estimator.fit(federation)


def divide(data: Any, n_sites: int = N_SITES) -> dict[str, Any]:
    """Return sites of equal size; patients are dealt in turns."""
    return {f"site-{i}": data.take(np.arange(i, len(data), n_sites)) for i in range(n_sites)}
