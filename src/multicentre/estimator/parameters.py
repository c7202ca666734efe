"""Ranges of parameters, which an estimator declares and the base class checks before a fit."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from multicentre.errors import ConfigurationError


class Constraint(Protocol):
    """A set of values that a parameter may take."""

    def accepts(self, value: object) -> bool:
        """Return whether the set contains the value."""

    def __str__(self) -> str:
        """Return the set in words that follow "must be"."""


@dataclass(frozen=True)
class Integer:
    """Whole numbers from `least` to `most`.

    Examples
    --------
    >>> print(Integer(1, 20), Integer(1).accepts(True))
    an integer from 1 to 20 False
    """

    least: int
    most: int | None = None

    def accepts(self, value: object) -> bool:
        """Return whether the set contains the value."""
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            return False
        return int(value) >= self.least and (self.most is None or int(value) <= self.most)

    def __str__(self) -> str:
        return (
            f"an integer of at least {self.least}"
            if self.most is None
            else f"an integer from {self.least} to {self.most}"
        )


@dataclass(frozen=True)
class Real:
    """Finite numbers between `low` and `high`; `open` excludes the ends that it names.

    Examples
    --------
    >>> print(Real(0, 1, open="low"), Real(0), sep="; ")
    a number above 0 and at most 1; a finite number of at least 0
    """

    low: float
    high: float = math.inf
    open: str = ""

    def accepts(self, value: object) -> bool:
        """Return whether the set contains the value."""
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            return False
        above = value > self.low if self.open in ("low", "both") else value >= self.low
        below = value < self.high if self.open in ("high", "both") else value <= self.high
        return bool(above and below and math.isfinite(value))

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.open in ("low", "both") else f"of at least {self.low:g}"
        if math.isinf(self.high):
            return f"a finite number {low}"
        high = f"below {self.high:g}" if self.open in ("high", "both") else f"at most {self.high:g}"
        return f"a number {low} and {high}"


@dataclass(frozen=True)
class OneOf:
    """A few named values.

    Examples
    --------
    >>> print(OneOf("efron", "breslow"))
    one of 'efron', 'breslow'
    """

    values: tuple[object, ...]

    def __init__(self, *values: object) -> None:
        object.__setattr__(self, "values", values)

    def accepts(self, value: object) -> bool:
        """Return whether the set contains the value."""
        return any(type(value) is type(each) and value == each for each in self.values)

    def __str__(self) -> str:
        names = ", ".join(map(repr, self.values))
        return names if len(self.values) == 1 else f"one of {names}"


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def accepts(self, value: object) -> bool:
        """Return whether the set contains the value."""
        return isinstance(value, bool | np.bool_)

    def __str__(self) -> str:
        return "True or False"


@dataclass(frozen=True)
class Where:
    """Values for which `holds` returns True; `expected` follows "must be" in the message.

    Examples
    --------
    >>> print(Where("a list of site names", lambda value: isinstance(value, list)))
    a list of site names
    """

    expected: str
    holds: Callable[[Any], bool]

    def accepts(self, value: object) -> bool:
        """Return whether the set contains the value."""
        return bool(self.holds(value))

    def __str__(self) -> str:
        return self.expected


# Seeds that numpy's and scikit-learn's generators accept.
SEED = Integer(0, 2**32 - 1)

ParameterRanges = Mapping[str, Constraint | Sequence[Constraint | None]]


def check_parameters(parameters: Mapping[str, Any], ranges: ParameterRanges) -> None:
    """Raise ConfigurationError unless each parameter is in its declared range.

    Parameters
    ----------
    parameters : mapping of str to object
        Values by parameter.
    ranges : mapping of str to Constraint, None or a sequence of these
        Valid values by parameter; of several constraints one must hold, and None stands for itself.

    Examples
    --------
    >>> check_parameters({"horizon": None}, {"horizon": (None, Real(0, open="low"))})
    >>> check_parameters({"max_depth": 0}, {"max_depth": Integer(1, 20)})
    Traceback (most recent call last):
    multicentre.errors.ConfigurationError: max_depth must be an integer from 1 to 20; got 0. [MC301]
    """
    for name, declared in ranges.items():
        constraints = declared if isinstance(declared, Sequence) else (declared,)
        value = parameters[name]
        if any(value is None if each is None else each.accepts(value) for each in constraints):
            continue
        expected = " or ".join(map(str, constraints))
        raise ConfigurationError(f"{name} must be {expected}; got {_short(value)}", where=name)


@dataclass(frozen=True)
class Only:
    """Condition under which a parameter has an effect on the result.

    Parameters
    ----------
    condition : str
        Values of other parameters, as in ``times="grid"``.
    holds : callable
        Function from the estimator to True if the condition holds.
    """

    condition: str
    holds: Callable[[Any], bool]


Applicable = Mapping[str, Only]
"""Conditions by parameter; a parameter without one always has an effect."""


def check_applicable(estimator: Any, applicable: Applicable) -> None:
    """Raise ConfigurationError for a parameter that was set although the other parameters leave it without effect.

    Examples
    --------
    >>> import multicentre as mc
    >>> check_applicable(mc.survival.LogRank("arm", rho=0.5), mc.survival.LogRank.applicable)
    Traceback (most recent call last):
        ...
    multicentre.errors.ConfigurationError: rho must be 1.0 unless weights="fleming-harrington"; got 0.5. ...
    """
    defaults = {name: one.default for name, one in inspect.signature(type(estimator)).parameters.items()}
    for name, only in applicable.items():
        if name not in defaults:  # a base class has the parameter
            continue
        value, default = getattr(estimator, name), defaults[name]
        if value is default or bool(np.array_equal(value, default)) or only.holds(estimator):
            continue
        raise ConfigurationError(
            f"{name} must be {default!r} unless {only.condition}; got {_short(value)}",
            where=name,
            hint=f"Leave {name} out, or set {only.condition}.",
        )


def _short(value: object) -> str:
    """Return a value as text; of long values the type, since these may be data."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"an object of type {type(value).__name__}"


# Characters of a value that a message shows: enough for a number or a name, too short for a table.
LONGEST = 60
