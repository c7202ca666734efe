"""Whole numbers in the order of doubles, and the cells in which records are counted.

A double's bits, read as a whole number, are in the order of the doubles but for the sign [1]_. The codes here are
shifted besides by the golden section of a binade, so that borders of cells are not round numbers: no integer, date or
short decimal lies on one. A cell of level l holds the codes that share their first l x bits binary digits.

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
CODE_BITS = 64
_SIGN = np.uint64(1 << 63)
_SHIFT = np.uint64(0x9E3779B97F4A7)


def encode_doubles(values: Floats) -> Codes:
    """Return a code of each value, in the order of the values; -0.0 has that of 0.0.

    Parameters
    ----------
    values : array of float64
        Without NaN.

    Examples
    --------
    >>> codes = encode_doubles(np.array([-2.5, -0.0, 0.0, 5e-324, 1e308]))
    >>> np.diff(codes.astype(object)).astype(bool).tolist(), decode_doubles(codes).tolist()
    ([True, False, True, True], [-2.5, 0.0, 0.0, 5e-324, 1e+308])
    """
    digits = np.ascontiguousarray(values + 0.0, dtype=np.float64).view(np.uint64)
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
    """Return the first value of each value's cell of so many binary digits; NaN stays.

    Borders of cells of so many digits, or of fewer, have as many values below them as before.

    Examples
    --------
    >>> coarsen(np.array([60.001, 60.002, 61.0, np.nan]), 24).round(3).tolist()
    [59.996, 59.996, 60.996, nan]
    """
    known = ~np.isnan(values)
    codes = encode_doubles(np.where(known, values, 0.0))
    least = encode_doubles(np.full(1, -np.finfo(np.float64).max))
    first = (codes >> np.uint64(CODE_BITS - digits)) << np.uint64(CODE_BITS - digits)
    return np.where(known & np.isfinite(values), decode_doubles(np.maximum(first, least)), values)


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
        As of :func:`split_cells`.
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


def join_codes(codes: Codes, least: int) -> Codes:
    """Move codes so that each place holds at least so many: microaggregation of one column [2]_.

    Neighbouring values make a group as soon as it has `least` records; what remains at the end joins the last group.
    A group goes to its commonest value where that alone has enough records, else to the roundest code in its range. At
    any border fewer than 3 x least records change sides; which records are below does not depend on how they are asked.

    Parameters
    ----------
    codes : array of uint64, shape (n,)
        Sorted.
    least : int
        Below 2, nothing moves.

    Returns
    -------
    array of uint64, shape (n,)
        Sorted; shape (0,) for fewer than `least` codes in all.

    Examples
    --------
    >>> decode_doubles(join_codes(encode_doubles(np.array([0.0] * 9 + [1.0] * 2)), 3)).tolist() == [0.0] * 11
    True
    >>> len(np.unique(join_codes(encode_doubles(np.arange(20.0)), 5)))
    4
    """
    if least <= 1:
        return codes
    if len(codes) < least:
        return codes[:0]
    values, counts = np.unique(codes, return_counts=True)
    last = _last_of_groups(np.cumsum(counts), least)
    first = np.append(0, last[:-1] + 1)
    common = last.copy()
    last[-1] = len(values) - 1
    place = np.where(counts[common] >= least, values[common], _roundest(values[first], values[last]))
    return np.repeat(place, np.add.reduceat(counts, first))


def _last_of_groups(up_to: Integers, least: int) -> Integers:
    """Return the place of each group's last value, before what remains is joined to the last group."""
    found: list[int] = []
    before = 0
    while up_to[-1] - before >= least:
        found.append(int(np.searchsorted(up_to, before + least)))
        before = int(up_to[found[-1]])
    return np.array(found, dtype=np.int64)


def _roundest(first: Codes, last: Codes) -> Codes:
    """Return the code with the most trailing zeros above `first` and up to `last`; that of both where they are one."""
    differing = first ^ last
    for step in (1, 2, 4, 8, 16, 32):
        differing |= differing >> np.uint64(step)
    return last & ~(differing >> np.uint64(1))


def between(first: Codes, last: Codes) -> Floats:
    """Return thresholds t, such that x <= t below the border, from the first and last border with no record between.

    Where the two differ, the number of fewest decimal digits in the middle half of the gap; the last value below the
    border where there is one border only.

    Examples
    --------
    >>> border = encode_doubles(np.array([0.0, 1.0, 61.0, 62.0]))
    >>> between(border[::2], border[1::2]).tolist()
    [0.5, 61.5]
    """
    low, high = decode_doubles(np.where(first < last, first, first - np.uint64(1))), decode_doubles(last)
    middle, quarter = low / 2 + high / 2, high / 4 - low / 4
    inside = np.clip(_shortest(middle, quarter), low, decode_doubles(last - np.uint64(1)))
    return np.where(first < last, inside, low)


def _shortest(values: Floats, slack: Floats) -> Floats:
    """Return each value to the fewest decimal digits that change it by at most its slack."""
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
    """Return the least float32 not below each threshold t: where no value equals t, x < cut says what x <= t does.

    Examples
    --------
    >>> up_to_float32(np.array([0.5, 0.1])).tolist()
    [0.5, 0.10000000149011612]
    """
    near = thresholds.astype(np.float32)
    return np.where(near >= thresholds, near, np.nextafter(near, np.float32(np.inf)))
