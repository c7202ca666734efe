"""Forests of trees that the sites grow alone, put together in one round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from multicentre.data.missing.values import Missing
from multicentre.estimator.base import Arrays
from multicentre.federation.errors import ConfigurationError, DataError, MessageError
from multicentre.federation.session import Session
from multicentre.federation.steps import SitePart
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.agreement.rounds import Needs, steps_of_agreement
from multicentre.survival.fitted import SurvivalEstimator
from multicentre.survival.forest import site as sent
from multicentre.survival.forest.maths import allot_trees
from multicentre.survival.forest.site import MOST_TREES, SAMPLINGS, ForestSite
from multicentre.survival.learners.cohort import warn_of_constant
from multicentre.survival.learners.tree import DEEPEST, TreeSettings
from multicentre.survival.models.base import join, split
from multicentre.survival.models.trees import Trees

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

Allot = Callable[[Floats, Integers], Integers]


def order_trees(session: Session, forest: sent.Forest, allot: Allot) -> sent.Orders:
    """Ask what the sites can give, and settle how many trees each will.

    Raises
    ------
    DataError
        No site has patients and events enough for a tree.
    """
    return session.once("orders", sent.Orders, lambda: _order(session, forest, allot))


def _order(session: Session, forest: sent.Forest, allot: Allot) -> sent.Orders:
    offers = session.ask(ForestSite.offer_trees, forest)
    n_patients = np.array([offer.n_patients for offer in offers.values()])
    offered = np.array([min(offer.n_estimators, forest.n_estimators) for offer in offers.values()], dtype=np.int64)
    if not (offered > 0).any():
        raise _no_tree()
    return sent.Orders(tuple(offers), n_patients, allot(n_patients, offered))


def gather_trees(session: Session, forest: sent.Forest, orders: sent.Orders, agreed: Agreed) -> dict[str, Trees]:
    """Have the sites grow what was ordered of them, once, and return their trees by site, none of them empty.

    Raises
    ------
    DataError
        No site could grow a tree.
    MessageError
        What a site gave is no forest on the grid.
    """
    gathered = session.once("gathered", sent.Gathered, lambda: _gather(session, forest, orders, agreed))
    trees = split(gathered.packed, gathered.lengths, {"Trees": Trees}, len(agreed.columns))
    return dict(zip(gathered.sites, cast("Sequence[Trees]", trees), strict=True))


def _gather(session: Session, forest: sent.Forest, orders: sent.Orders, agreed: Agreed) -> sent.Gathered:
    asks = {
        site: sent.Order(**asdict(forest), wanted=wanted)
        for site, wanted in zip(orders.sites, orders.wanted.tolist(), strict=True)
        if wanted and site in session.sites
    }
    given = session.collect(ForestSite.grow_trees, asks, to=tuple(asks))
    grown = {site: _checked(site, trees, asks[site], agreed) for site, trees in given.items() if not trees.is_empty}
    if not grown:
        raise _no_tree()
    return sent.Gathered(tuple(grown), *join(grown.values()))


def _checked(site: str, trees: Trees, order: sent.Order, agreed: Agreed) -> Trees:
    try:
        trees.valid(len(agreed.columns))
    except MessageError as error:
        raise MessageError(error.what, where=f"site {site}, {error.where}", hint="Leave the site out.") from None
    if not np.array_equal(trees.times, agreed.times) or len(trees.roots) > order.wanted:
        raise MessageError("the trees are not those ordered", where=f"site {site}", hint="Leave the site out.")
    return trees


def _no_tree() -> DataError:
    return DataError(
        "no site has patients and events enough for a tree",
        where="min_samples_leaf, min_events_leaf",
        hint="Lower them, or lengthen the horizon; a site refuses leaves of fewer than 15 patients.",
    )


Columns = Literal["sqrt", "third", "all"] | int

Sampling = Literal["uniform", "ibs", "concordance"]


class LocalTrees(SurvivalEstimator):
    """Base of the forests of trees that the sites grow alone."""

    site_part: ClassVar[type[SitePart]] = ForestSite
    model_: Trees
    trees_by_site_: dict[str, int]
    n_estimators: int
    max_depth: int | None
    min_samples_leaf: int
    min_events_leaf: int
    max_features: Columns
    n_times: int
    horizon: float | None
    max_bins: int
    cause: int
    random_state: int

    def asked_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may ask of a site."""
        return steps_of_agreement(self._needs) | {"offer_trees", "grow_trees"}

    @property
    def _needs(self) -> Needs:
        return Needs(n_times=self.n_times, horizon=self.horizon, n_bins=self.max_bins, cause=self.cause)

    def _grow(
        self, session: Session, n_estimators: int, allot: Allot, sampling: Sampling, replacement: bool
    ) -> tuple[sent.Orders, dict[str, Trees]]:
        """Agree, order and gather; return what was ordered, and the trees by site."""
        if not {n_estimators, self.n_estimators} <= set(range(1, MOST_TREES + 1)):
            raise ConfigurationError("no number of trees", where="n_estimators", hint=f"Give 1 to {MOST_TREES}.")
        settings = TreeSettings(self.max_depth, self.min_samples_leaf, self.min_events_leaf, self.max_features)
        self.agreed_ = self._agree(session, self._needs)
        forest = sent.Forest(
            n_estimators=n_estimators,
            max_depth=DEEPEST if settings.max_depth is None else settings.max_depth,
            min_samples_leaf=settings.min_samples_leaf,
            min_events_leaf=settings.min_events_leaf,
            max_features=settings.number_of_columns(len(self.agreed_.columns)),
            sampling=sampling,
            replacement=replacement,
            seed=int(self.random_state),
        )
        orders = order_trees(session, forest, allot)
        return orders, gather_trees(session, forest, orders, self.agreed_)

    def _join(self, grown: Mapping[str, Trees], shares: Mapping[str, float]) -> None:
        """Set the model: every site's trees with the site's share."""
        self.model_ = Trees.joined(list(grown.values()), np.array([shares[site] for site in grown]))
        self.trees_by_site_ = {site: len(trees.roots) for site, trees in grown.items()}
        self.history_ = []
        warn_of_constant(self.model_.n_constant, len(self.model_.roots), "FedRSF or FedHazardBoost")

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, facts = super()._state()
        return arrays, {**facts, "trees_by_site": self.trees_by_site_}

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.trees_by_site_ = dict(facts["trees_by_site"])


class FedSurF(LocalTrees):
    """A federated survival forest in one round: sites grow forests, and give some of their trees.

    The coordinator draws how many trees each site gives, in proportion to its patients; a site grows its forest, and
    draws which of its trees leave. The model's survival curve is the mean over the trees given.

    Parameters
    ----------
    n_estimators : int, default 100
        Trees of the model. Fewer where all sites together have fewer.
    n_local_estimators : int, default 100
        Trees that every site grows.
    sampling : {"uniform", "ibs", "concordance"}, default "uniform"
        How a site draws its trees: all alike, or by one over their integrated Brier score, or by their concordance, on
        a fifth of its patients whom the trees do not see. Scores are scaled from 0 for the site's worst tree to 1.
    replacement : bool, default False
        Trees are drawn with replacement, as the authors' code does; one drawn twice weighs twice.
    max_depth : int, optional
        Splits on the way to a leaf, at most. The authors' settings for SUPPORT2 are ``n_estimators=500, max_depth=1``.
    min_samples_leaf : int, default 15
        Fewest patients of a leaf. Sites refuse fewer than 15, or than their policies ask for.
    min_events_leaf : int, default 3
        Fewest events of a leaf.
    max_features : {"sqrt", "third", "all"} or int, default "sqrt"
        Columns that are tried at every node.
    n_times : int, default 64
        Length of the grid of times, at most 256.
    horizon : float, optional
        Last time of the grid; by default the one by which 95 % of the follow-ups ended.
    max_bins : int, default 64
        Bins of every column, at most 256.
    cause : int, default 1
        Which events count.
    missing : {"mean", "indicator", "complete"}, default "mean"
        What is done with missing entries: fill them with the sites' mean; fill and add a column that marks them; or
        leave incomplete patients out. ``missing_`` counts them.
    random_state : int, default 0
        Seed. Each site mixes it with its name and its data.

    Attributes
    ----------
    model_ : Trees
    trees_by_site_ : dict of str to int
        Trees in the model by site that grew them, in the order of the model. The coordinator knows which tree is whose.
    agreed_, times_, columns_
        As for all survival methods.

    Notes
    -----
    A sum over sites cannot stand for trees, so each site's own leave it (`federation.ask`), unmasked even where sums
    are masked: a leaf's curve is that of 15 patients or more, on the shared grid, and tells their share of events by
    its times, of which each site groups neighbours until its policy's minimum of patients leave at each. ``FedRSF``
    grows its trees from sums, and shows no site's own.

    Warns
    -----
    UserWarning
        At least half of the trees have no split: sites have too few patients or events for one.

    References
    ----------
    .. [1] A. Archetti, F. Ieva, M. Matteucci, "Scaling survival analysis in healthcare with federated survival
       forests: a comparative study on heart failure and breast cancer genomics", Future Generation Computer Systems
       149 (2023), 343-358.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> def draw(n):
    ...     X = rng.normal(size=(n, 3))
    ...     time, censoring = rng.exponential(20.0 * np.exp(-X[:, 0])), rng.exponential(40.0, n)
    ...     return mc.data.SurvivalData(X, np.minimum(time, censoring), time <= censoring)
    >>> federation = mc.Federation.in_process({"lyon": draw(200), "porto": draw(100), "turin": draw(100)})
    >>> model = mc.survival.FedSurF(n_estimators=20, n_local_estimators=20).fit(federation)
    >>> sum(model.trees_by_site_.values()), bool(model.score(draw(300)) > 0.6)
    (20, True)
    """

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
        max_features: Columns = "sqrt",
        n_times: int = 64,
        horizon: float | None = None,
        max_bins: int = 64,
        cause: int = 1,
        missing: Missing = "mean",
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

    def _fit(self, session: Session) -> None:
        if self.sampling not in SAMPLINGS:
            raise ConfigurationError("there is no such sampling", where="sampling", hint=f"Use {', '.join(SAMPLINGS)}.")
        replacement = bool(self.replacement)
        orders, grown = self._grow(session, self.n_local_estimators, self._allot, self.sampling, replacement)
        wanted = dict(zip(orders.sites, orders.wanted.tolist(), strict=True))
        self._join(grown, {site: wanted[site] if replacement else len(trees.roots) for site, trees in grown.items()})

    def _allot(self, n_patients: Floats, offered: Integers) -> Integers:
        rng = np.random.default_rng(self.random_state)
        return allot_trees(self.n_estimators, n_patients, offered, rng, replacement=bool(self.replacement))


class LocalForests(LocalTrees):
    """The union of the sites' own random survival forests: every site gives all of its trees.

    A site's forest weighs as its patients; within it all trees weigh alike.

    Parameters
    ----------
    n_estimators : int, default 100
        Trees that every site grows.
    max_depth, min_samples_leaf, min_events_leaf, max_features, n_times, horizon, max_bins, cause, random_state
        As for :class:`FedSurF`.

    Attributes
    ----------
    model_, trees_by_site_, agreed_, times_, columns_
        As for :class:`FedSurF`, whose notes on what leaves a site hold here for all trees.

    References
    ----------
    .. [1] H. Ishwaran, U. B. Kogalur, E. H. Blackstone, M. S. Lauer, "Random survival forests", Annals of Applied
       Statistics 2 (2008), 841-860.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> def draw(n):
    ...     X = rng.normal(size=(n, 3))
    ...     time, censoring = rng.exponential(20.0 * np.exp(-X[:, 0])), rng.exponential(40.0, n)
    ...     return mc.data.SurvivalData(X, np.minimum(time, censoring), time <= censoring)
    >>> federation = mc.Federation.in_process({"lyon": draw(200), "porto": draw(100), "turin": draw(100)})
    >>> model = mc.survival.LocalForests(n_estimators=20).fit(federation)
    >>> model.trees_by_site_
    {'lyon': 20, 'porto': 20, 'turin': 20}
    """

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        max_depth: int | None = None,
        min_samples_leaf: int = 15,
        min_events_leaf: int = 3,
        max_features: Columns = "sqrt",
        n_times: int = 64,
        horizon: float | None = None,
        max_bins: int = 64,
        cause: int = 1,
        missing: Missing = "mean",
        random_state: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
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

    def _fit(self, session: Session) -> None:
        orders, grown = self._grow(session, self.n_estimators, lambda _, offered: offered, "uniform", False)
        self._join(grown, dict(zip(orders.sites, orders.n_patients.tolist(), strict=True)))
