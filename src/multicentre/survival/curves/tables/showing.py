"""What figures of curves have in common: where they end, and the numbers below them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.estimator.figures import Band
from multicentre.survival.curves.tables.risk import RiskTable

Floats = NDArray[np.float64]
LEAST_SHOWN = 10
N_POSITIONS = 6


def chosen_times(horizon: float) -> list[float]:
    """Return round times from 0 to a horizon, at most eight.

    Examples
    --------
    >>> chosen_times(95.0)
    [0.0, 20.0, 40.0, 60.0, 80.0]
    """
    rough = horizon / N_POSITIONS
    unit = 10.0 ** np.floor(np.log10(rough))
    width = unit * next(step for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * unit >= rough * 0.9)
    return [float(np.round(place * width, 12)) for place in range(int(horizon / width + 1e-9) + 1)]


def band_of(name: str, table: RiskTable, place: int, curve: tuple[Floats, Floats, Floats], *, start: float) -> Band:
    """Return a group's curve and limits, from time 0 on, while enough patients are at risk.

    Examples
    --------
    >>> table = RiskTable(("all",), np.array([2.0]), np.array([[[5.0]]]), np.array([[0.0, 0.0, 15.0]]), True)
    >>> band_of("all", table, 0, (np.array([0.75]), np.array([0.6]), np.array([0.9])), start=1.0).y
    [1.0, 0.75]
    """
    shown = table.at_risk[place] >= LEAST_SHOWN
    values = ([start, *line[shown].tolist()] for line in curve)
    return Band(name, [0.0, *table.grid[shown].tolist()], *values)


def numbers_below(table: RiskTable, positions: list[float], group: str | None = None) -> dict[str, list[float | None]]:
    """Return the numbers at risk by group at given times, None where they are few but some.

    Examples
    --------
    >>> table = RiskTable(("all",), np.array([2.0]), np.array([[[5.0]]]), np.array([[8.0, 0.0, 7.0]]), True)
    >>> numbers_below(table, [0.0, 3.0])
    {'all': [20.0, None]}
    """
    counted = table.count_at(np.array(positions))
    return {
        named(group, name): [told_count(number) for number in row]
        for name, row in zip(table.groups, counted.tolist(), strict=True)
    }


def named(group: str | None, label: str) -> str:
    """Return a group's name with that of its column.

    Examples
    --------
    >>> named("arm", "1"), named(None, "all")
    ('arm 1', 'all')
    """
    return label if group is None else f"{group} {label}"


def told_count(number: float) -> float | None:
    """Return a number of patients as it is shown: None where they are few but some.

    Examples
    --------
    >>> told_count(0.0), told_count(3.0), told_count(12.0)
    (0.0, None, 12.0)
    """
    return number if number == 0 or number >= LEAST_SHOWN else None


def time_label(unit: str) -> str:
    """Return the name of an axis of times.

    Examples
    --------
    >>> time_label("days"), time_label("")
    ('time (days)', 'time')
    """
    return f"time ({unit})" if unit else "time"
