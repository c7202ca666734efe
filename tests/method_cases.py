"""The methods that the contract suite runs: a method joins by one line in CASES."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from toy_method import FedMean, toy_sites


@dataclass(frozen=True)
class Case:
    """One method on small data.

    Parameters
    ----------
    make : callable
        Returns an unfitted estimator with ``fit(federation)``; small and seeded.
    sites : callable
        Returns data by site, at least three sites, each with 10 patients or more.
    numbers : callable
        From the fitted estimator to the arrays that must agree between engines.
    masked_error : float
        By how much masked sums may change the numbers (absolute).
    loses_sites : bool
        The method goes on when a site is lost.
    """

    make: Callable[[], Any]
    sites: Callable[[], Mapping[str, Any]]
    numbers: Callable[[Any], Mapping[str, np.ndarray]]
    masked_error: float = 1e-6
    loses_sites: bool = True


CASES = {
    "toy-mean": Case(FedMean, toy_sites, lambda fit: {"mean": fit.mean_}),
}
