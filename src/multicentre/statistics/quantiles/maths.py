"""Integer codes in the order of doubles, and the cells in which records are counted.

The bits of non-negative doubles, read as integers, are in the order of the doubles; negative numbers need a
transformation [1]_. The codes are also shifted by the golden section of a binade. Borders of cells are then not round
numbers: no integer, date or short decimal is on a border. A cell of level l contains the codes that share their first
l x bits binary digits.

Subnormal numbers (magnitudes below 2.2e-308) count as 0, because some processors and libraries flush them to 0. The
only subnormal threshold is the largest subnormal number, which separates 0 from the smallest positive normal number.

.. [1] Herf (2001). Radix tricks.
.. [2] Domingo-Ferrer, Mateo-Sanz (2002). Practical data-oriented microaggregation for statistical disclosure control.
   IEEE Transactions on Knowledge and Data Engineering 14(1), 189-201.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.uint64]
Integers = NDArray[np.int64]
# Number of bits of a float64, which a code reorders.
CODE_BITS = 64
_SIGN = np.uint64(1 << 63)
_SHIFT = np.uint64(0x9E3779B97F4A7)
_ZERO = _SIGN + _SHIFT
_TINY = float(np.finfo(np.float64).tiny)
_MAX_SUBNORMAL = float(np.nextafter(_TINY, 0.0))


def encode_doubles(values: Floats) -> Codes:
    """Return the code of each value, in the order of the values; -0.0 and subnormal numbers have the code of 0.0.

    Parameters
    ----------
    values : array of float64
        Without NaN.

    Examples
    --------
    >>> codes = encode_doubles(np.array([-2.5, -0.0, 0.0, 5e-324, 1e308]))
    >>> np.diff(codes.astype(object)).astype(bool).tolist(), decode_doubles(codes).tolist()
    ([True, False, False, True], [-2.5, 0.0, 0.0, 0.0, 1e+308])
    """
    digits = np.where(np.abs(values) < _TINY, 0.0, values).view(np.uint64)
    return np.where(digits & _SIGN, ~digits, digits | _SIGN) + _SHIFT


def decode_doubles(codes: Codes) -> Floats:
    """Return the values of codes.

    Examples
    --------
    >>> decode_doubles(encode_doubles(np.array([-1.0, 61.0]))).tolist()
    [-1.0, 61.0]
    """
    digits = codes - _SHIFT
    return np.where(digits & _SIGN, digits ^ _SIGN, ~digits).view(np.float64)


def coarsen(values: Floats, digits: int) -> Floats:
    """Replace each value by the first value of its cell of `digits` binary digits; NaN is unchanged.

    The number of values below a border of cells of at most `digits` digits does not change.

    Examples
    --------
    >>> coarsen(np.array([60.001, 60.002, 61.0, np.nan]), 24).round(3).tolist()
    [59.996, 59.996, 60.996, nan]
    """
    present = ~np.isnan(values)
    codes = encode_doubles(np.where(present, values, 0.0))
    least = encode_doubles(np.full(1, -np.finfo(np.float64).max))
    first = (codes >> np.uint64(CODE_BITS - digits)) << np.uint64(CODE_BITS - digits)
    coarse = decode_doubles(np.maximum(first, least))
    # A cell whose first number is subnormal begins at 0 instead, or at the least normal number if 0 is below the cell.
    coarse = np.where(np.abs(coarse) < _TINY, np.where(first <= _ZERO, 0.0, _TINY), coarse)
    return np.where(present & np.isfinite(values), coarse, values)


def move_to_borders(thresholds: Floats, digits: int) -> Floats:
    """Move each threshold down to the end of the previous cell, so that it separates cells of `digits` binary digits.

    A value is at or below such a threshold exactly if the first value of its cell (see `coarsen`) is.

    Examples
    --------
    >>> moved = move_to_borders(np.array([60.001, 0.0]), 24)
    >>> moved.round(3).tolist(), bool(coarsen(moved[:1], 24) < coarsen(np.array([60.001]), 24))
    ([59.996, -0.0], True)
    """
    first = coarsen(thresholds, digits)
    return np.where(first == 0.0, -_TINY, np.nextafter(first, -np.inf))


def split_cells(prefix: Codes, level: int, bits: int) -> Codes:
    """Return the first code of each sub-cell of some cells, shape (q, 2**bits).

    Parameters
    ----------
    prefix : array of uint64, shape (q,)
        First level x bits binary digits of the cells' codes.
    level, bits : int

    Examples
    --------
    >>> [hex(code) for code in split_cells(np.array([0xA], np.uint64), 4, 1)[0].tolist()]
    ['0xa000000000000000', '0xa800000000000000']
    """
    digits = (prefix << np.uint64(bits))[:, None] | np.arange(2**bits, dtype=np.uint64)
    return digits << np.uint64(CODE_BITS - (level + 1) * bits)


def count_in_cells(codes: Codes, starts: Codes, level: int, bits: int) -> Integers:
    """Count the codes of each cell up to the end of each sub-cell, shape (q, 2**bits).

    Parameters
    ----------
    codes : array of uint64, shape (n,)
        Sorted.
    starts : array of uint64, shape (q, 2**bits)
        Result of :func:`split_cells`.
    level, bits : int

    Examples
    --------
    >>> codes = encode_doubles(np.array([-3.0, 0.0, 2.0, 1e9]))
    >>> count_in_cells(codes, split_cells(np.zeros(1, np.uint64), 0, 1), 0, 1).tolist()
    [[1, 4]]
    """
    last = starts[:, -1:] + np.uint64(2 ** (CODE_BITS - (level + 1) * bits) - 1)
    below = np.searchsorted(codes, starts, side="left")
    ends = np.append(below[:, 1:], np.searchsorted(codes, last, side="right"), axis=1)
    return np.asarray(ends - below[:, :1], dtype=np.int64)


def between(first: Codes, last: Codes) -> Floats:
    """Return a threshold t for each pair of borders with no record between them: values below the borders are <= t.

    If the borders differ, t is the number with the fewest decimal digits in the middle half of the gap. If they are
    equal, t is the last value below the border.

    Parameters
    ----------
    first, last : array of uint64
        Codes of the borders.

    Examples
    --------
    >>> border = encode_doubles(np.array([0.0, 1.0, 61.0, 62.0]))
    >>> between(border[::2], border[1::2]).tolist()
    [0.5, 61.5]
    """
    low, high = decode_doubles(np.where(first < last, first, first - np.uint64(1))), decode_doubles(last)
    middle, quarter = low / 2 + high / 2, high / 4 - low / 4
    inside = np.clip(_shortest(middle, quarter), low, decode_doubles(last - np.uint64(1)))
    return _off_subnormal(np.where(first < last, inside, low), first, last)


def _off_subnormal(thresholds: Floats, first: Codes, last: Codes) -> Floats:
    """Move subnormal thresholds so that 0 and all subnormal numbers are on the same side of a threshold."""
    moved = np.where(np.abs(thresholds) < _TINY, 0.0, thresholds)
    moved = np.where(first > _ZERO, np.maximum(moved, _MAX_SUBNORMAL), moved)
    return np.where(last <= _ZERO, np.minimum(moved, -_TINY), moved)


def _shortest(values: Floats, slack: Floats) -> Floats:
    """Round each value to the fewest decimal digits that change it by at most its slack."""
    shortest = values.copy()
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log10(np.abs(values)))
        for digits in range(15, 0, -1):
            places = digits - 1 - exponent
            scale = 10.0 ** np.abs(places)
            rounded = np.where(places > 0, np.round(values * scale) / scale, np.round(values / scale) * scale)
            shortest = np.where(np.abs(rounded - values) <= slack, rounded, shortest)
    return shortest


def up_to_float32(thresholds: Floats) -> NDArray[np.float32]:
    """Return the smallest float32 that is not below each threshold t.

    For values that differ from t, ``x < cut`` is then equivalent to ``x <= t``.

    Examples
    --------
    >>> up_to_float32(np.array([0.5, 0.1])).tolist()
    [0.5, 0.10000000149011612]
    """
    near = thresholds.astype(np.float32)
    return np.where(near >= thresholds, near, np.nextafter(near, np.float32(np.inf)))
