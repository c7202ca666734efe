"""Meta-analysis of estimates: fixed and random effects, heterogeneity, prediction interval.

References
----------
.. [1] R. DerSimonian, N. Laird (1986), Meta-analysis in clinical trials, Controlled Clinical Trials 7, 177-188.
.. [2] W. Viechtbauer (2005), Bias and efficiency of meta-analytic variance estimators in the random-effects model,
   Journal of Educational and Behavioral Statistics 30, 261-293.
.. [3] J. Hartung, G. Knapp (2001), A refined method for the meta-analysis of controlled clinical trials with binary
   outcome, Statistics in Medicine 20, 3875-3889.
.. [4] J. P. T. Higgins, S. G. Thompson (2002), Quantifying heterogeneity in a meta-analysis, Statistics in Medicine 21,
   1539-1558.
.. [5] C. Roever, G. Knapp, T. Friede (2015), Hartung-Knapp-Sidik-Jonkman approach and its modification for
   random-effects meta-analysis with few studies, BMC Medical Research Methodology 15, 99.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm, t

from multicentre.errors import name_some

Floats = NDArray[np.float64]
TauMethod = Literal["REML", "DL"]
HartungKnapp = bool | Literal["adhoc"]
# Relative change of the variance between sites at which scoring ends, and the most steps; scoring needs about ten.
REML_TOL, REML_STEPS = 1e-12, 1000
# Variances between sites at which the likelihood is compared before scoring, because it can have several maxima: from
# this share of the smallest variance to the squared range of the estimates, about ten or more per decade.
MIN_SHARE, N_STARTS = 1e-3, 241
# Relative difference between the lengths of two intervals that rounding can explain.
NARROW = 1e-9


@dataclass(frozen=True)
class Mean:
    """Combined estimate.

    Parameters
    ----------
    value, standard_error : float
    lower, upper : float
        Limits of its interval.
    p_value : float
        Two-sided test that it is 0.
    """

    value: float
    standard_error: float
    lower: float
    upper: float
    p_value: float


@dataclass(frozen=True)
class Pooled:
    """Meta-analysis of the estimates of k sites.

    Parameters
    ----------
    k : int
        Number of estimates.
    fixed, random : Mean
        Combined estimates under fixed and random effects.
    tau_squared : float
        Variance between sites; NaN for one estimate, as are all measures of heterogeneity.
    q, q_p_value : float
        Cochran's Q, and its p-value with k - 1 degrees of freedom.
    i_squared, h_squared : float
        Variance between sites as a share of the total variance, and the total variance as a multiple of the variance
        within a typical site.
    prediction : (float, float)
        Prediction interval of the true value of a new site; NaN for one estimate.
    """

    k: int
    fixed: Mean
    random: Mean
    tau_squared: float
    q: float
    q_p_value: float
    i_squared: float
    h_squared: float
    prediction: tuple[float, float]

    def limits(self) -> list[str]:
        """Return a sentence per limit of the combined estimates: one site, no estimated variance, narrow interval."""
        if self.k == 1:
            return ["Only 1 site has an estimate: there is nothing to combine, and heterogeneity is not defined."]
        sentences = []
        if self.k == 2 and not self.tau_squared:
            sentences.append(
                "The variance between two sites is estimated as 0: random effects are the fixed effect, and a new site "
                "may differ more."
            )
        if self.random.upper - self.random.lower < (1.0 - NARROW) * (self.fixed.upper - self.fixed.lower):
            sentences.append(
                "The Hartung-Knapp interval is narrower than that of the fixed effect, because the sites agree more "
                'than by chance; hartung_knapp="adhoc" of combine avoids this.'
            )
        return sentences


def pool(
    estimates: Floats,
    errors: Floats,
    *,
    method: TauMethod = "REML",
    hartung_knapp: HartungKnapp = True,
    confidence_level: float = 0.95,
) -> Pooled:
    """Combine estimates of sites.

    Parameters
    ----------
    estimates, errors : arrays of shape (k,)
        Estimates and their standard errors, finite and above 0; k is at least 1.
    method : {"REML", "DL"}, default "REML"
        Estimator of the variance between sites: restricted maximum likelihood [2]_, or DerSimonian and Laird [1]_.
    hartung_knapp : bool or "adhoc", default True
        Standard errors of random effects from the observed spread, with t distributions [3]_; not for one estimate.
        With "adhoc", the factor of the squared standard error is at least 1 [5]_.
    confidence_level : float, default 0.95

    Examples
    --------
    >>> pooled = pool(np.array([0.0, 4.0]), np.ones(2), method="DL", hartung_knapp=False)
    >>> pooled.fixed.value, pooled.q, pooled.i_squared, pooled.tau_squared
    (2.0, 8.0, 0.875, 7.0)
    """
    variances, k, nan = errors**2, len(estimates), float("nan")
    q = cochran_q(estimates, variances)
    tau_squared = 0.0 if k < 2 else {"DL": dersimonian_laird, "REML": reml}[method](estimates, variances)
    level = 0.5 + confidence_level / 2.0
    fixed = _mean(estimates, 1.0 / variances, 1.0, float(norm.ppf(level)), None)
    weights = 1.0 / (variances + tau_squared)
    factor, freedom, quantile = 1.0, None, float(norm.ppf(level))
    if hartung_knapp and k > 1:
        factor = max(cochran_q(estimates, 1.0 / weights) / (k - 1.0), float(hartung_knapp == "adhoc"))
        freedom, quantile = k - 1, float(t.ppf(level, k - 1))
    random = _mean(estimates, weights, factor, quantile, freedom)
    half = quantile * float(np.sqrt(random.standard_error**2 + tau_squared))
    typical = typical_variance(variances)
    return Pooled(
        k,
        fixed,
        random,
        *(
            (
                tau_squared,
                q,
                float(chi2.sf(q, k - 1)),
                tau_squared / (tau_squared + typical),
                1.0 + tau_squared / typical,
            )
            if k > 1
            else (nan,) * 5
        ),
        (random.value - half, random.value + half) if k > 1 else (nan, nan),
    )


def describe_limits(limits: Mapping[str, Sequence[str]]) -> list[str]:
    """Return each sentence on limits once, after the names that it concerns.

    Examples
    --------
    >>> describe_limits({"age": ["Only 1 site."], "sex": ["Only 1 site."], "dose": []})
    ['age, sex: Only 1 site.']
    """
    names: dict[str, list[str]] = {}
    for name, sentences in limits.items():
        for sentence in sentences:
            names.setdefault(sentence, []).append(name)
    return [f"{name_some(each)}: {sentence}" if any(each) else sentence for sentence, each in names.items()]


def leave_one_out(
    estimates: Floats,
    errors: Floats,
    *,
    method: TauMethod = "REML",
    hartung_knapp: HartungKnapp = True,
    confidence_level: float = 0.95,
) -> list[Pooled]:
    """Return the meta-analyses without each of the estimates; parameters as for :func:`pool`, k at least 2.

    Examples
    --------
    >>> [pooled.fixed.value for pooled in leave_one_out(np.array([1.0, 2.0, 3.0]), np.ones(3))]
    [2.5, 2.0, 1.5]
    """
    places = np.arange(len(estimates))
    return [
        pool(
            estimates[places != place],
            errors[places != place],
            method=method,
            hartung_knapp=hartung_knapp,
            confidence_level=confidence_level,
        )
        for place in places
    ]


def cochran_q(estimates: Floats, variances: Floats) -> float:
    """Return the weighted sum of squared differences from the weighted mean.

    Examples
    --------
    >>> cochran_q(np.array([0.0, 4.0]), np.ones(2))
    8.0
    """
    weights = 1.0 / variances
    return float(weights @ residuals(estimates, weights) ** 2)


def residuals(estimates: Floats, weights: Floats) -> Floats:
    """Return the differences of estimates from their weighted mean, shape (k,).

    They follow from differences of pairs: subtraction of the mean would leave rounding where one weight dominates.

    Examples
    --------
    >>> residuals(np.array([0.0, 4.0]), np.array([3.0, 1.0])).tolist()
    [-1.0, 3.0]
    """
    return np.asarray((estimates[:, None] - estimates) @ weights / weights.sum(), dtype=np.float64)


def typical_variance(variances: Floats) -> float:
    """Return the variance within a typical site [4]_.

    Examples
    --------
    >>> typical_variance(np.array([2.0, 2.0, 2.0]))
    2.0
    """
    scale = float(_projection(1.0 / variances).trace())
    return (len(variances) - 1.0) / scale if scale > 0 else float("nan")


def dersimonian_laird(estimates: Floats, variances: Floats) -> float:
    """Return the variance between sites by the method of moments [1]_.

    Examples
    --------
    >>> dersimonian_laird(np.array([0.0, 4.0]), np.ones(2))
    7.0
    """
    freedom = len(estimates) - 1.0
    excess = cochran_q(estimates, variances) - freedom
    return float(max(excess * typical_variance(variances) / freedom, 0.0))


def reml(estimates: Floats, variances: Floats) -> float:
    """Return the variance between sites by restricted maximum likelihood, via Fisher scoring [2]_.

    Scoring begins at the best of several variances, since the likelihood can have several maxima. A step that would
    lower it is halved.

    Examples
    --------
    >>> round(reml(np.array([0.0, 4.0]), np.ones(2)), 6)
    7.0
    """
    starts = _starts(estimates, variances)
    tau_squared = max(starts, key=lambda start: _restricted_likelihood(start, estimates, variances))
    scale = float(variances.max()) + tau_squared
    value = _restricted_likelihood(tau_squared, estimates, variances)
    for _ in range(REML_STEPS):
        step = _scoring_step(tau_squared, estimates, variances)
        candidate = max(tau_squared + step, 0.0)
        reached = _restricted_likelihood(candidate, estimates, variances)
        while reached < value and abs(candidate - tau_squared) > REML_TOL * scale:
            candidate = (candidate + tau_squared) / 2.0
            reached = _restricted_likelihood(candidate, estimates, variances)
        change, tau_squared, value = abs(candidate - tau_squared), candidate, reached
        if change <= REML_TOL * scale:
            break
    return tau_squared


def _starts(estimates: Floats, variances: Floats) -> list[float]:
    """Return variances between sites at which scoring can begin."""
    lowest, highest = MIN_SHARE * float(variances.min()), float(np.ptp(estimates)) ** 2
    grid = np.geomspace(lowest, highest, N_STARTS).tolist() if highest > lowest else []
    return [0.0, dersimonian_laird(estimates, variances), *grid]


def _scoring_step(tau_squared: float, estimates: Floats, variances: Floats) -> float:
    weights = 1.0 / (variances + tau_squared)
    projection = _projection(weights)
    score = float(weights**2 @ residuals(estimates, weights) ** 2) - float(projection.trace())
    return score / float((projection**2).sum())


def _projection(weights: Floats) -> Floats:
    """Return the projection that removes the weighted mean, times the weights, shape (k, k).

    The diagonal is a sum over the other weights: the difference of two large numbers would be 0 where one dominates.
    """
    matrix = -np.outer(weights, weights / weights.sum())
    others = np.outer(np.ones(len(weights)), weights)
    np.fill_diagonal(others, 0.0)
    np.fill_diagonal(matrix, weights * others.sum(axis=1) / weights.sum())
    return matrix


def _restricted_likelihood(tau_squared: float, estimates: Floats, variances: Floats) -> float:
    spread = variances + tau_squared
    return float(-0.5 * (np.log(spread).sum() + np.log((1.0 / spread).sum()) + cochran_q(estimates, spread)))


def _mean(estimates: Floats, weights: Floats, factor: float, quantile: float, freedom: int | None) -> Mean:
    value = float(weights @ estimates / weights.sum())
    error = float(np.sqrt(factor / weights.sum()))
    # Equal estimates have a Hartung-Knapp error of 0, and no test.
    statistic = abs(value) / error if error > 0 else float("nan")
    p_value = 2.0 * float(norm.sf(statistic) if freedom is None else t.sf(statistic, freedom))
    return Mean(value, error, value - quantile * error, value + quantile * error, p_value)
