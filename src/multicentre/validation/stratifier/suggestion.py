"""Ranked covariates for cutting folds, and the small models of the pilot."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.data.tabledata import TableData
from multicentre.errors import DataError
from multicentre.survival.scores.concordance import concordance_index

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Candidate:
    """Covariate with its counts and the results of its pilot.

    Attributes
    ----------
    name : str
    usable : bool
        True if it can cut folds: it has enough different values, few missing ones, and is stable.
    reason : str
        Reason why it is not usable; else empty.
    missing : float
        Share of records without a value.
    imbalance : float
        Ratio of the largest to the smallest fold; infinite if ties leave too few folds.
    stability : float
        Share of the patients with several values at one site whose values agree; NaN without such patients.
    information : float
        Mutual information with the outcome, in nats.
    ratio : float
        Mean over sites of the ratio of the pilot: the score with folds cut by the covariate, divided by the score with
        random folds. NaN without a pilot.
    ratio_error : float
        Standard error of `ratio` over sites.
    predicted_ratio : float
        Predicted ratio over all sites.
    predicted_bias, lower, upper : float
        Predicted bias of the score, and its 95 % interval.
    n_sites : int
        Number of sites that ran the pilot.
    """

    name: str
    usable: bool
    reason: str
    missing: float
    imbalance: float
    stability: float
    information: float
    ratio: float = np.nan
    ratio_error: float = np.nan
    predicted_ratio: float = np.nan
    predicted_bias: float = np.nan
    lower: float = np.nan
    upper: float = np.nan
    n_sites: int = 0


@dataclass(frozen=True, eq=False)
class Suggestion:
    """Covariates in order of preference.

    Attributes
    ----------
    candidates : tuple of Candidate
        Usable ones first, those with a pilot by predicted bias, the others by mutual information.
    score : str
        Score of the pilot: "accuracy" or "concordance".
    random_score : float
        Mean score over sites with random folds.
    identifiers : tuple of str
        Columns of identifiers that all sites have. Folds by a hash of one of them have a predicted bias of 0.
    calibrated : bool
        True if a fitted line predicts the ratio over all sites. Otherwise the ratio of the pilot is the prediction, and
        the interval contains only the spread over sites.
    n_splits : int
        Number of folds.
    model : str
        Model of the pilot.
    """

    candidates: tuple[Candidate, ...]
    score: str
    random_score: float
    identifiers: tuple[str, ...]
    calibrated: bool
    n_splits: int
    model: str

    @property
    def best(self) -> str | None:
        """Covariate with the least predicted bias; None if no covariate is usable."""
        usable = [one.name for one in self.candidates if one.usable]
        return usable[0] if usable else None

    @property
    def advice(self) -> str:
        """Recommendation in a few sentences."""
        sentences = []
        if self.identifiers:
            sentences.append(
                f"Every site has {', '.join(self.identifiers)}: prefer HashGroupKFold(person_key=...), whose predicted "
                "bias is 0."
            )
        if self.best is None:
            sentences.append("No covariate can be used to cut folds.")
            return " ".join(sentences)
        first = self.candidates[0]
        if np.isnan(first.predicted_bias):
            sentences.append(
                f"Of the covariates, {first.name} has the least information on the outcome. "
                "No site could run the pilot."
            )
        else:
            sentences.append(
                f"Of the covariates, {first.name} has the least predicted bias: {first.predicted_bias:+.4f} "
                f"(95 % interval {first.lower:+.4f} to {first.upper:+.4f}) in {self.score}."
            )
        sentences.append(
            f"If records of one person agree in {first.name}, assign its bins to folds by a hash, "
            f"CovariateFoldKFold(covariate={first.name!r}, scheme='binned-hash'), which leaves little of that bias."
        )
        return " ".join(sentences)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per strategy: hashes of identifiers first, then the covariates in their order."""
        import pandas as pd

        hashed = [
            {"strategy": f"hash of {name}", "usable": True, "predicted_bias": 0.0, "reason": ""}
            for name in self.identifiers
        ]
        cut = [
            {
                "strategy": f"thresholds of {one.name}",
                "usable": one.usable,
                "predicted_bias": one.predicted_bias,
                "lower": one.lower,
                "upper": one.upper,
                "predicted_ratio": one.predicted_ratio,
                "pilot_ratio": one.ratio,
                "pilot_error": one.ratio_error,
                "pilot_sites": one.n_sites,
                "information": one.information,
                "stability": one.stability,
                "missing": one.missing,
                "imbalance": one.imbalance,
                "reason": one.reason,
            }
            for one in self.candidates
        ]
        columns = ["strategy", "usable", "predicted_bias", "lower", "upper", "predicted_ratio", "pilot_ratio"]
        details = ["pilot_error", "pilot_sites", "information", "stability", "missing", "imbalance", "reason"]
        return pd.DataFrame(hashed + cut, columns=columns + details)

    def __repr__(self) -> str:
        n_usable = sum(one.usable for one in self.candidates)
        return f"Suggestion({n_usable} of {len(self.candidates)} covariates can be used). {self.advice}"


Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

# Supported models of the pilot.
MODELS = ("boosting", "linear")

# scikit-learn changes the warning filters of the process during a fit; fits of sites in threads must not overlap.
_ONE_AT_A_TIME = Lock()

# Settings of the boosted trees and the penalty: those with which BOOSTED_CLASSES was fitted.
RATE, DEPTH, MIN_IN_LEAF, RIDGE = 0.6, 3, 4, 1.0


def kind_of(data: TableData | SurvivalData) -> str:
    """Return the kind of the outcome: "class", "number" or "time".

    Examples
    --------
    >>> kind_of(SurvivalData([[1.0], [2.0]], [3.0, 4.0], [0, 1]))
    'time'
    """
    return "time" if isinstance(data, SurvivalData) else data.outcome


def score_folds(data: TableData | SurvivalData, folds: Integers, model: str, n_rounds: int) -> float:
    """Return the mean score of folds, weighted by their records: accuracy of classes, concordance of numbers and times.

    Parameters
    ----------
    data : TableData or SurvivalData
        Records of one site.
    folds : array of int, shape (n,)
        Fold of each record; -1 for records that are left out.
    model : {"boosting", "linear"}
        Trees of depth 3 with a learning rate of 0.6, or a (generalised) linear model.
    n_rounds : int
        Number of trees.

    Returns
    -------
    float
        NaN if all folds lack a score.

    Examples
    --------
    >>> x = np.arange(200.0)
    >>> data = TableData(x[:, None], (x % 100 > 50).astype(int))
    >>> score_folds(data, np.arange(200) % 4, "boosting", 10) > 0.95
    True
    """
    scores = [_score_fold(data, folds, fold, model, n_rounds) for fold in np.unique(folds[folds >= 0]).tolist()]
    values, weights = np.array(scores).T if scores else np.full((2, 1), np.nan)
    has_score = ~np.isnan(values)
    return float(np.average(values[has_score], weights=weights[has_score])) if has_score.any() else float("nan")


def relative_hazard_target(time: Floats, happened: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the targets and weights of a Poisson model that fits proportional hazards.

    Let H be the cumulative baseline hazard, here the Nelson-Aalen estimate. The likelihood of times to an event equals
    that of event indicators d_i with Poisson mean H(t_i) exp(f(x_i)) (Aitkin and Clayton, Applied Statistics 1980). So
    the target is d_i / H(t_i), and the weight is H(t_i).

    Examples
    --------
    >>> target, weight = relative_hazard_target(np.array([1.0, 2.0]), np.array([True, False]))
    >>> target.tolist(), weight.tolist()
    ([2.0, 0.0], [0.5, 0.5])
    """
    grid, place = np.unique(time, return_inverse=True)
    n_events = np.bincount(place, weights=happened, minlength=len(grid))
    n_ending = np.bincount(place, minlength=len(grid))
    hazard = np.cumsum(n_events / np.cumsum(n_ending[::-1])[::-1])
    first = hazard[hazard > 0].min(initial=np.inf)
    weight = np.maximum(hazard[place], 0.5 * first if np.isfinite(first) else 1.0)
    return happened / weight, weight


def _score_fold(
    data: TableData | SurvivalData, folds: Integers, fold: int, model: str, n_rounds: int
) -> tuple[float, float]:
    train = data.take(np.flatnonzero((folds >= 0) & (folds != fold)))
    test = data.take(np.flatnonzero(folds == fold))
    try:
        return _score(train, test, _predict(train, test.X, model, n_rounds)), float(len(test))
    except DataError:
        return float("nan"), float(len(test))


def _score(train: Any, test: Any, predicted: NDArray[Any]) -> float:
    kind = kind_of(train)
    if kind == "class":
        return float(np.mean(predicted == test.y))
    if kind == "number":
        return concordance_index(test.y, np.ones(len(test), dtype=np.bool_), -predicted)
    return concordance_index(test.time, test.event == 1, predicted)


def _predict(train: Any, X: Floats, model: str, n_rounds: int) -> NDArray[Any]:
    """Return classes, numbers or relative hazards; a constant if all outcomes are equal."""
    kind, weight = kind_of(train), None
    target = train.event == 1 if kind == "time" else train.y
    if (target == target[0]).all():
        return np.full(len(X), target[0])
    if kind == "time":
        target, weight = relative_hazard_target(train.time, train.event == 1)
    fitted = _boosted(kind, n_rounds) if model == "boosting" else _linear(kind)
    step = "" if model == "boosting" else f"{fitted.steps[-1][0]}__"
    with _ONE_AT_A_TIME:
        fitted.fit(train.X, target, **({} if weight is None else {f"{step}sample_weight": weight}))
        return np.asarray(fitted.predict(X))


def _boosted(kind: str, n_rounds: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    settings = {
        "max_iter": n_rounds,
        "learning_rate": RATE,
        "max_depth": DEPTH,
        "min_samples_leaf": MIN_IN_LEAF,
        "l2_regularization": RIDGE,
        "early_stopping": False,
        "random_state": 0,
    }
    if kind == "class":
        return HistGradientBoostingClassifier(**settings)
    return HistGradientBoostingRegressor(loss="poisson" if kind == "time" else "squared_error", **settings)


def _linear(kind: str) -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    last = {
        "class": LogisticRegression(C=1 / RIDGE, max_iter=1000),
        "number": Ridge(alpha=RIDGE),
        "time": PoissonRegressor(alpha=1e-3, max_iter=1000),
    }[kind]
    return make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler(), last)
