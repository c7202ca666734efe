"""Curves of seconds per call over sizes: grouping of points, log-log slopes, extrapolation.

A fit that ends by convergence may need one call more at one size than at another. Seconds are divided by calls, so that
this does not count as a slope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Points = Sequence[Mapping[str, Any]]
# A curve is extrapolated at least in proportion: a small slope at its end is that of costs that do not depend on size.
MIN_SLOPE = 1.0


def curves(points: Points) -> dict[tuple[str, bool], list[Mapping[str, Any]]]:
    """Return the measured points of one method by axis and masks."""
    grouped: dict[tuple[str, bool], list[Mapping[str, Any]]] = {}
    for point in points:
        if "seconds" in point:
            grouped.setdefault((point["axis"], point["masked"]), []).append(point)
    return grouped


def logarithms(points: Points) -> tuple[np.ndarray, np.ndarray]:
    """Return the logarithms of sizes and of seconds per call."""
    x = [point["size"] for point in points]
    y = [point["seconds"] / point["calls"] for point in points]
    return np.log(x), np.log(y)


def slopes(points: Points) -> tuple[float, float] | None:
    """Return the log-log slope over all points of a curve, and that between the last two."""
    if len(points) < 2:
        return None
    x, y = logarithms(points)
    return float(np.polyfit(x, y, 1)[0]), float((y[-1] - y[-2]) / (x[-1] - x[-2]))


def extrapolate(points: Points, size: float) -> float:
    """Return seconds per call at a size: interpolated on the log-log scale, or by the slope at the end, at least 1."""
    x, y = logarithms(points)
    at = np.log(size)
    if at <= x[-1]:
        return float(np.exp(np.interp(at, x, y)))
    slope = max(MIN_SLOPE, (y[-1] - y[-2]) / (x[-1] - x[-2]))
    return float(np.exp(y[-1] + slope * (at - x[-1])))
