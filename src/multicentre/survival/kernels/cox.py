"""Cox's partial likelihood from totals over risk sets, and its maximum for the patients of one site.

Efron's correction for ties replaces S by S - (l / m) E in the l-th (from 0) of the m terms of a time, m being its
number of events; Breslow's has m equal terms. Weighted events of one time share their mean weight.

References
----------
D. R. Cox (1975), Partial likelihood, Biometrika 62, 269-276. B. Efron (1977), The efficiency of Cox's likelihood
function for censored data, Journal of the American Statistical Association 72, 557-565.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from multicentre.survival.kernels.risk_sets import RiskSets, Sums, Tables, Ties, weighted_products

Floats = NDArray[np.float64]

LARGEST_STEP = 1.0

LARGEST_COEFFICIENT = 50.0

NEGLIGIBLE = 1e-10

NOISE = 1e-10

EVERY = slice(None)


@dataclass(frozen=True)
class Terms:
    """Sums over the terms of each time of powers of 1 / S0, each of shape (K,).

    Parameters
    ----------
    log : array
        Sum of log S0.
    first, first_tied : array
        Sums of 1 / S0 and of (l / m) / S0: what a time adds to the hazard of those at risk, and how much less for
        those with the event then.
    second, second_tied, second_both : array
        Sums of 1, l / m and (l / m) squared over S0 squared.
    """

    log: Floats
    first: Floats
    first_tied: Floats
    second: Floats
    second_tied: Floats
    second_both: Floats


@dataclass(frozen=True)
class Likelihood:
    """The log partial likelihood at some coefficients, and its derivatives.

    Parameters
    ----------
    value : float
    gradient : array of shape (d,)
    information : array of shape (d, d)
        Minus the second derivatives.
    """

    value: float
    gradient: Floats
    information: Floats


@dataclass(frozen=True)
class Maximum:
    """Where a penalised likelihood is largest.

    Parameters
    ----------
    coefficients : array of shape (d,)
    information : array of shape (d, d)
        There, without the penalty.
    converged : bool
    """

    coefficients: Floats
    information: Floats
    converged: bool


def sum_terms(tables: Tables) -> Terms:
    """Return the sums over terms from totals over the sites; a time without events adds nothing.

    Examples
    --------
    >>> one = np.ones(1)
    >>> sum_terms(Tables(2 * one, 2 * one, 4 * one, 2 * one)).first.round(6).tolist()
    [0.583333]
    """
    known = (tables.risk > 0) & (tables.n_events > 0.5)
    if not tables.tied.any():
        return _breslow_terms(tables, known)
    counts = np.where(known, np.round(tables.n_events), 0.0).astype(np.int64)
    time = np.repeat(np.arange(len(counts)), counts)
    share = (np.arange(len(time)) - np.repeat(np.cumsum(counts) - counts, counts)) / counts[time]
    risk = tables.risk[time] - share * tables.tied[time]
    weight = tables.events[time] / counts[time]

    def total(values: Floats) -> Floats:
        return np.bincount(time, weights=weight * values, minlength=len(counts)).astype(np.float64)

    squared = 1.0 / risk**2
    first = total(1.0 / risk), total(share / risk)
    return Terms(total(np.log(risk)), *first, total(squared), total(share * squared), total(share**2 * squared))


def _breslow_terms(tables: Tables, known: NDArray[np.bool_]) -> Terms:
    nothing = np.zeros(len(tables.risk))
    risk, events = np.where(known, tables.risk, 1.0), np.where(known, tables.events, 0.0)
    return Terms(events * np.log(risk), events / risk, nothing, events / risk**2, nothing, nothing)


def gradient(event_sum: Floats, sums: Sums, terms: Terms) -> Floats:
    """Return the first derivatives of the log partial likelihood, shape (d,).

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


def squared_means(sums: Sums, terms: Terms, times: slice = EVERY) -> Floats:
    """Return the sum over times and terms of S1 times S1 transposed over S0 squared, shape (d, d).

    The information is the sum of S2 over S0, which is one of products of all rows weighted by
    :meth:`RiskSets.own_hazards`, less this.

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


def derive(patients: RiskSets, coefficients: Floats, ties: Ties) -> Likelihood:
    """Return the log partial likelihood of one site's patients and its derivatives.

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([2, 1]), np.array([True, True]), 2)
    >>> found = derive(patients, np.zeros(1), "breslow")
    >>> round(found.value, 6), found.gradient.tolist(), found.information.tolist()
    (-0.693147, [1.0], [[1.0]])
    """
    theta, shift = hazard_ratios(patients, coefficients)
    terms = sum_terms(patients.tables(theta, ties))
    hazards = patients.own_hazards(theta, terms.first, terms.first_tied)
    curvature = weighted_products(patients.rows, hazards)
    for times, sums in patients.blocks(theta, ties):
        curvature -= squared_means(sums, terms, times)
    value = patients.event_sum @ coefficients - terms.log.sum() - shift * patients.events.sum()
    return Likelihood(float(value), patients.event_sum - hazards @ patients.rows, curvature)


def hazard_ratios(patients: RiskSets, coefficients: Floats) -> tuple[Floats, float]:
    """Return weights times hazard ratios, the largest ratio being 1, shape (n,), and the logarithm of what they lack.

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([2, 1]), np.array([True, True]), 2)
    >>> theta, shift = hazard_ratios(patients, np.array([1000.0]))
    >>> theta.tolist(), shift
    ([0.0, 1.0], 3000.0)
    """
    scores = patients.rows @ coefficients
    shift = float(scores.max(initial=0.0))
    return patients.weights * np.exp(scores - shift), shift


def newton_step(found: Likelihood, coefficients: Floats, ridge: float) -> Floats:
    """Return the step of Newton and Raphson for the penalised likelihood, shape (d,), no component above 1.

    Directions that carry no information are left alone.

    Examples
    --------
    >>> newton_step(Likelihood(0.0, np.array([1.0, 0.0]), np.diag([2.0, 0.0])), np.zeros(2), 0.0).tolist()
    [0.5, 0.0]
    """
    slope = found.gradient - ridge * coefficients
    curvature = found.information + ridge * np.eye(len(coefficients))
    step = _solve(curvature, slope)
    return np.asarray(step * min(1.0, LARGEST_STEP / max(float(np.abs(step).max(initial=0.0)), LARGEST_STEP)))


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
    """Climb a likelihood less ridge / 2 times the squared coefficients, halving steps that lead down.

    Parameters
    ----------
    evaluate : callable
        From coefficients to the likelihood there.
    start : array of shape (d,)
    ridge : float
    tol : float
        The climb ends when no coefficient would change by more.
    max_steps : int
        Evaluations, at most.

    Returns
    -------
    Maximum
        Not converged where steps ran out, or a coefficient is beyond 50.

    Examples
    --------
    >>> def parabola(b):
    ...     return Likelihood(-float((b - 3.0) @ (b - 3.0)), 2 * (3.0 - b), 2 * np.eye(1))
    >>> maximise(parabola, np.zeros(1), 2.0).coefficients.round(9).tolist()
    [1.5]
    """
    best, step, share = start, np.zeros_like(start), 1.0
    reached, found = -np.inf, evaluate(start)
    for _ in range(max_steps):
        tried = best + share * step
        found = evaluate(tried) if step.any() else found
        value = found.value - 0.5 * ridge * float(tried @ tried)
        if not value >= reached - NOISE * (1.0 + abs(reached)):
            share /= 2.0
            continue
        best, reached, share = tried, value, 1.0
        step = newton_step(found, best, ridge)
        if float(np.abs(step).max(initial=0.0)) < tol:
            return Maximum(best + step, found.information, True)
        if float(np.abs(best).max()) > LARGEST_COEFFICIENT:
            break
    return Maximum(best, found.information, False)


ROUNDING = 1e-6

DOMINANT = 0.5


def effective_number(weights: Floats) -> float:
    """Return the effective number of patients behind a sum with such weights, (sum w)^2 / sum w^2; inf without any.

    References
    ----------
    L. Kish (1965), Survey Sampling, Wiley, section 11.7.

    Examples
    --------
    >>> effective_number(np.array([2.0, 2.0, 2.0])), effective_number(np.array([1.0, 0.0]))
    (3.0, 1.0)
    """
    largest = float(np.abs(weights).max(initial=0.0))
    if not largest:
        return float("inf")
    shares = weights / largest
    return float(shares.sum() ** 2 / (shares @ shares))


def fewest_at_risk(patients: RiskSets, theta: Floats) -> float:
    """Return the smallest effective number of patients behind a sum over those at risk; inf without anybody.

    Examples
    --------
    >>> patients = RiskSets(np.zeros((3, 1)), np.array([2, 2, 1]), np.array([True, False, True]), 2)
    >>> fewest_at_risk(patients, np.ones(3)), round(fewest_at_risk(patients, np.array([1.0, 1e-3, 1.0])), 3)
    (2.0, 1.002)
    """
    shares = theta / max(float(theta.max(initial=0.0)), np.finfo(float).tiny)
    total, squares = patients.at_risk(shares), patients.at_risk(shares**2)
    known = total > 0
    numbers = np.divide(total**2, squares, out=np.ones_like(total), where=squares > 0)
    return float(numbers[known].min(initial=np.inf))


def is_dominated(cells: NDArray[np.int64], weights: Floats) -> bool:
    """Return whether one patient's weight is more than half of all in any cell.

    Parameters
    ----------
    cells : array of shape (n,)
        Cell of every patient, from 0.
    weights : array of shape (n,)
        0 or more.

    Examples
    --------
    >>> is_dominated(np.array([0, 0, 1, 1]), np.ones(4)), is_dominated(np.array([0, 0, 1, 1]), np.array([1, 1, 1, 2.0]))
    (False, True)
    """
    total = np.bincount(cells, weights=weights)
    largest = np.zeros_like(total)
    np.maximum.at(largest, cells, weights)
    return bool((largest > (DOMINANT + ROUNDING) * total).any())
