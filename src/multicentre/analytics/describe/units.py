"""Units in which sites sum numeric variables: powers of two near the magnitude and the spread of a variable.

Masked sums are multiples of a fixed step. In the unit of a variable the step is small against its values, whether they
are platelets per microlitre or creatinine in mol per litre. Powers of two leave the digits of unmasked sums unchanged.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from multicentre.analytics.describe.messages import Counts, Squares
from multicentre.errors import DataError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
# Squares of a unit, 2^-1000 to 2^1000, stay in the range of normal doubles.
MAX_EXPONENT = 500
# The first unit of squares is at most 2^8 times finer than the magnitude: means of sites can be that far apart, and the
# squares of 2^18 patients of a site are still in the range of a sum.
FIRST_DIGITS = 8
# Squares below this, in their unit and times the squared number of sites, are less than a million rounding errors of a
# masked sum, which is at most 2^-27 per pair of sites.
FEW_SQUARES = 2.0**-7
# Digits of the next unit: a sum that was too small becomes at most 2^13 times the squared number of sites.
MORE_DIGITS = 10
# Doubles have 52 digits; spreads below a 2^40th of the magnitude are rounding of the values themselves.
MAX_DIGITS = 40


def exponents_of(values: Floats) -> tuple[Integers, Integers]:
    """Return the orders of magnitude of each variable: of its root mean square, and of its standard deviation.

    Parameters
    ----------
    values : array of shape (n, d)
        NaN where missing.

    Returns
    -------
    flags : array of shape (2, d)
        1 if the figure is above 0, else 0.
    exponents : array of shape (2, d)
        Exponents of the nearest powers of two.

    Examples
    --------
    >>> flags, exponents = exponents_of(np.array([[1000.0, 3.0], [1008.0, 3.0]]))
    >>> flags.tolist(), exponents.tolist()
    ([[1, 1], [1, 0]], [[10, 2], [2, 0]])
    """
    flags, exponents = np.zeros((2, 2, values.shape[1]), dtype=np.int64)
    for place, column in enumerate(values.T):
        present = column[~np.isnan(column)]
        # Numbers of mean 0 have a magnitude too, and constants have no spread, although that of doubles has rounding.
        figures = (present, present - present.mean()) if len(present) and np.ptp(present) > 0 else (present,)
        for row, figure in enumerate(figures):
            largest = float(np.abs(figure).max(initial=0.0))
            if largest > 0:
                size = np.log2(largest) + np.log2(np.mean(np.square(figure / largest))) / 2.0
                flags[row, place] = 1
                exponents[row, place] = round(float(np.clip(size, -MAX_EXPONENT, MAX_EXPONENT)))
    return flags, exponents


def agree_exponents(n_sites: Integers, total: Integers) -> Integers:
    """Return the exponents of the units of sums and of squares, shape (2, d), from sums over sites.

    Parameters
    ----------
    n_sites, total : arrays of shape (2, d)
        Sums of flags and exponents.

    Examples
    --------
    >>> agree_exponents(np.array([[3, 3], [3, 0]]), np.array([[60, 6], [3, 0]])).tolist()
    [[20, 2], [12, 2]]
    """
    mean = np.rint(total / np.maximum(n_sites, 1)).astype(np.int64)
    magnitude, spread = mean
    # Constants of sites can differ.
    squares = np.where(n_sites[1] > 0, np.maximum(spread, magnitude - FIRST_DIGITS), magnitude)
    return np.array([magnitude, squares])


def need_finer(squares: Floats, magnitude: Integers, exponent: Integers, varies: Flags, n_sites: int) -> Flags:
    """Return whether squares are so small in their unit that a masked sum may have rounded them, shape (d,).

    Parameters
    ----------
    squares : array of shape (d,)
        Sum over groups in the squared unit.
    magnitude, exponent : arrays of shape (d,)
        Exponents of the magnitude and of the unit.
    varies : array of bool of shape (d,)
        Whether the variable has a spread at some site.
    n_sites : int

    Examples
    --------
    >>> exponent = np.array([12, 12])
    >>> need_finer(np.array([1e-6, 0.3]), np.array([20, 20]), exponent, np.array([True, True]), 3).tolist()
    [True, False]
    """
    return varies & (squares < FEW_SQUARES * n_sites**2) & (exponent > magnitude - MAX_DIGITS)


def recentre(counts: Counts, squares: Squares, mean: Floats, unit: Floats) -> tuple[Counts, Squares]:
    """Return totals, and squared differences from the means, in the units of the data.

    The masked total of numbers far from 0 has fewer digits than the sum of their differences from a number near them.

    Parameters
    ----------
    counts, squares : messages
        Sums over sites.
    mean : array of shape (g, d)
        Numbers from which the differences are.
    unit : array of shape (d,)
    """
    present = counts.present.astype(np.float64)
    within = squares.squares - np.square(squares.shift) / np.maximum(present, 1.0)
    total = present * mean + squares.shift * unit
    in_data = replace(squares, shift=np.zeros_like(squares.shift), squares=np.maximum(within, 0.0) * unit**2)
    return replace(counts, total=total), in_data


def check_sums(sums: Floats, names: tuple[str, ...], bound: float, where: str) -> None:
    """Raise DataError, which names the variables, if sums in their unit are beyond the range of masked sums.

    Parameters
    ----------
    sums : array of shape (g, d)
    names : tuple of str
    bound : float
    where : str
    """
    beyond = [name for name, column in zip(names, sums.T, strict=True) if not (np.abs(column) <= bound).all()]
    if beyond:
        raise DataError(
            f"numbers of all sites must be of a similar size; those of this site are too large: {', '.join(beyond)}",
            where=where,
            hint="Check the variable for another unit, an outlier or a code for missing values.",
        )
