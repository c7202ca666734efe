"""FedRSF: random survival forest that does not depend on the split of patients over sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.estimator.figures import Bars, Figure
from multicentre.estimator.parameters import SEED, Integer, ParameterRanges, Real
from multicentre.estimator.saved import PLAIN, SavedAttributes
from multicentre.survival.agreement.rounds import Needs, steps_of_agreement
from multicentre.survival.agreement.site import MAX_TIMES, SurvivalMissing
from multicentre.survival.estimator import MISSING, SurvivalEstimator, importance_frame, leading_importances
from multicentre.survival.fitted_models.trees import Trees
from multicentre.survival.learners.tree import TREE_RANGES, MaxFeatures, TreeSettings
from multicentre.survival.rsf.messages import MAX_TREES
from multicentre.survival.rsf.rounds import Plan, as_trees, count_leaves, grow_forest
from multicentre.survival.rsf.site import ForestSite

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


class FedRSF(SurvivalEstimator):
    """Random survival forest on the patients of all sites, grown from sums of counts.

    All trees are grown at once, level by level. At a leaf the coordinator draws the columns to try; sites count their
    patients by bin and time; from the totals the coordinator computes the cut with the largest log-rank statistic. Sums
    of integers do not depend on their order, so the forest does not depend on the split of patients, masked or
    unmasked.

    Parameters
    ----------
    n_estimators : int, default 100
        Number of trees.
    max_features : {"sqrt", "log2"}, int, float or None, default 1/3
        Number of columns tried at a node, of d columns: the square root of d, its binary logarithm, this number, this
        share of d, or all (None). The default is that of scikit-survival and of Ishwaran et al. [1]_.
    max_depth : int, optional
        Maximum depth of a tree; by default trees grow until leaves are too small.
    min_samples_leaf : int, default 15
        Minimum number of patients of a leaf over all sites; a patient drawn several times counts once.
    min_events_leaf : int, default 3
        Minimum number of these patients with an event.
    max_bins : int, default 32
        Number of bins per column, from 2 to 256.
    n_times : int, default 64
        Number of times of the grid, at most 256, on which the leaves have their curves. The times are quantiles of the
        event times, the last one is the horizon.
    n_split_times : int, default 16
        Number of groups of neighbouring times for the log-rank statistics.
    cause : int, default 1
        Code of the event of interest. Events of other causes are treated as censored.
    horizon : float, optional
        Last time; by default the time by which 95 % of the follow-ups ended.
    missing : {"mean", "indicator", "complete"}, default "mean"
        Handling of missing entries: fill with the mean over sites; fill and add an indicator column; or leave
        incomplete patients out. ``missing_`` counts missing entries.
    random_state : int, default 0
        Seed of the samples and of the columns tried.

    Attributes
    ----------
    model_ : Trees
        Splits of the trees, and the curves of their leaves.
    feature_importances_ : array of shape (d,)
        Share of each of the d columns in the log-rank statistics of all splits.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range.
    DataError
        No patient has an event, or there are too few patients or events for a leaf.
    SchemaMismatch
        Sites differ in their columns, or in the unit of their times.

    Notes
    -----
    The number of times that a tree's sample holds a patient has a Poisson distribution of mean 1. It is drawn from a
    hash of the patient's identifier (of the record if there is no identifier), the seed and the tree's number. It does
    not depend on the site; patients with equal records have equal numbers.

    Counts by bin and time rest on single patients. They leave a site masked, or if its policy requires no minimum of
    patients; otherwise the site refuses.

    References
    ----------
    .. [1] H. Ishwaran, U. B. Kogalur, E. H. Blackstone, M. S. Lauer, "Random survival forests", Annals of Applied
       Statistics 2 (2008), 841-860.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> def site(n):
    ...     X = rng.normal(size=(n, 2))
    ...     return mc.data.SurvivalData(X, rng.exponential(np.exp(-X[:, 0])), rng.random(n) < 0.7)
    >>> federation = mc.Federation.in_process({name: site(80) for name in ("lyon", "nice", "lille")})
    >>> model = mc.survival.FedRSF(n_estimators=10, max_features=None).fit(federation)
    >>> model.feature_importances_.argmax()
    np.int64(0)
    """

    site_part: ClassVar[type[SitePart]] = ForestSite
    parameter_ranges: ClassVar[ParameterRanges] = {
        "n_estimators": Integer(1, MAX_TREES),
        "max_bins": Integer(2, 256),
        "n_times": Integer(1, MAX_TIMES),
        "n_split_times": Integer(1, MAX_TIMES),
        "cause": Integer(1, 127),
        "horizon": (None, Real(0, open="low")),
        "missing": MISSING,
        "random_state": SEED,
        **TREE_RANGES,
    }
    saved_attributes: ClassVar[SavedAttributes] = {**SurvivalEstimator.saved_attributes, "feature_importances_": PLAIN}
    model_: Trees
    feature_importances_: Floats

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        max_features: MaxFeatures = 1 / 3,
        max_depth: int | None = None,
        min_samples_leaf: int = 15,
        min_events_leaf: int = 3,
        max_bins: int = 32,
        n_times: int = 64,
        n_split_times: int = 16,
        cause: int = 1,
        horizon: float | None = None,
        missing: SurvivalMissing = "mean",
        random_state: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.max_features = max_features
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.min_events_leaf = min_events_leaf
        self.max_bins = max_bins
        self.n_times = n_times
        self.n_split_times = n_split_times
        self.cause = cause
        self.horizon = horizon
        self.missing = missing
        self.random_state = random_state

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use."""
        return steps_of_agreement(self._needs()) | {"count_samples", "count_splits", "count_leaves"}

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return a plot of the importances of the columns."""
        check_is_fitted(self, "model_")
        caption = "Share of each column in the log-rank statistics of all splits."
        return [Bars.of_importances(self.feature_names_in_, self.feature_importances_, caption, "share")]

    def to_frame(self) -> pd.DataFrame:
        """Return the importances of the columns, largest first."""
        check_is_fitted(self, "model_")
        return importance_frame(self.feature_names_in_, self.feature_importances_)

    def _results(self) -> dict[str, Any]:
        shares = leading_importances(self.feature_names_in_, self.feature_importances_)
        return {"trees": len(self.model_.roots), **shares}

    def _needs(self) -> Needs:
        return Needs(n_times=self.n_times, horizon=self.horizon, n_bins=self.max_bins, cause=self.cause)

    def _fit(self, session: Session) -> None:
        settings = TreeSettings(self.max_depth, self.min_samples_leaf, self.min_events_leaf, self.max_features)
        agreed = self._agree(session, self._needs())
        n_groups = min(int(self.n_split_times), len(agreed.times))
        plan = Plan(int(self.n_estimators), settings, n_groups, int(self.random_state))
        forest, self.history_ = grow_forest(session, agreed, plan)
        self.agreed_ = agreed
        self.feature_importances_ = forest.gain / max(float(forest.gain.sum()), 1e-300)
        self.model_ = as_trees(forest, count_leaves(session, agreed, plan, forest), agreed)
