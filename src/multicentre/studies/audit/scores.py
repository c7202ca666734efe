"""What noised answers tell of one patient: scores, and what they prove of epsilon.

An attacker who knows every other patient, the canary and the noise's law scores a transcript by the log-likelihood
ratio of "the canary was there" against "it was not", the most powerful test of the two (Neyman and Pearson). Under
(epsilon, delta)-differential privacy any test obeys ``true positives <= exp(epsilon) false positives + delta``, so
that counted positives bound epsilon from below.

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

from multicentre.federation.noise import Mechanism

Floats = NDArray[np.float64]
Says = Literal["present", "absent"]


@dataclass(frozen=True)
class Attack:
    """A test for the canary, and the bound that its hits and false alarms prove.

    Parameters
    ----------
    says : {"present", "absent"}
        What is claimed of a run: "present" of one that scores above the threshold, "absent" of one below.
    threshold : float
    hits, false_alarms : int
        How often the claim was right and wrong.
    n_hit, n_false : int
        Of so many runs each.
    epsilon : float
        Lower bound on epsilon, at least 0.
    """

    says: Says
    threshold: float
    hits: int
    n_hit: int
    false_alarms: int
    n_false: int
    epsilon: float


@dataclass(frozen=True)
class Separation:
    """How far scores with the canary lie from those without.

    Parameters
    ----------
    d_prime : float
        Difference of the means over the pooled standard deviation; infinite where scores do not scatter at all.
    standard_error : float
        Of `d_prime`, for normal scores.
    auc : float
        Probability that a run with the canary scores higher than one without, ties by half.
    """

    d_prime: float
    standard_error: float
    auc: float


def log_likelihood_ratio(
    noised: ArrayLike, without: ArrayLike, difference: ArrayLike, scale: float, mechanism: Mechanism
) -> float:
    """Return log P(noised | with the canary) - log P(noised | without) of one field.

    With m the field without the canary and v its difference, Gaussian noise gives ``(x - m - v/2) . v / scale**2`` and
    Laplace noise ``sum(|x - m| - |x - m - v|) / scale``. Both are those of the discrete laws on a grid, too.

    Parameters
    ----------
    noised, without, difference : arrays of one shape
    scale : float, > 0
        A Gaussian's standard deviation, or a Laplace law's scale.
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
    """Return how far two sets of scores lie apart.

    Notes
    -----
    For normal scores the variance of d' is about ``1/n + 1/m + d'**2 / (2 (n + m))``. Under mu-GDP with Gaussian noise,
    and the log-likelihood ratio as score, d' is at most mu; the area under the curve is then ``Phi(mu / sqrt(2))``.

    Examples
    --------
    >>> found = separation([1.0, 2.0, 3.0], [0.0, 1.0, 2.0])
    >>> found.d_prime, round(found.auc, 3)
    (1.0, 0.778)
    """
    from scipy.stats import rankdata

    one, other = np.asarray(with_canary, dtype=np.float64), np.asarray(without, dtype=np.float64)
    n, m = len(one), len(other)
    spread = math.sqrt(0.5 * (one.var(ddof=1) + other.var(ddof=1)))
    apart = float(one.mean() - other.mean())
    d = apart / spread if spread > 0 else math.copysign(math.inf, apart) if apart else 0.0
    error = math.sqrt(1 / n + 1 / m + d * d / (2 * (n + m)))
    auc = (rankdata(np.concatenate([one, other]))[:n].sum() - n * (n + 1) / 2) / (n * m)
    return Separation(d, error, float(auc))


def auc_of_gdp(mu: float) -> float:
    """Return the area under the curve of two unit normals `mu` apart, ``Phi(mu / sqrt(2))``.

    Examples
    --------
    >>> round(auc_of_gdp(1.666), 3)
    0.881
    """
    return 0.5 * math.erfc(-mu / 2)


def lower_bound(with_canary: ArrayLike, without: ArrayLike, delta: float, confidence: float = 0.95) -> Attack:
    """Return the test that half of the runs recommend, and the epsilon that the other half proves.

    Parameters
    ----------
    with_canary, without : arrays of shape (n,) and (m,), at least 2 each
        Scores of independent runs, in any order.
    delta : float, in [0, 1)
    confidence : float, in (0, 1), default 0.95
        Probability with which the bound holds, whatever the scores are.

    Notes
    -----
    Every second run, from the first, chooses threshold and direction: "present" above or "absent" below, whichever
    would prove most. The others count its hits and false alarms. With ``(1 - confidence) / 2`` for each, the hits' rate
    is bounded from below and the false alarms' from above [1]_, and ``epsilon >= log((hits - delta) / false alarms)``
    [3]_.

    Examples
    --------
    >>> found = lower_bound(np.arange(200) + 1000.0, np.arange(200.0), delta=1e-5)
    >>> found.hits, found.false_alarms, round(found.epsilon, 2)
    (100, 0, 3.28)
    """
    one, other = np.asarray(with_canary, dtype=np.float64), np.asarray(without, dtype=np.float64)
    says, threshold = _choose(one[::2], other[::2], delta, confidence)
    mine, others = (one[1::2], other[1::2]) if says == "present" else (-other[1::2], -one[1::2])
    limit = threshold if says == "present" else -threshold
    hits, false_alarms = int(np.sum(mine > limit)), int(np.sum(others > limit))
    proven = float(_proven(hits, len(mine), false_alarms, len(others), delta, confidence))
    return Attack(says, threshold, hits, len(mine), false_alarms, len(others), max(proven, 0.0))


def largest_bound(n_runs: int, delta: float, confidence: float = 0.95) -> float:
    """Return the bound that `n_runs` with and as many without prove when they never overlap: all that they can.

    Examples
    --------
    >>> round(largest_bound(500, 1e-5), 2)
    4.21
    """
    half = n_runs // 2
    return max(0.0, float(_proven(half, half, 0, half, delta, confidence)))


def _choose(one: Floats, other: Floats, delta: float, confidence: float) -> tuple[Says, float]:
    ranked = np.unique(np.concatenate([one, other]))
    thresholds = 0.5 * (ranked[1:] + ranked[:-1]) if len(ranked) > 1 else ranked
    above, below = (len(part) - np.searchsorted(np.sort(part), thresholds, side="right") for part in (one, other))
    present = _proven(above, len(one), below, len(other), delta, confidence)
    absent = _proven(len(other) - below, len(other), len(one) - above, len(one), delta, confidence)
    says: Says = "present" if present.max() >= absent.max() else "absent"
    best = present if says == "present" else absent
    ties = np.flatnonzero(best == best.max())
    return says, float(thresholds[ties[len(ties) // 2]])


def _proven(
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
