"""What a fit of federated XGBoost refuses before its first round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from multicentre.boosting.limits import LARGEST_WEIGHT, MOST_ROUNDS
from multicentre.boosting.trees import MOST_DEPTH
from multicentre.federation.errors import ConfigurationError


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless each of the estimator's parameters is in its range.

    Examples
    --------
    >>> check_parameters({"max_depth": 3})
    """
    for name, value in given.items():
        if not _CHECKS[name](value):
            what = f"{value!r} is out of range"
            raise ConfigurationError(what, where=name, mend="See the parameter's documentation.")


def _whole(least: int, most: int) -> Callable[[Any], bool]:
    kinds = (int, np.integer)
    return lambda value: isinstance(value, kinds) and not isinstance(value, bool) and least <= int(value) <= most


def _real(least: float, most: float, *, above: bool = False) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            return False
        return least <= float(value) <= most and not (above and float(value) == least)

    return check


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _lists(value: Any) -> bool:
    kinds = (list, tuple)
    return isinstance(value, kinds) and all(
        isinstance(column, kinds) and all(_real(-3e38, 3e38)(each) for each in column) for column in value
    )


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "missing": lambda value: True,  # checked with the words of every estimator when the fit begins
    "n_estimators": _whole(1, MOST_ROUNDS),
    "max_depth": _whole(1, MOST_DEPTH),
    "learning_rate": _real(0, 1, above=True),
    "reg_lambda": _real(0, 1e12),
    "reg_alpha": _real(0, 1e12),
    "gamma": _real(0, 1e12),
    "min_child_weight": _real(0, 1e12),
    "max_bin": _whole(2, 1024),
    "min_leaf_records": _whole(0, 2**40),
    "base_score": _or_none(_real(-1e30, 1e30)),
    "early_stopping_rounds": _or_none(_whole(1, MOST_ROUNDS)),
    "scale_pos_weight": _real(0, LARGEST_WEIGHT, above=True),
    "cuts": _or_none(_lists),
    "objective": lambda value: value in ("reg:squarederror", "count:poisson"),
}
