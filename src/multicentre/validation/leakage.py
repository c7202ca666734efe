"""By how much duplicates inflate cross-validation with random folds, and whether that can be told from chance."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from multicentre.estimator.base import FederatedEstimator
from multicentre.federation.consortium import Consortium
from multicentre.federation.errors import ConfigurationError
from multicentre.validation.cross_validation import cross_validate
from multicentre.validation.folds.by_site import FederatedKFold
from multicentre.validation.folds.hashed import HashGroupKFold
from multicentre.validation.folds.splitter import FoldSplitter
from multicentre.validation.scoring.scores import find_evaluator, names_of

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# A repeat's mean varies by so much of what its folds' scores would suggest if they were independent.
SHARE_OF_FOLDS = 0.8
FREEDOM_OF_FOLDS = 6
ALARM_AT = 2.0
LEVEL = 0.95


class Pilot(Protocol):
    """A covariate whose bias was predicted, as a ``Candidate`` of :func:`suggest_stratifier` is."""

    @property
    def name(self) -> str:
        """Name of the covariate."""

    @property
    def predicted_bias(self) -> float:
        """Predicted bias of scores with folds cut by it."""

    @property
    def lower(self) -> float:
        """Lower end of its 95 % interval."""

    @property
    def upper(self) -> float:
        """Upper end."""


@dataclass(frozen=True, eq=False)
class LeakageReport:
    """Scores of random folds against those of folds that duplicates cannot inflate.

    Attributes
    ----------
    score : str
    random, safe : arrays of shape (R, K)
        Scores by repeat and fold, with random folds and with safe ones.
    pessimism : float
        Predicted bias of the safe folds, taken off; 0 for hashed ones.
    spread : float
        Standard deviation that the optimism has without any duplicate, see :func:`null_spread`.
    threshold : float
        The optimism from which on the alarm is raised.
    strategy : str
        What the safe folds were made by.
    duplicates : object
        The estimate of the duplicate rate that was handed over, if any.
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
        """Mean score of random folds less that of safe ones, which the predicted bias was taken off."""
        return float(self.random.mean() - (self.safe.mean() - self.pessimism))

    @property
    def interval(self) -> tuple[float, float]:
        """The optimism's 95 % interval."""
        width = float(t.ppf((1 + LEVEL) / 2, freedom_of(self.random, self.safe))) * self.spread
        return self.optimism - width, self.optimism + width

    @property
    def alarm(self) -> bool:
        """Whether the optimism is above its threshold."""
        return self.optimism > self.threshold

    @property
    def message(self) -> str:
        """What was found, in plain words."""
        low, high = self.interval
        found = (
            f"With random folds the mean {self.score} is {self.random.mean():.4f}, with {self.strategy} "
            f"{self.safe.mean() - self.pessimism:.4f}"
            f"{' after its predicted bias was taken off' if self.pessimism else ''}: "
            f"a difference of {self.optimism:+.4f} (95 % interval {low:+.4f} to {high:+.4f})."
        )
        if self.alarm:
            meaning = (
                f"This is more than the threshold of {self.threshold:.4f}: records of the same people are at several "
                "sites, and random folds make the model look better than it is."
            )
        else:
            meaning = (
                f"This is not above the threshold of {self.threshold:.4f}, so it can be chance. It does not show that "
                "there are no duplicates: a few percent of them cannot be seen this way. Count them with "
                "estimate_duplicate_rate."
            )
        beside = "" if self.duplicates is None else f" Duplicates: {self.duplicates!r}."
        return f"{found} {meaning}{beside}"

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
    """Measure what duplicates between sites do to cross-validation with random folds.

    The same federation is cross-validated with random folds and with folds that keep all records of a person together,
    each several times. Random folds score better on average when, and only when, what is learnt from one record of a
    person helps to predict another.

    Parameters
    ----------
    estimator : estimator
        Unfitted. The more closely it can fit, the more it shows.
    federation : Federation
    cv : splitter, optional
        The safe folds, ``HashGroupKFold(5)`` by default.
    scoring : str, optional
        One score, greater is better; the first usual one of the estimator by default.
    n_repeats : int, default 2
        How often folds are drawn anew, at least 2: random ones by other seeds, hashed ones by another label of the
        hash.
    threshold : float, optional
        The optimism from which on there is an alarm; by default what it exceeds by chance in 2.3 of 100 reports without
        duplicates, see :func:`alarm_threshold`.
    pilot : Candidate, optional
        Needed where `cv` cuts folds by a covariate's thresholds, which makes scores too low by itself: what
        :func:`suggest_stratifier` found of the covariate, ``suggestion.candidates[0]`` say. Its predicted bias is taken
        off, and its uncertainty is added.
    duplicates : object, optional
        What :func:`estimate_duplicate_rate` found; it is told beside the optimism.
    random_state : int, default 0
        Seed of the random folds.

    Returns
    -------
    LeakageReport

    Raises
    ------
    ConfigurationError
        `cv` is not safe, or cuts by thresholds and there is no pilot; or `n_repeats` is below 2.

    Notes
    -----
    Sites with identifiers can count duplicates directly, which finds far fewer of them; this report shows whether they
    matter to a model.

    Examples
    --------
    >>> import multicentre as mc
    >>> sites = mc.datasets.simulate_duplicated(150, 120, n_sites=2, seed=1).sites
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
    drawn = [
        FederatedKFold(safe_folds.n_splits, patient_key=patient_key, random_state=random_state + repeat)
        for repeat in range(n_repeats)
    ]

    def run(folds: FoldSplitter) -> Floats:
        found = cross_validate(
            estimator, federation, cv=folds, scoring=score, allow_leakage=True, by_site=False, error_score="raise"
        )
        return np.asarray(found[f"test_{score}"], dtype=np.float64)

    safe = np.array([run(folds) for folds in _repeats(safe_folds, n_repeats)])
    random = np.array([run(folds) for folds in drawn])
    pessimism, unsure = (0.0, 0.0) if pilot is None else _bias_of(pilot)
    spread = float(np.hypot(null_spread(random, safe), unsure))
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
    """Return the standard deviation that the difference of two mean scores has where no record is a duplicate.

    Without duplicates both strategies draw folds by chance, so that the means of their repeats differ by chance alone.
    Their variance is estimated from the repeats, and, as these are few, from the folds within them: independent folds
    would give a repeat's mean the standard deviation s / sqrt(K), s that of the folds' scores; as all records are
    tested in every repeat, it is smaller. A share of 0.8 of it counts as much as 6 degrees of freedom beside those of
    the repeats.

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
    """Return the optimism that chance exceeds as often as a normal deviate exceeds twice its standard deviation.

    The standard deviation is itself an estimate, so that the threshold is Student's (a moderated t, G. K. Smyth,
    Statistical Applications in Genetics and Molecular Biology 3 (2004), 3).

    Parameters
    ----------
    spread : float
        Of :func:`null_spread`.
    freedom : int
        Of :func:`freedom_of`.

    Examples
    --------
    >>> round(alarm_threshold(0.0027, 8), 4), round(alarm_threshold(0.0027, 10**6), 4)
    (0.0064, 0.0054)
    """
    return float(t.isf(norm.sf(ALARM_AT), freedom)) * spread


def _repeats(folds: FoldSplitter, n_repeats: int) -> list[FoldSplitter]:
    """Return the strategy with other labels of its hash; by itself where it has none."""
    if cuts_by_thresholds(folds):
        return [folds]
    made = [copy.copy(folds) for _ in range(n_repeats)]
    for number, one in enumerate(made):
        one.repeat = folds.repeat + number
    return made


def _bias_of(pilot: Pilot) -> tuple[float, float]:
    width = (pilot.upper - pilot.lower) / 2
    return pilot.predicted_bias, width / float(norm.ppf((1 + LEVEL) / 2))


def _check(folds: FoldSplitter, n_repeats: int, pilot: Pilot | None) -> None:
    if n_repeats < 2:
        raise ConfigurationError("at least two repeats tell what is chance", where="n_repeats", hint="Take 2.")
    if not folds.duplicate_safe or hasattr(folds, "n_repeats"):
        raise ConfigurationError(
            f"{type(folds).__name__} is not safe against duplicates, or repeats itself",
            where="cv",
            hint="Use HashGroupKFold; n_repeats= repeats it.",
        )
    if pilot is not None and not np.isfinite([pilot.predicted_bias, pilot.lower, pilot.upper]).all():
        raise ConfigurationError(f"no bias was predicted for {pilot.name}", where="pilot", hint="Try it with a pilot.")
    if cuts_by_thresholds(folds) and pilot is None:
        raise ConfigurationError(
            "folds cut by thresholds make scores too low, which is no leakage",
            where="cv",
            hint="Use HashGroupKFold, or give pilot=, a candidate of suggest_stratifier whose bias is taken off.",
        )


def cuts_by_thresholds(folds: FoldSplitter) -> bool:
    """Tell whether a strategy cuts folds at thresholds of a covariate.

    Examples
    --------
    >>> cuts_by_thresholds(HashGroupKFold(5))
    False
    """
    return getattr(folds, "scheme", "") == "threshold"
