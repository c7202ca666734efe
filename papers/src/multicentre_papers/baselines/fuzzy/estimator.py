"""FedMVFCM and FedMVFPC: fuzzy clusters of patients at different sites, from sums over all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.federation.rounds import Rounds
from multicentre.federation.session import Session
from multicentre.federation.steps import SitePart
from multicentre.federation.tie_breaking import first_least
from multicentre_papers.baselines.fuzzy import limits
from multicentre_papers.baselines.fuzzy import messages as sent
from multicentre_papers.baselines.fuzzy.fitted import FuzzyModel
from multicentre_papers.baselines.fuzzy.maths import orthonormal_centres, weighted_means
from multicentre_papers.baselines.fuzzy.rounds import Plan, Scale, State, Update, agree, climb, last_objective
from multicentre_papers.baselines.fuzzy.site import FuzzySite, MVFCMSite, MVFPCSite


class FuzzyClusterer(FuzzyModel):
    """The rounds that both methods share; a subclass says how centres follow from sums."""

    site_part: ClassVar[type[SitePart]]
    _part: ClassVar[type[FuzzySite]]
    _update: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        fuzziness: float = 1.1,
        scale: Scale = "feature",
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
        self._check_parameters()
        part = self._part
        agreed = session.once("agreement", sent.Agreement, lambda: agree(session, part, self.scale))
        n_patients = round(agreed.n_patients)
        if self.n_clusters > n_patients:
            what = f"{self.n_clusters} clusters of {n_patients} patients"
            raise DataError(what, where="n_clusters", hint="Ask for fewer clusters.")
        plan = self._plan()
        tried = [climb(session, part, plan, agreed, start) for start in range(int(self.n_init))]
        self._take(agreed, tried[int(first_least([last_objective(rounds) for rounds in tried]))])

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

    def _take(self, agreed: sent.Agreement, best: Rounds[State]) -> None:
        state = best.state
        masses = state.masses[:, int(agreed.patients_by_view.argmax())]
        order = np.argsort(-masses, kind="stable")
        self._agreed, self._alpha = agreed, state.view_weights
        self._centres = np.ascontiguousarray(state.centres[order])
        self.shares_ = masses[order] / masses.sum()
        self.history_, self.n_iter_, self.converged_ = best.history, best.number, best.stopped
        if not self.converged_:
            warnings.warn(
                f"the rounds ended at max_iter={self.max_iter} before the objective settled to tol={self.tol:g}.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _check_parameters(self) -> None:
        checks = {
            "n_clusters": _whole(self.n_clusters, 1, limits.MOST_CLUSTERS),
            "fuzziness": _number(self.fuzziness, limits.LEAST_FUZZINESS, limits.MOST_FUZZINESS),
            "scale": self.scale in ("feature", "view"),
            "squared": isinstance(self.squared, bool),
            "n_init": _whole(self.n_init, 1, 1_000),
            "max_iter": _whole(self.max_iter, 2, limits.MOST_ASKED),
            "tol": _number(self.tol, 0.0, 1.0),
            "random_state": _whole(self.random_state, 0, 2**62),
        }
        for name, good in checks.items():
            if not good:
                what = f"{getattr(self, name)!r} is out of range"
                raise ConfigurationError(what, where=name, hint="See the parameter's documentation.")


class FedMVFCM(FuzzyClusterer):
    """Fuzzy c-means of patients with several views at different sites.

    Each patient belongs to each cluster by a share u; a cluster's centre is the mean of the patients, weighted by u^m;
    a view in which patients lie near their centres weighs more. A round is one sum over the sites, so the fit is that
    of the pooled patients. The authors' sites send gradients, and the coordinator takes one step of their mean: the
    same centres are at rest, in more rounds.

    Parameters
    ----------
    n_clusters : int, default 2
    fuzziness : float, default 1.1
        The exponent m, from 1.005 (each patient in one cluster) to 100; with many columns clusters flow together from
        about 1.5 on.
    scale : {"feature", "view"}, default "feature"
        Columns are centred and divided by their standard deviations over all sites, or by one number a view, which
        suits columns of one unit such as counts of words. Then a patient's squared length in each view is 1 on average.
    squared : bool, default True
        Squared distances, with which one objective falls in every step. False is the authors' code: distances that are
        not squared, memberships by the doubled exponent, no common objective.
    n_init : int, default 5
        Starts from random directions; the fit with the least objective is kept.
    max_iter : int, default 100
        Rounds a start at most, one sum over the sites each.
    tol : float, default 1e-6
        A start ends when the objective changed by less than this, relatively, in two rounds running.
    random_state : int, default 0

    Attributes
    ----------
    centres_ : dict of str to array of shape (c, d_k)
        Centre of every cluster by view, in the columns' own units; the largest cluster first.
    view_weights_ : dict of str to float
        The weights alpha, one over a view's dispersion a patient; they sum to 1.
    shares_ : array of shape (c,)
        Share of the patients by cluster, counted by memberships to the power of m.
    n_iter_, converged_ : int, bool
        Of the start that was kept.
    history_ : list of dict
        Objective a patient, round by round, of the same; the first is of other memberships.

    Notes
    -----
    The authors start from the centres that k-means finds at one site, which tells of a few patients there. Here a start
    is random directions, drawn by the coordinator from `random_state`: it knows nothing of any patient.

    Unmasked, sums of many rounds could be set off against each other until one patient's row is left. A site's policy
    therefore refuses the first one unless as many of its patients as the policy's minimum have the same row, whichever
    it is. Mask the sums (``secure_sum=True``).

    References
    ----------
    .. [1] X. Hu, J. Qin, Y. Shen, W. Pedrycz, X. Liu, J. Liu, "An Efficient Federated Multiview Fuzzy C-Means
       Clustering Method", IEEE Transactions on Fuzzy Systems 32 (2024), 1886-1899.

    Examples
    --------
    >>> import multicentre as mc
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
    """Fuzzy clusters of patients with several views about orthonormal prototypes that all sites share.

    As :class:`FedMVFCM`, but the centres in a view are orthogonal and of length 1: directions from the mean of all
    patients rather than points. Clusters then cannot flow together, and no view with few columns can outweigh the
    others by its small distances alone. For three clusters or more; two directions at a right angle seldom suit two
    groups on either side of a mean.

    Parameters
    ----------
    n_clusters : int, default 2
    fuzziness : float, default 1.1
        The exponent m, from 1.005 (each patient in one cluster) to 100; with many columns clusters flow together from
        about 1.5 on.
    scale : {"feature", "view"}, default "feature"
        Columns are centred and divided by their standard deviations over all sites, or by one number a view, which
        suits columns of one unit such as counts of words. Then a patient's squared length in each view is 1 on average.
    squared : bool, default True
        Squared distances, with which one objective falls in every step. False is the authors' code: distances that are
        not squared, memberships by the doubled exponent, no common objective.
    n_init : int, default 5
        Starts from random directions; the fit with the least objective is kept.
    max_iter : int, default 100
        Rounds a start at most, one sum over the sites each.
    tol : float, default 1e-6
        A start ends when the objective changed by less than this, relatively, in two rounds running.
    random_state : int, default 0

    Attributes
    ----------
    centres_ : dict of str to array of shape (c, d_k)
        Centre of every cluster by view, in the columns' own units: the mean of all patients plus a direction. The
        largest cluster first.
    view_weights_ : dict of str to float
        The weights alpha, one over a view's dispersion a patient; they sum to 1.
    shares_ : array of shape (c,)
        Share of the patients by cluster, counted by memberships to the power of m.
    n_iter_, converged_ : int, bool
        Of the start that was kept.
    history_ : list of dict
        Objective a patient, round by round, of the same; the first is of other memberships.

    Notes
    -----
    The authors write a centre as W v, with a W for each view and latent prototypes V for all, both orthonormal. With
    one W for all sites, W v is the polar factor of the view's weighted sums whatever V is and however many latent
    dimensions it has, so neither is a parameter here. With a W for each site, as published, V never moves from its
    start either: sites would learn nothing from each other, and only their labels would have to be matched.

    The objective cannot rise, once the memberships are those of `fuzziness`, where every view has as many columns as
    there are clusters, or more. What :class:`FedMVFCM` notes on starts and on unmasked sums holds here too.

    References
    ----------
    .. [1] X. Hu, J. Qin, Y. Shen, W. Pedrycz, X. Liu, J. Liu, "An Efficient Federated Multiview Fuzzy C-Means
       Clustering Method", IEEE Transactions on Fuzzy Systems 32 (2024), 1886-1899.

    Examples
    --------
    >>> import multicentre as mc
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


def _whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and least <= int(value) <= most


def _number(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(least <= value <= most)
