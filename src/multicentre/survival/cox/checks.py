"""What a fit of the Cox model refuses before its first round, and warns of after its last."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from multicentre.federation.errors import ConfigurationError, DisclosureWarning
from multicentre.survival.agreement.site import MOST_TIMES
from multicentre.survival.cox.maths.inference import informed
from multicentre.survival.cox.rounds import STILL_MOVING, Fit

LEAST_KEPT = 0.5
_WHOLE = {"n_times": 1, "cause": 1, "max_rounds": 1}
_CHOICES = {"times": ("stratified", "grid", "exact"), "ties": ("efron", "breslow")}


class SeparationWarning(UserWarning):
    """The likelihood rises as a coefficient grows without end: a column tells who has the event first."""


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless each of the estimator's parameters is of its kind.

    Examples
    --------
    >>> check_parameters({"times": "grid", "ties": "efron", "ridge": 0.0, "n_times": 128, "horizon": None, "cause": 1,
    ...                   "robust": False, "one_round": False, "lead": None, "level": 0.95, "max_rounds": 25,
    ...                   "tol": 1e-9})
    """
    for name, choices in _CHOICES.items():
        if given[name] not in choices:
            raise ConfigurationError(
                f"{given[name]!r} is none of its values", where=name, mend=f"Give one of {', '.join(choices)}."
            )
    for name, least in _WHOLE.items():
        value = given[name]
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ConfigurationError(f"{value!r} is not a whole number of at least {least}", where=name)
    if given["times"] != "exact" and given["n_times"] > MOST_TIMES:
        raise ConfigurationError(
            f"{given['n_times']} times are too fine a grid", where="n_times", mend=f"Give at most {MOST_TIMES}."
        )
    for name in ("robust", "one_round"):
        if not isinstance(given[name], bool | np.bool_):
            raise ConfigurationError(f"{given[name]!r} is neither true nor false", where=name)
    horizon = given["horizon"]
    _check_number("ridge", given["ridge"], 0.0, math.inf)
    _check_number("tol", given["tol"], 0.0, math.inf)
    _check_number("level", given["level"], 0.5, 1.0)
    if horizon is not None:
        _check_number("horizon", horizon, 1e-300, math.inf)


def _check_number(name: str, value: Any, least: float, below: float) -> None:
    known = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (known and least <= value < below):
        raise ConfigurationError(f"{value!r} is not a number from {least:g} to below {below:g}", where=name)


def warn_of_fit(fit: Fit, columns: Sequence[str], max_rounds: int) -> None:
    """Warn of columns without information, of separation, and of rounds that ended too early."""
    known = informed(fit.totals.information, fit.totals.n_events)
    flat = ~known & (np.abs(fit.coefficients) < STILL_MOVING)
    endless = (fit.endless & (np.abs(fit.moving) > STILL_MOVING)) | (~known & ~flat)
    if flat.any():
        _warn(f"{_named(flat, columns)}: no information on a hazard ratio, as in a constant column.", UserWarning)
    if endless.any():
        _warn(
            f"{_named(endless, columns)}: the likelihood may rise without end as the coefficient grows; ratio and "
            "error are of no use. A ridge (ridge=1.0) holds it back.",
            SeparationWarning,
        )
    elif not fit.converged:
        _warn(f"the rounds ended at max_rounds={max_rounds} before coefficients settled.", ConvergenceWarning)


def warn_of_joined(events: NDArray[np.float64], *, in_clear: bool) -> None:
    """Warn where sites joined so many times that hazard ratios may be drawn towards 1."""
    kept, asked = int((events > 0).sum()), len(events)
    if in_clear and kept < asked * LEAST_KEPT:
        _warn(
            f"sites joined times of few patients: events lie at {kept} of {asked} times, which draws hazard ratios "
            'towards 1. Ask for secure_sum=True, or times="stratified", which joins nothing for the ratios.',
            DisclosureWarning,
        )


def _named(chosen: NDArray[np.bool_], columns: Sequence[str]) -> str:
    names = [columns[place] for place in np.flatnonzero(chosen).tolist()]
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _warn(what: str, kind: type[Warning]) -> None:
    warnings.warn(what, kind, stacklevel=5)
