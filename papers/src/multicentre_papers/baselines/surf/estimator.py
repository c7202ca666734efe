"""Forests of trees that are grown at the sites and combined in one round.

The protocol consists of:

1. The coordinator sends the settings of a forest. Each site returns its number of patients, and the number of trees
   that it can grow.
2. The coordinator draws the number of trees per site, and requests them.
3. Each site grows a forest on its patients, draws trees with a split of it, and returns them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.errors import DataError, MessageError
from multicentre.estimator.parameters import SEED, Flag, Integer, OneOf, ParameterRanges, Real
from multicentre.estimator.saved import PLAIN, SavedAttributes
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.agreement.rounds import Needs, steps_of_agreement
from multicentre.survival.agreement.site import MAX_TIMES, SurvivalMissing
from multicentre.survival.estimator import MISSING, SurvivalEstimator
from multicentre.survival.fitted_models.base import join, split
from multicentre.survival.fitted_models.trees import Trees
from multicentre.survival.learners.tree import DEEPEST, TREE_RANGES, MaxFeatures, TreeSettings
from multicentre_papers.baselines.surf.maths import allot_trees
from multicentre_papers.baselines.surf.site import MAX_TREES, SAMPLINGS, Forest, ForestSite, Gathered, Order, Orders

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

Allot = Callable[[Floats, Integers], Integers]

# Largest number of sites that a warning names.
MAX_NAMED = 5


def order_trees(session: Session, forest: Forest, allot: Allot) -> Orders:
    """Request the sites' numbers of trees, and draw the number of trees per site.

    Raises
    ------
    DataError
        No site has enough patients and events for a tree.
    """
    return session.once("orders", Orders, lambda: _order(session, forest, allot))


def _order(session: Session, forest: Forest, allot: Allot) -> Orders:
    offers = session.ask(ForestSite.offer_trees, forest)
    n_patients = np.array([offer.n_patients for offer in offers.values()])
    offered = np.array([min(offer.n_estimators, forest.n_estimators) for offer in offers.values()], dtype=np.int64)
    if not (offered > 0).any():
        raise _no_tree()
    return Orders(tuple(offers), n_patients, allot(n_patients, offered))


def gather_trees(session: Session, forest: Forest, orders: Orders, agreed: Prepared) -> dict[str, Trees]:
    """Request the trees of all sites, once, and return those that are not empty, by site.

    Raises
    ------
    DataError
        No site could grow a tree with a split.
    MessageError
        An answer is not a forest on the grid.
    """
    gathered = session.once("gathered", Gathered, lambda: _gather(session, forest, orders, agreed))
    trees = split(gathered.packed, gathered.lengths, {"Trees": Trees}, len(agreed.columns))
    return dict(zip(gathered.sites, cast("Sequence[Trees]", trees), strict=True))


def _gather(session: Session, forest: Forest, orders: Orders, agreed: Prepared) -> Gathered:
    requests = {
        site: Order(**asdict(forest), wanted=wanted)
        for site, wanted in zip(orders.sites, orders.wanted.tolist(), strict=True)
        if wanted and site in session.sites
    }
    answers = session.collect(ForestSite.grow_trees, requests, to=tuple(requests))
    grown = {
        site: _checked(site, trees, requests[site], agreed) for site, trees in answers.items() if not trees.is_empty
    }
    if not grown:
        raise _no_tree()
    if without := [site for site in answers if site not in grown]:
        warnings.warn(
            f"{len(without)} of {len(answers)} sites have no part in the forest, because they have too few patients "
            f"or events for a tree with a split: {', '.join(without[:MAX_NAMED])}. Lower min_samples_leaf (at least "
            "15) or min_events_leaf, or use FedRSF or FedHazardBoost, which sum over sites.",
            UserWarning,
            stacklevel=7,
        )
    return Gathered(tuple(grown), *join(grown.values()))


def _checked(site: str, trees: Trees, order: Order, agreed: Prepared) -> Trees:
    try:
        trees.valid(len(agreed.columns))
    except MessageError as error:
        raise MessageError(error.what, where=f"site {site}, {error.where}", hint="Leave the site out.") from None
    if not np.array_equal(trees.times, agreed.times) or len(trees.roots) > order.wanted:
        raise MessageError(
            f"a site must return at most {order.wanted} trees on the agreed grid; got {len(trees.roots)} trees, or "
            "another grid",
            where=f"site {site}",
            hint="Leave the site out.",
        )
    return trees


def _no_tree() -> DataError:
    return DataError(
        "at least one site must have enough patients and events for a tree with a split; got none",
        where="min_samples_leaf, min_events_leaf",
        hint="Use FedRSF or FedHazardBoost, which sum over sites; a site refuses leaves of fewer than 15 patients.",
    )


Sampling = Literal["uniform", "ibs", "concordance"]


class FedSurF(SurvivalEstimator):
    """Federated survival forest in one round: sites grow forests, and return some of their trees.

    The coordinator draws the number of trees per site, in proportion to the site's patients. Each site grows a forest,
    and draws the trees to return among those with a split. The model's survival curve is the mean over these trees.

    Parameters
    ----------
    n_estimators : int, default 100
        Number of trees of the model; fewer if all sites have fewer in total.
    n_local_estimators : int, default 100
        Number of trees that each site grows.
    sampling : {"uniform", "ibs", "concordance"}, default "uniform"
        Probabilities with which a site draws its trees: equal, or by the inverse of the integrated Brier score, or by
        concordance, on a held-out fifth of its patients. Scores are scaled such that the site's worst tree has 0.
    replacement : bool, default False
        Draw trees with replacement, as in the authors' code; a tree drawn twice has twice the weight.
    max_depth : int, optional
        Maximum depth of a tree. The authors' settings for SUPPORT2 are ``n_estimators=500, max_depth=1``.
    min_samples_leaf : int, default 15
        Minimum number of patients of a leaf. Sites refuse fewer than 15, and fewer than their policy's minimum.
    min_events_leaf : int, default 3
        Minimum number of events of a leaf.
    max_features : {"sqrt", "log2"}, int, float or None, default "sqrt"
        Number of columns tried at a node, as for :class:`FedRSF`.
    n_times : int, default 64
        Number of times of the grid, at most 256.
    horizon : float, optional
        Last time of the grid; by default the time by which 95 % of the follow-ups ended.
    max_bins : int, default 64
        Number of bins per column, at most 256.
    cause : int, default 1
        Code of the event of interest.
    missing : {"mean", "indicator", "complete"}, default "mean"
        Handling of missing entries: fill with the mean over sites; fill and add an indicator column; or leave
        incomplete patients out. ``missing_`` counts missing entries.
    random_state : int, default 0
        Seed. Each site combines it with its name and its data.

    Attributes
    ----------
    model_ : Trees
        Splits of the trees, and the curves of their leaves.
    trees_by_site_ : dict of str to int
        Number of trees by site, in the order of the model. The coordinator can assign each tree to its site.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range.
    DataError
        No site has enough patients and events for a tree with a split.
    SchemaMismatch
        Sites differ in their columns, or in the unit of their times.
    MessageError
        The answer of a site is not a valid forest.

    Warns
    -----
    UserWarning
        Sites have too few patients or events for a tree with a split, and no part in the forest.

    Notes
    -----
    Trees cannot be summed over sites, so the trees of each site leave it unmasked, even if sums are masked. The curve
    of a leaf is that of at least 15 patients, on the shared grid, and discloses their share of events by time. Each
    site groups neighbouring times until at least its policy's minimum of patients leave at each; a curve is linear
    between two groups, in the number of the time of the grid. ``FedRSF`` grows its trees from sums, and does not
    disclose the trees of single sites.

    References
    ----------
    .. [1] A. Archetti, F. Ieva, M. Matteucci, "Scaling survival analysis in healthcare with federated survival
       forests: a comparative study on heart failure and breast cancer genomics", Future Generation Computer Systems
       149 (2023), 343-358.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> from multicentre_papers.baselines import FedSurF
    >>> rng = np.random.default_rng(0)
    >>> def draw(n):
    ...     X = rng.normal(size=(n, 3))
    ...     time, censoring = rng.exponential(20.0 * np.exp(-X[:, 0])), rng.exponential(40.0, n)
    ...     return mc.data.SurvivalData(X, np.minimum(time, censoring), time <= censoring)
    >>> federation = mc.Federation.in_process({"lyon": draw(200), "porto": draw(100), "turin": draw(100)})
    >>> model = FedSurF(n_estimators=20, n_local_estimators=20).fit(federation)
    >>> sum(model.trees_by_site_.values()), bool(model.score(draw(300)) > 0.6)
    (20, True)
    """

    site_part: ClassVar[type[SitePart]] = ForestSite
    parameter_ranges: ClassVar[ParameterRanges] = {
        "n_estimators": Integer(1, MAX_TREES),
        "n_local_estimators": Integer(1, MAX_TREES),
        "sampling": OneOf(*SAMPLINGS),
        "replacement": Flag(),
        "n_times": Integer(1, MAX_TIMES),
        "horizon": (None, Real(0, open="low")),
        "max_bins": Integer(1, 256),
        "cause": Integer(1, 127),
        "missing": MISSING,
        "random_state": SEED,
        **TREE_RANGES,
    }
    saved_attributes: ClassVar[SavedAttributes] = {**SurvivalEstimator.saved_attributes, "trees_by_site_": PLAIN}
    model_: Trees
    trees_by_site_: dict[str, int]

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        n_local_estimators: int = 100,
        sampling: Sampling = "uniform",
        replacement: bool = False,
        max_depth: int | None = None,
        min_samples_leaf: int = 15,
        min_events_leaf: int = 3,
        max_features: MaxFeatures = "sqrt",
        n_times: int = 64,
        horizon: float | None = None,
        max_bins: int = 64,
        cause: int = 1,
        missing: SurvivalMissing = "mean",
        random_state: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.n_local_estimators = n_local_estimators
        self.sampling = sampling
        self.replacement = replacement
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.min_events_leaf = min_events_leaf
        self.max_features = max_features
        self.n_times = n_times
        self.horizon = horizon
        self.max_bins = max_bins
        self.cause = cause
        self.missing = missing
        self.random_state = random_state

    def to_frame(self) -> pd.DataFrame:
        """Return a row per site: its number of trees."""
        import pandas as pd

        check_is_fitted(self, "model_")
        return pd.DataFrame({"site": list(self.trees_by_site_), "trees": list(self.trees_by_site_.values())})

    def _results(self) -> dict[str, Any]:
        by_site = {f"trees of {site}": number for site, number in self.trees_by_site_.items()}
        return {"trees": len(self.model_.roots), **by_site}

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use."""
        return steps_of_agreement(self._needs) | {"offer_trees", "grow_trees"}

    @property
    def _needs(self) -> Needs:
        return Needs(n_times=self.n_times, horizon=self.horizon, n_bins=self.max_bins, cause=self.cause)

    def _fit(self, session: Session) -> None:
        orders, grown = self._grow(session, self.n_local_estimators, self._allot)
        wanted = dict(zip(orders.sites, orders.wanted.tolist(), strict=True))
        n_drawn = {site: wanted[site] if self.replacement else len(trees.roots) for site, trees in grown.items()}
        self._join(grown, n_drawn)

    def _allot(self, n_patients: Floats, offered: Integers) -> Integers:
        rng = np.random.default_rng(self.random_state)
        return allot_trees(self.n_estimators, n_patients, offered, rng, replacement=bool(self.replacement))

    def _grow(self, session: Session, n_estimators: int, allot: Allot) -> tuple[Orders, dict[str, Trees]]:
        """Agree, and request trees of the sites' forests; return the numbers requested, and the trees by site."""
        settings = TreeSettings(self.max_depth, self.min_samples_leaf, self.min_events_leaf, self.max_features)
        self.agreed_ = self._agree(session, self._needs)
        forest = Forest(
            n_estimators=n_estimators,
            max_depth=DEEPEST if settings.max_depth is None else settings.max_depth,
            min_samples_leaf=settings.min_samples_leaf,
            min_events_leaf=settings.min_events_leaf,
            max_features=settings.number_of_columns(len(self.agreed_.columns)),
            sampling=self.sampling,
            replacement=bool(self.replacement),
            seed=int(self.random_state),
        )
        orders = order_trees(session, forest, allot)
        return orders, gather_trees(session, forest, orders, self.agreed_)

    def _join(self, grown: Mapping[str, Trees], shares: Mapping[str, float]) -> None:
        """Set the model: the trees of every site with the site's share."""
        self.model_ = Trees.joined(list(grown.values()), np.array([shares[site] for site in grown]))
        self.trees_by_site_ = {site: len(trees.roots) for site, trees in grown.items()}
        self.history_ = []
