"""What a fit of the Cox model refuses before its first round, and warns of after its last."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from multicentre.federation.errors import ConfigurationError
from multicentre.survival.agreement.site import MOST_TIMES
from multicentre.survival.cox.rounds import STILL_MOVING, Fit

# Mean events per site below which baselines of the sites' own are warned of. Against a shared baseline they lost 0.009,
# 0.007, 0.003 and -0.003 of concordance at 3, 5, 10 and 20 events per site, mean of 8 simulated scenarios, and at most
# 0.018, 0.020, 0.017 and 0.003 (python benchmarks/fed_cox.py small). From 10 on either may be better.
FEW_EVENTS = 10
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
    if fit.flat.any():
        _warn(f"{_named(fit.flat, columns)}: no information on a hazard ratio, as in a constant column.", UserWarning)
    if fit.diverging.any():
        _warn(
            f"{_named(fit.diverging, columns)}: the likelihood may rise without end as the coefficient grows; the "
            "ratio is of no use, and there is no error. A ridge (ridge=1.0) holds it back.",
            SeparationWarning,
        )
    elif not (fit.converged or fit.lead):
        _warn(
            f"the rounds ended at max_rounds={max_rounds} before coefficients settled; errors and intervals are left "
            "out where a coefficient is far from the maximum.",
            ConvergenceWarning,
        )
    far = ~(fit.reliable | fit.flat) & (np.abs(fit.moving) > STILL_MOVING)
    if fit.lead and far.any():
        _warn(
            f"{_named(far, columns)}: one round led by {fit.lead} ends too far from the maximum for errors and "
            "intervals. Name a lead with more events, or fit in rounds (one_round=False).",
            ConvergenceWarning,
        )


def warn_of_small_sites(n_events: float, n_sites: int) -> None:
    """Warn where baselines of the sites' own leave few events per site to compare."""
    if n_sites > 1 and n_events < FEW_EVENTS * n_sites:
        _warn(
            f"{n_events / n_sites:.3g} events per site on average: with a baseline of its own for each site, "
            "predictions lost up to 0.02 of concordance in simulations with fewer than 10. For predictions share one "
            'baseline: times="grid".',
            UserWarning,
        )


def _named(chosen: NDArray[np.bool_], columns: Sequence[str]) -> str:
    names = [columns[place] for place in np.flatnonzero(chosen).tolist()]
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _warn(what: str, kind: type[Warning]) -> None:
    warnings.warn(what, kind, stacklevel=5)
