"""Simulated times to an event, of which the truth is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.federation.errors import ConfigurationError

Floats = NDArray[np.float64]

_UNIT = "months"
# Above 1, so that the baseline hazard is not constant: it increases in proportion to time ** 0.3.
_SHAPE = 1.3
_SCALES = (30.0, 60.0)
# A hazard ratio of exp(0.8) = 2.2 per unit of the first column; the k-th column has 0.8 / k.
_LARGEST_COEFFICIENT = 0.8
# The interval shrinks by 2**80, far beyond the 2**52 of double precision, even if the root is near 0.
_BISECTIONS = 80


@dataclass(frozen=True)
class SurvivalTruth:
    """The hazards that :func:`simulate_survival` draws from; they depend on no seed, so that sites can share them.

    The hazard of cause c is that of a Weibull distribution, times ``exp(eta_c(x) + site_effect)``, where ``eta_c`` is
    linear in the columns or, if `nonlinear`, has a square of the first column and its product with the second instead.

    Parameters
    ----------
    n_columns : int
        Number of columns d.
    nonlinear : bool, default False
        Whether the log hazards contain a square and a product of columns.
    competing : bool, default False
        Whether there is a second cause.
    site_effect : float, default 0
        Added to the log hazards of all patients.

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
        """Causes of events: 1, and 2 where risks compete."""
        return (1, 2) if self.competing else (1,)

    def coefficients(self, cause: int = 1) -> Floats:
        """Return the effects of the columns on the log hazard of a cause, shape (d,).

        Those of the first cause are 0.8, -0.8/2, 0.8/3, ...; those of the second are the same from last to first.
        """
        order = np.arange(1, self.n_columns + 1)
        effects = _LARGEST_COEFFICIENT * np.where(order % 2, 1.0, -1.0) / order
        return effects if cause == 1 else effects[::-1].copy()

    def log_hazard_ratio(self, X: Floats, cause: int = 1) -> Floats:
        """Return the log hazard of every patient, relative to one with zeros at a site without effect, shape (n,)."""
        effects = self.coefficients(cause)
        if not self.nonlinear:
            return np.asarray(X @ effects + self.site_effect)
        bent = effects[0] * (X[:, 0] ** 2 - 1.0) + effects[-1] * X[:, 0] * X[:, min(1, self.n_columns - 1)]
        return np.asarray(bent + X[:, 2:] @ effects[2:] + self.site_effect)

    def cumulative_hazard(self, X: Floats, times: Floats, cause: int = 1) -> Floats:
        """Return the cumulative hazard of a cause at every time, shape (n, t)."""
        return np.outer(np.exp(self.log_hazard_ratio(X, cause)), (times / _SCALES[cause - 1]) ** _SHAPE)

    def survival(self, X: Floats, times: Floats) -> Floats:
        """Return the chance to be free of events of any cause at every time, shape (n, t)."""
        return np.exp(-sum(self.cumulative_hazard(X, times, cause) for cause in self.causes))


def simulate_survival(
    n_patients: int = 200,
    n_columns: int = 5,
    seed: int | np.random.Generator = 0,
    *,
    censoring: float = 0.3,
    nonlinear: bool = False,
    competing: bool = False,
    site_effect: float = 0.0,
) -> SurvivalData:
    """Draw patients, times to an event in months, and the end of their follow-up.

    Columns are standard normal, every third one 0 or 1 with equal chance. Times follow
    ``SurvivalTruth(n_columns, nonlinear, competing, site_effect)``, whatever the seed: sites drawn with different seeds
    have the same truth. Follow-up ends at a time uniform from zero, independent of the columns.

    Parameters
    ----------
    n_patients : int, default 200
        Number of patients, at least 1.
    n_columns : int, default 5
        Number of columns, at least 1.
    seed : int or Generator, default 0
        Source of all randomness.
    censoring : float, default 0.3
        Expected share of patients whose follow-up ends before an event, from 0 to below 1.
    nonlinear : bool, default False
        Whether effects are curved and interact.
    competing : bool, default False
        Whether events of a second cause, written 2, compete.
    site_effect : float, default 0
        Added to the log hazards of all patients: a site where events come earlier (above 0) or later.

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
    >>> simulate_survival(100, seed=1)
    SurvivalData(100 patients, 71 events; 5 columns)
    >>> sites = {name: simulate_survival(50, seed=c) for c, name in enumerate(["lyon", "oslo", "graz"])}
    """
    if n_patients < 1 or n_columns < 1 or not 0 <= censoring < 1:
        raise ConfigurationError(
            "n_patients and n_columns must be 1 or more, and censoring from 0 to below 1; got "
            f"{n_patients}, {n_columns} and {censoring:g}",
            where="simulate_survival",
            hint="Example: n_patients=200, n_columns=5, censoring=0.3.",
        )
    random = np.random.default_rng(seed)
    truth = SurvivalTruth(n_columns, nonlinear, competing, site_effect)
    X = _draw_columns(random, n_patients, n_columns)
    by_cause = np.column_stack([_draw_times(random, truth, X, cause) for cause in truth.causes])
    first = by_cause.min(axis=1)
    end = (1.0 - random.uniform(size=n_patients)) * _longest_follow_up(first, censoring)
    event = np.where(first <= end, by_cause.argmin(axis=1) + 1, 0)
    # Set afterwards: two causes without censoring are what was asked for here, and no coding error to warn of.
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
    """Return c such that a follow-up uniform on (0, c) ends before these times for the wanted share of patients."""
    if censoring == 0:
        return np.inf
    low, high = 0.0, float(times.max()) / censoring
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(times / middle, 1.0).mean() > censoring else (low, middle)
    return high
