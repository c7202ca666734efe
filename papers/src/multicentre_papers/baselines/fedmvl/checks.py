"""What a fit of FedMVL refuses before its first round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from multicentre.federation.errors import ConfigurationError, DataError
from multicentre_papers.baselines.fedmvl.site import LARGEST_PENALTY, MOST_CLUSTERS, MOST_ROUNDS, SCALES

STARTS = ("spectral", "random")
LARGEST_LAMBDA = 3.0
LARGEST_SEED = 2**31 - 1


def check_parameters(given: Mapping[str, Any], n: int) -> None:
    """Raise ConfigurationError unless each parameter is of its kind, DataError for more clusters than patients.

    Parameters
    ----------
    given : mapping of str to value
        The parameters by name.
    n : int
        Aligned patients.
    """
    checks = {
        "n_clusters": _is_whole(given["n_clusters"], 2, MOST_CLUSTERS),
        "lam": _is_within(given["lam"], 1e-3, LARGEST_LAMBDA),
        "rho": _is_within(given["rho"], 1 / LARGEST_PENALTY, LARGEST_PENALTY),
        "varrho": _is_within(given["varrho"], 1 / LARGEST_PENALTY, LARGEST_PENALTY),
        "mu": _is_within(given["mu"], 0, LARGEST_PENALTY),
        "fraction": _is_within(given["fraction"], 1e-6, 1),
        "max_iter": _is_whole(given["max_iter"], 1, MOST_ROUNDS),
        "tol": _is_within(given["tol"], 0, 1),
        "scale": given["scale"] in SCALES,
        "start": given["start"] in STARTS,
        "n_init": _is_whole(given["n_init"], 1, 10_000),
        "random_state": _is_whole(given["random_state"], 0, LARGEST_SEED),
    }
    for name, good in checks.items():
        if not good:
            what = f"{given[name]!r} is out of range"
            raise ConfigurationError(what, where=name, hint="See the parameter's documentation.")
    if given["n_clusters"] > n:
        raise DataError(
            f"{given['n_clusters']} clusters of {n} patients", where="n_clusters", hint="Ask for fewer clusters."
        )


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and least <= int(value) <= most


def _is_within(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and least <= float(value) <= most
