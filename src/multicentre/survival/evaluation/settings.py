"""Settings of an evaluation: limits, model, and times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.errors import ConfigurationError, MessageError
from multicentre.estimator.parameters import Flag, Integer, OneOf, ParameterRanges, Real, Where
from multicentre.statistics.line import MAX_LINE
from multicentre.survival.agreement.site import MAX_TIMES
from multicentre.survival.estimator import SurvivalEstimator
from multicentre.survival.evaluation import messages
from multicentre.survival.fitted_models.base import SurvivalModel
from multicentre.survival.times import check_grid, is_sequence

Floats = NDArray[np.float64]

# Largest numbers of times of the grid, of scoring and of calibration.
MAX_FINE_TIMES = 4096

# The table of ranks has 2048 bins (MAX_EDGES + 1) by 512 times: 2^20 doubles, 8 MiB.
MAX_SCORED = 512

# Counts of groups are 16 times by 50 groups (MAX_GROUPS) by 4096 times of the grid: 3.3 million doubles, 25 MiB.
MAX_CALIBRATED = 16

# Largest numbers of edges of bins, and of groups of predicted risk.
MAX_EDGES = 2047

# Five times the default of 10; more groups give a larger table (see MAX_CALIBRATED) with few patients per group.
MAX_GROUPS = 50


def check_times(request: messages.Scored) -> None:
    """Raise ConfigurationError unless the grid increases and the places lie on it, in order.

    Examples
    --------
    >>> grid, places = np.array([1.0, 2.0]), np.array([0, 1])
    >>> check_times(messages.Scored(np.zeros(0, np.uint8), np.zeros(0), grid, places, places))
    """
    check_grid(request.grid)
    if len(request.grid) > MAX_FINE_TIMES:
        raise ConfigurationError(
            f"grid must have at most {MAX_FINE_TIMES} times; got {len(request.grid)}",
            where="grid",
            hint="Use a coarser grid.",
        )
    for name, places, most in (("places", request.places, MAX_SCORED), ("at", request.at, MAX_CALIBRATED)):
        inside = len(places) > 0 and places.min() >= 0 and places.max() < len(request.grid)
        if not inside or len(places) > most or (np.diff(places) <= 0).any():
            raise ConfigurationError(
                f"{name} must be 1 to {most} increasing places on the grid; got {len(places)}, or others",
                where=name,
                hint="Sort the times and remove duplicates.",
            )


def check_fill(fill: Floats, n_columns: int) -> None:
    """Raise MessageError unless there is one finite value per column.

    Examples
    --------
    >>> check_fill(np.zeros(3), 3)
    """
    if fill.shape != (n_columns,) or not np.isfinite(fill).all():
        raise MessageError(f"fill must hold {n_columns} finite values; got shape {fill.shape}, or others", where="fill")


def check_edges(edges: Floats, name: str, most: int = MAX_EDGES) -> None:
    """Raise ConfigurationError unless edges of bins are finite, increasing and few enough.

    Examples
    --------
    >>> check_edges(np.array([0.2, 0.4]), "thresholds")
    """
    if len(edges) > most or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
        raise ConfigurationError(
            f"{name} must be at most {most} increasing numbers; got {len(edges)}, or others",
            where=name,
            hint="Sort the edges, or use fewer bins.",
        )


def check_groups(edges: Floats, n_times: int) -> None:
    """Raise ConfigurationError unless there are edges for every time of calibration; equal edges give empty groups.

    Examples
    --------
    >>> check_groups(np.array([[0.2, 0.2]]), 1)
    """
    good = len(edges) == n_times and edges.shape[1] < MAX_GROUPS
    if not good or not np.isfinite(edges).all() or (np.diff(edges, axis=1) < 0).any():
        raise ConfigurationError(
            f"edges must be {n_times} increasing rows of fewer than {MAX_GROUPS} numbers; got shape {edges.shape}, "
            "or others",
            where="edges",
            hint=f"Use at most {MAX_GROUPS} groups per time.",
        )


def check_lines(lines: Floats, n_times: int) -> None:
    """Raise MessageError unless there are two lines per time of calibration, within the range of a fit.

    Examples
    --------
    >>> check_lines(np.zeros((2, 3, 2)), 3)
    """
    if lines.shape != (2, n_times, 2) or not (np.abs(lines) <= MAX_LINE).all():
        raise MessageError(
            f"lines must be two per time, {n_times} times, within {MAX_LINE:g}; got shape {lines.shape}, or larger "
            "ones",
            where="lines",
        )


def check_staying(staying: Floats, n_times: int) -> None:
    """Raise MessageError unless the censoring curve decreases within 1 and 0, on the grid.

    Examples
    --------
    >>> check_staying(np.array([1.0, 0.5]), 2)
    """
    good = staying.shape == (n_times,) and staying.min() >= 0 and staying.max() <= 1 + 1e-9
    if not good or (np.diff(staying) > 0).any():
        raise MessageError(
            f"staying must hold {n_times} decreasing probabilities; got shape {staying.shape}, or others",
            where="staying",
        )


Integers = NDArray[np.int64]

# Number of times of the default grid.
N_STEPS = 256


SCORES = ("concordance", "brier", "auc", "calibration", "net_benefit")


def _are_scores(value: Any) -> bool:
    return not isinstance(value, str) and len(value) > 0 and set(value) <= set(SCORES)


_TIMES = Where("a sequence of times", is_sequence)
# Ranges of the parameters of an evaluation; times are checked together with the model.
RANGES: ParameterRanges = {
    "horizon": (None, Real(0, open="low")),
    "n_bins": Integer(2, MAX_EDGES + 1),
    "n_times": Integer(2, MAX_SCORED),
    "at": (None, _TIMES),
    "n_groups": Integer(2, MAX_GROUPS),
    "time_points": (None, _TIMES),
    "thresholds": (None, Where("a sequence of risks", is_sequence)),
    "concordance": OneOf("pooled", "within_sites"),
    "scoring": Where(f"a sequence of {', '.join(map(repr, SCORES))}", _are_scores),
    "by_site": Flag(),
    "cause": Integer(1, 127),
}


def model_of(model: object) -> SurvivalModel:
    """Return the model of a fitted estimator, or the model itself.

    Raises
    ------
    ConfigurationError
        The argument is neither.
    sklearn.exceptions.NotFittedError
        The estimator is not fitted.
    """
    if isinstance(model, SurvivalEstimator):
        model = model.evaluated_model()
    if not isinstance(model, SurvivalModel) or model.is_empty:
        raise ConfigurationError(
            f"model must be a fitted survival estimator or a model; got {type(model).__name__}",
            where="model",
            hint="Pass a fitted survival estimator, or its model_.",
        )
    return model


def choose_times(
    model: SurvivalModel, horizon: float | None, time_points: ArrayLike | None, n_times: int, at: Sequence[float] | None
) -> tuple[Floats, Integers, Integers]:
    """Return the grid of follow-up, shape (K,), and places on it: of scoring (T,) and of calibration (H,).

    Raises
    ------
    ConfigurationError
        A time is beyond the model's horizon, or the grid is too fine.

    Examples
    --------
    >>> from multicentre.survival.fitted_models import CoxModel
    >>> model = CoxModel(np.array([4.0, 8.0]), np.zeros(1), np.zeros(1), np.array([0.1, 0.2]))
    >>> grid, places, at = choose_times(model, None, np.arange(1.0, 9.0), 4, [2.0])
    >>> grid[places].tolist(), grid[at].tolist()
    ([2.0, 4.0, 6.0, 8.0], [2.0])
    """
    end = float(model.times[-1] if horizon is None else horizon)
    if not 0 < end <= model.times[-1]:
        raise ConfigurationError(
            f"horizon must be above 0 and at most that of the model, {model.times[-1]:.6g}; got {end:.6g}",
            where="horizon",
            hint="Use an earlier horizon.",
        )
    grid = _grid(end, time_points, at)
    if not 1 < len(grid) <= MAX_FINE_TIMES:
        what = f"there must be 2 to {MAX_FINE_TIMES} times up to the horizon; got {len(grid)}"
        raise ConfigurationError(what, where="time_points", hint="Change time_points or the horizon.")
    scoring = np.arange(1, n_times + 1) / n_times * grid[-1]
    return grid, _places(grid, scoring), _places(grid, _calibrated(grid, at))


def is_fine(model: SurvivalModel, horizon: float | None, time_points: ArrayLike | None) -> bool:
    """Return True for more than 256 times up to the horizon, which need permission of the sites' policies.

    Examples
    --------
    >>> from multicentre.survival.fitted_models import CoxModel
    >>> model = CoxModel(np.array([4.0, 8.0]), np.zeros(1), np.zeros(1), np.array([0.1, 0.2]))
    >>> is_fine(model, None, None), is_fine(model, None, np.linspace(0.01, 8.0, 500))
    (False, True)
    """
    end = float(model.times[-1] if horizon is None else horizon)
    return len(_grid(end, time_points, None)) > MAX_TIMES


def choose_thresholds(values: Sequence[float] | None) -> Floats:
    """Return the thresholds of predicted risk, shape (p,).

    Raises
    ------
    ConfigurationError
        The thresholds do not increase within 0 and 1.

    Examples
    --------
    >>> len(choose_thresholds(None))
    99
    """
    chosen = np.arange(1, 100) / 100 if values is None else np.asarray(values, dtype=np.float64)
    if chosen.ndim != 1 or not len(chosen) or chosen.min() <= 0 or chosen.max() >= 1 or (np.diff(chosen) <= 0).any():
        raise ConfigurationError(
            "thresholds must be above 0, below 1 and increasing; got others", where="thresholds", hint="Sort them."
        )
    return chosen


def _grid(end: float, time_points: ArrayLike | None, at: Sequence[float] | None) -> Floats:
    """Return `time_points`, or equal steps and the times of calibration, up to the last time."""
    if time_points is None:
        calibration_times = np.zeros(0) if at is None else np.unique(np.asarray(at, dtype=np.float64))[:MAX_CALIBRATED]
        calibration_times = calibration_times[(calibration_times > 0) & (calibration_times <= end)]
        return np.union1d(np.linspace(0.0, end, N_STEPS + 1 - len(calibration_times))[1:], calibration_times)
    grid = np.asarray(time_points, dtype=np.float64)
    check_grid(grid)
    return grid[grid <= end]


def _calibrated(grid: Floats, at: Sequence[float] | None) -> Floats:
    times = grid[-1] * np.array([0.25, 0.5, 0.75]) if at is None else np.asarray(at, dtype=np.float64)
    if not 0 < len(times) <= MAX_CALIBRATED or not ((times > 0) & (times <= grid[-1])).all():
        raise ConfigurationError(
            f"at must hold 1 to {MAX_CALIBRATED} times above 0 and at most {grid[-1]:.6g}; got {times.tolist()[:20]}",
            where="at",
            hint="Use times within the horizon.",
        )
    return np.asarray(times, dtype=np.float64)


def _places(grid: Floats, times: Floats) -> Integers:
    positions = np.searchsorted(grid, times * (1 - 1e-12), side="left")
    return np.unique(np.minimum(positions, len(grid) - 1)).astype(np.int64)
