"""Optimism of cross-validation with random folds due to duplicates, and its significance."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from multicentre.core import side_by_side
from multicentre.core.consortium import Consortium
from multicentre.errors import ConfigurationError
from multicentre.estimator.base import FederatedEstimator
from multicentre.validation.cross_validation import cross_validate
from multicentre.validation.folds.by_site import FederatedKFold
from multicentre.validation.folds.hashed import HashGroupKFold
from multicentre.validation.folds.splitter import FoldSplitter
from multicentre.validation.scoring.scores import find_evaluator, names_of

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# Standard deviation of a repeat's mean, relative to that of independent folds; see null_spread.
SHARE_OF_FOLDS = 0.8
# Weight of the variance within repeats, in degrees of freedom; see null_spread.
FREEDOM_OF_FOLDS = 6
# Threshold of the alarm in standard deviations: a normal deviate exceeds it with a probability of 2.3 %.
ALARM_AT = 2.0
# Confidence level of the intervals, as is usual.
LEVEL = 0.95


class Pilot(Protocol):
    """Covariate with a predicted bias, such as a ``Candidate`` of :func:`suggest_stratifier`."""

    @property
    def name(self) -> str:
        """Name of the covariate."""

    @property
    def predicted_bias(self) -> float:
        """Predicted bias of scores with folds cut by the covariate."""

    @property
    def lower(self) -> float:
        """Lower end of the 95 % interval of the bias."""

    @property
    def upper(self) -> float:
        """Upper end of the 95 % interval of the bias."""


@dataclass(frozen=True, eq=False)
class LeakageReport:
    """Scores of random folds compared with those of folds that are safe against duplicates.

    Attributes
    ----------
    score : str
    random, safe : arrays of shape (R, K)
        Scores by repeat and fold, with random folds and with safe folds.
    pessimism : float
        Predicted bias of the safe folds, which is subtracted; 0 for hashed folds.
    spread : float
        Standard deviation of the optimism without duplicates, see :func:`null_spread`.
    threshold : float
        Optimism above which the alarm is raised.
    strategy : str
        Strategy of the safe folds.
    duplicates : object
        Estimate of the duplicate rate, if passed.
    """

    score: str
    random: Floats
    safe: Floats
    pessimism: float
    spread: float
    threshold: float
    strategy: str
    duplicates: Any = None

    @property
    def optimism(self) -> float:
        """Mean score of random folds minus the bias-corrected mean score of safe folds."""
        return float(self.random.mean() - (self.safe.mean() - self.pessimism))

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the optimism."""
        width = float(t.ppf((1 + LEVEL) / 2, freedom_of(self.random, self.safe))) * self.spread
        return self.optimism - width, self.optimism + width

    @property
    def alarm(self) -> bool:
        """True if the optimism exceeds its threshold."""
        return self.optimism > self.threshold

    @property
    def message(self) -> str:
        """Description of the result in sentences."""
        low, high = self.interval
        comparison = (
            f"With random folds the mean {self.score} is {self.random.mean():.4f}, with {self.strategy} "
            f"{self.safe.mean() - self.pessimism:.4f}"
            f"{' after subtraction of the predicted bias' if self.pessimism else ''}: "
            f"a difference of {self.optimism:+.4f} (95 % interval {low:+.4f} to {high:+.4f})."
        )
        if self.alarm:
            meaning = (
                f"This exceeds the threshold of {self.threshold:.4f}: records of the same people are at several sites, "
                "and scores with random folds are too optimistic."
            )
        else:
            meaning = (
                f"This does not exceed the threshold of {self.threshold:.4f}, so it can be chance. It does not prove "
                "that there are no duplicates: a few percent of duplicates cannot be detected in this way. Count them "
                "with estimate_duplicate_rate."
            )
        duplicates = "" if self.duplicates is None else f" Duplicates: {self.duplicates!r}."
        return f"{comparison} {meaning}{duplicates}"

    def to_frame(self) -> pd.DataFrame:
        """Return mean scores by strategy and repeat."""
        import pandas as pd

        rows = [("random", repeat, score) for repeat, score in enumerate(self.random.mean(axis=1).tolist())]
        rows += [(self.strategy, repeat, score) for repeat, score in enumerate(self.safe.mean(axis=1).tolist())]
        return pd.DataFrame(rows, columns=["strategy", "repeat", self.score])

    def __repr__(self) -> str:
        return (
            f"LeakageReport(optimism {self.optimism:+.4f} in {self.score}, threshold {self.threshold:.4f}, "
            f"{'ALARM' if self.alarm else 'no alarm'})"
        )


def leakage_report(
    estimator: FederatedEstimator,
    federation: Consortium,
    *,
    cv: FoldSplitter | None = None,
    scoring: str | None = None,
    n_repeats: int = 2,
    threshold: float | None = None,
    pilot: Pilot | None = None,
    duplicates: Any = None,
    random_state: int = 0,
) -> LeakageReport:
    """Measure the effect of duplicates between sites on cross-validation with random folds.

    The federation is cross-validated with random folds and with folds that keep all records of a person together, each
    several times. Random folds have higher scores on average only if one record of a person helps to predict another.

    Parameters
    ----------
    estimator : estimator
        Estimator, not fitted. Flexible models show a larger effect.
    federation : Federation
        Sites to cross-validate over.
    cv : splitter, optional
        Splitter of the safe folds, ``HashGroupKFold(5)`` by default.
    scoring : str, optional
        One score, greater is better; by default the first default score of the estimator.
    n_repeats : int, default 2
        Number of repeats of the folds, at least 2. Repeats of random folds have different seeds; repeats of hashed
        folds have different labels of the hash.
    threshold : float, optional
        Optimism above which the alarm is raised. The default is exceeded by chance in 2.3 % of reports without
        duplicates, see :func:`alarm_threshold`.
    pilot : Candidate, optional
        Result of :func:`suggest_stratifier` for the covariate, for example ``suggestion.candidates[0]``. It is required
        if `cv` cuts folds by thresholds of a covariate, which lowers scores. The predicted bias is subtracted, and its
        uncertainty is added.
    duplicates : object, optional
        Result of :func:`estimate_duplicate_rate`, which is reported with the optimism.
    random_state : int, default 0
        Seed of the random folds.

    Returns
    -------
    LeakageReport
        Optimism of random folds, with its standard error and verdict.

    Raises
    ------
    ConfigurationError
        `cv` is not safe, or it cuts by thresholds and there is no pilot; or `n_repeats` is below 2.

    Notes
    -----
    Sites with identifiers can count duplicates directly, which detects much smaller rates. This report shows whether
    duplicates affect a model.

    Examples
    --------
    >>> import multicentre as mc
    >>> sites = mc.datasets.simulate_duplicated(150, 120, n_sites=2, random_state=1).sites
    >>> federation = mc.Federation.in_process(sites, policy=mc.Policy(min_patients=0))
    >>> model = mc.boosting.FedXGBClassifier(8, max_depth=3, learning_rate=0.8, max_bins=12)
    >>> cv = HashGroupKFold(3, person_key="person")
    >>> leakage_report(model, federation, cv=cv, scoring="accuracy").alarm
    True
    """
    safe_folds = HashGroupKFold(5) if cv is None else cv
    _check(safe_folds, n_repeats, pilot)
    score = names_of(find_evaluator(estimator), scoring)[0]
    patient_key = getattr(safe_folds, "patient_key", None)
    random_folds = [
        FederatedKFold(safe_folds.n_splits, patient_key=patient_key, random_state=random_state + repeat)
        for repeat in range(n_repeats)
    ]

    def run(branch: Consortium, folds: FoldSplitter) -> Floats:
        result = cross_validate(
            estimator, branch, cv=folds, scoring=score, allow_leakage=True, by_site=False, error_score="raise"
        )
        return np.asarray(result[f"test_{score}"], dtype=np.float64)

    repeats = _repeats(safe_folds, n_repeats)
    splitters = [*repeats, *random_folds]
    branches = zip(federation.branches(len(splitters)), splitters, strict=True)
    scores = side_by_side.run([partial(run, *branch) for branch in branches])
    safe, random = np.array(scores[: len(repeats)]), np.array(scores[len(repeats) :])
    pessimism, bias_error = (0.0, 0.0) if pilot is None else _bias_of(pilot)
    spread = float(np.hypot(null_spread(random, safe), bias_error))
    return LeakageReport(
        score=score,
        random=random,
        safe=safe,
        pessimism=pessimism,
        spread=spread,
        threshold=alarm_threshold(spread, freedom_of(random, safe)) if threshold is None else float(threshold),
        strategy=type(safe_folds).__name__,
        duplicates=duplicates,
    )


def null_spread(random: Floats, safe: Floats) -> float:
    """Return the standard deviation of the difference of two mean scores without duplicates.

    Without duplicates both strategies draw folds at random, so the means of their repeats differ only by chance. The
    variance is estimated from the repeats and, because there are few, from the folds within them. With independent
    folds the standard deviation of a repeat's mean would be s / sqrt(K), where s is that of the folds' scores. It is
    smaller, because every record is tested in every repeat. A share of 0.8 of it has the weight of 6 degrees of
    freedom, which are added to those of the repeats.

    Parameters
    ----------
    random, safe : arrays of shape (R, K), (S, K)
        Scores by repeat and fold.

    Examples
    --------
    >>> same = np.array([[0.82, 0.84, 0.86, 0.84], [0.83, 0.85, 0.85, 0.83]])
    >>> round(null_spread(same, same), 4)
    0.0049
    """
    both = (random, safe)
    of_folds = sum(((rows - rows.mean(axis=1, keepdims=True)) ** 2).sum() for rows in both)
    n_within = sum(len(rows) * (rows.shape[1] - 1) for rows in both)
    prior = SHARE_OF_FOLDS**2 * of_folds / n_within / random.shape[1]
    means = [rows.mean(axis=1) for rows in both]
    of_repeats = sum(float(((mean - mean.mean()) ** 2).sum()) for mean in means)
    freedom = sum(len(mean) - 1 for mean in means)
    variance = (FREEDOM_OF_FOLDS * prior + of_repeats) / (FREEDOM_OF_FOLDS + freedom)
    return float(np.sqrt(variance * (1 / len(random) + 1 / len(safe))))


def freedom_of(random: Floats, safe: Floats) -> int:
    """Return the degrees of freedom of :func:`null_spread`.

    Examples
    --------
    >>> freedom_of(np.zeros((2, 5)), np.zeros((2, 5)))
    8
    """
    return FREEDOM_OF_FOLDS + len(random) + len(safe) - 2


def alarm_threshold(spread: float, freedom: int) -> float:
    """Return the optimism exceeded by chance with the probability that a normal deviate exceeds 2.

    The standard deviation is an estimate, so the threshold is that of Student's distribution (a moderated t, G. K.
    Smyth, Statistical Applications in Genetics and Molecular Biology 3 (2004), 3).

    Parameters
    ----------
    spread : float
        Result of :func:`null_spread`.
    freedom : int
        Result of :func:`freedom_of`.

    Examples
    --------
    >>> round(alarm_threshold(0.0027, 8), 4), round(alarm_threshold(0.0027, 10**6), 4)
    (0.0064, 0.0054)
    """
    return float(t.isf(norm.sf(ALARM_AT), freedom)) * spread


def _repeats(folds: FoldSplitter, n_repeats: int) -> list[FoldSplitter]:
    """Return repeats of the strategy with other labels of its hash; only the strategy if it has no hash."""
    if cuts_by_thresholds(folds):
        return [folds]
    repeats = [copy.copy(folds) for _ in range(n_repeats)]
    for number, one in enumerate(repeats):
        one.repeat = folds.repeat + number
    return repeats


def _bias_of(pilot: Pilot) -> tuple[float, float]:
    width = (pilot.upper - pilot.lower) / 2
    return pilot.predicted_bias, width / float(norm.ppf((1 + LEVEL) / 2))


def _check(folds: FoldSplitter, n_repeats: int, pilot: Pilot | None) -> None:
    if n_repeats < 2:
        raise ConfigurationError(
            f"n_repeats must be an integer of at least 2; got {n_repeats}", where="n_repeats", hint="Example: 2."
        )
    if not folds.duplicate_safe or hasattr(folds, "n_repeats"):
        raise ConfigurationError(
            f"cv must be safe against duplicates and not repeated; got {type(folds).__name__}",
            where="cv",
            hint="Use HashGroupKFold, and set n_repeats to repeat it.",
        )
    if pilot is not None and not np.isfinite([pilot.predicted_bias, pilot.lower, pilot.upper]).all():
        raise ConfigurationError(
            f"pilot must have a predicted bias; got none for {pilot.name}",
            where="pilot",
            hint="Run a pilot for the covariate with suggest_stratifier(..., n_pilots=None).",
        )
    if cuts_by_thresholds(folds) and pilot is None:
        raise ConfigurationError(
            "pilot must be a Candidate if folds are cut by thresholds, whose scores are too low; got None",
            where="cv",
            hint="Use HashGroupKFold, or pass a candidate of suggest_stratifier as pilot=.",
        )


def cuts_by_thresholds(folds: FoldSplitter) -> bool:
    """Return True if a strategy cuts folds at thresholds of a covariate.

    Examples
    --------
    >>> cuts_by_thresholds(HashGroupKFold(5))
    False
    """
    return getattr(folds, "scheme", "") == "threshold"
