"""Base class of both estimators of federated XGBoost: the fit, the fitted trees, importances and figures."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.boosting import agreement, messages
from multicentre.boosting.parameters import RANGES, plan_of
from multicentre.boosting.rounds import best_round, closing_loss, grow_trees, to_ensemble, to_grown
from multicentre.boosting.site import BoostingSite
from multicentre.boosting.trees import MAX_VALUE, OBJECTIVES, Ensemble, to_booster
from multicentre.core.consortium import Consortium
from multicentre.core.run_terms import Traffic
from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.data.frames import is_frame, to_pandas
from multicentre.data.missing.filling import FILL_STEPS, FILLING, fill_missing, send_means
from multicentre.data.missing.values import GAP_STEPS, HandlesMissing, Missing, MissingValues, handle_missing
from multicentre.data.table import rows_for
from multicentre.data.tabledata import TableData
from multicentre.data.tabular import sources_of
from multicentre.errors import ConfigurationError, DataError
from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.figures import Bars, Figure, Lines
from multicentre.estimator.parameters import ParameterRanges
from multicentre.estimator.presentation import MAX_BARS, number_text
from multicentre.estimator.saved import PLAIN, Arrays, Saved, SavedAttributes, saved_message

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Importance = Literal["gain", "weight", "cover", "total_gain", "total_cover"]
IMPORTANCES: tuple[Importance, ...] = get_args(Importance)
# Number of columns in the summary: those with the largest importances.
N_SUMMARISED = 10
# Cut of an indicator column, between its two values: 0 lies below the cut, 1 does not.
_IS_MISSING = 1.0


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
    n_initial_rounds_ : int
        Rounds of the model that the fit continued; 0 without one.
    value_digits_ : int
        Binary digits to which values were compared with cuts. 36 distinguish any two numbers in single precision. 28 do
        so for values that differ by more than a 65,536th; they are used if a site's policy has a minimum of patients.
    missing_values_ : MissingValues
        Counts of missing values and their handling, which :attr:`missing_` shows as a table.
    traffic_ : Traffic
        Calls and bytes of the fit by step, summed over sites.
    """

    site_part: ClassVar[type[SitePart]] = BoostingSite
    same_sites: ClassVar[bool] = False
    parameter_ranges: ClassVar[ParameterRanges] = RANGES
    saved_attributes: ClassVar[SavedAttributes] = {
        "ensemble_": saved_message(Ensemble),
        "best_iteration_": PLAIN,
        "n_initial_rounds_": PLAIN,
        "value_digits_": PLAIN,
        "evals_result_": PLAIN,
        "traffic_": Saved(asdict, lambda counts: Traffic(**counts)),
    }
    ensemble_: Ensemble
    best_iteration_: int
    n_initial_rounds_: int
    value_digits_: int
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
    subsample: float
    colsample_bytree: float
    colsample_bylevel: float
    colsample_bynode: float
    monotone_constraints: Mapping[str, int] | None
    interaction_constraints: Sequence[Sequence[str]] | None
    sample_weight: str | None
    base_margin: str | Sequence[str] | None
    random_state: int
    eval_metric: str | None = None
    event: str | None = None
    _validation: Consortium | None = None
    _initial: Ensemble | None = None

    def fit(
        self,
        federation: Consortium,
        y: None = None,
        *,
        validation: Consortium | None = None,
        xgb_model: FedXGB | None = None,
    ) -> Self:
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
        xgb_model : FedXGBClassifier or FedXGBRegressor, optional
            Fitted model to continue: the fit adds `n_estimators` rounds to its trees. Its thresholds are added to the
            cuts, and its first margin is used. On the same records, with the same parameters, the result is that of one
            fit of all rounds.

        Returns
        -------
        self

        Raises
        ------
        ConfigurationError
            A parameter is out of its range, `n_iter_no_change` or `eval_metric` is set without `validation`, or
            `xgb_model` does not fit the parameters.
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
        if (self.n_iter_no_change is not None or self.eval_metric is not None) and validation is None:
            raise ConfigurationError(
                "validation must be a Federation for early stopping and eval_metric; got None",
                where="validation",
                hint="Pass validation=plan.test(0) to fit, or set n_iter_no_change=None and eval_metric=None.",
            )
        if xgb_model is not None:
            check_is_fitted(xgb_model, "ensemble_")
        self._validation, self._initial = validation, None if xgb_model is None else xgb_model.ensemble_
        try:
            return super().fit(federation)
        finally:
            self._validation = self._initial = None

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use."""
        steps = {"describe", "begin", "sum_gradients", "sum_losses"} | GAP_STEPS | self._steps_of_base()
        steps |= FILL_STEPS if self.missing in FILLING else frozenset()
        steps |= {"count_weights"} if self.sample_weight else set()
        steps |= {"assign_columns"} if self._roles.columns else set()
        steps |= {"count_ranks"} if self.eval_metric == "auc" else set()
        return frozenset(steps if self.cuts is not None else steps | {"count_below"})

    def predict_margin(self, X: Any, base_margin: Floats | None = None) -> Singles:
        """Return first margins plus leaf values, shape (n, k); k is the number of classes if above 2, else 1.

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or TableData
            Columns as at the sites; NaN for missing.
        base_margin : array of shape (n, k), optional
            First margins, as of :meth:`xgboost.DMatrix`. If the fit read them from columns, they are by default those
            columns of `X`.
        """
        rows = self._rows(X)
        return self.ensemble_.predict_margin(rows, self._margins_of(X) if base_margin is None else base_margin)

    def apply(self, X: Any) -> NDArray[np.int32]:
        """Return the leaf of each record in each tree, shape (n, t), numbered within the tree as in xgboost."""
        rows = self._rows(X)
        return self.ensemble_.find_nodes(rows)

    @property
    def booster_(self) -> Any:
        """Fitted model as an xgboost.Booster; requires the extra ``boost``."""
        return self.get_booster()

    def get_booster(self) -> Any:
        """Return the fitted model as an xgboost.Booster of the installed version, with the names of the columns.

        For arrays, pass the names: ``xgboost.DMatrix(X, feature_names=booster.feature_names)``. If first margins are
        columns of the records, pass them as ``base_margin``.

        Raises
        ------
        MissingExtra
            xgboost is not installed.
        """
        check_is_fitted(self, "ensemble_")
        return to_booster(self.ensemble_)

    def save_model(self, path: str | Path) -> None:
        """Write the fitted model in the format of xgboost, ``.json`` or ``.ubj``, for use without this package.

        :meth:`save` stores the estimator with its results.
        """
        self.get_booster().save_model(path)

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
        last = self.best_iteration_ - self.n_initial_rounds_
        rows: dict[str, object] = {"rounds": len(self.history_), "rounds of the model": self.best_iteration_ + 1}
        rows["binary digits of values"] = self.value_digits_
        for records, losses in self.evals_result_.items():
            rows |= {f"{metric}, {records}": values[last] for metric, values in losses.items()}
        importances = self.feature_importances_
        for column in np.argsort(-importances, kind="stable")[:N_SUMMARISED]:
            rows[f"importance of {self.feature_names_in_[column]}"] = float(importances[column])
        return with_note(
            pd.DataFrame({"value": list(rows.values())}, index=list(rows), dtype=object),
            self._remarks(),
            model=self.describe_model(),
        )

    def answer(self) -> str:
        """Return the last losses of the model, and the column with the largest importance."""
        check_is_fitted(self, "ensemble_")
        last = self.best_iteration_ - self.n_initial_rounds_
        losses = [
            f"{metric} on {records} {number_text(float(values[last]))}"
            for records, by_metric in self.evals_result_.items()
            for metric, values in by_metric.items()
        ]
        largest = int(np.argmax(self.feature_importances_))
        share = number_text(float(self.feature_importances_[largest]))
        listed = "; ".join(losses)
        return f"{listed[:1].upper()}{listed[1:]}. Largest importance: {self.feature_names_in_[largest]} ({share})."

    def main_figure(self) -> Figure:
        """Return the largest importances."""
        caption = "Mean gain of the splits of each column, as shares of their sum."
        shares = self.feature_importances_
        return Bars.of_importances(self.feature_names_in_, shares, caption, "share of gain", n_shown=MAX_BARS)

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
        caption = "Mean reduction of the loss by a split on the column, as a share of the sum over columns."
        names, shares = self.feature_names_in_, self.feature_importances_
        bars = Bars.of_importances(names, shares, caption, "mean gain", axis="share")
        (metric,) = self.evals_result_["training"]
        series = {name: losses[metric] for name, losses in self.evals_result_.items()}
        rounds = [float(self.n_initial_rounds_ + number) for number in range(1, len(self.history_) + 1)]
        text = "Mean loss of the records after each round; the vertical line is the last round of the model."
        marks = {"last": float(self.best_iteration_ + 1)} if "validation" in series else {}
        return [bars, Lines("Loss by round", text, "fit", "round", metric, rounds, series, marks)]

    @abstractmethod
    def _steps_of_base(self) -> frozenset[str]:
        """Return the steps that compute the first margin."""

    @abstractmethod
    def _start(self, session: Session, described: messages.Described, n_records: int) -> dict[str, Any]:
        """Return objective, classes, first margin, units and weights; `n_records` is the number of all records."""

    @property
    def _roles(self) -> messages.Roles:
        margins = (self.base_margin,) if isinstance(self.base_margin, str) else tuple(self.base_margin or ())
        events = (self.event,) if self.event else ()
        return messages.Roles((self.sample_weight,) if self.sample_weight else (), margins, events=events)

    def _fit(self, session: Session) -> None:
        traffic_before = copy.deepcopy(session.traffic)
        described = agreement.describe(session)
        self.value_digits_ = described.digits
        features = agreement.assign_columns(session, self._roles, described.columns)
        gaps = handle_missing(session, BoostingSite, described.columns, described.levels, self.missing)
        self.missing_values_ = gaps
        self._check_roles_complete(gaps)
        means = fill_missing(session, BoostingSite, described.columns) if self.missing in FILLING else None
        start = self._agree(session, described, features, gaps)
        agreement.begin(session, start)
        watched = self._watched(session, described, means)
        initial = messages.BuiltTrees.none() if self._initial is None else to_grown(self._initial, start)
        plan = plan_of(self.get_params(deep=False), start)
        grown, self.history_ = grow_trees(session, start, plan, watched, initial)
        self.n_initial_rounds_ = len(initial.roots) // len(start.base)
        self._set_losses(start, closing_loss(session, start, grown))
        n_estimators = (self.best_iteration_ + 1) * len(start.base)
        ensemble = to_ensemble(start, grown.slice(0, n_estimators))
        if means is not None:
            of_features = means[[described.columns.index(name) for name in features]]
            ensemble = with_defaults(ensemble, gaps, of_features)
        self.ensemble_ = replace(ensemble, table=described.columns) if features != described.columns else ensemble
        self.traffic_ = _traffic_since(traffic_before, session.traffic)

    def _agree(
        self, session: Session, described: messages.Described, features: tuple[str, ...], gaps: MissingValues
    ) -> messages.Start:
        """Return the start of the fit: objective, units, first margin and cuts."""
        n_records = gaps.n_records - ((gaps.n_incomplete or 0) if self.missing == "complete" else 0)
        settings = self._start(session, described, n_records)
        columns = (*features, *gaps.indicators)
        by_column = None if self.cuts is None else [*self.cuts, *([_IS_MISSING] for _ in gaps.indicators)]
        digits = described.digits
        cuts, n_cuts = agreement.find_cuts(session, len(columns), int(self.max_bins), by_column, digits=digits)
        if self._initial is not None:
            self._check_continues(settings, columns, described)
            cuts, n_cuts = agreement.add_cuts(cuts, n_cuts, self._initial)
            settings["base"] = self._initial.base
        if self.subsample < 1:
            settings |= {"subsample": float(self.subsample), "seed": float(self.random_state)}
        return messages.Start(
            cuts=cuts,
            n_cuts=n_cuts,
            columns=columns,
            levels=described.levels,
            classes=described.classes,
            weights=self._roles.weights,
            margins=self._roles.margins,
            events=self._roles.events,
            **settings,
        )

    def _check_roles_complete(self, gaps: MissingValues) -> None:
        """Raise DataError if weights, first margins or events are missing, unless such records are left out."""
        roles = set(self._roles.columns)
        if self.missing != "complete" and (incomplete := sorted(roles & set(gaps.incomplete_columns))):
            raise DataError(
                f"columns that are not features must have no missing entries; got some in {', '.join(incomplete)}",
                where=incomplete[0],
                hint='Leave out these records, or set missing="complete".',
            )

    def _check_continues(
        self, settings: Mapping[str, Any], columns: tuple[str, ...], described: messages.Described
    ) -> None:
        """Raise ConfigurationError unless the rounds can be added to the trees of the earlier model."""
        initial = self._initial
        names = ("objective", "power", "scale", "distribution")
        expected = (*(settings.get(name) or None for name in names), columns, described.classes, self._roles.margins)
        if initial is None or self.missing in FILLING:
            raise ConfigurationError(
                f'missing must be "native" or "complete" to continue a model; got {self.missing!r}', where="missing"
            )
        continued = (getattr(initial, name) or None for name in names)
        if (*continued, initial.columns, initial.classes, initial.margins) != expected:
            raise ConfigurationError(
                "xgb_model must have the objective, columns, classes and first margins of this fit; got others",
                where="xgb_model",
                hint="Continue with the parameters and the columns of the earlier fit.",
            )

    def _watched(
        self, session: Session, described: messages.Described, means: NDArray[np.float64] | None
    ) -> Session | None:
        """Return a new session of the validation records, without the sites that the fit leaves out.

        Missing entries are handled as in the fit.
        """
        if self._validation is None:
            return None
        watched = self._validation.without(session.left_out).begin(self.site_part)
        agreement.assign_columns(watched, self._roles, described.columns)
        if self.missing != "native":
            marked = self.missing_values_.incomplete_columns
            handle_missing(watched, BoostingSite, described.columns, described.levels, self.missing, marked=marked)
        if means is not None:
            send_means(watched, BoostingSite, means)
        return watched

    def _set_losses(self, start: messages.Start, closing: float) -> None:
        metric = OBJECTIVES[start.objective].metric
        losses = [each["loss"] for each in self.history_][1:]
        self.evals_result_ = {"training": {metric: [*losses, closing]}}
        for name, entry in ((metric, "watched_loss"), ("auc", "watched_auc"), ("auc_error", "watched_auc_error")):
            scores = [each[entry] for each in self.history_ if entry in each]
            if scores:
                self.evals_result_.setdefault("validation", {})[name] = scores
        last = best_round(self.history_) if self.n_iter_no_change else len(self.history_) - 1
        self.best_iteration_ = self.n_initial_rounds_ + last

    def _rows(self, X: Any) -> Floats:
        check_is_fitted(self, "ensemble_")
        rows = rows_for(X, self.feature_names_in_, self.ensemble_.levels)
        self.require_complete(rows)
        return rows

    def _scored(self, data: TableData) -> TableData:
        """Return the records to score, after the check of their classes."""
        data.require_classes(self.ensemble_.classes)
        return self.leave_out_incomplete(data)

    def _margins_of(self, X: Any) -> Floats | None:
        """Return the first margins in the columns of a frame or TableData, shape (n, k); None without them."""
        names, X = self.ensemble_.margins, to_pandas(X) if is_frame(X) else X
        if not names or not set(names) <= set(getattr(X, "columns", ())):
            return None
        columns = [X[name] if is_frame(X) else X.X[:, X.columns.index(name)] for name in names]
        return np.column_stack(columns).astype(np.float64)

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.ensemble_.check()


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
    threshold[inner] = np.where(is_indicator, np.float32(MAX_VALUE), threshold[inner])
    source = ensemble.column.copy()
    source[inner] = column
    return replace(ensemble, columns=columns, column=source, threshold=threshold, default_left=default_left).check()


def _traffic_since(before: Traffic, after: Traffic) -> Traffic:
    """Return the calls and bytes between two readings of a session's traffic."""
    steps = [step for step, calls in after.calls.items() if calls > before.calls.get(step, 0)]

    def difference(name: str) -> dict[str, int]:
        return {step: getattr(after, name)[step] - getattr(before, name).get(step, 0) for step in steps}

    return Traffic(difference("calls"), difference("bytes_to_sites"), difference("bytes_from_sites"))
