"""What a site takes from a coordinator, and no more."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, MessageError
from multicentre.survival.evaluation import messages as sent
from multicentre.survival.times.grid import check_grid

Floats = NDArray[np.float64]
MOST_TIMES = 4096
MOST_SCORED = 512
MOST_CALIBRATED = 16
MOST_EDGES = 2047
MOST_GROUPS = 50


def check_times(ask: sent.Judged) -> None:
    """Raise ConfigurationError unless the grid increases and the chosen places lie on it, in order.

    Examples
    --------
    >>> grid, places = np.array([1.0, 2.0]), np.array([0, 1])
    >>> check_times(sent.Judged(np.zeros(0, np.uint8), np.zeros(0), grid, places, places))
    """
    check_grid(ask.grid)
    if len(ask.grid) > MOST_TIMES:
        raise ConfigurationError("the grid is too fine", where="grid", mend=f"Take at most {MOST_TIMES} times.")
    for name, places, most in (("places", ask.places, MOST_SCORED), ("at", ask.at, MOST_CALIBRATED)):
        inside = len(places) > 0 and places.min() >= 0 and places.max() < len(ask.grid)
        if not inside or len(places) > most or (np.diff(places) <= 0).any():
            raise ConfigurationError(
                "the times do not lie on the grid, in order", where=name, mend=f"Take at most {most}, each once."
            )


def check_fill(fill: Floats, n_columns: int) -> None:
    """Raise MessageError unless there is one finite value a column.

    Examples
    --------
    >>> check_fill(np.zeros(3), 3)
    """
    if fill.shape != (n_columns,) or not np.isfinite(fill).all():
        raise MessageError(f"{n_columns} finite values are needed", where="fill")


def check_edges(edges: Floats, name: str, most: int = MOST_EDGES) -> None:
    """Raise ConfigurationError unless edges of bins are finite, increase, and are not too many.

    Examples
    --------
    >>> check_edges(np.array([0.2, 0.4]), "thresholds")
    """
    if len(edges) > most or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
        raise ConfigurationError("the bins do not increase, or are too many", where=name, mend=f"Take at most {most}.")


def check_groups(edges: Floats, n_times: int) -> None:
    """Raise ConfigurationError unless there are edges for every time of calibration; equal ones leave a group empty.

    Examples
    --------
    >>> check_groups(np.array([[0.2, 0.2]]), 1)
    """
    good = len(edges) == n_times and edges.shape[1] < MOST_GROUPS
    if not good or not np.isfinite(edges).all() or (np.diff(edges, axis=1) < 0).any():
        raise ConfigurationError(
            "the groups of predicted risk are not in order, or too many",
            where="edges",
            mend=f"Take at most {MOST_GROUPS} groups at each time.",
        )


def check_staying(staying: Floats, n_times: int) -> None:
    """Raise MessageError unless the censoring curve falls from 1 or below to 0 or above, on the grid.

    Examples
    --------
    >>> check_staying(np.array([1.0, 0.5]), 2)
    """
    good = staying.shape == (n_times,) and staying.min() >= 0 and staying.max() <= 1 + 1e-9
    if not good or (np.diff(staying) > 0).any():
        raise MessageError("the censoring curve does not fall from 1 to 0", where="staying")
