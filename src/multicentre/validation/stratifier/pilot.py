"""The small model that a site cross-validates on its own records, once with random folds and once with cut ones."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.data.tabledata import TableData
from multicentre.federation.errors import DataError
from multicentre.survival.scores.concordance import concordance_index

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MODELS = ("boosting", "linear")
# scikit-learn sets the process's warning filters while it fits, which sites in threads of one process would confuse.
_ONE_AT_A_TIME = Lock()
RATE, DEPTH, LEAST_IN_LEAF, RIDGE = 0.6, 3, 4, 1.0


def kind_of(data: TableData | SurvivalData) -> str:
    """Return what is predicted: "class", "number" or "time".

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
        Of one site.
    folds : array of int, shape (n,)
        -1 for records that are left out.
    model : {"boosting", "linear"}
        Trees of depth 3 at a learning rate of 0.6, or a (generalised) linear model.
    n_rounds : int
        Trees.

    Returns
    -------
    float
        NaN where no fold can be scored.

    Examples
    --------
    >>> x = np.arange(200.0)
    >>> data = TableData(x[:, None], (x % 100 > 50).astype(int))
    >>> score_folds(data, np.arange(200) % 4, "boosting", 10) > 0.95
    True
    """
    scores = [_score_fold(data, folds, fold, model, n_rounds) for fold in np.unique(folds[folds >= 0]).tolist()]
    values, weights = np.array(scores).T if scores else np.full((2, 1), np.nan)
    known = ~np.isnan(values)
    return float(np.average(values[known], weights=weights[known])) if known.any() else float("nan")


def relative_hazard_target(time: Floats, happened: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return target and weight with which a Poisson model fits proportional hazards.

    Given the cumulative baseline hazard H (here Nelson and Aalen's estimate), the likelihood of times to an event is
    that of events d_i with Poisson mean H(t_i) exp(f(x_i)) (Aitkin and Clayton, Applied Statistics 1980): target
    d_i / H(t_i), weight H(t_i).

    Examples
    --------
    >>> target, weight = relative_hazard_target(np.array([1.0, 2.0]), np.array([True, False]))
    >>> target.tolist(), weight.tolist()
    ([2.0, 0.0], [0.5, 0.5])
    """
    grid, place = np.unique(time, return_inverse=True)
    died = np.bincount(place, weights=happened, minlength=len(grid))
    left = np.bincount(place, minlength=len(grid))
    hazard = np.cumsum(died / np.cumsum(left[::-1])[::-1])
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
    """Return classes, numbers or relative hazards; a constant where there is nothing to learn."""
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

    terms = {
        "max_iter": n_rounds,
        "learning_rate": RATE,
        "max_depth": DEPTH,
        "min_samples_leaf": LEAST_IN_LEAF,
        "l2_regularization": RIDGE,
        "early_stopping": False,
        "random_state": 0,
    }
    if kind == "class":
        return HistGradientBoostingClassifier(**terms)
    return HistGradientBoostingRegressor(loss="poisson" if kind == "time" else "squared_error", **terms)


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
