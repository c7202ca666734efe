"""Scores of noised answers for the presence of one patient, and the lower bound on epsilon that they prove.

An attacker who knows every other patient, the canary and the law of the noise scores a transcript by the log-likelihood
ratio of "the canary was present" against "it was absent", the most powerful test of the two (Neyman and Pearson). Under
(epsilon, delta)-differential privacy, every test satisfies ``true positives <= exp(epsilon) false positives + delta``.
Counted positives therefore bound epsilon from below.

References
----------
.. [1] Clopper, Pearson (1934). The use of confidence or fiducial limits illustrated in the case of the binomial.
   Biometrika 26(4).
.. [2] Dong, Roth, Su (2022). Gaussian differential privacy. J. R. Stat. Soc. B 84(1), 3-37.
.. [3] Jagielski, Ullman, Oprea (2020). Auditing differentially private machine learning: how private is private SGD?
   NeurIPS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.core.noise_plan import Mechanism

Floats = NDArray[np.float64]
Prediction = Literal["present", "absent"]


@dataclass(frozen=True)
class Attack:
    """Test for the canary, with the bound that its hits and false alarms prove.

    Parameters
    ----------
    predicts : {"present", "absent"}
        Prediction of the test: "present" for a score above the threshold, "absent" for a score below.
    threshold : float
    hits, false_alarms : int
        Number of correct and of wrong predictions.
    n_hit, n_false : int
        Number of runs for each.
    epsilon : float
        Lower bound on epsilon, at least 0.
    """

    predicts: Prediction
    threshold: float
    hits: int
    n_hit: int
    false_alarms: int
    n_false: int
    epsilon: float


@dataclass(frozen=True)
class Separation:
    """Distance between scores with the canary and without.

    Parameters
    ----------
    d_prime : float
        Difference of the means in units of the pooled standard deviation; infinite if scores do not vary.
    standard_error : float
        Standard error of `d_prime`, for normal scores.
    auc : float
        Probability that a run with the canary scores higher than one without; ties count half.
    """

    d_prime: float
    standard_error: float
    auc: float


def log_likelihood_ratio(
    noised: ArrayLike, without: ArrayLike, difference: ArrayLike, scale: float, mechanism: Mechanism
) -> float:
    """Return log P(noised | with the canary) - log P(noised | without) of one field.

    With m the field without the canary and v its difference, Gaussian noise gives ``(x - m - v/2) . v / scale**2`` and
    Laplace noise ``sum(|x - m| - |x - m - v|) / scale``. Both also hold for the discrete laws on a grid.

    Parameters
    ----------
    noised, without, difference : arrays of one shape
    scale : float, > 0
        Standard deviation of a Gaussian, or scale of a Laplace law.
    mechanism : {"gaussian", "laplace"}

    Examples
    --------
    >>> log_likelihood_ratio([1.0, 0.0], [0.0, 0.0], [1.0, 0.0], 1.0, "gaussian")
    0.5
    """
    x, m, v = (np.asarray(part, dtype=np.float64).ravel() for part in (noised, without, difference))
    if mechanism == "laplace":
        return float(np.sum(np.abs(x - m) - np.abs(x - m - v)) / scale)
    return float(((x - m) / scale - 0.5 * v / scale) @ (v / scale))


def separation(with_canary: ArrayLike, without: ArrayLike) -> Separation:
    """Return the distance between two sets of scores.

    Notes
    -----
    For normal scores the variance of d' is about ``1/n + 1/m + d'**2 / (2 (n + m))``. Under mu-GDP with Gaussian noise,
    and the log-likelihood ratio as score, d' is at most mu; the area under the curve is then ``Phi(mu / sqrt(2))``.

    Examples
    --------
    >>> distance = separation([1.0, 2.0, 3.0], [0.0, 1.0, 2.0])
    >>> distance.d_prime, round(distance.auc, 3)
    (1.0, 0.778)
    """
    from scipy.stats import rankdata

    one, other = np.asarray(with_canary, dtype=np.float64), np.asarray(without, dtype=np.float64)
    n, m = len(one), len(other)
    spread = math.sqrt(0.5 * (one.var(ddof=1) + other.var(ddof=1)))
    difference = float(one.mean() - other.mean())
    d = difference / spread if spread > 0 else math.copysign(math.inf, difference) if difference else 0.0
    error = math.sqrt(1 / n + 1 / m + d * d / (2 * (n + m)))
    auc = (rankdata(np.concatenate([one, other]))[:n].sum() - n * (n + 1) / 2) / (n * m)
    return Separation(d, error, float(auc))


def auc_of_gdp(mu: float) -> float:
    """Return the area under the ROC curve of two unit normal laws at distance `mu`, ``Phi(mu / sqrt(2))``.

    Examples
    --------
    >>> round(auc_of_gdp(1.666), 3)
    0.881
    """
    return 0.5 * math.erfc(-mu / 2)


def lower_bound(with_canary: ArrayLike, without: ArrayLike, delta: float, confidence: float = 0.95) -> Attack:
    """Return the test that half of the runs choose, and the epsilon that the other half proves.

    Parameters
    ----------
    with_canary, without : arrays of shape (n,) and (m,), at least 2 each
        Scores of independent runs, in any order.
    delta : float, in [0, 1)
    confidence : float, in (0, 1), default 0.95
        Probability with which the bound holds, whatever the scores are.

    Notes
    -----
    Every second run, from the first, is used to choose threshold and direction ("present" above or "absent" below),
    such that the bound would be largest. The other runs count hits and false alarms. With an error of
    ``(1 - confidence) / 2`` for each, the rate of hits is bounded from below and that of false alarms from above [1]_.
    Then ``epsilon >= log((hits - delta) / false alarms)`` [3]_.

    Examples
    --------
    >>> attack = lower_bound(np.arange(200) + 1000.0, np.arange(200.0), delta=1e-5)
    >>> attack.hits, attack.false_alarms, round(attack.epsilon, 2)
    (100, 0, 3.28)
    """
    one, other = np.asarray(with_canary, dtype=np.float64), np.asarray(without, dtype=np.float64)
    predicts, threshold = _choose(one[::2], other[::2], delta, confidence)
    hit_scores, alarm_scores = (one[1::2], other[1::2]) if predicts == "present" else (-other[1::2], -one[1::2])
    limit = threshold if predicts == "present" else -threshold
    hits, false_alarms = int(np.sum(hit_scores > limit)), int(np.sum(alarm_scores > limit))
    proven = float(_proven_epsilon(hits, len(hit_scores), false_alarms, len(alarm_scores), delta, confidence))
    return Attack(predicts, threshold, hits, len(hit_scores), false_alarms, len(alarm_scores), max(proven, 0.0))


def largest_bound(n_runs: int, delta: float, confidence: float = 0.95) -> float:
    """Return the largest bound that `n_runs` with the canary and `n_runs` without can prove.

    Examples
    --------
    >>> round(largest_bound(500, 1e-5), 2)
    4.21
    """
    half = n_runs // 2
    return max(0.0, float(_proven_epsilon(half, half, 0, half, delta, confidence)))


def _choose(one: Floats, other: Floats, delta: float, confidence: float) -> tuple[Prediction, float]:
    ranked = np.unique(np.concatenate([one, other]))
    thresholds = 0.5 * (ranked[1:] + ranked[:-1]) if len(ranked) > 1 else ranked
    above, below = (len(part) - np.searchsorted(np.sort(part), thresholds, side="right") for part in (one, other))
    present = _proven_epsilon(above, len(one), below, len(other), delta, confidence)
    absent = _proven_epsilon(len(other) - below, len(other), len(one) - above, len(one), delta, confidence)
    predicts: Prediction = "present" if present.max() >= absent.max() else "absent"
    best = present if predicts == "present" else absent
    ties = np.flatnonzero(best == best.max())
    return predicts, float(thresholds[ties[len(ties) // 2]])


def _proven_epsilon(
    hits: ArrayLike, n_hit: int, false_alarms: ArrayLike, n_false: int, delta: float, confidence: float
) -> Floats:
    """Return ``log((hits' rate - delta) / false alarms' rate)`` at the limits of the rates."""
    from scipy.special import betaincinv

    error = (1 - confidence) / 2
    hits, false_alarms = np.asarray(hits, dtype=np.float64), np.asarray(false_alarms, dtype=np.float64)
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), n_hit - hits + 1, error), 0.0)
    high = betaincinv(false_alarms + 1, np.maximum(n_false - false_alarms, 1), 1 - error)
    high = np.where(false_alarms < n_false, high, 1.0)
    excess = np.maximum(low - delta, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(excess) - np.log(high))
