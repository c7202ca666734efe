"""Base class of both estimators of federated XGBoost: the fit, the fitted trees, importances and figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.boosting import agreement
from multicentre.boosting import messages as sent
from multicentre.boosting.agreement import check_parameters
from multicentre.boosting.maths import Penalty
from multicentre.boosting.rounds import Plan, best_round, closing_loss, grow_trees
from multicentre.boosting.site import BoostingSite
from multicentre.boosting.trees import LARGEST_VALUE, Ensemble, to_booster
from multicentre.data.missing.filling import FILL_STEPS, FILLING, fill_missing, send_means
from multicentre.data.missing.values import GAP_STEPS, HandlesMissing, Missing, MissingValues, handle_missing
from multicentre.data.table import rows_for
from multicentre.data.tabular import sources_of
from multicentre.estimator.base import Arrays, FederatedEstimator
from multicentre.estimator.figures import Bars, Figure, Lines
from multicentre.federation.consortium import Consortium
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.session import Session
from multicentre.federation.steps import SitePart

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Importance = Literal["gain", "weight", "cover", "total_gain", "total_cover"]
N_SHOWN = 15
MAX_DELTA_STEP = 0.7


class FedXGB(HandlesMissing, FederatedEstimator):
    """Base of both: parameters, rounds and what follows from the trees."""

    site_part: ClassVar[type[SitePart]] = BoostingSite
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
            Ignored; there for scikit-learn's habits.
        validation : Federation, optional
            Sites whose records no tree sees: their loss is summed after each round, for early stopping. The test part
            of a duplicate-safe plan (``plan.test(0)``), say.

        Returns
        -------
        self
        """
        if validation is not None and not isinstance(validation, Consortium):
            raise ConfigurationError("validation is no federation", where="validation", hint="Give plan.test(0), say.")
        if self.n_iter_no_change is not None and validation is None:
            raise ConfigurationError(
                "early stopping needs records to watch", where="validation", hint="Give fit a federation to watch."
            )
        check_parameters(self.get_params(deep=False))
        self._validation = validation
        try:
            return super().fit(federation)
        finally:
            self._validation = None

    def asked_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may ask of a site."""
        asked = {"describe", "begin", "sum_gradients", "sum_losses"} | GAP_STEPS | self._steps_of_base()
        asked |= FILL_STEPS if self.missing in FILLING else frozenset()
        return frozenset(asked if self.cuts is not None else asked | {"count_below"})

    def predict_margin(self, X: Any) -> Singles:
        """Return the sums of the trees' values, shape (n, k), k being 1 but for three classes or more."""
        return self.ensemble_.predict_margin(self._rows(X))

    @property
    def booster_(self) -> Any:
        """The fitted model as an xgboost.Booster; needs the extra ``boost``."""
        return self.to_booster()

    def to_booster(self) -> Any:
        """Return the fitted model as an xgboost.Booster of the installed version.

        Its columns are numbered, so that ``booster.predict(xgboost.DMatrix(X))`` takes plain arrays; set its
        ``feature_names`` for others.

        Raises
        ------
        MissingExtra
            xgboost is not installed.
        """
        check_is_fitted(self, "ensemble_")
        return to_booster(self.ensemble_)

    def importances(self, kind: Importance = "gain") -> Floats:
        """Return each column's importance, shape (d,), as xgboost's ``get_score``; 0 for a column without a split.

        Parameters
        ----------
        kind : {"gain", "weight", "cover", "total_gain", "total_cover"}
            Mean gain of the column's splits, their number, their mean sum of curvatures, or the sum of either.
        """
        check_is_fitted(self, "ensemble_")
        trees = self.ensemble_
        inner, n_columns = trees.column >= 0, len(trees.columns)
        column = trees.column[inner]
        number = np.bincount(column, minlength=n_columns).astype(np.float64)
        if kind == "weight":
            return number
        if kind not in ("gain", "cover", "total_gain", "total_cover"):
            raise ConfigurationError(f"{kind!r} is not known", where="kind", hint='Say "gain".')
        facts = trees.gain if kind.endswith("gain") else trees.cover
        total = np.zeros(n_columns)
        np.add.at(total, column, facts[inner])
        return total if kind.startswith("total") else np.asarray(total / np.maximum(number, 1.0))

    @property
    def feature_importances_(self) -> Floats:
        """Mean gain of each column's splits, as shares of their sum, shape (d,)."""
        gain = self.importances("gain")
        return np.asarray(gain / max(float(gain.sum()), 1e-300))

    @property
    def columns_(self) -> tuple[str, ...]:
        """Names of the columns."""
        check_is_fitted(self, "ensemble_")
        return self.ensemble_.columns

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        return len(self.columns_)

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the columns' importances, and the loss by number of trees."""
        order = np.argsort(-self.feature_importances_, kind="stable")[:N_SHOWN].tolist()
        shares = {"mean gain": [float(self.feature_importances_[k]) for k in order]}
        caption = "By how much a split on the column lowers the loss, on average, as a share of the sum over columns."
        names = [self.columns_[k] for k in order]
        bars = Bars("Importance of the columns", caption, "model", "share", names, shares, {})
        (metric,) = self.evals_result_["training"]
        series = {name: losses[metric] for name, losses in self.evals_result_.items()}
        rounds = [float(number) for number in range(1, len(self.history_) + 1)]
        what = "Mean loss of the records after each round; the vertical line is the round that was kept last."
        marks = {"kept": float(self.best_iteration_ + 1)} if "validation" in series else {}
        return [bars, Lines("Loss by round", what, "fit", "round", metric, rounds, series, marks)]

    @abstractmethod
    def _steps_of_base(self) -> frozenset[str]:
        """Return the steps asked for where records start from."""

    @abstractmethod
    def _start(self, session: Session, described: sent.Described) -> dict[str, Any]:
        """Return what was agreed besides columns and cuts, by field of Start."""

    def _fit(self, session: Session) -> None:
        traffic_before = sum(session.traffic.bytes_from_sites.values())
        described = agreement.describe(session)
        gaps = handle_missing(session, BoostingSite, described.columns, described.levels, self.missing)
        self.missing_values_ = gaps
        means = fill_missing(session, BoostingSite, described.columns) if self.missing in FILLING else None
        told = self._start(session, described)
        columns = (*described.columns, *gaps.indicators)
        known = None if self.cuts is None else [*self.cuts, *([_IS_MISSING] for _ in gaps.indicators)]
        cuts, n_cuts = agreement.find_cuts(session, len(columns), int(self.max_bins), known)
        start = sent.Start(
            cuts=cuts,
            n_cuts=n_cuts,
            columns=columns,
            levels=described.levels,
            classes=described.classes,
            **told,
        )
        agreement.begin(session, start)
        before_trees = sum(session.traffic.bytes_from_sites.values())
        watched = self._watched(session, described, means)
        grown, self.history_ = grow_trees(session, start, self._plan(start), watched)
        self._set_losses(start, closing_loss(session, start, grown))
        n_estimators = (self.best_iteration_ + 1) * len(start.base)
        ensemble = _ensemble(start, grown.first(n_estimators))
        self.ensemble_ = ensemble if means is None else with_defaults(ensemble, gaps, means)
        self.traffic_ = _traffic(session, traffic_before, before_trees, len(grown.roots))

    def _watched(
        self, session: Session, described: sent.Described, means: NDArray[np.float64] | None
    ) -> Session | None:
        """Return a new session of the records to watch, without sites that the fit is made without.

        Their missing entries are handled as those of the fit.
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

    def _plan(self, start: sent.Start) -> Plan:
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

    def _set_losses(self, start: sent.Start, closing: float) -> None:
        metric = METRICS[start.objective]
        losses = [each["loss"] for each in self.history_][1:]
        self.evals_result_ = {"training": {metric: [*losses, closing]}}
        watched = [each["watched_loss"] for each in self.history_ if "watched_loss" in each]
        if watched:
            self.evals_result_["validation"] = {metric: watched}
        self.best_iteration_ = best_round(self.history_) if self.n_iter_no_change else len(self.history_) - 1

    def _rows(self, X: Any) -> Floats:
        check_is_fitted(self, "ensemble_")
        rows = rows_for(X, self.columns_, self.ensemble_.levels)
        self.require_complete(rows)
        return rows

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays: dict[str, Any] = {}
        names = ("best_iteration_", "evals_result_", "traffic_")
        facts: dict[str, Any] = {name: getattr(self, name) for name in names}
        for field, _, declared, value in self.ensemble_.items():
            kept = arrays if declared.kind == "array" else facts
            kept[field] = list(value) if isinstance(value, tuple) else value
        return arrays, facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        values: dict[str, Any] = {**facts, **arrays}
        told = {name: values[name] for name in Ensemble.declarations()}
        told |= {name: tuple(told[name]) for name in ("columns", "levels", "classes")}
        self.ensemble_ = Ensemble(**told).check()
        for name in ("best_iteration_", "evals_result_", "traffic_"):
            setattr(self, name, facts[name])


_IS_MISSING = 1.0  # cut of an indicator: 0 lies below it, 1 does not
METRICS = {
    "binary:logistic": "logloss",
    "multi:softprob": "mlogloss",
    "reg:squarederror": "rmse",
    "count:poisson": "poisson-nloglik",
}


def _ensemble(start: sent.Start, grown: sent.Grown) -> Ensemble:
    """Return the trees with thresholds in the columns' own units in place of numbers of bins."""
    n_groups, inner = len(start.base), grown.column >= 0
    first = np.append(0, np.cumsum(start.n_cuts)).astype(np.int64)
    column, cut = grown.column[inner], grown.cut[inner].astype(np.int64)
    padded = np.append(start.cuts, np.float32(0.0))
    threshold = np.zeros(len(grown.column), dtype=np.float32)
    own = padded[np.minimum(first[column] + np.maximum(cut, 0), len(start.cuts))]
    limit = np.float32(LARGEST_VALUE)
    threshold[inner] = np.where(cut < 0, -limit, np.where(cut >= start.n_cuts[column], limit, own))
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
    """Return trees of the columns as they are at the sites that predict like those of filled columns and indicators.

    A missing entry goes to the side of its column's mean. A split on an indicator becomes one on its column that sends
    missing entries to the right and all others to the left.

    Parameters
    ----------
    ensemble : Ensemble
        Trees of filled columns, followed by the indicators.
    gaps : MissingValues
    means : array of shape (d,)
        Values that filled the columns.
    """
    columns = ensemble.columns[: len(means)]
    sources = sources_of(columns, ensemble.levels)
    behind = np.array([*range(len(means)), *(sources.index(name) for name in gaps.incomplete_columns)])
    inner = ensemble.column >= 0
    split = ensemble.column[inner]
    is_indicator, column = split >= len(means), behind[split]
    default_left, threshold = ensemble.default_left.copy(), ensemble.threshold.copy()
    is_below = means.astype(np.float32)[column] < threshold[inner]
    default_left[inner] = np.where(is_indicator, 0, is_below).astype(np.uint8)
    threshold[inner] = np.where(is_indicator, np.float32(LARGEST_VALUE), threshold[inner])
    place = ensemble.column.copy()
    place[inner] = column
    return replace(ensemble, columns=columns, column=place, threshold=threshold, default_left=default_left).check()


def _traffic(session: Session, before: int, before_trees: int, n_estimators: int) -> dict[str, float]:
    """Return bytes of values that a site sent: before the first tree, for each tree, and in all."""
    total, n_sites = sum(session.traffic.bytes_from_sites.values()), max(1, len(session.sites))
    return {
        "bytes_before_trees": (before_trees - before) / n_sites,
        "bytes_per_tree": (total - before_trees) / n_sites / max(1, n_estimators),
        "bytes_per_site": (total - before) / n_sites,
    }
