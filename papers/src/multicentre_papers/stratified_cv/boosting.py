"""Cross-validation of boosted trees (XGBoost)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import MissingExtra
from multicentre_papers.stratified_cv.records import Floats, Integers, Pooled

if TYPE_CHECKING:
    import xgboost

# Settings of the published script.
PAPER: Mapping[str, Any] = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.6}
_ALWAYS: Mapping[str, Any] = {"tree_method": "hist", "nthread": 1, "verbosity": 0, "seed": 0}


@dataclass(frozen=True, eq=False)
class Curves:
    """Cross-validated accuracy after every round of boosting.

    Parameters
    ----------
    validation : array of shape (rounds,)
        Mean over folds.
    training : array of shape (rounds,) or None
    gain : array of shape (d,)
        Sum over folds of every column's mean gain per split; 0 without splits.
    """

    validation: Floats
    training: Floats | None
    gain: Floats

    @property
    def accuracy(self) -> float:
        """Accuracy after the last round."""
        return float(self.validation[-1])

    @property
    def importance(self) -> Floats:
        """Gain relative to the largest (Figure 4)."""
        return np.asarray(self.gain / self.gain.max())


def boosted_curves(records: Pooled, folds: Integers, n_rounds: int, *, with_training: bool = False) -> Curves:
    """Cross-validate the paper's boosted trees over folds; records of fold -1 are left out.

    Parameters
    ----------
    records : Pooled
    folds : array of int64, shape (n,)
        Fold of every record.
    n_rounds : int
    with_training : bool, default False
        Also return the accuracy on training records.

    Raises
    ------
    MissingExtra
        xgboost is not installed.
    """
    validation, training, gains = [], [], []
    for fold in range(int(folds.max()) + 1):
        errors: dict[str, dict[str, list[float]]] = {}
        booster = train(records, folds, fold, PAPER, n_rounds, errors, with_training=with_training)
        validation.append(1.0 - np.array(errors["validation"]["error"]))
        if with_training:
            training.append(1.0 - np.array(errors["training"]["error"]))
        scores = booster.get_score(importance_type="gain")
        gains.append([float(scores.get(f"f{place}", 0.0)) for place in range(records.X.shape[1])])  # type: ignore[arg-type]
    return Curves(
        np.mean(validation, axis=0), np.mean(training, axis=0) if with_training else None, np.sum(gains, axis=0)
    )


def train(
    records: Pooled,
    folds: Integers,
    fold: int,
    settings: Mapping[str, Any],
    n_rounds: int,
    errors: dict[str, dict[str, list[float]]] | None = None,
    *,
    with_training: bool = False,
) -> xgboost.Booster:
    """Return trees grown without one fold; `errors` receives the error of that fold after every round."""
    xgb = _xgboost()
    train_rows, test_rows = (folds >= 0) & (folds != fold), folds == fold
    training = xgb.DMatrix(records.X[train_rows], records.y[train_rows], nthread=1)
    options = {**settings, **_ALWAYS}
    watched = [(training, "training")] if with_training else []
    if errors is not None:
        options["eval_metric"] = "error"
        watched.append((xgb.DMatrix(records.X[test_rows], records.y[test_rows], nthread=1), "validation"))
    booster: xgboost.Booster = xgb.train(
        options, training, n_rounds, evals=watched, evals_result=errors, verbose_eval=False
    )
    return booster


def out_of_fold(records: Pooled, folds: Integers, settings: Mapping[str, Any], n_rounds: int) -> Floats:
    """Return every record's prediction by trees grown without its fold, shape (n,); NaN outside all folds."""
    predicted = np.full(len(records.y), np.nan)
    for fold in range(int(folds.max()) + 1):
        predicted[folds == fold] = predict_fold(records, folds, fold, settings, n_rounds)
    return predicted


def predict_fold(
    records: Pooled, folds: Integers, fold: int, settings: Mapping[str, Any], n_rounds: int
) -> NDArray[np.float32]:
    """Return predictions of one fold's records by trees grown without them."""
    booster = train(records, folds, fold, settings, n_rounds)
    return np.asarray(booster.predict(_xgboost().DMatrix(records.X[folds == fold], nthread=1)))


def fold_accuracies(records: Pooled, folds: Integers, n_rounds: int) -> Floats:
    """Return the accuracy of the paper's boosted trees on every fold, shape (folds,)."""
    correct = (out_of_fold(records, folds, PAPER, n_rounds) > 0.5) == (records.y > 0.5)
    return np.array([correct[folds == fold].mean() for fold in range(int(folds.max()) + 1)])


def chosen_rounds(curve: NDArray[np.float64]) -> int:
    """Return the number of rounds with the highest accuracy; candidates: all, a half, a quarter, an eighth.

    Examples
    --------
    >>> chosen_rounds(np.linspace(0.5, 0.8, 200))
    200
    """
    grid = len(curve) // np.array([8, 4, 2, 1])
    return int(grid[np.argmax(curve[grid - 1])])


def _xgboost() -> Any:
    try:
        import xgboost
    except ImportError:
        raise MissingExtra(
            "xgboost must be installed; it is missing",
            where="stratified-cv",
            hint="Install it with: pip install 'multicentre[boost]'.",
        ) from None
    return xgboost
