"""Cox partial likelihood from totals over risk sets, and its maximum for the patients of one site.

A time with m events has m terms. Efron's correction for ties replaces S by S - (l / m) E in the l-th term (from 0);
Breslow's method has m equal terms. Weighted events of one time share their mean weight.

With the notation of :mod:`multicentre.survival.kernels.risk_sets`, the log partial likelihood is the sum over events of
``x' b`` minus the sum over terms of ``log(S0 - (l / m) E0)``.

References
----------
D. R. Cox (1975), Partial likelihood, Biometrika 62, 269-276. B. Efron (1977), The efficiency of Cox's likelihood
function for censored data, Journal of the American Statistical Association 72, 557-565.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from multicentre.likelihood.steps import step_rounding
from multicentre.survival.kernels.risk_sets import RiskSets, Sums, Tables, Ties, weighted_products

Floats = NDArray[np.float64]

# Largest component of a Newton step, in log hazard ratios.
MAX_STEP = 1.0

# Largest coefficient of a standardised column.
MAX_COEFFICIENT = 50.0

# Relative curvature below which a direction counts as flat.
NEGLIGIBLE = 1e-10

# Relative rounding error of the objective; smaller decreases are accepted.
OBJECTIVE_ROUNDING = 1e-10

ALL_TIMES = slice(None)


@dataclass(frozen=True)
class Terms:
    """Sums over the terms of each time of powers of 1 / S0, each of shape (K,).

    Parameters
    ----------
    log : array
        Sum of log S0.
    first, first_tied : array
        Sums of 1 / S0 and of (l / m) / S0: the increment of the hazard of those at risk, and its reduction for those
        with the event at the time.
    second, second_tied, second_both : array
        Sums of 1, l / m and (l / m) squared over S0 squared.
    """

    log: Floats
    first: Floats
    first_tied: Floats
    second: Floats
    second_tied: Floats
    second_both: Floats

    def weighted(self, weights: Floats) -> Terms:
        """Return the sums of terms that are multiplied by a weight of their time, shape (K,)."""
        return Terms(*(getattr(self, field.name) * weights for field in fields(self)))


@dataclass(frozen=True)
class Likelihood:
    """Log partial likelihood at given coefficients, and its derivatives.

    Parameters
    ----------
    value : float
    gradient : array of shape (d,)
    information : array of shape (d, d)
        Minus the second derivatives.
    value_rounding, gradient_rounding : float, default 0.0
        Largest errors of the value and of an entry of the gradient through the rounding of masked sums.
    """

    value: float
    gradient: Floats
    information: Floats
    value_rounding: float = 0.0
    gradient_rounding: float = 0.0


@dataclass(frozen=True)
class Maximum:
    """Maximum of a penalised likelihood.

    Parameters
    ----------
    coefficients : array of shape (d,)
    information : array of shape (d, d)
        Information at the maximum, without the penalty.
    converged : bool
    """

    coefficients: Floats
    information: Floats
    converged: bool


def sum_terms(tables: Tables) -> Terms:
    """Return the sums over the terms of Efron's or Breslow's likelihood, ``sum_l 1 / (S0 - (l / m) E0)`` and alike.

    Efron, JASA 72 (1977), and Breslow, Biometrics 30 (1974), whose terms have E0 = 0. All sums are 0 at a time without
    events.

    Parameters
    ----------
    tables : Tables
        Totals over the sites.

    Examples
    --------
    >>> one = np.ones(1)
    >>> sum_terms(Tables(2 * one, 2 * one, 4 * one, 2 * one)).first.round(6).tolist()
    [0.583333]
    """
    has_events = (tables.risk > 0) & (tables.n_events > 0.5)
    if not tables.tied.any():
        return _breslow_terms(tables, has_events)
    counts = np.where(has_events, np.round(tables.n_events), 0.0).astype(np.int64)
    time = np.repeat(np.arange(len(counts)), counts)
    share = (np.arange(len(time)) - np.repeat(np.cumsum(counts) - counts, counts)) / counts[time]
    risk = tables.risk[time] - share * tables.tied[time]
    weight = tables.events[time] / counts[time]

    def total(values: Floats) -> Floats:
        return np.bincount(time, weights=weight * values, minlength=len(counts)).astype(np.float64)

    squared = 1.0 / risk**2
    first = total(1.0 / risk), total(share / risk)
    return Terms(total(np.log(risk)), *first, total(squared), total(share * squared), total(share**2 * squared))


def _breslow_terms(tables: Tables, has_events: NDArray[np.bool_]) -> Terms:
    nothing = np.zeros(len(tables.risk))
    risk, events = np.where(has_events, tables.risk, 1.0), np.where(has_events, tables.events, 0.0)
    return Terms(events * np.log(risk), events / risk, nothing, events / risk**2, nothing, nothing)


def gradient(event_sum: Floats, sums: Sums, terms: Terms) -> Floats:
    """Return the score, ``sum of x over events - sum of (S1 - (l / m) E1) / (S0 - (l / m) E0) over terms``, shape (d,).

    Cox, Journal of the Royal Statistical Society B 34 (1972), with the terms of Efron, JASA 72 (1977).

    Parameters
    ----------
    event_sum : array of shape (d,)
        Sum of the columns over the events.
    sums : Sums
    terms : Terms

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([2, 1]), np.array([True, True]), 2)
    >>> terms = sum_terms(patients.tables(np.ones(2), "breslow"))
    >>> gradient(patients.event_sum, patients.sums(np.ones(2), "breslow"), terms).tolist()
    [1.0]
    """
    return event_sum - terms.first @ sums.risk + terms.first_tied @ sums.tied


def squared_means(sums: Sums, terms: Terms, times: slice = ALL_TIMES) -> Floats:
    """Return the sum over terms of ``S1 S1' / S0^2``, the second part of Cox's information, shape (d, d).

    Cox, Journal of the Royal Statistical Society B 34 (1972), with the terms of Efron, JASA 72 (1977). The
    information is the sum of S2 over S0 minus this matrix. The former is a sum of products of rows, weighted by
    :meth:`RiskSets.own_hazards`.

    Parameters
    ----------
    sums : Sums
        At `times`.
    terms : Terms
        At all times.
    times : slice

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([1, 1]), np.array([True, False]), 1)
    >>> terms = sum_terms(patients.tables(np.ones(2), "breslow"))
    >>> squared_means(patients.sums(np.ones(2), "breslow"), terms).tolist()
    [[4.0]]
    """
    risk, tied = sums.risk, sums.tied
    squared = risk.T @ (terms.second[times, None] * risk)
    if terms.second_tied[times].any():
        cross = risk.T @ (terms.second_tied[times, None] * tied)
        squared += tied.T @ (terms.second_both[times, None] * tied) - cross - cross.T
    return np.asarray(squared, dtype=np.float64)


def partial_likelihood(patients: RiskSets, coefficients: Floats, ties: Ties) -> Likelihood:
    """Return ``sum of x' b over events - sum of log(S0 - (l / m) E0) over terms``, with its first two derivatives.

    Cox, Biometrika 62 (1975), with the ties of Efron, JASA 72 (1977), or of Breslow, Biometrics 30 (1974).

    Parameters
    ----------
    patients : RiskSets
        Patients of one site.
    coefficients : array of shape (d,)
    ties : {"breslow", "efron"}

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([2, 1]), np.array([True, True]), 2)
    >>> likelihood = partial_likelihood(patients, np.zeros(1), "breslow")
    >>> round(likelihood.value, 6), likelihood.gradient.tolist(), likelihood.information.tolist()
    (-0.693147, [1.0], [[1.0]])
    """
    theta, shift = hazard_ratios(patients, coefficients)
    terms = sum_terms(patients.tables(theta, ties))
    hazards = patients.own_hazards(theta, terms.first, terms.first_tied)
    curvature = information(patients, theta, terms, ties)
    value = patients.event_sum @ coefficients + patients.event_offset
    value -= terms.log.sum() + shift * patients.events.sum()
    return Likelihood(float(value), patients.event_sum - hazards @ patients.rows, curvature)


def information(patients: RiskSets, theta: Floats, terms: Terms, ties: Ties) -> Floats:
    """Return ``sum of S2 / S0 - S1 S1' / S0^2 over terms``, Cox's information, shape (d, d).

    Cox, Journal of the Royal Statistical Society B 34 (1972), with the terms of Efron, JASA 72 (1977).

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([2, 1]), np.array([True, True]), 2)
    >>> terms = sum_terms(patients.tables(np.ones(2), "breslow"))
    >>> information(patients, np.ones(2), terms, "breslow").tolist()
    [[1.0]]
    """
    curvature = weighted_products(patients.rows, patients.own_hazards(theta, terms.first, terms.first_tied))
    for times, sums in patients.blocks(theta, ties):
        curvature -= squared_means(sums, terms, times)
    return curvature


def hazard_ratios(patients: RiskSets, coefficients: Floats) -> tuple[Floats, float]:
    """Return weights times hazard ratios, scaled to a largest ratio of 1, shape (n,), and the logarithm of the factor.

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([2, 1]), np.array([True, True]), 2)
    >>> theta, shift = hazard_ratios(patients, np.array([1000.0]))
    >>> theta.tolist(), shift
    ([0.0, 1.0], 3000.0)
    """
    scores = patients.rows @ coefficients + patients.offset
    shift = float(scores.max(initial=0.0))
    return patients.weights * np.exp(scores - shift), shift


def newton_step(likelihood: Likelihood, coefficients: Floats, ridge: float) -> Floats:
    """Return the Newton-Raphson step ``(I + r 1)^-1 (g - r b)`` with ridge penalty r, with components of at most 1.

    g is the gradient and I the information at the coefficients b: Verweij and Van Houwelingen, Statistics in Medicine
    13 (1994). The step, of shape (d,), is 0 along directions without information.

    Examples
    --------
    >>> newton_step(Likelihood(0.0, np.array([1.0, 0.0]), np.diag([2.0, 0.0])), np.zeros(2), 0.0).tolist()
    [0.5, 0.0]
    """
    slope = likelihood.gradient - ridge * coefficients
    curvature = likelihood.information + ridge * np.eye(len(coefficients))
    step = _solve(curvature, slope)
    return np.asarray(step * min(1.0, MAX_STEP / max(float(np.abs(step).max(initial=0.0)), MAX_STEP)))


def _solve(curvature: Floats, slope: Floats) -> Floats:
    try:
        factor = np.linalg.cholesky(curvature)
    except np.linalg.LinAlgError:
        factor = np.zeros_like(curvature)
    diagonal = np.diagonal(factor) ** 2
    if diagonal.min(initial=1.0) > NEGLIGIBLE * np.diagonal(curvature).max(initial=0.0):
        return np.asarray(cho_solve((factor, True), slope), dtype=np.float64)
    return np.asarray(np.linalg.pinv(curvature, rcond=NEGLIGIBLE, hermitian=True) @ slope, dtype=np.float64)


def maximise(
    evaluate: Callable[[Floats], Likelihood], start: Floats, ridge: float, *, tol: float = 1e-9, max_steps: int = 50
) -> Maximum:
    """Maximise a likelihood minus ridge / 2 times the squared coefficients, by Newton steps with halving.

    Parameters
    ----------
    evaluate : callable
        Function from coefficients to the likelihood.
    start : array of shape (d,)
    ridge : float
    tol : float
        Largest change of a coefficient at convergence, unless rounding of the gradient explains more.
    max_steps : int
        Maximum number of evaluations.

    Returns
    -------
    Maximum
        Not converged if steps ran out, or a coefficient exceeds 50.

    Examples
    --------
    >>> def parabola(b):
    ...     return Likelihood(-float((b - 3.0) @ (b - 3.0)), 2 * (3.0 - b), 2 * np.eye(1))
    >>> maximise(parabola, np.zeros(1), 2.0).coefficients.round(9).tolist()
    [1.5]
    """
    best, step, step_size = start, np.zeros_like(start), 1.0
    objective, likelihood = -np.inf, evaluate(start)
    for _ in range(max_steps):
        proposal = best + step_size * step
        likelihood = evaluate(proposal) if step.any() else likelihood
        value = likelihood.value - 0.5 * ridge * float(proposal @ proposal)
        slack = OBJECTIVE_ROUNDING * (1.0 + abs(objective)) + 2.0 * likelihood.value_rounding
        if not value >= objective - slack:
            step_size /= 2.0
            continue
        best, objective, step_size = proposal, value, 1.0
        step = newton_step(likelihood, best, ridge)
        resolved = step_rounding(likelihood.information + ridge * np.eye(len(best)), likelihood.gradient_rounding)
        if (np.abs(step) < np.maximum(tol, resolved)).all():
            return Maximum(best + step, likelihood.information, True)
        if float(np.abs(best).max()) > MAX_COEFFICIENT:
            break
    return Maximum(best, likelihood.information, False)


# Tolerance for rounding errors of effective numbers and shares.
ROUNDING = 1e-6

# Share of a sum above which one patient dominates it.
DOMINANT = 0.5


def fewest_at_risk(patients: RiskSets, theta: Floats) -> float:
    """Return the smallest effective number of patients of a sum over those at risk; inf without patients.

    Examples
    --------
    >>> patients = RiskSets(np.zeros((3, 1)), np.array([2, 2, 1]), np.array([True, False, True]), 2)
    >>> fewest_at_risk(patients, np.ones(3)), round(fewest_at_risk(patients, np.array([1.0, 1e-3, 1.0])), 3)
    (2.0, 1.002)
    """
    shares = theta / max(float(theta.max(initial=0.0)), np.finfo(float).tiny)
    total, squares = patients.at_risk(shares), patients.at_risk(shares**2)
    has_patients = total > 0
    numbers = np.divide(total**2, squares, out=np.ones_like(total), where=squares > 0)
    return float(numbers[has_patients].min(initial=np.inf))


def is_dominated(cells: NDArray[np.int64], weights: Floats) -> bool:
    """Return True if one patient has more than half of the total weight in any cell.

    Parameters
    ----------
    cells : array of shape (n,)
        Cell of every patient, from 0.
    weights : array of shape (n,)
        Non-negative weights.

    Examples
    --------
    >>> is_dominated(np.array([0, 0, 1, 1]), np.ones(4)), is_dominated(np.array([0, 0, 1, 1]), np.array([1, 1, 1, 2.0]))
    (False, True)
    """
    total = np.bincount(cells, weights=weights)
    largest = np.zeros_like(total)
    np.maximum.at(largest, cells, weights)
    return bool((largest > (DOMINANT + ROUNDING) * total).any())
