"""What a fit of the model of an outcome refuses before its first round, and warns of after its last."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import xlogy
from sklearn.exceptions import ConvergenceWarning

from multicentre.federation.errors import ConfigurationError
from multicentre.phenotyping.outcome.limits import check_bins
from multicentre.phenotyping.outcome.rounds import Fit, Plan

EXPLAINED_BY_SEPARATION = 0.9
LARGEST_COEFFICIENT = 10.0
ROUNDING = 1e-9


class SeparationWarning(UserWarning):
    """Phenotypes tell the outcomes apart almost without error, so that only the penalty holds coefficients back."""


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless each of the estimator's parameters is of its kind."""
    for name, least in {"max_rounds": 1, "n_bins": 2, "random_state": 0}.items():
        value = given[name]
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ConfigurationError(f"{value!r} is not a whole number of at least {least}", where=name)
    check_bins(given["n_bins"])
    for name, most in {"penalty": math.inf, "tol": math.inf, "holdout": 1.0}.items():
        value = given[name]
        known = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not (known and 0 <= value < most):
            raise ConfigurationError(f"{value!r} is not a number from 0 to below {most:g}", where=name)
    if abs(given["holdout"] - round(given["holdout"], 1)) > ROUNDING:
        raise ConfigurationError(
            "a share is not one of whole tenths", where="holdout", mend="Give 0.4, say; sites split in tenths."
        )
    if not isinstance(given["refit"], bool | np.bool_):
        raise ConfigurationError(f"{given['refit']!r} is neither true nor false", where="refit")


def warn_of_fit(fit: Fit, plan: Plan) -> None:
    """Warn of rounds that ended too early, and of phenotypes that tell outcomes apart almost without error."""
    if not fit.converged:
        warnings.warn(
            f"the rounds ended at max_rounds={plan.max_rounds} before coefficients settled to tol={plan.tol:g}.",
            ConvergenceWarning,
            stacklevel=4,
        )
    largest = float(np.abs(fit.model.coefficients[1:]).max())
    if explained(fit) > EXPLAINED_BY_SEPARATION or largest > LARGEST_COEFFICIENT:
        warnings.warn(
            "phenotypes tell the outcomes apart almost without error: the penalty alone holds coefficients back, and "
            "standard errors and p-values are of no use.",
            SeparationWarning,
            stacklevel=4,
        )


def explained(fit: Fit) -> float:
    """Return McFadden's share of the log-likelihood that the phenotypes explain: 0 for none, 1 for separation."""
    counts = np.array([fit.moments.n_outcomes, fit.moments.n_patients - fit.moments.n_outcomes])
    return 1.0 - fit.log_likelihood / float(xlogy(counts, counts / counts.sum()).sum())
