"""Parameter checks of FedMVL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from multicentre.federation.errors import ConfigurationError, DataError
from multicentre_papers.baselines.fedmvl.site import LARGEST_PENALTY, MOST_CLUSTERS, MOST_ROUNDS, SCALES

STARTS = ("spectral", "random")
LARGEST_LAMBDA = 3.0
LARGEST_SEED = 2**31 - 1


def check_parameters(parameters: Mapping[str, Any], n: int) -> None:
    """Raise ConfigurationError for a parameter out of range and DataError for more clusters than patients.

    Parameters
    ----------
    parameters : mapping of str to value
        Parameters by name.
    n : int
        Number of aligned patients.
    """
    checks = {
        "n_clusters": _is_whole(parameters["n_clusters"], 2, MOST_CLUSTERS),
        "lam": _is_within(parameters["lam"], 1e-3, LARGEST_LAMBDA),
        "rho": _is_within(parameters["rho"], 1 / LARGEST_PENALTY, LARGEST_PENALTY),
        "varrho": _is_within(parameters["varrho"], 1 / LARGEST_PENALTY, LARGEST_PENALTY),
        "mu": _is_within(parameters["mu"], 0, LARGEST_PENALTY),
        "fraction": _is_within(parameters["fraction"], 1e-6, 1),
        "max_iter": _is_whole(parameters["max_iter"], 1, MOST_ROUNDS),
        "tol": _is_within(parameters["tol"], 0, 1),
        "scale": parameters["scale"] in SCALES,
        "start": parameters["start"] in STARTS,
        "n_init": _is_whole(parameters["n_init"], 1, 10_000),
        "random_state": _is_whole(parameters["random_state"], 0, LARGEST_SEED),
    }
    for name, good in checks.items():
        if not good:
            problem = f"{name} must be in its documented range; got {parameters[name]!r}"
            raise ConfigurationError(problem, where=name, hint="See the parameter's documentation.")
    if parameters["n_clusters"] > n:
        raise DataError(
            f"n_clusters must be at most the number of patients, {n}; got {parameters['n_clusters']}",
            where="n_clusters",
        )


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and least <= int(value) <= most


def _is_within(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and least <= float(value) <= most
