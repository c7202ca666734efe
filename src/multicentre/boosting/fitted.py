"""Base class of both estimators of federated XGBoost: the fit, the fitted trees, importances and figures."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.boosting import agreement, messages
from multicentre.boosting.maths import Penalty
from multicentre.boosting.messages import LARGEST_BASE, MOST_CUTS, MOST_ROUNDS, RECORDS
from multicentre.boosting.rounds import Plan, best_round, closing_loss, grow_trees
from multicentre.boosting.site import BoostingSite
from multicentre.boosting.trees import LARGEST_VALUE, MOST_DEPTH, Ensemble, to_booster
from multicentre.core.consortium import Consortium
from multicentre.core.run_terms import Traffic
from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.data.missing.filling import FILL_STEPS, FILLING, fill_missing, send_means
from multicentre.data.missing.values import GAP_STEPS, HandlesMissing, Missing, MissingValues, handle_missing
from multicentre.data.table import rows_for
from multicentre.data.tabular import sources_of
from multicentre.errors import ConfigurationError
from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.figures import Bars, Figure, Lines
from multicentre.estimator.parameters import Integer, ParameterRanges, Real, Where
from multicentre.estimator.saved import PLAIN, Arrays, Saved, SavedAttributes, saved_message

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Importance = Literal["gain", "weight", "cover", "total_gain", "total_cover"]
IMPORTANCES: tuple[Importance, ...] = get_args(Importance)
# Number of columns in the summary: those with the largest importances.
N_SUMMARISED = 10
# Number of columns in the plot of importances: more names do not fit on a page.
N_SHOWN = 15
# Largest step of a leaf's log mean: xgboost's own default for Poisson regression.
MAX_DELTA_STEP = 0.7
# Largest penalty: far above the sums of gradients and curvatures of any study, so every leaf is already near zero.
LARGEST_PENALTY = 1e12
_PENALTY = Real(0, LARGEST_PENALTY)
# Largest cut: just below the largest number in single precision, about 3.4e38.
LARGEST_CUT = 3e38


def _are_cuts(value: Any) -> bool:
    """Return whether a value is a list of lists of numbers in single precision."""
    kinds, in_range = (list, tuple), Real(-LARGEST_CUT, LARGEST_CUT)
    return isinstance(value, kinds) and all(
        isinstance(column, kinds) and all(in_range.accepts(cut) for cut in column) for column in value
    )


class FedXGB(HandlesMissing, FederatedEstimator):
    """Base of the classifier and the regressor: parameters, boosting rounds and the fitted ensemble.

    Attributes
    ----------
    ensemble_ : Ensemble
        Fitted trees.
    booster_ : xgboost.Booster
        Fitted trees as an xgboost model; requires the extra ``boost``.
    feature_names_in_ : tuple of str
        Names of the columns.
    n_features_in_ : int
        Number of columns.
    feature_importances_ : array of shape (d,)
        Mean gain of each column's splits, as shares of their sum; others from :meth:`importances`.
    evals_result_ : dict of str to dict of str to list of float
        Loss after each round by metric, for the records ``"training"`` and, if there are any, ``"validation"``.
    best_iteration_ : int
        Index of the last round of the model, from 0.
    missing_values_ : MissingValues
        Counts of missing values and their handling, which :attr:`missing_` shows as a table.
    traffic_ : Traffic
        Calls and bytes of the fit by step, summed over sites.
    """

    site_part: ClassVar[type[SitePart]] = BoostingSite
    parameter_ranges: ClassVar[ParameterRanges] = {
        "n_estimators": Integer(1, MOST_ROUNDS),
        "max_depth": Integer(1, MOST_DEPTH),
        "learning_rate": Real(0, 1, open="low"),
        "reg_lambda": _PENALTY,
        "reg_alpha": _PENALTY,
        "gamma": _PENALTY,
        "min_child_weight": _PENALTY,
        "max_bins": Integer(2, MOST_CUTS + 1),
        "min_samples_leaf": Integer(0, int(RECORDS)),
        "base_score": (None, Real(-LARGEST_BASE, LARGEST_BASE)),
        "n_iter_no_change": (None, Integer(1, MOST_ROUNDS)),
        "cuts": (None, Where("a list of lists of finite numbers", _are_cuts)),
    }
    saved_attributes: ClassVar[SavedAttributes] = {
        "ensemble_": saved_message(Ensemble),
        "best_iteration_": PLAIN,
        "evals_result_": PLAIN,
        "traffic_": Saved(asdict, lambda counts: Traffic(**counts)),
    }
    ensemble_: Ensemble
    best_iteration_: int
    evals_result_: dict[str, dict[str, list[float]]]
    traffic_: Traffic
    n_estimators: int
    max_depth: int
    learning_rate: float
    reg_lambda: float
    reg_alpha: float
    gamma: float
    min_child_weight: float
    max_bins: int
    min_samples_leaf: int
    base_score: float | None
    n_iter_no_change: int | None
    cuts: Sequence[Sequence[float]] | None
    missing: Missing
    _validation: Consortium | None = None

    def fit(self, federation: Consortium, y: None = None, *, validation: Consortium | None = None) -> Self:
        """Fit the trees over the sites of a federation.

        Parameters
        ----------
        federation : Federation
            Sites that hold TableData.
        y : None
            Not used, present for API consistency by convention.
        validation : Federation, optional
            Sites with validation records, for example the test part of a duplicate-safe plan (``plan.test(0)``). Their
            loss is summed after each round for early stopping; no tree is grown on them.

        Returns
        -------
        self

        Raises
        ------
        ConfigurationError
            A parameter is out of its range, or `n_iter_no_change` is set without `validation`.
        SchemaMismatch
            Columns or classes differ between sites, or the outcome does not suit the estimator.
        DataError
            The records are of one class, or a value is outside single precision.
        DisclosureRefused
            A site has fewer records in a group than its policy requires, and the sums are unmasked.
        """
        if validation is not None and not isinstance(validation, Consortium):
            raise ConfigurationError(
                f"validation must be a Federation; got {type(validation).__name__}",
                where="validation",
                hint="Pass the test part of a plan, plan.test(0).",
            )
        if self.n_iter_no_change is not None and validation is None:
            raise ConfigurationError(
                "validation must be a Federation for early stopping; got None",
                where="validation",
                hint="Pass validation=plan.test(0) to fit, or set n_iter_no_change=None.",
            )
        self._validation = validation
        try:
            return super().fit(federation)
        finally:
            self._validation = None

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use."""
        steps = {"describe", "begin", "sum_gradients", "sum_losses"} | GAP_STEPS | self._steps_of_base()
        steps |= FILL_STEPS if self.missing in FILLING else frozenset()
        return frozenset(steps if self.cuts is not None else steps | {"count_below"})

    def predict_margin(self, X: Any) -> Singles:
        """Return the sums of the leaf values, shape (n, k); k is the number of classes if above 2, else 1."""
        return self.ensemble_.predict_margin(self._rows(X))

    @property
    def booster_(self) -> Any:
        """Fitted model as an xgboost.Booster; requires the extra ``boost``."""
        return self.to_booster()

    def to_booster(self) -> Any:
        """Return the fitted model as an xgboost.Booster of the installed version.

        Its columns are numbered, so ``booster.predict(xgboost.DMatrix(X))`` accepts arrays. Set ``feature_names`` for
        frames.

        Raises
        ------
        MissingExtra
            xgboost is not installed.
        """
        check_is_fitted(self, "ensemble_")
        return to_booster(self.ensemble_)

    def importances(self, kind: Importance = "gain") -> Floats:
        """Return the importance of each column, shape (d,), as xgboost's ``get_score``; 0 for a column without a split.

        Parameters
        ----------
        kind : {"gain", "weight", "cover", "total_gain", "total_cover"}
            Mean gain of the column's splits, their number, their mean sum of curvatures, or the sum of either.
        """
        check_is_fitted(self, "ensemble_")
        if kind not in IMPORTANCES:
            raise ConfigurationError(
                f"kind must be one of {', '.join(map(repr, IMPORTANCES))}; got {kind!r}",
                where="kind",
                hint='The default is "gain".',
            )
        trees = self.ensemble_
        inner, n_columns = trees.column >= 0, len(trees.columns)
        column = trees.column[inner]
        n_splits = np.bincount(column, minlength=n_columns).astype(np.float64)
        if kind == "weight":
            return n_splits
        statistic = trees.gain if kind.endswith("gain") else trees.cover
        total = np.zeros(n_columns)
        np.add.at(total, column, statistic[inner])
        return total if kind.startswith("total") else np.asarray(total / np.maximum(n_splits, 1.0))

    def to_frame(self) -> pd.DataFrame:
        """Return all importances, one row per column of the data in their order, and one column per kind."""
        import pandas as pd

        index = pd.Index(self.feature_names_in_, name="column")
        return pd.DataFrame({kind: self.importances(kind) for kind in IMPORTANCES}, index=index)

    def summary(self) -> pd.DataFrame:
        """Return the rounds, the losses of the last round of the model and the largest importances, one row each."""
        import pandas as pd

        from multicentre.estimator.results import with_note

        check_is_fitted(self, "ensemble_")
        last = self.best_iteration_
        rows: dict[str, object] = {"rounds": len(self.history_), "rounds of the model": last + 1}
        for records, losses in self.evals_result_.items():
            rows |= {f"{metric}, {records}": values[last] for metric, values in losses.items()}
        importances = self.feature_importances_
        for column in np.argsort(-importances, kind="stable")[:N_SUMMARISED]:
            rows[f"importance of {self.feature_names_in_[column]}"] = float(importances[column])
        return with_note(pd.DataFrame({"value": list(rows.values())}, index=list(rows), dtype=object), self._remarks())

    @property
    def feature_importances_(self) -> Floats:
        """Mean gain of the splits of each column, as shares of their sum, shape (d,)."""
        gain = self.importances("gain")
        return np.asarray(gain / max(float(gain.sum()), 1e-300))

    @property
    def feature_names_in_(self) -> tuple[str, ...]:
        """Names of the columns."""
        check_is_fitted(self, "ensemble_")
        return self.ensemble_.columns

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        return len(self.feature_names_in_)

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return plots of the importance of columns, and of the loss by round."""
        order = np.argsort(-self.feature_importances_, kind="stable")[:N_SHOWN].tolist()
        shares = {"mean gain": [float(self.feature_importances_[k]) for k in order]}
        caption = "Mean reduction of the loss by a split on the column, as a share of the sum over columns."
        names = [self.feature_names_in_[k] for k in order]
        bars = Bars("Importance of the columns", caption, "model", "share", names, shares, {})
        (metric,) = self.evals_result_["training"]
        series = {name: losses[metric] for name, losses in self.evals_result_.items()}
        rounds = [float(number) for number in range(1, len(self.history_) + 1)]
        text = "Mean loss of the records after each round; the vertical line is the last round of the model."
        marks = {"last": float(self.best_iteration_ + 1)} if "validation" in series else {}
        return [bars, Lines("Loss by round", text, "fit", "round", metric, rounds, series, marks)]

    @abstractmethod
    def _steps_of_base(self) -> frozenset[str]:
        """Return the steps that compute the first margin."""

    @abstractmethod
    def _start(self, session: Session, described: messages.Described) -> dict[str, Any]:
        """Return the fields of Start other than columns and cuts."""

    def _fit(self, session: Session) -> None:
        traffic_before = copy.deepcopy(session.traffic)
        described = agreement.describe(session)
        gaps = handle_missing(session, BoostingSite, described.columns, described.levels, self.missing)
        self.missing_values_ = gaps
        means = fill_missing(session, BoostingSite, described.columns) if self.missing in FILLING else None
        settings = self._start(session, described)
        columns = (*described.columns, *gaps.indicators)
        cuts_by_column = None if self.cuts is None else [*self.cuts, *([_IS_MISSING] for _ in gaps.indicators)]
        cuts, n_cuts = agreement.find_cuts(session, len(columns), int(self.max_bins), cuts_by_column)
        start = messages.Start(
            cuts=cuts,
            n_cuts=n_cuts,
            columns=columns,
            levels=described.levels,
            classes=described.classes,
            **settings,
        )
        agreement.begin(session, start)
        watched = self._watched(session, described, means)
        grown, self.history_ = grow_trees(session, start, self._plan(start), watched)
        self._set_losses(start, closing_loss(session, start, grown))
        n_estimators = (self.best_iteration_ + 1) * len(start.base)
        ensemble = _ensemble(start, grown.first(n_estimators))
        self.ensemble_ = ensemble if means is None else with_defaults(ensemble, gaps, means)
        self.traffic_ = _traffic_since(traffic_before, session.traffic)

    def _watched(
        self, session: Session, described: messages.Described, means: NDArray[np.float64] | None
    ) -> Session | None:
        """Return a new session of the validation records, without the sites that the fit leaves out.

        Missing entries are handled as in the fit.
        """
        if self._validation is None:
            return None
        watched = self._validation.without(session.left_out).begin(self.site_part)
        if self.missing != "native":
            marked = self.missing_values_.incomplete_columns
            handle_missing(watched, BoostingSite, described.columns, described.levels, self.missing, marked=marked)
        if means is not None:
            send_means(watched, BoostingSite, means)
        return watched

    def _plan(self, start: messages.Start) -> Plan:
        penalty = Penalty(
            reg_lambda=float(self.reg_lambda),
            reg_alpha=float(self.reg_alpha),
            gamma=float(self.gamma),
            min_child_weight=float(self.min_child_weight),
            least_records=int(self.min_samples_leaf),
            largest_step=MAX_DELTA_STEP if start.objective == "count:poisson" else 0.0,
            slope_unit=2.0**start.slope_exponent,
            curvature_unit=2.0**start.curvature_exponent,
        )
        patience = int(self.n_iter_no_change or 0)
        return Plan(int(self.n_estimators), int(self.max_depth), float(self.learning_rate), penalty, patience)

    def _set_losses(self, start: messages.Start, closing: float) -> None:
        metric = METRICS[start.objective]
        losses = [each["loss"] for each in self.history_][1:]
        self.evals_result_ = {"training": {metric: [*losses, closing]}}
        watched = [each["watched_loss"] for each in self.history_ if "watched_loss" in each]
        if watched:
            self.evals_result_["validation"] = {metric: watched}
        self.best_iteration_ = best_round(self.history_) if self.n_iter_no_change else len(self.history_) - 1

    def _rows(self, X: Any) -> Floats:
        check_is_fitted(self, "ensemble_")
        rows = rows_for(X, self.feature_names_in_, self.ensemble_.levels)
        self.require_complete(rows)
        return rows

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.ensemble_.check()


# Cut of an indicator column, between its two values: 0 lies below the cut, 1 does not.
_IS_MISSING = 1.0
METRICS = {
    "binary:logistic": "logloss",
    "multi:softprob": "mlogloss",
    "reg:squarederror": "rmse",
    "count:poisson": "poisson-nloglik",
}


def _ensemble(start: messages.Start, grown: messages.Grown) -> Ensemble:
    """Return the trees with thresholds in the units of the columns instead of numbers of bins."""
    n_groups, inner = len(start.base), grown.column >= 0
    first = np.append(0, np.cumsum(start.n_cuts)).astype(np.int64)
    column, cut = grown.column[inner], grown.cut[inner].astype(np.int64)
    padded = np.append(start.cuts, np.float32(0.0))
    threshold = np.zeros(len(grown.column), dtype=np.float32)
    at_cut = padded[np.minimum(first[column] + np.maximum(cut, 0), len(start.cuts))]
    limit = np.float32(LARGEST_VALUE)
    threshold[inner] = np.where(cut < 0, -limit, np.where(cut >= start.n_cuts[column], limit, at_cut))
    return Ensemble(
        start.objective,
        start.columns,
        start.classes,
        start.base,
        grown.roots,
        (np.arange(len(grown.roots)) % n_groups).astype(np.int32),
        grown.column,
        threshold,
        grown.default_left,
        grown.value,
        grown.gain,
        grown.cover,
        grown.weight,
        levels=start.levels,
    ).check()


def with_defaults(ensemble: Ensemble, gaps: MissingValues, means: NDArray[np.float64]) -> Ensemble:
    """Return trees of the original columns with the predictions of trees of filled columns and indicators.

    A missing entry goes to the side of the mean of its column. A split on an indicator becomes a split on the column,
    with missing entries on the right and all others on the left.

    Parameters
    ----------
    ensemble : Ensemble
        Trees of filled columns, followed by the indicators.
    gaps : MissingValues
    means : array of shape (d,)
        Means in place of missing entries.
    """
    columns = ensemble.columns[: len(means)]
    sources = sources_of(columns, ensemble.levels)
    source_of = np.array([*range(len(means)), *(sources.index(name) for name in gaps.incomplete_columns)])
    inner = ensemble.column >= 0
    split = ensemble.column[inner]
    is_indicator, column = split >= len(means), source_of[split]
    default_left, threshold = ensemble.default_left.copy(), ensemble.threshold.copy()
    is_below = means.astype(np.float32)[column] < threshold[inner]
    default_left[inner] = np.where(is_indicator, 0, is_below).astype(np.uint8)
    threshold[inner] = np.where(is_indicator, np.float32(LARGEST_VALUE), threshold[inner])
    source = ensemble.column.copy()
    source[inner] = column
    return replace(ensemble, columns=columns, column=source, threshold=threshold, default_left=default_left).check()


def _traffic_since(before: Traffic, after: Traffic) -> Traffic:
    """Return the calls and bytes between two readings of a session's traffic."""
    steps = [step for step, calls in after.calls.items() if calls > before.calls.get(step, 0)]

    def difference(name: str) -> dict[str, int]:
        return {step: getattr(after, name)[step] - getattr(before, name).get(step, 0) for step in steps}

    return Traffic(difference("calls"), difference("bytes_to_sites"), difference("bytes_from_sites"))
