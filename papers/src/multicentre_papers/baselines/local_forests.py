"""Union of the sites' random survival forests; over a single site, the forest of that site."""

from __future__ import annotations

from typing import ClassVar

from multicentre.core.session import Session
from multicentre.estimator.parameters import ParameterRanges
from multicentre.survival.agreement.site import SurvivalMissing
from multicentre.survival.learners.tree import MaxFeatures
from multicentre_papers.baselines.surf.estimator import FedSurF


class LocalForests(FedSurF):
    """Union of the random survival forests of the sites, with all trees of each site.

    For comparison only. The weight of a site's forest is its number of patients; all trees of a forest have equal
    weights. Over a federation of one site, it is the forest of that site.

    Parameters
    ----------
    n_estimators : int, default 100
        Number of trees that each site grows.
    max_depth : int, optional
        Maximum depth of a tree.
    min_samples_leaf : int, default 15
        Minimum number of patients of a leaf. Sites refuse fewer than 15, and fewer than their policy's minimum.
    min_events_leaf : int, default 3
        Minimum number of events of a leaf.
    max_features : {"sqrt", "log2"}, int, float or None, default "sqrt"
        Number of columns tried at a node.
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

    Notes
    -----
    The notes of :class:`multicentre_papers.baselines.FedSurF` on disclosure apply to all trees.

    References
    ----------
    .. [1] H. Ishwaran, U. B. Kogalur, E. H. Blackstone, M. S. Lauer, "Random survival forests", Annals of Applied
       Statistics 2 (2008), 841-860.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> def draw(n):
    ...     X = rng.normal(size=(n, 3))
    ...     time, censoring = rng.exponential(20.0 * np.exp(-X[:, 0])), rng.exponential(40.0, n)
    ...     return mc.data.SurvivalData(X, np.minimum(time, censoring), time <= censoring)
    >>> federation = mc.Federation.in_process({"lyon": draw(200), "porto": draw(100), "turin": draw(100)})
    >>> from multicentre_papers.baselines import LocalForests
    >>> LocalForests(n_estimators=20).fit(federation).trees_by_site_
    {'lyon': 20, 'porto': 20, 'turin': 20}
    """

    parameter_ranges: ClassVar[ParameterRanges] = {
        name: valid
        for name, valid in FedSurF.parameter_ranges.items()
        if name not in ("n_local_estimators", "sampling", "replacement")
    }

    def __init__(
        self,
        n_estimators: int = 100,
        *,
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
        super().__init__(
            n_estimators,
            sampling="uniform",
            replacement=False,
            max_depth=max_depth,
            min_samples_leaf=min_samples_leaf,
            min_events_leaf=min_events_leaf,
            max_features=max_features,
            n_times=n_times,
            horizon=horizon,
            max_bins=max_bins,
            cause=cause,
            missing=missing,
            random_state=random_state,
        )

    def _fit(self, session: Session) -> None:
        orders, grown = self._grow(session, self.n_estimators, lambda _, offered: offered)
        self._join(grown, dict(zip(orders.sites, orders.n_patients.tolist(), strict=True)))
