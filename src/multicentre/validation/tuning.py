"""Grid search over parameters, with cross-validation that is safe against duplicates."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.model_selection import ParameterGrid

from multicentre.core import side_by_side
from multicentre.core.consortium import Consortium
from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch
from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.figures import Bars, Figure
from multicentre.estimator.parameters import Flag, Integer, ParameterRanges, Where
from multicentre.estimator.presentation import MAX_BARS, number_text
from multicentre.estimator.saved import Arrays
from multicentre.validation.cross_validation import CVResult, cross_validate, unfitted
from multicentre.validation.folds.hashed import HashGroupKFold
from multicentre.validation.folds.plan import FoldPlan
from multicentre.validation.folds.site import MAX_SPLITS
from multicentre.validation.folds.splitter import FoldSplitter
from multicentre.validation.scoring.scores import Evaluator, Scores, find_evaluator, names_of

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Grid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]]


@dataclass(frozen=True)
class BestModel:
    """Evaluator of a search, which scores its best estimator."""

    kind: Evaluator

    @property
    def part(self) -> type[SitePart]:
        """Site part that computes the scores."""
        return self.kind.part

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scores."""
        return self.kind.names

    @property
    def usual(self) -> tuple[str, ...]:
        """Names of the default scores."""
        return self.kind.usual

    def __call__(self, model: Any, federation: Consortium, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score the best estimator of a search."""
        return self.kind(model.best_estimator_, federation, names, by_site=by_site)


class FederatedGridSearchCV(FederatedEstimator):
    """Grid search: cross-validate every combination of parameters on the same folds, and fit the best on all records.

    The search is an estimator. Within :func:`cross_validate` it searches on the training folds only and splits them
    again, so that the outer test fold does not influence the selection (nested cross-validation).

    Parameters
    ----------
    estimator : estimator
        Estimator to tune, not fitted.
    param_grid : mapping of str to sequence, or sequence of mappings
        Values to try by parameter, as for scikit-learn's ``GridSearchCV``.
    cv : int or splitter, default 5
        An integer is the number of folds of :class:`HashGroupKFold`, which keeps all records of an identifier together.
    scoring : str, optional
        One score, greater is better; by default the first default score of the estimator.
    refit : bool, default True
        Fit the best combination on all records.
    allow_leakage : bool, default False
        Permit a strategy that may put records of one person into several folds. It favours models that memorise.

    Attributes
    ----------
    best_params_ : dict
        The first of the combinations with the highest mean score.
    best_score_ : float
        Mean score of this combination over folds. It is too optimistic, because the highest was selected; use an outer
        cross-validation for an unbiased score.
    best_index_ : int
    best_estimator_ : estimator
        Estimator fitted on all records, with `refit`.
    cv_results_ : dict
        As in scikit-learn: ``params``, ``param_<name>``, ``mean_test_score``, ``std_test_score``, ``rank_test_score``,
        ``split<k>_test_score``, ``mean_fit_time``, ``mean_score_time``. Additionally ``left_out``: by combination, the
        sites without which at least one of its folds was fitted or scored because they refused or were lost, with
        reasons (dict of str to str).
    absences_ : str
        Sentence on the fits and scores of folds without a site, over all combinations; empty without them. Scores of
        combinations are comparable only if they are of the same sites.
    scorer_ : str
        Name of the score.
    plans_ : list of FoldPlan

    Examples
    --------
    >>> import multicentre as mc
    >>> sites = {f"site-{seed}": mc.datasets.simulate_survival(150, 3, seed) for seed in range(3)}
    >>> sites = {name: data.with_identifier([f"{name}-{i}" for i in range(150)]) for name, data in sites.items()}
    >>> federation = mc.Federation.in_process(sites)
    >>> booster = mc.survival.FedHazardBoost(max_depth=1)
    >>> search = mc.validation.FederatedGridSearchCV(booster, {"n_estimators": [1, 40]}, cv=3)
    >>> search.fit(federation).best_params_
    {'n_estimators': 40}
    """

    parameter_ranges: ClassVar[ParameterRanges] = {
        "cv": (Integer(2, MAX_SPLITS), Where("a splitter", lambda value: isinstance(value, FoldSplitter))),
        "refit": Flag(),
        "allow_leakage": Flag(),
    }
    best_params_: dict[str, Any]
    best_score_: float
    best_index_: int
    best_estimator_: FederatedEstimator
    cv_results_: dict[str, Any]
    scorer_: str
    plans_: list[FoldPlan]

    def __init__(
        self,
        estimator: FederatedEstimator,
        param_grid: Grid,
        *,
        cv: int | FoldSplitter = 5,
        scoring: str | None = None,
        refit: bool = True,
        allow_leakage: bool = False,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.allow_leakage = allow_leakage

    @property
    def evaluator(self) -> Evaluator:
        """Evaluator of a fitted search: that of its best estimator."""
        return BestModel(find_evaluator(self.estimator))

    @property
    def absences_(self) -> str:
        """Sentence on the fits and scores of folds without a site, over all combinations; empty without them."""
        return CVResult(left_out=self._left_out_by_fold).absences

    def fit(self, federation: Consortium, y: None = None) -> Self:
        """Search over the sites of a federation.

        Parameters
        ----------
        federation : Federation
        y : None
            Not used, present for API consistency by convention.

        Raises
        ------
        ConfigurationError
            `cv` is not safe against duplicates and `allow_leakage` is not set, or a parameter or score is unknown.
        """
        self._search(federation)
        return self

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit of the estimator may use."""
        return self.estimator.planned_steps()

    def to_frame(self) -> pd.DataFrame:
        """Return one row per combination, best first; ``attrs["absences"]`` holds :attr:`absences_`."""
        import pandas as pd

        columns = {name: value for name, value in self.cv_results_.items() if name not in ("params", "left_out")}
        table = pd.DataFrame(columns).sort_values("rank_test_score", kind="stable", ignore_index=True)
        table.attrs["absences"] = self.absences_
        return table

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the scores of all combinations, and the tables of the best model."""
        best = self.best_estimator_.result_tables() if self.refit else {}
        return {"search": self.to_frame(), **best}

    def answer(self) -> str:
        """Return the best combination and its score, and the sites that are missing from scores."""
        chosen = ", ".join(f"{name} = {value}" for name, value in self.best_params_.items())
        score = f"mean {self.scorer_} {number_text(self.best_score_)}"
        best = f"Best of {len(self.cv_results_['params'])} combinations: {chosen} ({score})."
        return " ".join(filter(None, [best, self.absences_]))

    def main_figure(self) -> Figure:
        """Return the mean score of every combination, best first."""
        order = np.argsort(self.cv_results_["rank_test_score"], kind="stable")[:MAX_BARS].tolist()
        texts = [", ".join(f"{k} = {v}" for k, v in self.cv_results_["params"][place].items()) for place in order]
        means = {"mean": [float(self.cv_results_["mean_test_score"][place]) for place in order]}
        caption = "Mean over folds of every combination of parameters."
        return Bars("Scores of the search", caption, "model", f"mean {self.scorer_}", texts, means, {})

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return the metrics of the best estimator; see :meth:`FederatedEstimator.assess`."""
        return self._best().assess(data, labels, training=training, training_labels=training_labels)

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the figures and tables of the best estimator."""
        return self._best().figures(sites, labels)

    def save(self, folder: str | Path) -> None:
        """Write the best estimator, which is loaded by its class: ``type(search.best_estimator_).load(folder)``."""
        self._best().save(folder)

    @property
    def session(self) -> Session:
        """Session of the best estimator's fit."""
        return self._best().session

    def _fit(self, session: Session) -> None:
        """Search on the records of a session."""
        self._search(session.federation)

    def _search(self, federation: Consortium) -> None:
        self._check_parameters()
        combinations = list(ParameterGrid(self.param_grid))
        candidates = [_with_params(self.estimator, params) for params in combinations]
        self.scorer_ = names_of(find_evaluator(self.estimator), self.scoring)[0]
        splitter = self.cv if isinstance(self.cv, FoldSplitter) else HashGroupKFold(self.cv)
        self.plans_ = splitter.plans(federation)
        branches = [plan.branches(len(candidates)) for plan in self.plans_]
        scored = side_by_side.run(
            [
                partial(self._scored, candidate, federation, of_plan[place])
                for place, candidate in enumerate(candidates)
                for of_plan in branches
            ]
        )
        n_plans = len(self.plans_)
        cv_results = [scored[start : start + n_plans] for start in range(0, len(scored), n_plans)]
        self.cv_results_ = _results(combinations, cv_results, self.scorer_)
        self._left_out_by_fold = [left_out for one in scored for left_out in one.get("left_out", ())]
        self.best_index_ = int(self.cv_results_["rank_test_score"].argmin())
        self.best_params_ = combinations[self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.history_, self.privacy_, self.left_out_, self.lost_ = [], None, {}, {}
        if self.refit:
            self.best_estimator_ = unfitted(candidates[self.best_index_]).fit(federation)
            best = self.best_estimator_
            self.history_, self.privacy_ = best.history_, best.privacy_
            self.left_out_, self.lost_ = best.left_out_, best.lost_

    def _scored(self, candidate: FederatedEstimator, federation: Consortium, plan: FoldPlan) -> CVResult:
        terms: dict[str, Any] = {"scoring": self.scorer_, "allow_leakage": self.allow_leakage, "by_site": False}
        assert plan.branch is not None
        try:
            return cross_validate(candidate, federation.as_part_of(plan.branch), cv=plan, **terms)
        except SchemaMismatch:
            raise
        except DataError as error:
            warnings.warn(f"a combination of parameters has no score: {error}", FitFailedWarning, stacklevel=4)
            nothing = np.full(plan.n_splits, np.nan)
            return CVResult(dict.fromkeys(("fit_time", "score_time", f"test_{self.scorer_}"), nothing))

    def _remarks(self) -> str:
        return " ".join(filter(None, [super()._remarks(), self.absences_]))

    def _best(self) -> FederatedEstimator:
        if not hasattr(self, "best_estimator_"):
            raise NotFittedError("There is no best estimator. Call fit with refit=True first.")
        return self.best_estimator_

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._best()._state()

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        raise ConfigurationError(
            "the loaded estimator must be the best estimator of the search; a search cannot be loaded",
            where=type(self).__name__,
            hint="Load the best estimator with its class, type(search.best_estimator_).load(folder).",
        )


def _with_params(estimator: FederatedEstimator, params: Mapping[str, Any]) -> FederatedEstimator:
    try:
        # Nested parameters need a cloned component; fitted models among the parameters are not cloned.
        copy = clone(estimator) if any("__" in name for name in params) else unfitted(estimator)
        candidate: FederatedEstimator = copy.set_params(**params)
    except ValueError:
        parameter_names = ", ".join(sorted(estimator.get_params()))
        raise ConfigurationError(
            f"param_grid must name parameters of {type(estimator).__name__}; got {', '.join(params)}",
            where="param_grid",
            hint=f"The parameters are {parameter_names}.",
        ) from None
    return candidate


def _results(
    combinations: Sequence[Mapping[str, Any]], cv_results: Sequence[Sequence[CVResult]], score: str
) -> dict[str, Any]:
    """Return the results of a search as in scikit-learn.

    Raises
    ------
    DataError
        No combination has scores on all folds.
    """
    scores = np.array([np.concatenate([one[f"test_{score}"] for one in folds]) for folds in cv_results])
    mean = scores.mean(axis=1)
    if np.isnan(mean).all():
        raise DataError(
            "at least one combination of parameters must have scores on all folds; none has",
            where="param_grid",
            hint="See the warnings for the reasons.",
        )
    names = dict.fromkeys(name for params in combinations for name in params)
    results: dict[str, Any] = {"params": [dict(params) for params in combinations]}
    results.update({f"param_{name}": [params.get(name) for params in combinations] for name in names})
    results.update({f"split{fold}_test_score": scores[:, fold] for fold in range(scores.shape[1])})
    results["mean_test_score"], results["std_test_score"] = mean, scores.std(axis=1)
    results["rank_test_score"] = rankdata(-np.nan_to_num(mean, nan=-np.inf), method="min").astype(np.int64)
    results["left_out"] = [
        {site: reason for one in folds for left_out in one.get("left_out", ()) for site, reason in left_out.items()}
        for folds in cv_results
    ]
    for name in ("fit_time", "score_time"):
        results[f"mean_{name}"] = np.array([np.mean([one[name].mean() for one in folds]) for folds in cv_results])
    return results
