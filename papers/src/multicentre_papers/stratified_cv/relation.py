"""Correlation with interval, and least-squares line, of two columns over sets of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre_papers.runner.section import Row

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Enough for two stable digits of the 2.5 % and 97.5 % quantiles.
_N_RESAMPLES = 1000


@dataclass(frozen=True)
class Relation:
    """Least-squares line and correlations of points.

    Parameters
    ----------
    n_points : int
    pearson, lower, upper : float
        Correlation and its 95 % interval.
    spearman : float
        Correlation of ranks.
    intercept, slope, rest : float
        Least-squares line and standard deviation of its residuals.
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
    """Relate the column ``ratio`` to another; the interval is a bootstrap over sets of parameters.

    Examples
    --------
    >>> rows = [{"set": k, "importance": x, "ratio": 1 - 0.04 * x} for k, x in enumerate((0.0, 0.5, 1.0))]
    >>> relation = relate(rows, "importance")
    >>> round(relation.pearson, 3), round(relation.intercept, 3), round(relation.slope, 3)
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


def _interval(x: Floats, y: Floats, sets: Integers) -> tuple[float, float]:
    """Return the 2.5 % and 97.5 % quantiles of the correlation over draws of whole sets with replacement."""
    centred_x, centred_y = x - x.mean(), y - y.mean()
    terms = (np.ones_like(x), centred_x, centred_y, centred_x**2, centred_y**2, centred_x * centred_y)
    sums = np.array([[term[sets == one].sum() for term in terms] for one in np.unique(sets)])
    times = np.random.default_rng(0).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=_N_RESAMPLES)
    n, sx, sy, sxx, syy, sxy = (times @ sums).T
    with np.errstate(divide="ignore", invalid="ignore"):
        correlations = (sxy - sx * sy / n) / np.sqrt((sxx - sx**2 / n) * (syy - sy**2 / n))
    finite = correlations[np.isfinite(correlations)]
    return float(np.quantile(finite, 0.025)), float(np.quantile(finite, 0.975))
