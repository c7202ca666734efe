"""FedMVFCM and FedMVFPC: fuzzy clusters of patients at different sites, via sums over all sites."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.core.tie_breaking import first_least
from multicentre.errors import DataError
from multicentre.estimator.parameters import SEED, Flag, Integer, OneOf, ParameterRanges, Real
from multicentre_papers.baselines.fuzzy import limits, messages
from multicentre_papers.baselines.fuzzy.fitted import FuzzyModel
from multicentre_papers.baselines.fuzzy.maths import orthonormal_centres, weighted_means
from multicentre_papers.baselines.fuzzy.rounds import FuzzyScale, Plan, State, Update, agree, climb, last_objective
from multicentre_papers.baselines.fuzzy.site import FuzzySite, MVFCMSite, MVFPCSite


class FuzzyClusterer(FuzzyModel):
    """Common rounds of both methods; a subclass defines the update of the centres."""

    site_part: ClassVar[type[SitePart]]
    parameter_ranges: ClassVar[ParameterRanges] = {
        "n_clusters": Integer(1, limits.MAX_CLUSTERS),
        "fuzziness": Real(limits.MIN_FUZZINESS, limits.MAX_FUZZINESS),
        "scale": OneOf("feature", "view"),
        "squared": Flag(),
        # A site answers at most 100,000 sums, and a start takes about 100 rounds.
        "n_init": Integer(1, 1_000),
        # A start ends after two rounds with small changes at the earliest.
        "max_iter": Integer(2, limits.MAX_REQUESTS),
        "tol": Real(0, 1),
        "random_state": SEED,
    }
    _part: ClassVar[type[FuzzySite]]
    _update: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        fuzziness: float = 1.1,
        scale: FuzzyScale = "feature",
        squared: bool = True,
        n_init: int = 5,
        max_iter: int = 100,
        tol: float = 1e-6,
        random_state: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.fuzziness = fuzziness
        self.scale = scale
        self.squared = squared
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _fit(self, session: Session) -> None:
        part = self._part
        agreed = session.once("agreement", messages.Agreement, lambda: agree(session, part, self.scale))
        n_patients = round(agreed.n_patients)
        if self.n_clusters > n_patients:
            problem = f"n_clusters must be at most the number of patients, {n_patients}; got {self.n_clusters}"
            raise DataError(problem, where="n_clusters")
        plan = self._plan()
        starts = range(int(self.n_init))
        runs = session.together([partial(climb, session, part, plan, agreed, start) for start in starts])
        self._take(agreed, runs[int(first_least([last_objective(rounds) for rounds in runs]))])

    def _plan(self) -> Plan:
        return Plan(
            int(self.n_clusters),
            float(self.fuzziness),
            not self.squared,
            int(self.max_iter),
            float(self.tol),
            int(self.random_state),
            type(self)._update,
        )

    def _take(self, agreed: messages.Agreement, best: Rounds[State]) -> None:
        state = best.state
        masses = state.masses[:, int(agreed.patients_by_view.argmax())]
        order = np.argsort(-masses, kind="stable")
        self._agreed, self._alpha = agreed, state.view_weights
        self._centres = np.ascontiguousarray(state.centres[order])
        self.shares_ = masses[order] / masses.sum()
        self.history_, self.converged_ = best.history, best.stopped
        if not self.converged_:
            warnings.warn(
                f"The objective did not converge to tol={self.tol:g} within max_iter={self.max_iter} rounds.",
                ConvergenceWarning,
                stacklevel=4,
            )


class FedMVFCM(FuzzyClusterer):
    """Fuzzy c-means of patients with several views at different sites.

    Each patient has a membership u in each cluster. A cluster's centre is the mean of the patients, weighted by u^m. A
    view weighs more if patients lie near their centres. A round is one sum over the sites, so the fit equals the pooled
    fit. The authors' sites send gradients, and the coordinator takes one step along their mean; the fixed points are
    the same, but convergence takes more rounds.

    Parameters
    ----------
    n_clusters : int, default 2
        Number of clusters.
    fuzziness : float, default 1.1
        Exponent m, from 1.005 (each patient in one cluster) to 100. With many columns, clusters merge from about 1.5.
    scale : {"feature", "view"}, default "feature"
        Divisor of the centred columns: the standard deviation over all sites, or one number per view, which suits
        columns of one unit such as word counts. The mean squared length of the patients in each view is then 1.
    squared : bool, default True
        Use squared distances, which give one objective that never rises. False reproduces the authors' code: plain
        distances and memberships by the doubled exponent, without a common objective.
    n_init : int, default 5
        Number of starts from random directions; the fit with the lowest objective is selected.
    max_iter : int, default 100
        Maximum number of rounds per start, one sum over the sites each.
    tol : float, default 1e-6
        A start ends when the relative change of the objective is below this in two consecutive rounds.
    random_state : int, default 0
        Seed of the starts.

    Attributes
    ----------
    centres_ : dict of str to array of shape (c, d_k)
        Centre of every cluster by view, in the original units; the largest cluster first.
    view_weights_ : dict of str to float
        Weights alpha: the inverse of a view's dispersion per patient; they sum to 1.
    shares_ : array of shape (c,)
        Share of the patients per cluster, counted by memberships to the power of m.
    converged_ : bool
        Rounds and convergence of the selected start.
    history_ : list of dict
        Objective per patient and round of the selected start. The first round uses sharper memberships.

    Notes
    -----
    The authors start from k-means centres of one site, which disclose a few patients of that site. Here the
    coordinator draws random directions from `random_state`, independent of any patient.

    Unmasked sums of many rounds can be combined until a single patient's row remains. A site's policy therefore
    refuses unmasked sums unless every row is shared by at least the policy's minimum number of patients. Mask the sums
    (``secure_sum=True``).

    References
    ----------
    .. [1] X. Hu, J. Qin, Y. Shen, W. Pedrycz, X. Liu, J. Liu, "An Efficient Federated Multiview Fuzzy C-Means
       Clustering Method", IEEE Transactions on Fuzzy Systems 32 (2024), 1886-1899.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> from multicentre_papers.baselines import FedMVFCM
    >>> rng = np.random.default_rng(0)
    >>> def site(n):
    ...     group = np.arange(n) % 3
    ...     views = {name: 3 * np.eye(3)[group] + rng.normal(size=(n, 3)) for name in ("blood", "image")}
    ...     return mc.data.MultiViewData(views)
    >>> sites = {name: site(90) for name in ("lyon", "nice", "lille")}
    >>> model = FedMVFCM(3, n_init=1).fit(mc.Federation.in_process(sites))
    >>> model.assess(sites["lyon"], np.arange(90) % 3)["acc"] > 0.9
    True
    """

    site_part: ClassVar[type[SitePart]] = MVFCMSite
    _part: ClassVar[type[FuzzySite]] = MVFCMSite
    _update: ClassVar[Update] = staticmethod(weighted_means)


class FedMVFPC(FuzzyClusterer):
    """Fuzzy clusters of patients with several views around orthonormal prototypes shared by all sites.

    As :class:`FedMVFCM`, but the centres in a view are orthogonal and of length 1: directions from the mean of all
    patients rather than points. Clusters cannot merge, and a view with few columns cannot outweigh the others by its
    small distances alone. Use it for three or more clusters: two orthogonal directions seldom suit two groups on
    opposite sides of the mean.

    Parameters
    ----------
    n_clusters : int, default 2
        Number of clusters.
    fuzziness : float, default 1.1
        Exponent m, from 1.005 (each patient in one cluster) to 100. With many columns, clusters merge from about 1.5.
    scale : {"feature", "view"}, default "feature"
        Divisor of the centred columns: the standard deviation over all sites, or one number per view, which suits
        columns of one unit such as word counts. The mean squared length of the patients in each view is then 1.
    squared : bool, default True
        Use squared distances, which give one objective that never rises. False reproduces the authors' code: plain
        distances and memberships by the doubled exponent, without a common objective.
    n_init : int, default 5
        Number of starts from random directions; the fit with the lowest objective is selected.
    max_iter : int, default 100
        Maximum number of rounds per start, one sum over the sites each.
    tol : float, default 1e-6
        A start ends when the relative change of the objective is below this in two consecutive rounds.
    random_state : int, default 0
        Seed of the starts.

    Attributes
    ----------
    centres_ : dict of str to array of shape (c, d_k)
        Centre of every cluster by view, in the original units: the mean of all patients plus a direction. The largest
        cluster is first.
    view_weights_ : dict of str to float
        Weights alpha: the inverse of a view's dispersion per patient; they sum to 1.
    shares_ : array of shape (c,)
        Share of the patients per cluster, counted by memberships to the power of m.
    converged_ : bool
        Rounds and convergence of the selected start.
    history_ : list of dict
        Objective per patient and round of the selected start. The first round uses sharper memberships.

    Notes
    -----
    The authors write a centre as W v, with one W per view and common latent prototypes V, all orthonormal. With one W
    for all sites, W v is the polar factor of the view's weighted sums for every V and every number of latent
    dimensions, so neither is a parameter. With one W per site, as published, V also keeps its initial value: the sites
    would not share information, and only their labels would have to be matched.

    From the second round on, the objective cannot rise if every view has at least as many columns as there are
    clusters. The notes of :class:`FedMVFCM` on starts and on unmasked sums apply.

    References
    ----------
    .. [1] X. Hu, J. Qin, Y. Shen, W. Pedrycz, X. Liu, J. Liu, "An Efficient Federated Multiview Fuzzy C-Means
       Clustering Method", IEEE Transactions on Fuzzy Systems 32 (2024), 1886-1899.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> from multicentre_papers.baselines import FedMVFPC
    >>> rng = np.random.default_rng(0)
    >>> def site(n):
    ...     group = np.arange(n) % 3
    ...     views = {name: 3 * np.eye(3)[group] + rng.normal(size=(n, 3)) for name in ("blood", "image")}
    ...     return mc.data.MultiViewData(views)
    >>> sites = {name: site(90) for name in ("lyon", "nice", "lille")}
    >>> model = FedMVFPC(3, n_init=1).fit(mc.Federation.in_process(sites))
    >>> model.assess(sites["lyon"], np.arange(90) % 3)["acc"] > 0.9
    True
    """

    site_part: ClassVar[type[SitePart]] = MVFPCSite
    _part: ClassVar[type[FuzzySite]] = MVFPCSite
    _update: ClassVar[Update] = staticmethod(orthonormal_centres)
