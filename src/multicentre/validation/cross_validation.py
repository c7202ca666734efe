"""Cross-validation of any estimator over the sites of a federation."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import FitFailedWarning

from multicentre.estimator.base import FederatedEstimator
from multicentre.federation.consortium import Consortium
from multicentre.federation.errors import (
    ConfigurationError,
    DataError,
    MulticentreError,
    NotConverged,
    SchemaMismatch,
)
from multicentre.validation.folds.plan import FoldPlan
from multicentre.validation.folds.splitter import FoldSplitter
from multicentre.validation.scoring.scores import Evaluator, Scores, find_evaluator, names_of

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Scorer = Callable[[Any, Consortium], float]
Scoring = str | Scorer | Sequence[str] | Mapping[str, str | Scorer] | None


class CVResult(dict[str, Any]):
    """What cross-validation found: scikit-learn's keys, and what only a federation has.

    One entry a fold each: ``fit_time``, ``score_time`` (seconds), ``test_<score>``, with `return_train_score`
    ``train_<score>``, with `return_estimator` ``estimator``; and ``n_test`` (records of the fold), ``bound_<score>``
    (by how much counting in bins may put the score off), ``share_unknown`` (entries of codes that the training folds
    lack), ``privacy`` (what the fit promises a patient; None without noise). Besides, ``site_test_<score>`` (array of
    shape (folds, sites), NaN where a site lets none out), ``sites`` (their names), ``site_refusals`` (by fold, the
    reasons of sites that let none out), ``left_out`` (by fold, sites that the fit was made without since they refused,
    and why), ``plans`` (the plans of folds) and ``communication`` (exchanges, and bytes to and from the sites).
    :attr:`exclusions` says in words how many records are in no fold.
    """

    def summary(self) -> pd.DataFrame:
        """Return mean, standard error and range of every score over the folds that have one.

        The standard error of one repeat is sd / sqrt(K); that of repeated cross-validation, whose folds share records,
        is that of Nadeau and Bengio (Machine Learning 52, 2003, 239-281).
        """
        import pandas as pd

        rows = {}
        for name in self.scores:
            values = np.asarray(self[f"test_{name}"], dtype=np.float64)
            known = values[np.isfinite(values)]
            spread = float(known.std(ddof=1)) if len(known) > 1 else np.nan
            ends = [known.min(), known.max()] if len(known) else [np.nan, np.nan]
            mean = known.mean() if len(known) else np.nan
            rows[name] = [mean, spread * np.sqrt(self._share(len(known))), *ends]
        return pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "standard_error", "min", "max"])

    def to_frame(self) -> pd.DataFrame:
        """Return one row a fold."""
        import pandas as pd

        places = [(repeat, fold) for repeat, plan in enumerate(self["plans"]) for fold in range(plan.n_splits)]
        columns = {name: value for name, value in self.items() if isinstance(value, np.ndarray) and value.ndim == 1}
        return pd.DataFrame(columns, index=pd.MultiIndex.from_tuples(places, names=["repeat", "fold"]))

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores."""
        return tuple(name[5:] for name in self if name.startswith("test_"))

    @property
    def exclusions(self) -> str:
        """Sentence on the records that neither train nor test any fold, one per plan that has some; empty for none."""
        return " ".join(dict.fromkeys(plan.exclusions for plan in self["plans"] if plan.exclusions))

    def _share(self, n_known: int) -> float:
        """Return the squared standard error of the mean over the variance of the folds."""
        n_splits = self["plans"][0].n_splits
        return 1 / max(n_known, 1) + (1 / (n_splits - 1) if len(self["plans"]) > 1 else 0.0)

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {mean:.4f}" for name, mean in self.summary()["mean"].items())
        told = f"CVResult({len(self['fit_time'])} folds of {self['plans'][0].strategy}; {means})"
        return f"{told}. {self.exclusions}" if self.exclusions else told


@dataclass(frozen=True)
class _Judge:
    """All wanted scores: those of the package, under the names that they are told by, and the analyst's own."""

    evaluator: Evaluator | None
    known: Mapping[str, str]
    own: Mapping[str, Scorer]

    def __call__(self, model: FederatedEstimator, federation: Consortium, *, by_site: bool) -> Scores:
        values: dict[str, float] = {}
        own: dict[str, dict[str, float]] = {}
        facts: Mapping[str, float] = {}
        refused: Mapping[str, str] = {}
        n_records = np.nan
        if self.evaluator is not None:
            names = tuple(dict.fromkeys(self.known.values()))
            found = self._scored(self.evaluator, model, federation, names, by_site=by_site)
            values = self._renamed(found.values)
            own = {site: self._renamed(each) for site, each in found.by_site.items()}
            facts, n_records, refused = found.facts, found.n_records, found.refused
        values |= {name: float(scorer(model, federation)) for name, scorer in self.own.items()}
        return Scores(values, n_records, own, facts, refused)

    def _scored(
        self,
        evaluator: Evaluator,
        model: FederatedEstimator,
        federation: Consortium,
        names: Sequence[str],
        *,
        by_site: bool,
    ) -> Scores:
        """Return all scores, those that the records do not allow as NaN unless none is left."""
        try:
            return evaluator(model, federation, names, by_site=by_site)
        except SchemaMismatch:
            raise
        except DataError as error:
            if len(names) == 1:
                raise
            last = error
        found = []
        for name in names:
            try:
                found.append(evaluator(model, federation, (name,), by_site=by_site))
            except DataError as error:
                last = error
                warnings.warn(f"there is no {name}: {error}", FitFailedWarning, stacklevel=6)
        if not found:
            raise last
        own: dict[str, dict[str, float]] = {}
        for each in found:
            for site, values in each.by_site.items():
                own.setdefault(site, {}).update(values)
        joined = {name: value for each in found for name, value in each.values.items()}
        facts = {name: value for each in found for name, value in each.facts.items()}
        return Scores(joined, found[0].n_records, own, facts, found[0].refused)

    def _renamed(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return scores under the wanted names, and those of single views after them."""
        told = {name: values[known] for name, known in self.known.items() if known in values}
        return told | {name: value for name, value in values.items() if "/" in name}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scores."""
        return (*self.known, *self.own)


@dataclass(frozen=True)
class _Fold:
    """What one fold gave."""

    n_test: float
    model: FederatedEstimator | None = None
    test: Scores = Scores({}, np.nan)  # noqa: RUF009  # frozen
    train: Scores = Scores({}, np.nan)  # noqa: RUF009  # frozen
    fit_time: float = np.nan
    score_time: float = np.nan
    failure: MulticentreError | None = None


@dataclass(frozen=True)
class _Terms:
    """What is done in every fold."""

    estimator: FederatedEstimator
    judge: _Judge
    by_site: bool
    train_too: bool
    error_score: float | Literal["raise"]
    early_stopping: FoldSplitter | None

    def run(self, plan: FoldPlan, fold: int) -> _Fold:
        """Fit on all folds but one, and score on that one."""
        n_test = float(plan.counts[fold])
        try:
            began = time.perf_counter()
            train = plan.train(fold)
            model = self._fit(train)
            fitted = time.perf_counter()
            test = self.judge(model, plan.test(fold), by_site=self.by_site)
            scored = time.perf_counter()
            seen = self.judge(model, train, by_site=False) if self.train_too else Scores({}, np.nan)
        except SchemaMismatch:
            raise
        except (DataError, NotConverged) as error:
            if self.error_score == "raise":
                raise
            warnings.warn(f"fold {fold} has no score: {error}", FitFailedWarning, stacklevel=4)
            return _Fold(n_test, failure=error)
        return _Fold(n_test, model, test, seen, fitted - began, scored - fitted)

    def _fit(self, train: Consortium) -> FederatedEstimator:
        model = unfitted(self.estimator)
        if self.early_stopping is None:
            return model.fit(train)
        inner = self.early_stopping.plan(train)
        fitted: FederatedEstimator = model.fit(inner.train(0), validation=inner.test(0))  # type: ignore[call-arg]
        return fitted


def cross_validate(
    estimator: FederatedEstimator,
    federation: Consortium,
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
        One with its parameters is made anew for every fold; it stays as it is.
    federation : Federation
    cv : int, splitter or FoldPlan, default 5
        A number stands for :class:`HashGroupKFold`, which keeps all records of an identifier together.
    scoring : str, callable, sequence of str, or mapping of str to str or callable, optional
        Names of scores, greater is better; the usual ones of the estimator by default. A callable takes the fitted
        model and the federation of the held-out records and returns a number.
    allow_leakage : bool, default False
        Run a strategy that lets records of one person fall in several folds, or an estimator that was handed fitted
        models, which may have seen the records of a fold.
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
        Before anything is asked of a site: the strategy is not safe against duplicates and `allow_leakage` is not set,
        the estimator predicts nothing, a score is unknown, or an argument is out of range.
    DataError
        A site lacks what the strategy divides by, sites differ, or no fold at all could be fitted and scored.
    RefusedByPolicy, DisclosureRefused
        A site's policy does not allow a fit or a score.

    Examples
    --------
    >>> import multicentre as mc
    >>> sites = {f"site-{seed}": mc.datasets.simulate_survival(200, 3, seed) for seed in range(3)}
    >>> sites = {name: data.with_identifier([f"{name}-{i}" for i in range(200)]) for name, data in sites.items()}
    >>> federation = mc.Federation.in_process(sites)
    >>> result = cross_validate(mc.survival.FedCox(n_times=20), federation, cv=3, scoring="concordance", by_site=False)
    >>> len(result["test_concordance"]), result["plans"][0].duplicate_safe
    (3, True)
    """
    judge = _judge(estimator, scoring)
    splitter = _splitter(cv)
    _check_estimator(estimator, federation, early_stopping, allow_leakage)
    _check_safe([splitter, *([early_stopping] if early_stopping else [])], allow_leakage)
    terms = _Terms(estimator, judge, by_site, return_train_score, _checked_score(error_score), early_stopping)
    if isinstance(splitter, FoldPlan) and not splitter.session.is_about(federation):
        raise ConfigurationError(
            "the plan is of another federation, or of other records", where="cv", hint="Make it with plan(federation)."
        )
    before = _traffic(federation)
    plans = [splitter] if isinstance(splitter, FoldPlan) else splitter.plans(federation)
    found = [terms.run(plan, fold) for plan in plans for fold in range(plan.n_splits)]
    failures = [fold.failure for fold in found if fold.failure is not None]
    if len(failures) == len(found):
        raise failures[0]
    result = _result(found, judge.names, federation.sites, error_score)
    result["plans"] = plans
    result["privacy"] = [getattr(fold.model, "privacy_", None) for fold in found]
    result["communication"] = {name: value - before[name] for name, value in _traffic(federation).items()}
    if return_train_score:
        result.update(_columns(found, judge.names, error_score, train=True))
    if return_estimator:
        result["estimator"] = [fold.model for fold in found]
    return result


def cross_val_score(
    estimator: FederatedEstimator,
    federation: Consortium,
    *,
    cv: int | FoldSplitter | FoldPlan = 5,
    scoring: str | Scorer | None = None,
    allow_leakage: bool = False,
    early_stopping: FoldSplitter | None = None,
) -> Floats:
    """Return one score of every fold, shape (folds,); see :func:`cross_validate`. A fold that fails raises.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 2))
    >>> data = mc.data.TableData(X, (X[:, 0] > 0).astype(int), [f"person-{row}" for row in range(600)])
    >>> sites = {name: data.take(np.arange(place, 600, 3)) for place, name in enumerate(["lyon", "oslo", "graz"])}
    >>> federation = mc.Federation.in_process(sites)
    >>> cross_val_score(mc.boosting.FedXGBClassifier(3), federation, cv=3).shape
    (3,)
    """
    result = cross_validate(
        estimator,
        federation,
        cv=cv,
        scoring=scoring,
        allow_leakage=allow_leakage,
        by_site=False,
        error_score="raise",
        early_stopping=early_stopping,
    )
    return np.asarray(result[f"test_{result.scores[0]}"], dtype=np.float64)


def unfitted(estimator: FederatedEstimator) -> FederatedEstimator:
    """Return a new estimator with the same parameters; unlike ``clone``, fitted models among them stay fitted.

    Examples
    --------
    >>> import multicentre as mc
    >>> unfitted(mc.boosting.FedXGBClassifier(7)).n_estimators
    7
    """
    return type(estimator)(**estimator.get_params(deep=False))


def _judge(estimator: object, scoring: Scoring) -> _Judge:
    if not isinstance(estimator, FederatedEstimator):
        raise ConfigurationError(
            f"{type(estimator).__name__} is not fitted over a federation",
            where="estimator",
            hint="Give one of the package's federated estimators.",
        )
    if not (scoring is None or callable(scoring) or isinstance(scoring, str | Sequence | Mapping)):
        raise ConfigurationError(
            f"{type(scoring).__name__} names no score", where="scoring", hint="Give a name, several, or a function."
        )
    if callable(scoring):
        return _Judge(None, {}, {"score": scoring})
    if scoring is None or isinstance(scoring, str):
        evaluator = find_evaluator(estimator)
        return _Judge(evaluator, {name: name for name in names_of(evaluator, scoring)}, {})
    wanted = dict(scoring) if isinstance(scoring, Mapping) else {name: name for name in scoring}
    own = {name: one for name, one in wanted.items() if callable(one)}
    told = {name: one for name, one in wanted.items() if not callable(one)}
    if own and not told:
        return _Judge(None, {}, own)
    evaluator = find_evaluator(estimator)
    names_of(evaluator, list(told.values()))
    return _Judge(evaluator, told, own)


def _splitter(cv: object) -> FoldSplitter | FoldPlan:
    if isinstance(cv, FoldPlan | FoldSplitter):
        return cv
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        from multicentre.validation.folds.hashed import HashGroupKFold

        return HashGroupKFold(int(cv))
    raise ConfigurationError(
        f"{type(cv).__name__} divides no federation",
        where="cv",
        hint="Give a number of folds, a splitter such as HashGroupKFold(5), or a plan.",
    )


def _check_safe(made: Sequence[FoldPlan | FoldSplitter], allow_leakage: bool) -> None:
    unsafe = [one for one in made if not one.duplicate_safe]
    if unsafe and not allow_leakage:
        name = unsafe[0].strategy if isinstance(unsafe[0], FoldPlan) else type(unsafe[0]).__name__
        raise ConfigurationError(
            f"{name} lets records of one person fall in several folds, which makes scores too good",
            where="cv",
            hint="Use HashGroupKFold or CovariateFoldKFold, or say allow_leakage=True.",
        )


def _check_estimator(
    estimator: FederatedEstimator, federation: object, early_stopping: FoldSplitter | None, allow_leakage: bool
) -> None:
    if not isinstance(federation, Consortium):
        raise ConfigurationError(
            f"{type(federation).__name__} is no federation",
            where="federation",
            hint="Make one with multicentre.Federation.in_process({site: data}).",
        )
    if early_stopping is not None and not isinstance(early_stopping, FoldSplitter):
        raise ConfigurationError(
            f"{type(early_stopping).__name__} divides no federation",
            where="early_stopping",
            hint="Give a splitter such as HashGroupKFold(10).",
        )
    if early_stopping is not None and "validation" not in inspect.signature(estimator.fit).parameters:
        raise ConfigurationError(
            f"{type(estimator).__name__} watches no records while it is fitted",
            where="early_stopping",
            hint="Leave it out.",
        )
    held = [name for name, value in estimator.get_params(deep=False).items() if _holds_models(value)]
    if held and not allow_leakage:
        raise ConfigurationError(
            "models that were fitted before may have seen the records of a fold",
            where=f"{type(estimator).__name__}, {held[0]}",
            hint="If they were fitted to other people, say allow_leakage=True.",
        )


def _holds_models(value: object) -> bool:
    many = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(one, BaseEstimator) and _is_fitted(one) for one in many)


def _is_fitted(model: BaseEstimator) -> bool:
    return any(name.endswith("_") and not name.startswith("_") for name in vars(model))


def _checked_score(error_score: object) -> float | Literal["raise"]:
    if error_score == "raise":
        return "raise"
    if isinstance(error_score, int | float | np.number) and not isinstance(error_score, bool):
        return float(error_score)
    raise ConfigurationError(f"{error_score!r} is no score", where="error_score", hint='Give a number, or "raise".')


def _result(
    found: Sequence[_Fold], names: Sequence[str], sites: Sequence[str], error_score: float | Literal["raise"]
) -> CVResult:
    result = CVResult()
    for name in ("fit_time", "score_time", "n_test"):
        result[name] = np.array([getattr(fold, name) for fold in found], dtype=np.float64)
    result.update(_columns(found, names, error_score))
    for name in result.scores:
        own = [[fold.test.by_site.get(site, {}).get(name, np.nan) for site in sites] for fold in found]
        result[f"site_test_{name}"] = np.array(own, dtype=np.float64)
    for fact in dict.fromkeys(fact for fold in found for fact in fold.test.facts):
        result[fact] = np.array([fold.test.facts.get(fact, np.nan) for fold in found], dtype=np.float64)
    result["sites"] = tuple(sites)
    result["site_refusals"] = [dict(fold.test.refused) for fold in found]
    result["left_out"] = [dict(getattr(fold.model, "left_out_", {})) for fold in found]
    return result


def _columns(
    found: Sequence[_Fold], names: Sequence[str], error_score: float | Literal["raise"], *, train: bool = False
) -> dict[str, Floats]:
    """Return every score by fold; those of single views after the wanted ones."""
    scores = [fold.train if train else fold.test for fold in found]
    every = dict.fromkeys([*names, *(name for each in scores for name in each.values)])
    failed = np.nan if error_score == "raise" else float(error_score)
    pairs = list(zip(found, scores, strict=True))
    values = {
        name: [failed if fold.model is None else one.values.get(name, np.nan) for fold, one in pairs] for name in every
    }
    stem = "train" if train else "test"
    return {f"{stem}_{name}": np.array(column, dtype=np.float64) for name, column in values.items()}


def _traffic(federation: Consortium) -> dict[str, int]:
    seen = federation.traffic
    return {
        "exchanges": sum(seen.calls.values()),
        "bytes_to_sites": sum(seen.bytes_to_sites.values()),
        "bytes_from_sites": sum(seen.bytes_from_sites.values()),
    }
