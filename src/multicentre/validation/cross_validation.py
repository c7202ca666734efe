"""Cross-validation of any estimator over the sites of a federation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning

from multicentre.estimator import FederatedEstimator
from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.validation.folds.hashed import HashGroupKFold
from multicentre.validation.folds.plan import FoldPlan
from multicentre.validation.folds.splitter import FoldSplitter
from multicentre.validation.scoring.scores import Scores, find_evaluator, names_of

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Scoring = str | Sequence[str] | None


class CVResult(dict[str, Any]):
    """What cross-validation found: scikit-learn's keys, and what only a federation has.

    ``fit_time``, ``score_time`` (seconds), ``test_<score>``, with `return_train_score` ``train_<score>``, with
    `return_estimator` ``estimator``: one entry a fold. Besides ``n_test`` (records behind a fold's scores),
    ``site_test_<score>`` (array of shape (folds, sites), NaN where a site lets none out), ``sites`` (their names),
    ``plans`` (the plans of folds) and ``communication`` (exchanges, and bytes to and from the sites).
    """

    def summary(self) -> pd.DataFrame:
        """Return mean, standard error and range of every score over the folds.

        The standard error of repeated cross-validation, whose folds share records, is that of Nadeau and Bengio
        (Machine Learning 52, 2003, 239-281); that of one repeat is sd / sqrt(K).
        """
        import pandas as pd

        n_folds = len(self["fit_time"])
        n_splits = n_folds // len(self["plans"])
        share = 1 / n_folds + (1 / (n_splits - 1) if len(self["plans"]) > 1 else 0.0)
        rows = {}
        for name in self.scores:
            values = np.asarray(self[f"test_{name}"])
            error = float(np.nanstd(values, ddof=1) * np.sqrt(share)) if n_folds > 1 else np.nan
            rows[name] = [np.nanmean(values), error, np.nanmin(values), np.nanmax(values)]
        return pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "standard_error", "min", "max"])

    def to_frame(self) -> pd.DataFrame:
        """Return one row a fold."""
        import pandas as pd

        n_folds = len(self["fit_time"])
        columns = {name: value for name, value in self.items() if isinstance(value, np.ndarray) and value.ndim == 1}
        return pd.DataFrame({name: value for name, value in columns.items() if len(value) == n_folds})

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores."""
        return tuple(name[5:] for name in self if name.startswith("test_"))

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {np.nanmean(self[f'test_{name}']):.4f}" for name in self.scores)
        return f"CVResult({len(self['fit_time'])} folds of {self['plans'][0].strategy}; {means})"


@dataclass(frozen=True)
class _Fold:
    """What one fold gave."""

    model: FederatedEstimator | None
    test: Scores
    train: Scores
    fit_time: float
    score_time: float


def cross_validate(
    estimator: FederatedEstimator,
    federation: Federation,
    *,
    cv: int | FoldSplitter | FoldPlan = 5,
    scoring: Scoring = None,
    allow_leakage: bool = False,
    by_site: bool = True,
    return_train_score: bool = False,
    return_estimator: bool = False,
    error_score: float | Literal["raise"] = np.nan,
    early_stopping: FoldSplitter | None = None,
) -> CVResult:
    """Fit an estimator on all folds but one and score it on that one, for every fold, at the sites.

    Everything that a fit learns from data (scales, bins, imputed values) it learns from its training folds, because it
    gets to see no other records.

    Parameters
    ----------
    estimator : estimator
        Unfitted; cloned for every fold.
    federation : Federation
    cv : int, splitter or FoldPlan, default 5
        A number stands for :class:`HashGroupKFold`, which keeps all records of an identifier together.
    scoring : str or sequence of str, optional
        Names of scores, greater is better; the usual ones of the estimator by default.
    allow_leakage : bool, default False
        Run a strategy that lets records of one person fall in several folds.
    by_site : bool, default True
        Ask each site for its own scores; where a site's policy refuses, they are NaN.
    return_train_score, return_estimator : bool, default False
    error_score : float or "raise", default NaN
        Score of a fold whose data the estimator refuses, with a warning; or raise. What a policy refuses is raised.
    early_stopping : splitter, optional
        For estimators that stop early: divides the training folds once more, and its first fold is what they watch.

    Raises
    ------
    ConfigurationError
        The strategy is not safe against duplicates and `allow_leakage` is not set; or a score is unknown.

    Examples
    --------
    >>> import multicentre as mc
    >>> sites = {f"site-{seed}": mc.datasets.simulate_survival(200, 3, seed) for seed in range(3)}
    >>> sites = {name: data.with_identifier([f"{name}-{i}" for i in range(200)]) for name, data in sites.items()}
    >>> federation = mc.Federation.in_process(sites, secure_sum=True)
    >>> result = cross_validate(mc.survival.FedCox(n_times=20), federation, cv=3, scoring="concordance", by_site=False)
    >>> len(result["test_concordance"]), result["plans"][0].duplicate_safe
    (3, True)
    """
    evaluator = find_evaluator(estimator)
    names = names_of(evaluator, scoring)
    plans = _plans(federation, cv)
    _check_safe([*plans, *([early_stopping] if early_stopping else [])], allow_leakage)
    before = _traffic(federation)

    def run(plan: FoldPlan, fold: int) -> _Fold:
        began = time.perf_counter()
        train, empty = plan.train(fold), Scores({}, 0.0)
        try:
            model = _fit(clone(estimator), train, early_stopping)
            fitted = time.perf_counter()
            test = evaluator(model, plan.test(fold), names, by_site=by_site)
            scored = time.perf_counter()
            seen = evaluator(model, train, names, by_site=False) if return_train_score else empty
        except DataError as error:
            if error_score == "raise":
                raise
            warnings.warn(f"fold {fold} has no score: {error}", FitFailedWarning, stacklevel=3)
            missing = Scores(dict.fromkeys(names, float(error_score)), 0.0)
            return _Fold(None, missing, missing, np.nan, np.nan)
        return _Fold(model, test, seen, fitted - began, scored - fitted)

    found = [run(plan, fold) for plan in plans for fold in range(plan.n_splits)]
    result = _result(found, names, federation.sites)
    result["plans"] = plans
    result["communication"] = {name: value - before[name] for name, value in _traffic(federation).items()}
    if return_train_score:
        result.update({f"train_{name}": np.array([fold.train.values[name] for fold in found]) for name in names})
    if return_estimator:
        result["estimator"] = [fold.model for fold in found]
    return result


def cross_val_score(
    estimator: FederatedEstimator,
    federation: Federation,
    *,
    cv: int | FoldSplitter | FoldPlan = 5,
    scoring: str | None = None,
    allow_leakage: bool = False,
) -> Floats:
    """Return one score of every fold, shape (folds,); see :func:`cross_validate`."""
    result = cross_validate(
        estimator, federation, cv=cv, scoring=scoring, allow_leakage=allow_leakage, by_site=False, error_score="raise"
    )
    return np.asarray(result[f"test_{result.scores[0]}"], dtype=np.float64)


def _plans(federation: Federation, cv: int | FoldSplitter | FoldPlan) -> list[FoldPlan]:
    if isinstance(cv, FoldPlan):
        return [cv]
    splitter = cv if isinstance(cv, FoldSplitter) else HashGroupKFold(cv)
    return splitter.plans(federation)


def _check_safe(made: Sequence[FoldPlan | FoldSplitter], allow_leakage: bool) -> None:
    unsafe = [one for one in made if not one.duplicate_safe]
    if unsafe and not allow_leakage:
        name = unsafe[0].strategy if isinstance(unsafe[0], FoldPlan) else type(unsafe[0]).__name__
        raise ConfigurationError(
            f"{name} lets records of one person fall in several folds, which makes scores too good",
            where="cv",
            mend="Use HashGroupKFold or CovariateFoldKFold, or say allow_leakage=True.",
        )


def _fit(model: FederatedEstimator, train: Federation, early_stopping: FoldSplitter | None) -> FederatedEstimator:
    if early_stopping is None:
        return model.fit(train)
    inner = early_stopping.plan(train)
    fitted: FederatedEstimator = model.fit(inner.train(0), validation=inner.test(0))  # type: ignore[call-arg]
    return fitted


def _result(found: Sequence[_Fold], names: Sequence[str], sites: Sequence[str]) -> CVResult:
    result = CVResult()
    result["fit_time"] = np.array([fold.fit_time for fold in found])
    result["score_time"] = np.array([fold.score_time for fold in found])
    result["n_test"] = np.array([fold.test.n_records for fold in found])
    for name in names:
        result[f"test_{name}"] = np.array([fold.test.values[name] for fold in found])
        own = [[fold.test.by_site.get(site, {}).get(name, np.nan) for site in sites] for fold in found]
        result[f"site_test_{name}"] = np.array(own, dtype=np.float64)
    result["sites"] = tuple(sites)
    return result


def _traffic(federation: Federation) -> dict[str, int]:
    seen = federation.traffic
    return {
        "exchanges": sum(seen.calls.values()),
        "bytes_to_sites": sum(seen.bytes_to_sites.values()),
        "bytes_from_sites": sum(seen.bytes_from_sites.values()),
    }
