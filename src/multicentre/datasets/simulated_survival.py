"""Simulated times to an event, with known hazards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.errors import ConfigurationError

Floats = NDArray[np.float64]

_UNIT = "months"
# Above 1, so that the baseline hazard is not constant: it increases in proportion to time ** 0.3.
_SHAPE = 1.3
# Months until the cumulative hazard of each cause is 1 for a patient with zeros; the second cause is rarer.
_SCALES = (30.0, 60.0)
# A hazard ratio of exp(0.8) = 2.2 per unit of the first column; the k-th column has 0.8 / k.
_MAX_COEFFICIENT = 0.8
# The interval shrinks by 2**80, more than the 2**52 of double precision, even if the root is near 0.
_BISECTIONS = 80


@dataclass(frozen=True)
class SurvivalTruth:
    """True hazards of :func:`simulate_survival`. They do not depend on a seed, so that sites can share them.

    The hazard of cause c is that of a Weibull distribution, times ``exp(eta_c(x) + site_effect)``. The term ``eta_c``
    is linear in the columns. If `nonlinear` is True, the linear terms of the first two columns are replaced by the
    square of the first column and the product of the two.

    Parameters
    ----------
    n_columns : int
        Number of columns d.
    nonlinear : bool, default False
        True for a square and a product of columns in the log hazards.
    competing : bool, default False
        True for a second, competing cause.
    site_effect : float, default 0
        Constant that is added to the log hazards of all patients.

    Examples
    --------
    >>> truth = SurvivalTruth(n_columns=3)
    >>> truth.coefficients(1).round(2).tolist()
    [0.8, -0.4, 0.27]
    >>> truth.survival(np.zeros((1, 3)), np.array([12.0, 24.0])).round(3).tolist()
    [[0.738, 0.473]]
    """

    n_columns: int
    nonlinear: bool = False
    competing: bool = False
    site_effect: float = 0.0

    @property
    def causes(self) -> tuple[int, ...]:
        """Causes of events: 1, and 2 if risks compete."""
        return (1, 2) if self.competing else (1,)

    def coefficients(self, cause: int = 1) -> Floats:
        """Return the effects of the columns on the log hazard of a cause, shape (d,).

        Those of the first cause are 0.8, -0.8/2, 0.8/3, ... Those of the second cause are the same in reverse order.
        """
        order = np.arange(1, self.n_columns + 1)
        effects = _MAX_COEFFICIENT * np.where(order % 2, 1.0, -1.0) / order
        return effects if cause == 1 else effects[::-1].copy()

    def log_hazard_ratio(self, X: Floats, cause: int = 1) -> Floats:
        """Return the log hazard ratio of every patient, shape (n,), relative to zeros at a site without effect."""
        effects = self.coefficients(cause)
        if not self.nonlinear:
            return np.asarray(X @ effects + self.site_effect)
        curved = effects[0] * (X[:, 0] ** 2 - 1.0) + effects[-1] * X[:, 0] * X[:, min(1, self.n_columns - 1)]
        return np.asarray(curved + X[:, 2:] @ effects[2:] + self.site_effect)

    def cumulative_hazard(self, X: Floats, times: Floats, cause: int = 1) -> Floats:
        """Return the cumulative hazard of a cause at every time, shape (n, t)."""
        return np.outer(np.exp(self.log_hazard_ratio(X, cause)), (times / _SCALES[cause - 1]) ** _SHAPE)

    def survival(self, X: Floats, times: Floats) -> Floats:
        """Return the probability of no event of any cause until every time, shape (n, t)."""
        return np.exp(-sum(self.cumulative_hazard(X, times, cause) for cause in self.causes))


def simulate_survival(
    n_patients: int = 200,
    n_columns: int = 5,
    random_state: int | np.random.Generator = 0,
    *,
    censoring: float = 0.3,
    nonlinear: bool = False,
    competing: bool = False,
    site_effect: float = 0.0,
) -> SurvivalData:
    """Draw patients, times to an event in months, and the end of their follow-up.

    Columns are standard normal, and every third column is 0 or 1 with equal probability. Times follow
    ``SurvivalTruth(n_columns, nonlinear, competing, site_effect)``, so that sites with different seeds have the same
    hazards. Follow-up ends at a uniformly random time, independent of the columns.

    Parameters
    ----------
    n_patients : int, default 200
        Number of patients, at least 1.
    n_columns : int, default 5
        Number of columns, at least 1.
    random_state : int or Generator, default 0
        Seed of all random draws.
    censoring : float, default 0.3
        Expected share of patients whose follow-up ends before an event, from 0 to below 1.
    nonlinear : bool, default False
        True for effects with a square and an interaction.
    competing : bool, default False
        True for competing events of a second cause, with code 2.
    site_effect : float, default 0
        Constant that is added to the log hazards of all patients. Above 0, events are earlier at the site.

    Returns
    -------
    SurvivalData
        Columns ``x0`` to ``x{d-1}``, times in months.

    Raises
    ------
    ConfigurationError
        A number is out of range.

    Examples
    --------
    >>> simulate_survival(100, random_state=1)
    SurvivalData(100 patients, 71 events; 5 columns)
    >>> sites = {name: simulate_survival(50, random_state=c) for c, name in enumerate(["lyon", "oslo", "graz"])}
    """
    if n_patients < 1 or n_columns < 1 or not 0 <= censoring < 1:
        raise ConfigurationError(
            "n_patients and n_columns must be at least 1, and censoring from 0 to below 1; got "
            f"{n_patients}, {n_columns} and {censoring:g}",
            where="simulate_survival",
            hint="Example: n_patients=200, n_columns=5, censoring=0.3.",
        )
    random = np.random.default_rng(random_state)
    truth = SurvivalTruth(n_columns, nonlinear, competing, site_effect)
    X = _draw_columns(random, n_patients, n_columns)
    by_cause = np.column_stack([_draw_times(random, truth, X, cause) for cause in truth.causes])
    first = by_cause.min(axis=1)
    end = (1.0 - random.uniform(size=n_patients)) * _longest_follow_up(first, censoring)
    event = np.where(first <= end, by_cause.argmin(axis=1) + 1, 0)
    # Events are set afterwards: two causes without censoring are intended here, and the warning would be misleading.
    followed = SurvivalData(X, np.minimum(first, end), np.zeros(n_patients), unit=_UNIT)
    return followed.with_arrays(event=event.astype(np.int8))


def _draw_columns(random: np.random.Generator, n_patients: int, n_columns: int) -> Floats:
    X = random.standard_normal((n_patients, n_columns))
    X[:, 2::3] = X[:, 2::3] > 0
    return X


def _draw_times(random: np.random.Generator, truth: SurvivalTruth, X: Floats, cause: int) -> Floats:
    """Return the times at which a Weibull cumulative hazard reaches a standard exponential draw."""
    reached = random.exponential(size=len(X)) / np.exp(truth.log_hazard_ratio(X, cause))
    return np.asarray(_SCALES[cause - 1] * reached ** (1.0 / _SHAPE))


def _longest_follow_up(times: Floats, censoring: float) -> float:
    """Return c so that a follow-up that is uniform on (0, c) ends before these times for a share of the patients."""
    if censoring == 0:
        return np.inf
    low, high = 0.0, float(times.max()) / censoring
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(times / middle, 1.0).mean() > censoring else (low, middle)
    return high
