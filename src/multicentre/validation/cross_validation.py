"""Cross-validation of federated estimators over the sites of a federation."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import FitFailedWarning

from multicentre.core import side_by_side
from multicentre.core.consortium import Consortium
from multicentre.core.session import Session
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    LeftOutWarning,
    MulticentreError,
    NotConverged,
    SchemaMismatch,
    describe_reasons,
)
from multicentre.estimator.base import FederatedEstimator
from multicentre.validation.folds.plan import FoldPlan
from multicentre.validation.folds.splitter import FoldSplitter
from multicentre.validation.scoring.classes.site import ClassScores
from multicentre.validation.scoring.scores import Evaluator, Scores, find_evaluator, names_of

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# Share of the rarest class below which accuracy says little.
RARE = 0.2
SHARED = "A person with records at several sites may be in both parts of a fold."
Scorer = Callable[[Any, Consortium], float]
Scoring = str | Scorer | Sequence[str] | Mapping[str, str | Scorer] | None


class CVResult(dict[str, Any]):
    """Result of a cross-validation: the keys of scikit-learn, and further keys for a federation.

    These keys hold one entry per fold:

    - ``fit_time``, ``score_time`` (seconds) and ``test_<score>``;
    - with `return_train_score` ``train_<score>``, with `return_estimator` ``estimator``;
    - ``n_test`` (records of the fold), ``bound_<score>`` (largest error of the score by counting in bins) and
      ``share_unknown`` (entries of codes that the training folds lack);
    - ``n_incomplete`` (records of the fold that are not scored because of missing entries, after fits to complete
      records);
    - ``privacy`` (privacy guarantee of the fit; None without noise);
    - ``site_refusals`` (reasons of sites that refuse to return scores) and ``left_out`` (sites without which the model
      was fitted or scored because they refused or were lost, with reasons).

    For classes, ``prevalence`` holds the share of the rarest class over all folds.

    Further keys are ``site_test_<score>`` (array of shape (folds, sites), NaN where a site refuses), ``sites`` (names
    of the sites), ``plans`` (fold plans) and ``communication`` (exchanges, and bytes to and from the sites).
    :attr:`exclusions` describes the records without a fold, :attr:`absences` the folds without some of the sites.
    """

    def summary(self) -> pd.DataFrame:
        """Return mean, standard error and range of every score over the folds with a score.

        The standard error of one repeat is sd / sqrt(K). Folds of repeated cross-validation share records, so its
        standard error is that of Nadeau and Bengio (Machine Learning 52, 2003, 239-281). ``attrs["absences"]`` names
        the sites that were left out of folds; it is empty without them.
        """
        import pandas as pd

        rows = {}
        for name in self.scores:
            values = np.asarray(self[f"test_{name}"], dtype=np.float64)
            finite_values = values[np.isfinite(values)]
            spread = float(finite_values.std(ddof=1)) if len(finite_values) > 1 else np.nan
            ends = [finite_values.min(), finite_values.max()] if len(finite_values) else [np.nan, np.nan]
            mean = finite_values.mean() if len(finite_values) else np.nan
            rows[name] = [mean, spread * np.sqrt(self._share(len(finite_values))), *ends]
        summary = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "standard_error", "min", "max"])
        summary.attrs["absences"] = self.absences
        return summary

    def held_out_sites(self) -> pd.DataFrame:
        """Return the scores of each held-out site with intervals, their random effects, and a prediction interval.

        A row per score and site of :class:`LeaveOneSiteOut`: discrimination, calibration slope and intercept, Brier
        score; see :func:`~multicentre.validation.held_out.tabulate_sites`.

        Raises
        ------
        ConfigurationError
            Folds are not sites.
        """
        from multicentre.validation.held_out import tabulate_sites

        if not self["held_out"]:
            raise ConfigurationError(
                f"every fold must be a site; got folds of {self['plans'][0].strategy}",
                where="cv",
                hint="Use cv=LeaveOneSiteOut().",
            )
        return tabulate_sites(self["held_out"])

    def to_frame(self) -> pd.DataFrame:
        """Return one row per fold."""
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
        """Sentences on the records without a fold, one per plan with such records; empty without them."""
        return " ".join(dict.fromkeys(plan.exclusions for plan in self["plans"] if plan.exclusions))

    @property
    def absences(self) -> str:
        """Sentence on the folds that were fitted or scored without a site; empty without them."""
        without = [left_out for left_out in self.get("left_out", ()) if left_out]
        if not without:
            return ""
        reasons = {site: reason for left_out in without for site, reason in left_out.items()}
        n_folds = len(self["left_out"])
        return f"{len(without)} of {n_folds} folds are without sites ({describe_reasons(reasons)})."

    def _share(self, n_scores: int) -> float:
        """Return the squared standard error of the mean over the variance of the folds."""
        n_splits = self["plans"][0].n_splits
        return 1 / max(n_scores, 1) + (1 / (n_splits - 1) if len(self["plans"]) > 1 else 0.0)

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {mean:.4f}" for name, mean in self.summary()["mean"].items())
        description = f"CVResult({len(self['fit_time'])} folds of {self['plans'][0].strategy}; {means})"
        if "prevalence" in self:
            description += f". The rarest class has {100 * self['prevalence']:.1f} % of the records"
        n_incomplete = int(np.nansum(self.get("n_incomplete", 0)))
        if n_incomplete:
            description += f". {n_incomplete:,} records with missing entries are not scored"
        plan = self["plans"][0]
        shared = "" if plan.duplicate_safe or not is_external(plan) else SHARED
        remarks = " ".join(filter(None, [self.absences, self.exclusions, shared]))
        return f"{description}. {remarks}" if remarks else description


@dataclass(frozen=True)
class _Judge:
    """Requested scores: those of the package, under the requested names, and callables of the analyst."""

    evaluator: Evaluator | None
    source_names: Mapping[str, str]
    callables: Mapping[str, Scorer]

    def __call__(self, model: FederatedEstimator, federation: Consortium, *, by_site: bool) -> Scores:
        values: dict[str, float] = {}
        site_values: dict[str, dict[str, float]] = {}
        facts: Mapping[str, float] = {}
        refused: Mapping[str, str] = {}
        left_out: Mapping[str, str] = {}
        n_records = np.nan
        held_out: Mapping[str, Mapping[str, float]] = {}
        if self.evaluator is not None:
            names = tuple(dict.fromkeys(self.source_names.values()))
            scores = self._scored(self.evaluator, model, federation, names, by_site=by_site)
            values = self._renamed(scores.values)
            site_values = {site: self._renamed(each) for site, each in scores.by_site.items()}
            facts, n_records, refused, left_out = scores.facts, scores.n_records, scores.refused, scores.left_out
            held_out = scores.held_out
        values |= {name: float(scorer(model, federation)) for name, scorer in self.callables.items()}
        return Scores(values, n_records, site_values, facts, refused, left_out, held_out)

    def _scored(
        self,
        evaluator: Evaluator,
        model: FederatedEstimator,
        federation: Consortium,
        names: Sequence[str],
        *,
        by_site: bool,
    ) -> Scores:
        """Return all scores; undefined ones are left out with a warning, unless all are undefined."""
        try:
            return evaluator(model, federation, names, by_site=by_site)
        except SchemaMismatch:
            raise
        except DataError as error:
            if len(names) == 1:
                raise
            last_error = error
        partial_scores: list[Scores] = []
        for name in names:
            try:
                partial_scores.append(evaluator(model, federation, (name,), by_site=by_site))
            except DataError as error:
                last_error = error
                warnings.warn(f"the score {name} is undefined: {error}", FitFailedWarning, stacklevel=6)
        if not partial_scores:
            raise last_error
        site_values: dict[str, dict[str, float]] = {}
        for each in partial_scores:
            for site, values in each.by_site.items():
                site_values.setdefault(site, {}).update(values)
        joined = {name: value for each in partial_scores for name, value in each.values.items()}
        facts = {name: value for each in partial_scores for name, value in each.facts.items()}
        left_out = {site: reason for each in partial_scores for site, reason in each.left_out.items()}
        first = partial_scores[0]
        return Scores(joined, first.n_records, site_values, facts, first.refused, left_out)

    def _renamed(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return scores under the requested names, followed by those of single views."""
        renamed = {name: values[source] for name, source in self.source_names.items() if source in values}
        return renamed | {name: value for name, value in values.items() if "/" in name}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scores."""
        return (*self.source_names, *self.callables)


@dataclass(frozen=True)
class _Fold:
    """Result of one fold."""

    n_test: float
    model: FederatedEstimator | None = None
    test: Scores = Scores({}, np.nan)  # noqa: RUF009  # frozen
    train: Scores = Scores({}, np.nan)  # noqa: RUF009  # frozen
    fit_time: float = np.nan
    score_time: float = np.nan
    absent: Mapping[str, str] = field(default_factory=dict)
    """Sites that the fit lost or left out."""
    failure: MulticentreError | None = None

    @property
    def lost(self) -> dict[str, str]:
        """Sites of :attr:`left_out` without those that the fit left out with a warning."""
        announced = {} if self.model is None else self.model.left_out_
        return {site: reason for site, reason in self.left_out.items() if site not in announced}

    @property
    def left_out(self) -> dict[str, str]:
        """Sites without which the model was fitted or scored, and why."""
        unscored = {**self.train.left_out, **self.test.left_out}
        return {**{site: f"not scored: {reason}" for site, reason in unscored.items()}, **self.absent}


@dataclass(frozen=True)
class _Terms:
    """Settings of the fit and the scores in every fold."""

    estimator: FederatedEstimator
    judge: _Judge
    by_site: bool
    train_too: bool
    error_score: float | Literal["raise"]
    early_stopping: FoldSplitter | None

    def run(self, plan: FoldPlan, fold: int) -> _Fold:
        """Fit on all folds except one, and score on that one."""
        n_test = float(plan.counts[fold])
        try:
            began = side_by_side.clock()
            train = plan.train(fold)
            model = self._fit(train)
            absent = _absent_from(model)
            fitted = side_by_side.clock()
            test = self._judged(model, plan.test(fold))
            scored = side_by_side.clock()
            train_scores = self.judge(model, train, by_site=False) if self.train_too else Scores({}, np.nan)
        except SchemaMismatch:
            raise
        except (DataError, NotConverged) as error:
            if self.error_score == "raise":
                raise
            warnings.warn(f"fold {fold} has no score: {error}", FitFailedWarning, stacklevel=4)
            return _Fold(n_test, failure=error)
        return _Fold(n_test, model, test, train_scores, fitted - began, scored - fitted, absent)

    def _judged(self, model: FederatedEstimator, test: Consortium) -> Scores:
        """Return the scores of a fold; those of a held-out site that refuses are missing, with its reason."""
        try:
            return self.judge(model, test, by_site=self.by_site)
        except DisclosureRefused as refused:
            if len(test.sites) > 1:
                raise
            return Scores({}, np.nan, left_out={test.sites[0]: refused.what})

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
    """Fit an estimator on all folds except one and score it on that one, for every fold, at the sites.

    Everything that a fit estimates from data (scales, bins, imputed values) is estimated from its training folds,
    because the fit uses only their records.

    Parameters
    ----------
    estimator : estimator
        A new estimator with the same parameters is fitted for every fold; the argument is not changed.
    federation : Federation
        Sites whose records are split into folds.
    cv : int, splitter or FoldPlan, default 5
        An integer is the number of folds of :class:`HashGroupKFold`, which keeps all records of an identifier together.
    scoring : str, callable, sequence of str, or mapping of str to str or callable, optional
        Names of scores, greater is better. By default the usual ones of the estimator, and for classes of which the
        rarest has less than a fifth of the records also the area under the ROC curve, because the accuracy of a model
        that never predicts it is high. A callable has the fitted model and the federation of the held-out records as
        arguments and returns a number.
    allow_leakage : bool, default False
        Permit a strategy that may put records of one person into several folds, or an estimator with fitted models as
        parameters, which may have been fitted to the records of a fold.
    by_site : bool, default True
        Request the scores of each site; if a site's policy refuses, they are NaN.
    return_train_score : bool, default False
        Also score the training folds.
    return_estimator : bool, default False
        Keep the fitted estimators in the result.
    error_score : float or "raise", default NaN
        Score of a fold on which the estimator raises DataError or NotConverged, with a warning; or "raise". Refusals by
        a policy are always raised.
    early_stopping : splitter, optional
        Splitter of the training folds for estimators with early stopping; its first fold is used for validation.

    Raises
    ------
    ConfigurationError
        Raised before any request: the strategy is not safe against duplicates and `allow_leakage` is not set, the
        estimator makes no predictions, a score is unknown, or an argument is out of range.
    DataError
        A site lacks the column of the strategy, sites differ, or no fold could be fitted and scored.
    RefusedByPolicy, DisclosureRefused
        A site's policy does not permit a fit or a score.

    Warns
    -----
    LeftOutWarning
        A fold was scored without a site that refused or was lost.

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
            "cv must be a plan of this federation and its records; got a plan of another federation or other records",
            where="cv",
            hint="Create it with splitter.plan(federation).",
        )
    before = _traffic(federation)
    plans = [splitter] if isinstance(splitter, FoldPlan) else splitter.plans(federation)
    for plan in plans:
        plan.check_quorum()
    prevalence = _prevalence(plans[0])
    if scoring is None and prevalence < RARE and isinstance(judge.evaluator, ClassScores):
        judge = _judge(estimator, _scores_of_rare_classes(judge.evaluator, plans[0]))
        terms = replace(terms, judge=judge)
    branches = [(branch, fold) for plan in plans for fold, branch in enumerate(plan.branches(plan.n_splits))]
    folds = side_by_side.run([partial(terms.run, branch, fold) for branch, fold in branches])
    failures = [fold.failure for fold in folds if fold.failure is not None]
    if len(failures) == len(folds):
        raise failures[0]
    result = _result(folds, judge.names, federation.sites, error_score)
    result["plans"] = plans
    announced = {site for plan in plans for site in plan.session.left_out}  # with a warning, when the plan was made
    if any(fold.lost.keys() - announced for fold in folds):
        warnings.warn(result.absences, LeftOutWarning, stacklevel=2)
    if np.isfinite(prevalence):
        result["prevalence"] = prevalence
    result["privacy"] = [getattr(fold.model, "privacy_", None) for fold in folds]
    result["communication"] = {name: value - before[name] for name, value in _traffic(federation).items()}
    if return_train_score:
        result.update(_columns(folds, judge.names, error_score, train=True))
    if return_estimator:
        result["estimator"] = [fold.model for fold in folds]
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
    """Return one score per fold, shape (folds,); see :func:`cross_validate`. An error in a fold is raised.

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
            f"estimator must be a federated estimator; got {type(estimator).__name__}",
            where="estimator",
            hint="Use one of the package's estimators.",
        )
    if not (scoring is None or callable(scoring) or isinstance(scoring, str | Sequence | Mapping)):
        raise ConfigurationError(
            f"scoring must be a name, a sequence or mapping of names, or a callable; got {type(scoring).__name__}",
            where="scoring",
            hint="See the names of the estimator's scores.",
        )
    if callable(scoring):
        return _Judge(None, {}, {"score": scoring})
    if scoring is None or isinstance(scoring, str):
        evaluator = find_evaluator(estimator)
        return _Judge(evaluator, {name: name for name in names_of(evaluator, scoring)}, {})
    requested = dict(scoring) if isinstance(scoring, Mapping) else {name: name for name in scoring}
    callables = {name: one for name, one in requested.items() if callable(one)}
    score_names = {name: one for name, one in requested.items() if not callable(one)}
    if callables and not score_names:
        return _Judge(None, {}, callables)
    evaluator = find_evaluator(estimator)
    names_of(evaluator, list(score_names.values()))
    return _Judge(evaluator, score_names, callables)


def _prevalence(plan: FoldPlan) -> float:
    """Return the share of the rarest class; NaN if the records have no classes."""
    totals = plan.class_table.sum(axis=0)
    totals = totals[totals > 0]
    return float(totals.min() / totals.sum()) if len(totals) > 1 else np.nan


def _scores_of_rare_classes(evaluator: ClassScores, plan: FoldPlan) -> tuple[str, ...]:
    """Return the usual scores after the area under the ROC curve."""
    n_classes = int((plan.class_table.sum(axis=0) > 0).sum())
    return tuple(dict.fromkeys(("roc_auc" if n_classes == 2 else "roc_auc_ovr", *evaluator.usual)))


def _splitter(cv: object) -> FoldSplitter | FoldPlan:
    if isinstance(cv, FoldPlan | FoldSplitter):
        return cv
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        from multicentre.validation.folds.hashed import HashGroupKFold

        return HashGroupKFold(int(cv))
    raise ConfigurationError(
        f"cv must be an int, a splitter or a FoldPlan; got {type(cv).__name__}",
        where="cv",
        hint="Pass a number of folds, a splitter such as HashGroupKFold(5), or a plan.",
    )


def is_external(strategy: FoldPlan | FoldSplitter) -> bool:
    """Return whether every fold is a site, so that a model is tested at a site that it was not fitted to.

    A person with records at several sites may then be in both parts. This is stated in the result.
    """
    return "held_out" in strategy.facts if isinstance(strategy, FoldPlan) else not strategy.mixes_sites


def _check_safe(strategies: Sequence[FoldPlan | FoldSplitter], allow_leakage: bool) -> None:
    unsafe = [one for one in strategies if not one.duplicate_safe and not is_external(one)]
    if unsafe and not allow_leakage:
        name = unsafe[0].strategy if isinstance(unsafe[0], FoldPlan) else type(unsafe[0]).__name__
        raise ConfigurationError(
            f"cv must keep all records of a person in one fold; got {name}, whose scores are too optimistic",
            where="cv",
            hint="Use HashGroupKFold or CovariateFoldKFold, or pass allow_leakage=True.",
        )


def _check_estimator(
    estimator: FederatedEstimator, federation: object, early_stopping: FoldSplitter | None, allow_leakage: bool
) -> None:
    if not isinstance(federation, Consortium):
        raise ConfigurationError(
            f"federation must be a Federation; got {type(federation).__name__}",
            where="federation",
            hint="Create one with multicentre.Federation.in_process({site: data}).",
        )
    if early_stopping is not None and not isinstance(early_stopping, FoldSplitter):
        raise ConfigurationError(
            f"early_stopping must be a splitter; got {type(early_stopping).__name__}",
            where="early_stopping",
            hint="Pass a splitter such as HashGroupKFold(10).",
        )
    if early_stopping is not None and "validation" not in inspect.signature(estimator.fit).parameters:
        raise ConfigurationError(
            f"{type(estimator).__name__} does not support early stopping",
            where="early_stopping",
            hint="Leave the argument out.",
        )
    with_models = [name for name, value in estimator.get_params(deep=False).items() if _contains_models(value)]
    if with_models and not allow_leakage:
        raise ConfigurationError(
            "parameters must not contain fitted models, which may have been fitted to the records of a fold; got "
            "fitted models",
            where=f"{type(estimator).__name__}, {with_models[0]}",
            hint="If they were fitted to other people, pass allow_leakage=True.",
        )


def _contains_models(value: object) -> bool:
    many = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(one, BaseEstimator) and _is_fitted(one) for one in many)


def _is_fitted(model: BaseEstimator) -> bool:
    return any(name.endswith("_") and not name.startswith("_") for name in vars(model))


def _checked_score(error_score: object) -> float | Literal["raise"]:
    if error_score == "raise":
        return "raise"
    if isinstance(error_score, int | float | np.number) and not isinstance(error_score, bool):
        return float(error_score)
    raise ConfigurationError(
        f'error_score must be a number or "raise"; got {error_score!r}',
        where="error_score",
        hint='Pass a number, or "raise".',
    )


def _result(
    folds: Sequence[_Fold], names: Sequence[str], sites: Sequence[str], error_score: float | Literal["raise"]
) -> CVResult:
    result = CVResult()
    for name in ("fit_time", "score_time", "n_test"):
        result[name] = np.array([getattr(fold, name) for fold in folds], dtype=np.float64)
    result.update(_columns(folds, names, error_score))
    for name in result.scores:
        site_scores = [[fold.test.by_site.get(site, {}).get(name, np.nan) for site in sites] for fold in folds]
        result[f"site_test_{name}"] = np.array(site_scores, dtype=np.float64)
    for fact in dict.fromkeys(fact for fold in folds for fact in fold.test.facts):
        result[fact] = np.array([fold.test.facts.get(fact, np.nan) for fold in folds], dtype=np.float64)
    result["held_out"] = _profiles(folds)
    result["sites"] = tuple(sites)
    result["site_refusals"] = [dict(fold.test.refused) for fold in folds]
    result["left_out"] = [fold.left_out for fold in folds]
    return result


def _profiles(folds: Sequence[_Fold]) -> dict[str, Mapping[str, float]]:
    """Return the scores of held-out sites by name; empty if folds have several sites."""
    return {site: scores for fold in folds for site, scores in fold.test.held_out.items()}


def _absent_from(model: FederatedEstimator) -> dict[str, str]:
    """Return the sites that a fit lost or left out; a search has several fits, and no session."""
    session: Session | None = getattr(model, "_session", None)
    return dict(model.left_out_) if session is None else session.absent


def _columns(
    folds: Sequence[_Fold], names: Sequence[str], error_score: float | Literal["raise"], *, train: bool = False
) -> dict[str, Floats]:
    """Return every score by fold; those of single views follow the requested ones."""
    scores = [fold.train if train else fold.test for fold in folds]
    every = dict.fromkeys([*names, *(name for each in scores for name in each.values)])
    failed = np.nan if error_score == "raise" else float(error_score)
    pairs = list(zip(folds, scores, strict=True))
    values = {
        name: [failed if fold.model is None else one.values.get(name, np.nan) for fold, one in pairs] for name in every
    }
    stem = "train" if train else "test"
    return {f"{stem}_{name}": np.array(column, dtype=np.float64) for name, column in values.items()}


def _traffic(federation: Consortium) -> dict[str, int]:
    traffic = federation.traffic
    return {
        "exchanges": traffic.round_trips,
        "bytes_to_sites": sum(traffic.bytes_to_sites.values()),
        "bytes_from_sites": sum(traffic.bytes_from_sites.values()),
    }
