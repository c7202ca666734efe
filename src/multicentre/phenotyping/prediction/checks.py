"""What a fit of the model of an outcome refuses before its first round, and warns of after its last."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import xlogy

from multicentre.federation.errors import ConfigurationError

EXPLAINED_BY_SEPARATION = 0.9
LARGEST_COEFFICIENT = 10.0


class SeparationWarning(UserWarning):
    """Phenotypes tell the outcomes apart almost without error, so that only the penalty holds coefficients back."""


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless each of the estimator's parameters is of its kind."""
    for name, least in {"max_rounds": 1, "n_bins": 2, "min_patients": 0, "random_state": 0}.items():
        value = given[name]
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ConfigurationError(f"{value!r} is not a whole number of at least {least}", where=name)
    for name, most in {"penalty": math.inf, "tol": math.inf, "holdout": 1.0}.items():
        value = given[name]
        known = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not (known and 0 <= value < most):
            raise ConfigurationError(f"{value!r} is not a number from 0 to below {most:g}", where=name)
    if not isinstance(given["refit"], bool | np.bool_):
        raise ConfigurationError(f"{given['refit']!r} is neither true nor false", where="refit")
