"""What follows from a fitted Cox model: errors, intervals, tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import chi2

from multicentre.survival.times import kaplan_meier

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
TimeTransform = Literal["km", "rank", "identity", "log"]
TRANSFORMS: tuple[str, ...] = get_args(TimeTransform)
FLAT = 1e-7
DEPENDENT = 1e-8
# In standard errors. An interval at 95 % that is off by so much still covers 94.3 %.
MOST_OFF = 0.25


@dataclass(frozen=True)
class TestResult:
    """A chi-square test.

    Parameters
    ----------
    statistic : float
    degrees_of_freedom : int
    p_value : float
    """

    __test__ = False
    statistic: float
    degrees_of_freedom: int
    p_value: float


def chi_square(statistic: float, degrees_of_freedom: int) -> TestResult:
    """Return the test of a statistic.

    Examples
    --------
    >>> round(chi_square(3.841459, 1).p_value, 6)
    0.05
    """
    return TestResult(float(statistic), degrees_of_freedom, float(chi2.sf(statistic, max(degrees_of_freedom, 1))))


def informed(information: Floats, n_events: float) -> Flags:
    """Return which columns of deviation 1 carry information, shape (d,): more than a ten-millionth an event.

    Examples
    --------
    >>> informed(np.diag([40.0, 0.0]), 50.0).tolist()
    [True, False]
    """
    return np.asarray(np.diagonal(information) > FLAT * max(n_events, 1.0), dtype=np.bool_)


def dependent_columns(information: Floats) -> NDArray[np.int64]:
    """Return columns that depend on each other, so that their coefficients cannot be told apart; none most often.

    Examples
    --------
    >>> dependent_columns(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])).tolist()
    [0, 1]
    """
    if not len(information):
        return np.zeros(0, dtype=np.int64)
    scale = np.sqrt(np.diagonal(information))
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    weak = np.abs(vectors[:, values < DEPENDENT])
    return np.flatnonzero((weak > 0.05).any(axis=1))


def identified(information: Floats, n_events: float) -> Flags:
    """Return which columns have a coefficient of their own, shape (d,): informed and independent.

    Examples
    --------
    >>> identified(np.array([[9.0, 9.0, 0.0], [9.0, 9.0, 0.0], [0.0, 0.0, 4.0]]), 20.0).tolist()
    [False, False, True]
    """
    known = informed(information, n_events)
    among = np.flatnonzero(known)
    known[among[dependent_columns(information[np.ix_(among, among)])]] = False
    return known


def reliable(gradient: Floats, information: Floats, n_events: float) -> Flags:
    """Return which coefficients have errors and intervals that hold, shape (d,).

    They are identified, and lie within a quarter of a standard error of the maximum of the likelihood, which a Newton
    step finds. A penalty, a fit in one round, or rounds that ended early leave coefficients elsewhere.

    Parameters
    ----------
    gradient : array of shape (d,)
        First derivatives of the log-likelihood, without a penalty, at the coefficients.
    information : array of shape (d, d)
        Minus its second derivatives.
    n_events : float

    Examples
    --------
    >>> reliable(np.array([0.4, 0.6]), np.diag([4.0, 4.0]), 20.0).tolist()
    [True, False]
    """
    known = identified(information, n_events)
    inverse = np.linalg.pinv(information[np.ix_(known, known)], hermitian=True)
    known[known] = np.abs(inverse @ gradient[known]) <= MOST_OFF * np.sqrt(np.diagonal(inverse))
    return known


def covariance(information: Floats, alpha: float, known: Flags, scores: Floats | None = None) -> Floats:
    """Return the coefficients' covariance, shape (d, d); not a number for columns that are not known.

    ``(I + K)^-1 B (I + K)^-1`` with the penalty K, B being the information, or the sum of the score residuals' products
    for one that does not trust the model (Lin and Wei).

    Examples
    --------
    >>> covariance(np.diag([4.0, 0.0]), 0.0, np.array([True, False])).tolist()
    [[0.25, nan], [nan, nan]]
    """
    inside = np.ix_(known, known)
    bread = np.linalg.pinv(information[inside] + alpha * np.eye(int(known.sum())), hermitian=True)
    filling = information if scores is None else scores
    found = np.full(information.shape, np.nan)
    found[inside] = bread if scores is None and not alpha else bread @ filling[inside] @ bread
    return found


def wald_p_values(coefficients: Floats, errors: Floats) -> Floats:
    """Return two-sided p-values of the hypotheses that a coefficient is 0, shape (d,).

    Examples
    --------
    >>> wald_p_values(np.array([1.959964, 0.0]), np.array([1.0, np.nan])).round(3).tolist()
    [0.05, nan]
    """
    known = errors > 0
    ratios = np.divide(np.abs(coefficients), errors, out=np.full(errors.shape, np.nan), where=known)
    return np.asarray(2.0 * ndtr(-ratios), dtype=np.float64)


def hazard_ratios(coefficients: Floats, errors: Floats, level: float) -> Floats:
    """Return hazard ratios with Wald's intervals, shape (d, 3): ratio, lower end, upper end.

    Examples
    --------
    >>> hazard_ratios(np.log([2.0]), np.zeros(1), 0.95).round(9).tolist()
    [[2.0, 2.0, 2.0]]
    """
    reach = ndtri(0.5 + 0.5 * level) * errors
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(np.column_stack([coefficients, coefficients - reach, coefficients + reach])))


def global_tests(
    coefficients: Floats, spread_of: Floats, likelihoods: tuple[float, float], first_score: float
) -> dict[str, TestResult]:
    """Return the tests that no column matters, by likelihood ratio, Wald and score.

    Parameters
    ----------
    coefficients : array of shape (d,)
    spread_of : array of shape (d, d)
        Their covariance.
    likelihoods : pair of float
        Log-likelihood without columns, and with.
    first_score : float
        Gradient by inverse information by gradient, without columns.

    Examples
    --------
    >>> found = global_tests(np.array([1.0]), np.array([[0.25]]), (-10.0, -8.0), 3.9)
    >>> {name: test.statistic for name, test in found.items()}
    {'likelihood_ratio': 4.0, 'wald': 4.0, 'score': 3.9}
    """
    known = ~np.isnan(np.diagonal(spread_of))
    inside, own = spread_of[np.ix_(known, known)], coefficients[known]
    statistics = {
        "likelihood_ratio": 2.0 * (likelihoods[1] - likelihoods[0]),
        "wald": float(own @ np.linalg.pinv(inside, hermitian=True) @ own),
        "score": first_score,
    }
    return {name: chi_square(value, int(known.sum())) for name, value in statistics.items()}


def transform_times(times: Floats, events: Floats, at_risk: Floats, kind: TimeTransform) -> Floats:
    """Return the values of times in a test of proportional hazards, shape (K,), from 0 to 1.

    Parameters
    ----------
    times : array of shape (K,)
    events, at_risk : arrays of shape (K,)
    kind : {"km", "rank", "identity", "log"}
        1 less the Kaplan-Meier estimate just before, mean rank among the events, the time, or its logarithm. The test
        does not change with scale.

    Examples
    --------
    >>> transform_times(np.array([1.0, 2.0, 4.0]), np.ones(3), np.array([3.0, 2.0, 1.0]), "rank").tolist()
    [0.0, 0.5, 1.0]
    """
    if kind == "km":
        values = 1.0 - np.append(1.0, kaplan_meier(events, at_risk)[:-1])
    elif kind == "rank":
        values = np.cumsum(events) - events / 2.0
    elif kind == "identity":
        values = times
    else:
        values = np.log(np.maximum(times, times[times > 0].min(initial=1.0)))
    values = values - values.min()
    return np.asarray(values / (values.max() or 1.0), dtype=np.float64)


def proportionality_tests(
    weighted: Floats, spread_of: Floats, n_events: float, squares: float
) -> tuple[dict[int, TestResult], TestResult]:
    """Return Grambsch and Therneau's tests that hazards are proportional, by place of each column and for all.

    Parameters
    ----------
    weighted : array of shape (d,)
        Sum over the events of Schoenfeld's residuals times the value of the time less its mean.
    spread_of : array of shape (d, d)
        Covariance of the coefficients.
    n_events : float
    squares : float
        Sum of squares of the values less their mean.

    Notes
    -----
    Residuals are scaled by the mean covariance over the events, as in the paper and in lifelines. ``cox.zph`` of R's
    survival package took this form up to version 2; since version 3 it is a score test, whose statistics differ a
    little.

    References
    ----------
    P. M. Grambsch, T. M. Therneau (1994), Proportional hazards tests and diagnostics based on weighted residuals,
    Biometrika 81, 515-526.

    Examples
    --------
    >>> each, together = proportionality_tests(np.array([2.0]), np.array([[0.5]]), 10.0, 4.0)
    >>> each[0].statistic, together.statistic
    (5.0, 5.0)
    """
    known = np.flatnonzero(~np.isnan(np.diagonal(spread_of)))
    inside, own = spread_of[np.ix_(known, known)], weighted[known]
    factor = n_events / squares if squares > 0 else np.nan
    slopes = inside @ own
    statistics = slopes**2 / np.diagonal(inside) * factor
    each = {int(place): chi_square(value, 1) for place, value in zip(known, statistics, strict=True)}
    return each, chi_square(float(own @ slopes) * factor, len(known))
