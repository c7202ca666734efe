"""Estimator of FedMVL: agreement, initial factor, rounds and cluster labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.clustering.aligned import AlignedClusterer
from multicentre.clustering.partition import partition_rows
from multicentre.core.messages import Nothing
from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.core.steps import Acknowledgement, SitePart
from multicentre.data.identifiers import IDENTIFIER
from multicentre.errors import DataError, NotConverged
from multicentre.estimator.figures import Bars, Figure
from multicentre.estimator.parameters import Integer, OneOf, ParameterRanges, Real
from multicentre.estimator.saved import PLAIN, Saved, SavedAttributes
from multicentre_papers.baselines.fedmvl import messages
from multicentre_papers.baselines.fedmvl.maths import Penalties, find_leading, indicate, solve_common, solve_guide
from multicentre_papers.baselines.fedmvl.site import (
    EXTRA_DIRECTIONS,
    MAX_CLUSTERS,
    MAX_COMMON,
    MAX_PENALTY,
    MAX_ROUNDS,
    N_SKETCHES,
    SCALES,
    FedMVLSite,
)

Floats = NDArray[np.float64]
# At 0 the power of the errors is undefined; above 3 all views have nearly the same weight.
MIN_EVENNESS, MAX_EVENNESS = 1e-3, 3.0
# Largest seed that the sites accept.
MAX_SEED = 2**31 - 1
# Bounds the time of k-means.
MAX_STARTS = 10_000


class FedMVL(AlignedClusterer):
    """Clustering of patients with views at different sites by non-negative factorisation (Huang et al. 2022).

    Each site factorises its views as ``X ~ V_m U'`` with ``V_m >= 0``. The coordinator receives only masked sums of the
    V_m. It draws them to one V with nearly orthogonal columns; k-means clusters the rows of V.

    Parameters
    ----------
    n_clusters : int
        Number of clusters c, from 2 to a tenth of the number of patients; always 2 for fewer than 30 patients.
    view_evenness : float, default 0.5
        The paper's ``lambda``, from 0.001 to 3. A view's weight is its error to the power
        ``1 / (1 - 10**view_evenness)``, so small values give nearly all weight to the best explained view. Published
        grid: 0.1 to 1.9.
    consensus_penalty : float, default 20
        ``rho``: penalty that draws the views' factors to V, in units of n / c.
    guide_penalty : float, default 20
        ``varrho``: penalty that draws V to the factor with orthogonal columns, in units of n / c.
    orthogonality_penalty : float, default 3
        ``mu``: penalty on deviations from orthonormal columns, in units of n / c.
    fraction : float, default 1.0
        Smallest share of its rows that a view updates per round, for slow sites. The share is drawn in each round.
    max_iter : int, default 35
        Maximum number of rounds.
    tol : float, default 1e-3
        The rounds end when the relative change of V and the relative distance of the views' factors to V are at most
        this.
    scale : {"sample", "feature", "none"}, default "sample"
        Standardisation to mean 0 and variance 1 at the site. "sample" standardises each patient's row of a view, as
        published; it suits columns of one kind, such as term weights or pixels. "feature" standardises each column; it
        suits columns of different units. Each view is then divided by one number, which gives all views the same sum of
        squares.
    start : {"spectral", "random"}, default "spectral"
        Initial V. ``"spectral"``: k-means on the leading eigenvectors of the views' summed products, at the cost of
        four more masked sums. ``"random"``: as published; use weaker penalties, such as 0.1. The result then depends
        strongly on the penalties and on the seed.
    n_init : int, default 10
        Number of k-means starts.
    person_key : str, default "identifier"
        Identifiers that align the sites.
    random_state : int, default 0
        Seed of the initial V, of k-means and of the updated rows.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)
        Cluster of every patient, in the common order.
    embedding_ : array of shape (n, c)
        V.
    view_weights_ : dict of str to float
        Weights alpha of the views by ``<site>/<view>``; they sum to 1.
    converged_ : bool
        True if the rounds ended by `tol`.
    history_ : list of dict
        One entry per round: `error`, the mean unexplained share of the views; `gap`, the relative distance of their
        factors to V; `orthogonality`, ``||G'V - I||^2``; `change`, the relative change of V.

    Notes
    -----
    Only sums over sites reach the coordinator. Unmasked sums need ``relations = "dense"`` in every site's policy.

    References
    ----------
    S. Huang, W. Shi, Z. Xu, I. W. Tsang, J. Lv (2022), Efficient federated multi-view learning, Pattern Recognition.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> from multicentre_papers.baselines import FedMVL
    >>> rng = np.random.default_rng(0)
    >>> group = np.repeat([0, 1, 2], 20)
    >>> names = [f"p{i}" for i in range(60)]
    >>> views = [rng.normal(size=(3, 8))[group] + 0.3 * rng.normal(size=(60, 8)) for _ in range(3)]
    >>> sites = {f"site-{k}": mc.data.MultiViewData({"v": rows}, names) for k, rows in enumerate(views)}
    >>> model = FedMVL(3).fit(mc.Federation.in_process(sites))
    >>> labels = model.labels_for(names)
    >>> [len(set(labels[group == g])) for g in range(3)], sorted(np.bincount(labels).tolist())
    ([1, 1, 1], [20, 20, 20])
    """

    site_part: ClassVar[type[SitePart]] = FedMVLSite
    parameter_ranges: ClassVar[ParameterRanges] = {
        "n_clusters": Integer(2, MAX_CLUSTERS),
        "view_evenness": Real(MIN_EVENNESS, MAX_EVENNESS),
        "consensus_penalty": Real(1 / MAX_PENALTY, MAX_PENALTY),
        "guide_penalty": Real(1 / MAX_PENALTY, MAX_PENALTY),
        "orthogonality_penalty": Real(0, MAX_PENALTY),
        "fraction": Real(1e-6, 1),
        "max_iter": Integer(1, MAX_ROUNDS),
        "tol": Real(0, 1),
        "scale": OneOf(*SCALES),
        "start": OneOf("spectral", "random"),
        "n_init": Integer(1, MAX_STARTS),
        "random_state": Integer(0, MAX_SEED),
    }
    saved_attributes: ClassVar[SavedAttributes] = {
        **AlignedClusterer.saved_attributes,
        "embedding_": Saved(unpack=lambda embedding: np.asarray(embedding, dtype=np.float64)),
        "view_weights_": PLAIN,
        "converged_": Saved(unpack=bool),
    }
    incomplete: bool = False
    embedding_: Floats
    converged_: bool

    def __init__(
        self,
        n_clusters: int,
        *,
        view_evenness: float = 0.5,
        consensus_penalty: float = 20.0,
        guide_penalty: float = 20.0,
        orthogonality_penalty: float = 3.0,
        fraction: float = 1.0,
        max_iter: int = 35,
        tol: float = 1e-3,
        scale: Literal["sample", "feature", "none"] = "sample",
        start: Literal["spectral", "random"] = "spectral",
        n_init: int = 10,
        person_key: str = IDENTIFIER,
        random_state: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.view_evenness = view_evenness
        self.consensus_penalty = consensus_penalty
        self.guide_penalty = guide_penalty
        self.orthogonality_penalty = orthogonality_penalty
        self.fraction = fraction
        self.max_iter = max_iter
        self.tol = tol
        self.scale = scale
        self.start = start
        self.n_init = n_init
        self.person_key = person_key
        self.random_state = random_state

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters can request from a site."""
        steps = frozenset({"describe", "begin", "renew", "send_weights"})
        return steps | {"multiply"} if self.start == "spectral" else steps

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return a figure of the weights of the views."""
        check_is_fitted(self, "labels_")
        names, weights = list(self.view_weights_), list(self.view_weights_.values())
        caption = "Weight of each view in the factorisation. Better explained views have larger weights."
        return [Bars("Weights of the views", caption, "model", "weight", names, {"weight": weights}, {})]

    def _fit(self, session: Session) -> None:
        n = len(self.pseudonyms_)
        if self.n_clusters > n:
            raise DataError(
                f"n_clusters must be at most the number of patients, {n}; got {self.n_clusters}", where="n_clusters"
            )
        views = session.once("views", messages.Listing, lambda: _list_views(session))
        session.once("begun", Acknowledgement, lambda: self._begin(session))
        common = self._start(session, n)
        penalties = Penalties.of(self.consensus_penalty, self.guide_penalty, self.orthogonality_penalty, common.shape)
        rounds = session.rounds(self.max_iter, messages.Progress, lambda: _initial_state(common, len(views.views)))
        for number in rounds:
            sums = session.sum(FedMVLSite.renew, _request_of_round(number, rounds.state))
            rounds.state = self._advance(rounds, sums, penalties)
        self.embedding_, self.history_ = rounds.state.common, rounds.history
        self.converged_ = rounds.stopped
        self.view_weights_ = self._weights(session, views, rounds.state.total_term)
        self.labels_ = partition_rows(
            self.embedding_, self.n_clusters, n_init=self.n_init, random_state=self.random_state
        )

    def _begin(self, session: Session) -> Acknowledgement:
        terms = messages.Terms(
            int(self.n_clusters),
            self.scale,
            float(self.view_evenness),
            float(self.consensus_penalty),
            float(self.fraction),
            int(self.max_iter),
            int(self.random_state),
        )
        session.ask(FedMVLSite.begin, terms)
        return Acknowledgement()

    def _start(self, session: Session, n: int) -> Floats:
        """Return the V of the first round, shape (n, c); its columns have length 1."""
        generator = np.random.default_rng(self.random_state)
        if self.start == "random":
            drawn = generator.random((n, self.n_clusters))
            return np.asarray(drawn / np.linalg.norm(drawn, axis=0))
        drawn = generator.normal(size=(n, min(n, self.n_clusters + EXTRA_DIRECTIONS)))
        rounds = session.rounds(N_SKETCHES, messages.Sketch, lambda: messages.Sketch(drawn, drawn), name="start")
        for _ in rounds:
            directions = np.linalg.qr(rounds.state.products)[0]
            answer = session.sum(FedMVLSite.multiply, messages.Directions(directions))
            rounds.state = messages.Sketch(directions, answer.products)
        leading = find_leading(rounds.state.directions, rounds.state.products, self.n_clusters)
        labels = partition_rows(leading, self.n_clusters, n_init=self.n_init, random_state=self.random_state)
        return indicate(labels, self.n_clusters)

    def _advance(
        self, rounds: Rounds[messages.Progress], sums: messages.Sums, penalties: Penalties
    ) -> messages.Progress:
        """Update V, G and their multiplier; stop the rounds when V and the views' factors have converged."""
        before = rounds.state
        common = solve_common(sums.total, before.guide, before.psi, sums.n_views, penalties)
        guide = solve_guide(common, before.psi, penalties)
        size = float((common**2).sum())
        if not 0.0 < size < np.inf or np.abs(common).max() > MAX_COMMON:
            raise NotConverged(
                f"the fit diverged; the common factor must have finite entries up to {MAX_COMMON:g}, not all 0",
                where=f"round {rounds.number}",
                hint='Raise consensus_penalty and guide_penalty, lower orthogonality_penalty, or use start="spectral".',
            )
        gap = np.sqrt(max(sums.gap, 0.0) / (sums.n_views * size))
        change = np.sqrt(float(((common - before.common) ** 2).sum()) / size)
        crossed = guide.T @ common - np.eye(self.n_clusters)
        rounds.record(error=sums.error / sums.n_views, gap=gap, orthogonality=float((crossed**2).sum()), change=change)
        if max(gap, change) <= self.tol:
            rounds.stop()
        psi = before.psi + penalties.varrho * (common - guide)
        return messages.Progress(common, guide, psi, sums.n_views, sums.term, sums.log_error / sums.n_views)

    def _weights(self, session: Session, views: messages.Listing, total_term: float) -> dict[str, float]:
        listing = messages.Listing(views.sites, views.views, total_term)

        def request() -> messages.Shares:
            answers = session.ask(FedMVLSite.send_weights, listing)
            by_site = {site: iter(answer.weights.tolist()) for site, answer in answers.items()}
            return messages.Shares(np.array([next(by_site.get(site, iter(())), 0.0) for site in views.sites]))

        shares = session.once("weights", messages.Shares, request)
        names = [f"{site}/{view}" for site, view in zip(views.sites, views.views, strict=True)]
        return dict(zip(names, shares.weights.tolist(), strict=True))


def _list_views(session: Session) -> messages.Listing:
    answers = session.ask(FedMVLSite.describe, Nothing())
    sites = [(site, view) for site, answer in answers.items() for view in answer.views]
    return messages.Listing(tuple(site for site, _ in sites), tuple(view for _, view in sites), 1.0)


def _initial_state(common: Floats, n_views: int) -> messages.Progress:
    return messages.Progress(common, common, np.zeros_like(common), float(n_views), float(n_views), 0.0)


def _request_of_round(number: int, state: messages.Progress) -> messages.Common:
    return messages.Common(number, state.common, state.n_views, state.total_term, state.reference)
