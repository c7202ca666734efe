"""Mathematics of a fitted Cox model: standard errors, intervals, tests, residuals, and heterogeneity between sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from multicentre.statistics.chi_square import TestResult, chi_square_test
from multicentre.survival.kernels.partial_likelihood import Terms
from multicentre.survival.kernels.risk_sets import CHUNK, RiskSets, Sums
from multicentre.survival.times import kaplan_meier

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
TimeTransform = Literal["km", "rank", "identity", "log"]
TRANSFORMS: tuple[str, ...] = get_args(TimeTransform)
# Smallest information per event of a column with standard deviation 1.
FLAT = 1e-7
# Eigenvalues of the scaled information below this value mark columns that depend on each other.
DEPENDENT = 1e-8
# Largest distance from the maximum, in standard errors: an interval at 95 % shifted by this much still covers 94.3 %.
MAX_OFF = 0.25


SCORE_TEST = "score test of an effect that changes with time (cox.zph of R's survival since version 3)"
RESIDUAL_TEST = (
    "test of scaled Schoenfeld residuals with their mean variance (cox.zph of R's survival before version 3)"
)


def informed(information: Floats, n_events: float) -> Flags:
    """Flag columns that carry information, shape (d,): more than 1e-7 per event, for columns of standard deviation 1.

    Examples
    --------
    >>> informed(np.diag([40.0, 0.0]), 50.0).tolist()
    [True, False]
    """
    return np.asarray(np.diagonal(information) > FLAT * max(n_events, 1.0), dtype=np.bool_)


def dependent_columns(information: Floats) -> NDArray[np.int64]:
    """Return the places of linearly dependent columns, whose coefficients cannot be distinguished; empty as a rule.

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
    # Loadings below 5 % are rounding: such a column takes no part in the dependence.
    return np.flatnonzero((weak > 0.05).any(axis=1))


def identified(information: Floats, n_events: float) -> Flags:
    """Flag columns that are informed and linearly independent, shape (d,).

    Examples
    --------
    >>> identified(np.array([[9.0, 9.0, 0.0], [9.0, 9.0, 0.0], [0.0, 0.0, 4.0]]), 20.0).tolist()
    [False, False, True]
    """
    is_identified = informed(information, n_events)
    informed_places = np.flatnonzero(is_identified)
    is_identified[informed_places[dependent_columns(information[np.ix_(informed_places, informed_places)])]] = False
    return is_identified


def reliable(gradient: Floats, information: Floats, n_events: float) -> Flags:
    """Flag coefficients with valid standard errors and intervals, shape (d,).

    Such coefficients are identified, and lie within a quarter of a standard error of the maximum of the likelihood, as
    estimated by a Newton step. A penalty, a fit in one round, or rounds that ended early leave coefficients elsewhere.

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
    is_reliable = identified(information, n_events)
    inverse = np.linalg.pinv(information[np.ix_(is_reliable, is_reliable)], hermitian=True)
    is_reliable[is_reliable] = np.abs(inverse @ gradient[is_reliable]) <= MAX_OFF * np.sqrt(np.diagonal(inverse))
    return is_reliable


def covariance(information: Floats, alpha: float, estimable: Flags, scores: Floats | None = None) -> Floats:
    """Return the covariance of the coefficients, shape (d, d); NaN for columns that are not informed.

    The covariance is ``(I + K)^-1 B (I + K)^-1``, with the information I and the penalty K. B is the information, or
    the sum of the score residuals' products for the robust estimate of Lin and Wei.

    Examples
    --------
    >>> covariance(np.diag([4.0, 0.0]), 0.0, np.array([True, False])).tolist()
    [[0.25, nan], [nan, nan]]
    """
    block = np.ix_(estimable, estimable)
    bread = np.linalg.pinv(information[block] + alpha * np.eye(int(estimable.sum())), hermitian=True)
    meat = information if scores is None else scores
    result = np.full(information.shape, np.nan)
    result[block] = bread if scores is None and not alpha else bread @ meat[block] @ bread
    return result


def wald_p_values(coefficients: Floats, errors: Floats) -> Floats:
    """Return two-sided p-values of the null hypotheses that a coefficient is 0, shape (d,).

    Examples
    --------
    >>> wald_p_values(np.array([1.959964, 0.0]), np.array([1.0, np.nan])).round(3).tolist()
    [0.05, nan]
    """
    has_error = errors > 0
    ratios = np.divide(np.abs(coefficients), errors, out=np.full(errors.shape, np.nan), where=has_error)
    return np.asarray(2.0 * ndtr(-ratios), dtype=np.float64)


def hazard_ratios(coefficients: Floats, errors: Floats, level: float) -> Floats:
    """Return hazard ratios with Wald intervals, shape (d, 3): ratio, lower end, upper end.

    Examples
    --------
    >>> hazard_ratios(np.log([2.0]), np.zeros(1), 0.95).round(9).tolist()
    [[2.0, 2.0, 2.0]]
    """
    reach = ndtri(0.5 + 0.5 * level) * errors
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(np.column_stack([coefficients, coefficients - reach, coefficients + reach])))


def global_tests(
    coefficients: Floats, spread_of: Floats, likelihoods: tuple[float, float], first_score: float, n_informed: int
) -> dict[str, TestResult]:
    """Return the likelihood-ratio, Wald and score tests of the null hypothesis that all coefficients are 0.

    Parameters
    ----------
    coefficients : array of shape (d,)
    spread_of : array of shape (d, d)
        Their covariance.
    likelihoods : pair of float
        Log-likelihood at coefficients of 0, and at the estimates.
    first_score : float
        Gradient times inverse information times gradient, at coefficients of 0.
    n_informed : int
        Number of coefficients with information.

    Examples
    --------
    >>> tests = global_tests(np.array([1.0]), np.array([[0.25]]), (-10.0, -8.0), 3.9, 1)
    >>> {name: test.statistic for name, test in tests.items()}
    {'likelihood_ratio': 4.0, 'wald': 4.0, 'score': 3.9}
    """
    has_variance = ~np.isnan(np.diagonal(spread_of))
    block, estimates = spread_of[np.ix_(has_variance, has_variance)], coefficients[has_variance]
    statistics = {
        "likelihood_ratio": 2.0 * (likelihoods[1] - likelihoods[0]),
        "wald": float(estimates @ np.linalg.pinv(block, hermitian=True) @ estimates) if len(estimates) else np.nan,
        "score": first_score,
    }
    return {name: chi_square_test(value, n_informed) for name, value in statistics.items()}


def transform_times(
    times: Floats, events: Floats, at_risk: Floats, kind: TimeTransform, *, of_all: bool = False
) -> Floats:
    """Transform times to values from 0 to 1 for a test of proportional hazards, shape (K,).

    Parameters
    ----------
    times : array of shape (K,)
    events, at_risk : arrays of shape (K,)
    kind : {"km", "rank", "identity", "log"}
        1 minus the Kaplan-Meier estimate just before the time, the mean rank among the events (with `of_all`, among all
        patients), the time, or its logarithm. The test does not depend on the scale of the values.
    of_all : bool, default False

    Examples
    --------
    >>> transform_times(np.array([1.0, 2.0, 4.0]), np.ones(3), np.array([3.0, 2.0, 1.0]), "rank").tolist()
    [0.0, 0.5, 1.0]
    """
    if kind == "km":
        values = 1.0 - np.append(1.0, kaplan_meier(events, at_risk)[:-1])
    elif kind == "rank":
        values = at_risk[0] - at_risk + events / 2.0 if of_all else np.cumsum(events) - events / 2.0
    elif kind == "identity":
        values = times
    else:
        values = np.log(np.maximum(times, times[times > 0].min(initial=1.0)))
    values = values - values.min()
    return np.asarray(values / (values.max() or 1.0), dtype=np.float64)


def score_tests_of_proportionality(
    score: Floats, information: Floats, mixed: Floats, squared: Floats, is_informed: Flags
) -> tuple[dict[int, TestResult], TestResult]:
    """Return score tests of effects that change with a value of time, by place of the column, and for all columns.

    Parameters
    ----------
    score : array of shape (d,)
        Sum over the events of the Schoenfeld residuals times the value of the time.
    information, mixed, squared : arrays of shape (d, d)
        Sums over the events of the information, times 1, the value of the time, and its square.
    is_informed : array of shape (d,)

    Notes
    -----
    Equal to ``cox.zph`` of R's survival package since version 3.

    References
    ----------
    P. M. Grambsch, T. M. Therneau (1994), Proportional hazards tests and diagnostics based on weighted residuals,
    Biometrika 81, 515-526.

    Examples
    --------
    >>> one = np.ones((1, 1))
    >>> each, together = score_tests_of_proportionality(np.array([2.0]), one, one, 2 * one, np.array([True]))
    >>> each[0].statistic, together.statistic
    (4.0, 4.0)
    """
    places = np.flatnonzero(is_informed)
    block = np.ix_(places, places)
    mixed_block, informed_score = mixed[block], score[places]
    explained = mixed_block @ np.linalg.pinv(information[block], hermitian=True) @ mixed_block.T
    variance = squared[block] - explained
    statistics = informed_score**2 / np.diagonal(variance)
    each = {int(place): chi_square_test(value, 1, SCORE_TEST) for place, value in zip(places, statistics, strict=True)}
    together = float(informed_score @ np.linalg.pinv(variance, hermitian=True) @ informed_score)
    return each, chi_square_test(together, len(places), SCORE_TEST)


def proportionality_tests(
    weighted: Floats, spread_of: Floats, n_events: float, squares: float
) -> tuple[dict[int, TestResult], TestResult]:
    """Return the Grambsch-Therneau tests of proportional hazards, by place of the column, and for all columns.

    Parameters
    ----------
    weighted : array of shape (d,)
        Sum over the events of the Schoenfeld residuals times the value of the time minus its mean.
    spread_of : array of shape (d, d)
        Covariance of the coefficients.
    n_events : float
    squares : float
        Sum of squares of the values minus their mean.

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
    places = np.flatnonzero(~np.isnan(np.diagonal(spread_of)))
    block, informed_sums = spread_of[np.ix_(places, places)], weighted[places]
    factor = n_events / squares if squares > 0 else np.nan
    slopes = block @ informed_sums
    statistics = slopes**2 / np.diagonal(block) * factor
    each = {
        int(place): chi_square_test(value, 1, RESIDUAL_TEST) for place, value in zip(places, statistics, strict=True)
    }
    return each, chi_square_test(float(informed_sums @ slopes) * factor, len(places), RESIDUAL_TEST)


@dataclass(frozen=True)
class RiskMeans:
    """Sums over the risk sets of all sites from which residuals are computed.

    Parameters
    ----------
    first, first_tied : arrays of shape (K,)
        Increment of the hazard of those at risk at each time, and its reduction for those with the event at the time.
    mean : array of shape (K, d)
        Mean of the columns over those at risk, weighted by hazard; 0 where there is no event.
    mean_hazard, mean_hazard_tied : arrays of shape (K, d)
        Sums over the terms of each time of the mean times the increment of the term, and the reduction of that sum.
    """

    first: Floats
    first_tied: Floats
    mean: Floats
    mean_hazard: Floats
    mean_hazard_tied: Floats


def risk_means(events: Floats, sums: Sums, terms: Terms) -> RiskMeans:
    """Return the means over risk sets, averaged over the terms of tied events.

    Parameters
    ----------
    events : array of shape (K,)
        Number of events, or the sum of their weights.
    sums : Sums
    terms : Terms

    Examples
    --------
    >>> from multicentre.survival.kernels.partial_likelihood import sum_terms
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([1, 1]), np.array([True, False]), 1)
    >>> terms = sum_terms(patients.tables(np.ones(2), "breslow"))
    >>> risk_means(patients.events, patients.sums(np.ones(2), "breslow"), terms).mean.tolist()
    [[2.0]]
    """
    risk, tied = sums.risk, sums.tied
    total = terms.first[:, None] * risk - terms.first_tied[:, None] * tied
    mean = np.divide(total, events[:, None], out=np.zeros_like(total), where=terms.first[:, None] > 0)
    return RiskMeans(
        terms.first,
        terms.first_tied,
        mean,
        terms.second[:, None] * risk - terms.second_tied[:, None] * tied,
        terms.second_tied[:, None] * risk - terms.second_both[:, None] * tied,
    )


def score_products(
    patients: RiskSets,
    theta: Floats,
    means: RiskMeans,
    clusters: NDArray[np.int64] | None = None,
    *,
    frequency: bool = False,
) -> Floats:
    """Sum the outer products of the score residuals of patients, or of clusters of patients, shape (d, d).

    Parameters
    ----------
    patients : RiskSets
    theta : array of shape (n,)
    means : RiskMeans
    clusters : array of shape (n,), optional
        Number of each patient's cluster, from 0.
    frequency : bool, default False
        Weights are numbers of patients: a product counts that many times.

    References
    ----------
    D. Y. Lin, L. J. Wei (1989), The robust inference for the Cox proportional hazards model, Journal of the American
    Statistical Association 84, 1074-1078. With Efron's ties as in T. M. Therneau, P. M. Grambsch (2000), Modeling
    survival data, section 4.2.

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([1, 1]), np.array([True, False]), 1)
    >>> means = RiskMeans(np.array([0.5]), np.zeros(1), np.array([[2.0]]), np.array([[1.0]]), np.zeros((1, 1)))
    >>> score_products(patients, np.ones(2), means).tolist()
    [[0.5]]
    """
    d = patients.rows.shape[1]
    total, of_clusters = np.zeros((d, d)), np.zeros((0 if clusters is None else int(clusters.max()) + 1, d))
    divisors = np.sqrt(np.where(patients.weights > 0, patients.weights, 1.0)) if frequency else None
    for start in range(0, len(patients.rows), CHUNK):
        chosen = slice(start, start + CHUNK)
        residuals = score_residuals(patients, theta, means, chosen)
        if clusters is not None:
            np.add.at(of_clusters, clusters[chosen], residuals)
            continue
        if divisors is not None:
            residuals = residuals / divisors[chosen, None]
        total += residuals.T @ residuals
    return total if clusters is None else of_clusters.T @ of_clusters


def score_sizes(patients: RiskSets, theta: Floats, means: RiskMeans) -> Floats:
    """Return the norm of each patient's score residuals, shape (n,), which is the patient's weight in their products.

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([1, 1]), np.array([True, False]), 1)
    >>> means = RiskMeans(np.array([0.5]), np.zeros(1), np.array([[2.0]]), np.array([[1.0]]), np.zeros((1, 1)))
    >>> score_sizes(patients, np.ones(2), means).tolist()
    [0.5, 0.5]
    """
    chunks = [slice(start, start + CHUNK) for start in range(0, len(patients.rows), CHUNK)]
    sizes = [np.linalg.norm(score_residuals(patients, theta, means, chunk), axis=1) for chunk in chunks]
    return np.concatenate([np.zeros(0), *sizes])


def score_residuals(patients: RiskSets, theta: Floats, means: RiskMeans, chosen: slice) -> Floats:
    """Return the weighted score residuals of a slice of patients, shape (m, d); all of them sum to the gradient.

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([1, 1]), np.array([True, False]), 1)
    >>> means = RiskMeans(np.array([0.5]), np.zeros(1), np.array([[2.0]]), np.array([[1.0]]), np.zeros((1, 1)))
    >>> score_residuals(patients, np.ones(2), means, slice(None)).tolist()
    [[-0.5], [-0.5]]
    """
    rows, reached, happened = patients.rows[chosen], patients.reached[chosen], patients.happened[chosen]
    cumulated = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(means.mean_hazard, axis=0)])[reached]
    hazard = np.concatenate([[0.0], np.cumsum(means.first)])[reached]
    place = reached[happened] - 1
    hazard[happened] -= means.first_tied[place]
    cumulated[happened] -= means.mean_hazard_tied[place]
    residuals = -theta[chosen, None] * (rows * hazard[:, None] - cumulated)
    residuals[happened] += patients.weights[chosen][happened, None] * (rows[happened] - means.mean[place])
    return np.asarray(residuals, dtype=np.float64)


def schoenfeld_sums(patients: RiskSets, mean: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Sum Schoenfeld residuals over the events, and their products with a value per patient, shape (d,) each.

    Parameters
    ----------
    patients : RiskSets
    mean : array of shape (K, d)
        Mean over each risk set.
    values : array of shape (n,)

    References
    ----------
    D. Schoenfeld (1982), Partial residuals for the proportional hazards regression model, Biometrika 69, 239-241.

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([1, 1]), np.array([True, False]), 1)
    >>> [each.tolist() for each in schoenfeld_sums(patients, np.array([[2.0]]), np.array([0.5, 0.0]))]
    [[-1.0], [-0.5]]
    """
    happened = patients.happened
    residuals = patients.rows[happened] - mean[patients.reached[happened] - 1]
    residuals = residuals * patients.weights[happened, None]
    return residuals.sum(axis=0), values[happened] @ residuals
