"""Rounded figures of a numeric variable at one site, for checks of data quality.

Every figure rests on at least the policy's minimum of patients. Numbers are rounded so coarsely that they are those of
many patients, and numbers of patients are rounded down to multiples of the minimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.data.records import fewest_different

Floats = NDArray[np.float64]
# Codes that systems store for missing values.
SPIKES = (-9999.0, -999.0, -99.0, -9.0, -1.0, 0.0, 9.0, 99.0, 888.0, 999.0, 9999.0)
# A code counts as apart from the other values if the nearest one is this many quartile ranges away.
GAP = 0.5
# It is also this many times farther from them than they are from each other.
STEPS_APART = 2.0
# Codes that are not levels of a score; several of them can be in one column.
FAR_CODES = tuple(code for code in SPIKES if abs(code) >= 99.0)


@dataclass(frozen=True)
class ColumnQuality:
    """Figures of one variable; NaN and 0 where too few patients have a number, or few differ from most."""

    present: int
    moments: tuple[float, float]
    quarters: tuple[float, float, float]
    ends: tuple[float, float]
    spikes: tuple[int, ...]


_NAN = float("nan")
_NOTHING = ColumnQuality(0, (_NAN, _NAN), (_NAN, _NAN, _NAN), (_NAN, _NAN), (0,) * len(SPIKES))


def quality_of_column(values: Floats, least: int) -> ColumnQuality:
    """Return the rounded figures of a variable.

    Parameters
    ----------
    values : array of shape (n,)
        Without NaN.
    least : int
        Smallest number of patients behind a figure, at least 1.

    Examples
    --------
    >>> column = quality_of_column(np.append(np.arange(100.0), [999.0] * 12), 10)
    >>> column.present, column.quarters, column.spikes[-2]
    (110, (28.0, 56.0, 83.0), 10)
    """
    if len(values) < 2 * least:
        return _NOTHING
    ordered = np.sort(values)
    quarters = np.quantile(ordered, [0.25, 0.5, 0.75])
    spread = float(quarters[2] - quarters[0]) or float(ordered.std())
    deviation = float(ordered.std(ddof=1)) if len(ordered) > 1 else 0.0
    coarse, fine = unit_of(spread) / 10.0, unit_of(deviation) / 100.0
    mean, rounded_deviation = (round_to(np.array([ordered.mean(), deviation]), fine)).tolist()
    first, second, third = round_to(quarters, coarse).tolist()
    low, high = round_to(ordered[[least - 1, -least]], coarse).tolist()
    spikes = tuple(_patients_apart(ordered, code, spread) // least * least for code in SPIKES)
    # A mean of zeros and ones is a count, and a mean that one patient dominates is that patient's number.
    moments = (mean, rounded_deviation) if least <= fewest_different(values[:, None]) else (_NAN, _NAN)
    return ColumnQuality(len(values) // least * least, moments, (first, second, third), (low, high), spikes)


def unit_of(spread: float) -> float:
    """Return the largest power of ten that is not above a spread; 0 for no spread.

    Examples
    --------
    >>> unit_of(35.0), unit_of(0.0)
    (10.0, 0.0)
    """
    return float(10.0 ** np.floor(np.log10(spread))) if spread > 0 else 0.0


def round_to(values: Floats, unit: float) -> Floats:
    """Round to multiples of a unit; a unit of 0 leaves values unchanged.

    Examples
    --------
    >>> round_to(np.array([61.4]), 5.0).tolist()
    [60.0]
    """
    return np.asarray(np.rint(values / unit) * unit if unit > 0 else values, dtype=np.float64)


def _patients_apart(ordered: Floats, code: float, spread: float) -> int:
    """Return the number of values equal to a code if no other value is near; 0 otherwise, and if all have the code.

    Examples
    --------
    >>> [_patients_apart(np.array(values), 0.0, 1.0) for values in ([0.0, 1.0, 1.0], [0.0, 61.0, 62.0, 64.0])]
    [0, 1]
    """
    n_equal = int((ordered == code).sum())
    others = ordered[(ordered != code) & ~np.isin(ordered, FAR_CODES)]
    if not n_equal or not len(others):
        return 0
    # The spread of the others: the code itself widens that of all.
    first, third = np.quantile(others, [0.25, 0.75])
    room = GAP * (float(third - first) or spread)
    # The levels of a score, and 0 and 1, are as far from each other as from the code. A single other value is compared
    # with its own size.
    distinct = np.unique(others)
    widest = float(np.diff(distinct).max()) if len(distinct) > 1 else max(abs(float(distinct[0])), 1.0)
    return n_equal if float(np.abs(others - code).min()) > max(room, STEPS_APART * widest) else 0
