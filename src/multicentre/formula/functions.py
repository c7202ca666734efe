"""Functions of numeric columns that a formula may contain, with their derivatives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import MessageError
from multicentre.formula.splines import b_splines, cardinal_splines, natural_splines

Floats = NDArray[np.float64]
Numbers = tuple[float, ...]
# Numbers that each function of one column needs.
SCALARS = {"log": 0, "log1p": 0, "log2": 0, "log10": 0, "sqrt": 0, "power": 1, "centre": 1, "scale": 2}
# Largest exponent: higher powers are dominated by the patient with the largest value.
MAX_EXPONENT = 3.0
# Interior knots of a spline; more than 20 pieces are not smooth, and each piece rests on few patients.
MAX_KNOTS = 20
# Number before the boundary knots: only B-splines have a degree.
LEADING = {"bs": 1, "ns": 0, "cr": 0}


def check_function(function: str, numbers: Numbers) -> None:
    """Raise MessageError unless a function is in the list and its numbers are in range.

    Examples
    --------
    >>> check_function("power", (2.0,)), check_function("ns", (0.0, 1.0, 0.5))
    (None, None)
    """
    if function in SCALARS:
        fits = len(numbers) == SCALARS[function]
        fits &= function != "power" or (fits and 0 < abs(numbers[0]) <= MAX_EXPONENT)
        fits &= function != "scale" or (fits and numbers[1] > 0)
    elif function in LEADING:
        lead = LEADING[function]
        lower_upper, knots = numbers[lead : lead + 2], numbers[lead + 2 :]
        ordered = np.diff([*lower_upper[:1], *knots, *lower_upper[1:]])
        fits = len(lower_upper) == 2 and len(knots) <= MAX_KNOTS and bool((ordered > 0).all())
        fits &= not lead or (fits and numbers[0] in (1.0, 2.0, 3.0))
    else:
        raise MessageError(
            f"a function must be one of {', '.join([*SCALARS, *LEADING])}; got {function!r}", where="formula"
        )
    if not (fits and np.isfinite(numbers).all()):
        raise MessageError(
            f"{function} must have exponents of at most {MAX_EXPONENT:g}, positive deviations, and at most "
            f"{MAX_KNOTS} increasing knots between its boundary knots; got others",
            where="formula",
        )


def has_domain(function: str, numbers: Numbers) -> bool:
    """Return whether a function is not defined for all numbers.

    Examples
    --------
    >>> has_domain("log", ()), has_domain("power", (2.0,)), has_domain("power", (0.5,))
    (True, False, True)
    """
    if function == "power":
        return numbers[0] != round(numbers[0]) or numbers[0] < 0
    return function in ("log", "log1p", "log2", "log10", "sqrt")


def apply_scalar(function: str, numbers: Numbers, x: Floats) -> tuple[Floats, Floats]:
    """Return a function of a column and its derivative, shape (n,) each; NaN where the function is not defined.

    Examples
    --------
    >>> [each.tolist() for each in apply_scalar("power", (2.0,), np.array([3.0]))]
    [[9.0], [6.0]]
    >>> apply_scalar("log", (), np.array([1.0, 0.0]))[0].tolist()
    [0.0, nan]
    """
    if function == "centre":
        return x - numbers[0], np.ones_like(x)
    if function == "scale":
        return (x - numbers[0]) / numbers[1], np.full_like(x, 1.0 / numbers[1])
    if function in ("power", "sqrt"):
        exponent = numbers[0] if function == "power" else 0.5
        outside = x < 0 if exponent != round(exponent) else (x == 0) & (exponent < 0)
        inside = np.where(outside, np.nan, x)
        with np.errstate(divide="ignore"):  # the slope of a root at 0 is infinite
            return inside**exponent, exponent * inside ** (exponent - 1.0)
    if function == "log1p":
        inside = np.where(x <= -1, np.nan, x)
        return np.log1p(inside), 1.0 / (1.0 + inside)
    inside = np.where(x <= 0, np.nan, x)
    unit = {"log": 1.0, "log2": np.log(2.0), "log10": np.log(10.0)}[function]
    return np.log(inside) / unit, 1.0 / (inside * unit)


def apply_spline(function: str, numbers: Numbers, x: Floats, derivative: int = 0) -> Floats:
    """Return the columns of a spline, shape (n, number of columns).

    Parameters
    ----------
    function : {"ns", "bs", "cr"}
    numbers : tuple of float
        For B-splines the degree, then the boundary knots, then the interior knots.
    x : array of shape (n,)
    derivative : {0, 1}, default 0

    Examples
    --------
    >>> apply_spline("bs", (1.0, 0.0, 1.0), np.array([0.25])).tolist()
    [[0.25]]
    """
    lead = LEADING[function]
    lower, upper, *interior = numbers[lead:]
    knots = np.array(interior)
    if function == "bs":
        return b_splines(x, knots, (lower, upper), int(numbers[0]), derivative)
    spline = natural_splines if function == "ns" else cardinal_splines
    return spline(x, knots, (lower, upper), derivative)
