"""How one figure goes with another over sets of parameters: correlation with its interval, and a straight line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from multicentre.reproduction._shared.section import Row

_N_RESAMPLES = 1000


@dataclass(frozen=True)
class Relation:
    """A straight line through points, and how close they are to one.

    Parameters
    ----------
    n_points : int
    pearson, lower, upper : float
        Correlation and its 95 % interval.
    spearman : float
        Correlation of ranks.
    intercept, slope, rest : float
        Of the least-squares line, and the standard deviation of what it leaves.
    """

    n_points: int
    pearson: float
    lower: float
    upper: float
    spearman: float
    intercept: float
    slope: float
    rest: float

    def cells(self) -> list[str]:
        """Return the cells of a table."""
        interval = f"{self.lower:.2f} to {self.upper:.2f}"
        figures = [f"{one:.4f}" for one in (self.intercept, self.slope, self.rest)]
        return [str(self.n_points), f"{self.pearson:.3f}", interval, f"{self.spearman:.3f}", *figures]


def relate(rows: Sequence[Row], name: str) -> Relation:
    """Relate the column ``ratio`` to another; the interval comes from draws of whole sets of parameters.

    Examples
    --------
    >>> rows = [{"set": k, "importance": x, "ratio": 1 - 0.04 * x} for k, x in enumerate((0.0, 0.5, 1.0))]
    >>> found = relate(rows, "importance")
    >>> round(found.pearson, 3), round(found.intercept, 3), round(found.slope, 3)
    (-1.0, 1.0, -0.04)
    """
    from scipy.stats import spearmanr

    x, y = (np.array([float(row[key]) for row in rows]) for key in (name, "ratio"))
    sets = np.array([int(row["set"]) for row in rows])
    slope, intercept = np.polyfit(x, y, 1)
    lower, upper = _interval(x, y, sets)
    return Relation(
        len(x),
        float(np.corrcoef(x, y)[0, 1]),
        lower,
        upper,
        float(spearmanr(x, y).statistic),
        float(intercept),
        float(slope),
        float(np.std(y - intercept - slope * x)),
    )


def _interval(x: np.ndarray, y: np.ndarray, sets: np.ndarray) -> tuple[float, float]:
    random = np.random.default_rng(0)
    places = [np.flatnonzero(sets == one) for one in np.unique(sets)]
    found = []
    for _ in range(_N_RESAMPLES):
        rows = np.concatenate([places[one] for one in random.integers(len(places), size=len(places))])
        if np.ptp(x[rows]) > 0 and np.ptp(y[rows]) > 0:
            found.append(np.corrcoef(x[rows], y[rows])[0, 1])
    return float(np.quantile(found, 0.025)), float(np.quantile(found, 0.975))
