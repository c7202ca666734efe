"""FedHazardBoost: gradient boosting of discrete hazards that does not depend on the split of patients over sites."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.core.tie_breaking import first_least
from multicentre.errors import ConfigurationError, nearest_name
from multicentre.estimator.figures import Bars, Figure, Lines
from multicentre.estimator.parameters import SEED, Applicable, Flag, Integer, OneOf, Only, ParameterRanges, Real
from multicentre.estimator.saved import PLAIN, SavedAttributes
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.agreement.rounds import Needs, steps_of_agreement
from multicentre.survival.agreement.site import SurvivalMissing
from multicentre.survival.estimator import MISSING, SurvivalEstimator, importance_frame, leading_importances
from multicentre.survival.fitted_models.derived import Regridded
from multicentre.survival.fitted_models.hazard import HazardModel
from multicentre.survival.hazard_boost import messages
from multicentre.survival.hazard_boost.rounds import (
    N_FOLDS,
    Plan,
    count_intervals,
    cross_validate_trees,
    gain_by_column,
    grow_trees,
)
from multicentre.survival.hazard_boost.site import MAX_TREES, HazardSite
from multicentre.trees.table import MAX_DEPTH

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# Largest number of intervals: on a finer grid the intervals would hold single events.
MAX_INTERVALS = 256
# Smallest number of times at which the model has survival curves.
MIN_TIMES = 128
# Number of events from which 200 trees of depth 2 were not worse without early stopping, so that it is not worth its
# three passes.
MANY_EVENTS = 1000
# Number of events below which a fold has fewer than 10, whose log-loss varies too much to choose by.
FEW_EVENTS = 30
# Smallest number of trees of early stopping. Noise often puts the smallest log-loss at no tree, which ranks nobody.
MIN_TREES = 10
# Divisor of the importances of trees without splits, which are all 0.
SMALLEST_GAIN = 1e-300
# Quantiles of a column's thresholds at which hazards are plotted.
QUARTILES = {"low": 0.1, "middle": 0.5, "high": 0.9}


class FedHazardBoost(SurvivalEstimator):
    """Gradient boosted trees for the hazard in each interval of follow-up, with time as an additional column.

    Follow-up is divided into intervals. The log odds of an event in an interval, for patients who reach it, are a sum
    of trees that split patients by their columns and intervals by their number, so effects may change over time. A tree
    is grown from histograms of the gradients and second derivatives of the log-loss, summed over the sites as integers.
    The fit is identical to that of the pooled patients, however they are split, masked or unmasked.

    Parameters
    ----------
    n_estimators : int, default 200
        Number of trees; the largest number with early stopping.
    max_depth : int, default 2
        Maximum depth of a tree, at most 12. Each level needs one sum over the sites, so a fit needs at most
        ``n_estimators * max_depth`` sums, and four times as many with early stopping.
    learning_rate : float, default 0.05
        Fraction of each Newton step that is taken, above 0 and at most 1.
    n_times : int, default 16
        Number of intervals, at most 256. They end at quantiles of the event times, the last at the horizon.
    max_bins : int, default 64
        Number of bins per column, from 2 to 256; thresholds lie between bins.
    l2_regularization : float, default 1.0
        Penalty on the squared values of the leaves.
    min_child_hessian : float, default 10.0
        Minimum sum of hazard times (1 - hazard) on either side of a split, above 0; approximately the expected number
        of events.
    subsample : float, default 1.0
        Share of the patients used for each tree. The draw depends on the patient's identifier (on the record if there
        is no identifier), the seed and the tree, but not on the site.
    early_stopping : {"auto"} or bool, default "auto"
        Select the number of trees with the smallest log-loss in three-fold cross-validation, whose folds are drawn in
        the same way. All patients are used for the final trees. With "auto", only if there are fewer than 1000 events.
    n_iter_no_change : int, default 20
        With early stopping, end a fold after this number of trees without a smaller log-loss.
    cause : int, default 1
        Code of the event of interest. Events of other causes are treated as censored (cause-specific hazard).
    horizon : float, optional
        End of the last interval; by default the time by which 95 % of the follow-ups ended.
    missing : {"mean", "indicator", "complete"}, default "mean"
        Handling of missing entries: fill with the mean over sites; fill and add an indicator column; or leave
        incomplete patients out. ``missing_`` counts missing entries.
    random_state : int, default 0
        Seed of the draws of patients; not used without `subsample` and early stopping.

    Attributes
    ----------
    model_ : Regridded
        Model with linear cumulative hazards within the intervals, on a grid of at least 128 times.
    hazard_model_ : HazardModel
        Model on the intervals.
    feature_importances_ : array of shape (d,)
        Share of each of the d columns in the gain of all splits.
    time_importance_ : float
        Share of splits of time in this gain. It is large if effects or the baseline hazard change over time.
    held_out_losses_ : array
        Mean log-loss of held-out patients over the folds, by number of trees from 0; empty without early stopping.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range.
    DataError
        No patient has an event.
    SchemaMismatch
        Sites differ in their columns, or in the unit of their times.

    Warns
    -----
    UserWarning
        Early stopping has fewer than 30 events, so that the number of trees is uncertain.

    Notes
    -----
    Sums are exact. Unmasked, a site's policy refuses sums with a cell of too few patients: a bin of any leaf of the
    growing tree, an interval, or any leaf of a finished tree.

    Differences between sums under several trees, or of fits with other parameters or draws, disclose more than each
    sum. Unmasked, a coordinator that forges trees could compute them; under masks it receives totals over sites only.

    References
    ----------
    .. [1] D. R. Cox, "Regression models and life-tables", Journal of the Royal Statistical Society B 34 (1972),
       187-220.
    .. [2] T. Chen, C. Guestrin, "XGBoost: A scalable tree boosting system", KDD 2016, 785-794.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> def site(n):
    ...     X = rng.normal(size=(n, 2))
    ...     return mc.data.SurvivalData(X, rng.exponential(np.exp(-X[:, 0])), rng.random(n) < 0.7)
    >>> federation = mc.Federation.in_process({name: site(80) for name in ("lyon", "nice", "lille")})
    >>> model = mc.survival.FedHazardBoost(n_estimators=20, n_times=8).fit(federation)
    >>> model.feature_importances_.argmax()
    np.int64(0)
    """

    site_part: ClassVar[type[SitePart]] = HazardSite
    applicable: ClassVar[Applicable] = {
        "n_iter_no_change": Only('early_stopping True or "auto"', lambda model: model.early_stopping is not False)
    }
    parameter_ranges: ClassVar[ParameterRanges] = {
        "n_estimators": Integer(1, MAX_TREES),
        "max_depth": Integer(1, MAX_DEPTH),
        "learning_rate": Real(0, 1, open="low"),
        "n_times": Integer(1, MAX_INTERVALS),
        "max_bins": Integer(2, 256),
        "l2_regularization": Real(0),
        "min_child_hessian": Real(0, open="low"),
        "subsample": Real(0, 1, open="low"),
        "early_stopping": (OneOf("auto"), Flag()),
        "n_iter_no_change": Integer(1, MAX_TREES),
        "cause": Integer(1, 127),
        "horizon": (None, Real(0, open="low")),
        "missing": MISSING,
        "random_state": SEED,
    }
    saved_attributes: ClassVar[SavedAttributes] = {
        **SurvivalEstimator.saved_attributes,
        "feature_importances_": PLAIN,
        "time_importance_": PLAIN,
        "held_out_losses_": PLAIN,
    }
    feature_importances_: Floats
    time_importance_: float
    held_out_losses_: Floats

    def __init__(
        self,
        n_estimators: int = 200,
        *,
        max_depth: int = 2,
        learning_rate: float = 0.05,
        n_times: int = 16,
        max_bins: int = 64,
        l2_regularization: float = 1.0,
        min_child_hessian: float = 10.0,
        subsample: float = 1.0,
        early_stopping: Literal["auto"] | bool = "auto",
        n_iter_no_change: int = 20,
        cause: int = 1,
        horizon: float | None = None,
        missing: SurvivalMissing = "mean",
        random_state: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.n_times = n_times
        self.max_bins = max_bins
        self.l2_regularization = l2_regularization
        self.min_child_hessian = min_child_hessian
        self.subsample = subsample
        self.early_stopping = early_stopping
        self.n_iter_no_change = n_iter_no_change
        self.cause = cause
        self.horizon = horizon
        self.missing = missing
        self.random_state = random_state

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use."""
        return steps_of_agreement(self._needs()) | {"count_intervals", "begin", "sum_slopes"}

    @property
    def hazard_model_(self) -> HazardModel:
        """Model on the intervals."""
        return cast("HazardModel", cast("Regridded", self.model_).inner)

    def effect_over_time(self, column: str, values: Sequence[float] | None = None) -> tuple[Floats, Floats]:
        """Return the hazard in every interval at given values of a column, with all other columns at their means.

        Parameters
        ----------
        column : str
        values : sequence of float, optional
            Values of the column; by default the quantiles 0.1, 0.5 and 0.9 of its thresholds.

        Returns
        -------
        values : array of shape (v,)
            The v values of the column.
        hazards : array of shape (v, K)
            For each value and each of the K intervals: probability of an event for patients who reach the interval.

        Raises
        ------
        ConfigurationError
            The fit has no column of this name.
        """
        check_is_fitted(self, "model_")
        if column not in self.feature_names_in_:
            raise ConfigurationError(
                f"column must be one of the fit's columns; got {column!r}",
                where="column",
                hint=f"{nearest_name([column], self.feature_names_in_)}Name one of feature_names_in_.",
            )
        place = self.feature_names_in_.index(column)
        chosen = np.asarray(self._typical(place) if values is None else values, dtype=np.float64)
        rows = np.repeat(self.agreed_.centre[None, :], len(chosen), axis=0)
        rows[:, place] = chosen
        return chosen, 1.0 / (1.0 + np.exp(-self.hazard_model_.log_odds(rows)))

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return plots of the importances of the columns, and of the hazard over time by the most important one."""
        check_is_fitted(self, "model_")
        names = [*self.feature_names_in_, "time"]
        importances = np.append(self.feature_importances_, self.time_importance_)
        caption = "Share of each column in the gain of all splits; time represents effects that change."
        leading = self.feature_names_in_[int(np.argmax(self.feature_importances_))]
        return [Bars.of_importances(names, importances, caption, "share of gain"), self._hazards_of(leading)]

    def to_frame(self) -> pd.DataFrame:
        """Return the importances of the columns, largest first; `time_importance_` is the rest."""
        check_is_fitted(self, "model_")
        return importance_frame(self.feature_names_in_, self.feature_importances_)

    def _results(self) -> dict[str, Any]:
        shares = leading_importances(self.feature_names_in_, self.feature_importances_)
        return {"trees": len(self.hazard_model_.roots), **shares, "importance of time": self.time_importance_}

    def _hazards_of(self, column: str) -> Lines:
        values, hazards = self.effect_over_time(column)
        series = {f"{column} = {value:.3g}": hazard.tolist() for value, hazard in zip(values, hazards, strict=True)}
        caption = f"Probability of an event in each interval at values of {column}, all other columns at their means."
        times = self.hazard_model_.times.tolist()
        return Lines(f"Hazard by {column}", caption, "model", "time", "hazard in the interval", times, series, {})

    def _typical(self, place: int) -> Floats:
        edges = self.agreed_.edges_of(place)
        if len(edges) < 3:
            return np.unique(self.agreed_.centre[place] + np.array([-0.5, 0.5]) * self.agreed_.spread[place])
        return np.unique(np.quantile(edges, list(QUARTILES.values())))

    def _needs(self) -> Needs:
        return Needs(n_times=self.n_times, horizon=self.horizon, n_bins=self.max_bins, cause=self.cause)

    def _fit(self, session: Session) -> None:
        agreed = self._agree(session, self._needs())
        n_folds = N_FOLDS if self._stops_early(agreed.n_events) else 0
        base = count_intervals(session)
        beginning = messages.InitialState(base, int(self.random_state), float(self.subsample), n_folds, held_out=0)
        plan = Plan(
            int(self.n_estimators),
            int(self.max_depth),
            float(self.learning_rate),
            float(self.l2_regularization),
            float(self.min_child_hessian),
            int(self.n_iter_no_change),
        )
        self.held_out_losses_ = np.zeros(0)
        if n_folds:
            self.held_out_losses_ = cross_validate_trees(session, agreed, beginning, plan)
        if len(self.held_out_losses_):
            best = max(int(first_least(self.held_out_losses_)), MIN_TREES)
            plan = replace(plan, n_estimators=min(best, plan.n_estimators))
        trees, self.history_ = grow_trees(session, agreed, beginning, plan)
        self.agreed_ = agreed
        gain = gain_by_column(trees, len(agreed.columns) + 1)
        importances = gain / max(float(gain.sum()), SMALLEST_GAIN)
        self.feature_importances_, self.time_importance_ = importances[:-1], float(importances[-1])
        self.model_ = Regridded.of(_model(agreed, base, trees), subdivided(agreed.times), len(agreed.columns))

    def _stops_early(self, n_events: float) -> bool:
        stops = n_events < MANY_EVENTS if isinstance(self.early_stopping, str) else bool(self.early_stopping)
        if stops and n_events < FEW_EVENTS:
            warnings.warn(
                f"early stopping has {n_events:.0f} events, so the number of trees is uncertain. Prefer FedCox with a "
                "penalty (alpha).",
                UserWarning,
                stacklevel=4,
            )
        return stops


def subdivided(ends: Floats) -> Floats:
    """Return the ends of intervals with equally spaced times between them, at least 128 in total.

    Examples
    --------
    >>> subdivided(np.arange(1.0, 65.0))[:4].tolist()
    [0.5, 1.0, 1.5, 2.0]
    """
    n_parts = -(-MIN_TIMES // len(ends))
    starts = np.append(0.0, ends[:-1])
    shares = np.arange(1, n_parts + 1) / n_parts
    times = starts[:, None] + (ends - starts)[:, None] * shares
    times[:, -1] = ends
    return np.asarray(times.ravel(), dtype=np.float64)


def _model(agreed: Prepared, base: Floats, trees: messages.Ensemble) -> HazardModel:
    """Return the trees with thresholds in the units of the columns instead of numbers of bins."""
    n_columns = len(agreed.columns)
    threshold = trees.cut.astype(np.float64)
    splits_column = (trees.column >= 0) & (trees.column < n_columns)
    threshold[splits_column] = agreed.edges[agreed.first[trees.column[splits_column]] + trees.cut[splits_column]]
    threshold[trees.column < 0] = 0.0
    nodes = (trees.roots, trees.column, threshold, trees.left, trees.right, trees.value)
    return HazardModel(agreed.times, base, *nodes, patients=0)
