"""FedMSGL's rounds, from n_neighbors to bottom."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone

from multicentre.clustering.aligned import AlignedClusterer
from multicentre.clustering.fedmsgl import messages as sent
from multicentre.clustering.fedmsgl.checks import MANY, check_landmarks, check_parameters, choose_stable_number
from multicentre.clustering.fedmsgl.figures import show_clusters
from multicentre.clustering.fedmsgl.maths.landmarks import embed_samples
from multicentre.clustering.fedmsgl.maths.profiles import Profile
from multicentre.clustering.fedmsgl.rounds import (
    Pull,
    Sparse,
    Views,
    add_relations,
    code_patients,
    collect_lists,
    describe_views,
    keep_present,
    refine,
    unmasked,
)
from multicentre.clustering.fedmsgl.site import FedMSGLSite, RelationPart
from multicentre.clustering.hypergraph import Kind, choose_n_clusters, embed, fit_sizes, hyperedge_factor, unit_rows
from multicentre.clustering.metrics import adjusted_rand
from multicentre.clustering.partition import partition_rows
from multicentre.data.identifiers import IDENTIFIER
from multicentre.estimator.base import Arrays
from multicentre.estimator.figures import Figure
from multicentre.federation.consortium import Consortium
from multicentre.federation.errors import ConfigurationError, DisclosureWarning
from multicentre.federation.session import Session
from multicentre.linkage.alignment import Alignment

Floats = NDArray[np.float64]
MOST_WITHOUT_LANDMARKS = 5_000
USUAL_LANDMARKS = 500
LEAST_MU = 4.0
BEYOND = 5


class FedMSGL(AlignedClusterer):
    """Clusters of patients from views that lie at different sites, by self-expression and a hypergraph.

    1. The sites align their patients (:func:`multicentre.linkage.align`).
    2. Every site makes each patient up of the others, view by view: shares in the simplex, by the exact solution of
       the penalised self-expression. It keeps each patient's `n_neighbors` largest shares.
    3. The coordinator gets their sum over sites, masked, and no site's own; or, where sums are not masked and policies
       allow it, the sites' lists.
    4. Each patient spans hyperedges with those nearest by affinity, at several scales; the leading eigenvectors of the
       hypergraph, rows brought to length 1, are divided by k-means.

    With ``max_iter > 1`` what the views share goes back to the sites, which are pulled towards it by weights that
    adapt to how far each view is from the rest.

    Parameters
    ----------
    n_clusters : int, optional
        Without it the number is chosen by `selection`, up to `max_clusters`.
    share_penalty : float, default 5.0
        Penalty on each patient's shares of the others (the paper's lambda_1 and lambda_3 are twice this value).
        Below 4 similar groups may merge, see :meth:`stability_path`.
    distance_penalty : float, default 0.0
        Additional penalty on shares of distant patients (the paper's lambda_2).
    norm : {"l2", "z", "mms", "raw"}, default "l2"
        Each patient's row to length 1; each column to variance 1; each row to [0, 1]; as it is.
    n_neighbors : int, default 50
        Number of largest shares kept per patient.
    hyperedge_sizes : sequence of int, default (5, 10, 20)
        Numbers of patients per hyperedge, one scale per number.
    incidence : {"sqrt", "soft", "binary"}, default "sqrt"
        How affinity becomes membership in a hyperedge.
    max_iter : int, default 1
        1 sends a single sum. More send the relations of all views to every site.
    site_pull : float, optional
        Pull of sites towards what views share, with more than one round; twice `share_penalty` by default.
    embedding_pull : float, default 2.0
        Pull of what views share towards the embedding.
    n_init : int, default 10
        Starts of k-means.
    landmarks : int, "auto" or None, default "auto"
        Patients that all are expressed by, instead of by all others; "auto" takes 500 above 5,000 patients.
    selection : {"stability", "eigengap"}, default "stability"
        The number of clusters is the largest that k-means finds again from any start and that stands before a clear gap
        of the eigenvalues; or stands before the largest gap, which suits groups that lie apart. Neither finds many
        small groups: look at `eigenvalues_`.
    max_clusters : int, default 20
        Largest number of clusters that is looked for.
    tol : float, default 0.005
        Residual at which a site's solver stops.
    person_key : str, default "identifier"
        Identifiers by which sites are aligned.
    incomplete : bool, default False
        Take in patients whom some sites lack.
    random_state : int, default 0
        Starts of k-means and choice of landmarks.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)
        Cluster of every patient, in the common order.
    embedding_ : array of shape (n, c)
        Rows of length 1.
    affinity_ : csr_array of shape (n, n)
        Affinity of the patients; (n, m) of patients and landmarks.
    eigenvalues_ : array
        Smallest eigenvalues of the hypergraph's Laplacian, ascending.
    view_weights_ : dict of str to float
        Weight of every view, by ``<site>/<view>``; equal after one round.
    n_clusters_ : int

    References
    ----------
    D. Li, Z. Yang, S. Xie (2025), FedMSGL: a self-expressive hypergraph based federated multi-view learning, AAAI.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> group = np.repeat([0, 1, 2], 20)
    >>> names = [f"p{i}" for i in range(60)]
    >>> seen = [rng.normal(size=(3, 8))[group] + 0.3 * rng.normal(size=(60, 8)) for _ in range(3)]
    >>> sites = {f"site-{k}": mc.data.MultiViewData({"v": view}, names) for k, view in enumerate(seen)}
    >>> model = FedMSGL(3).fit(mc.Federation.in_process(sites))
    >>> found = model.labels_for(names)
    >>> [len(set(found[group == g])) for g in range(3)], sorted(np.bincount(found).tolist())
    ([1, 1, 1], [20, 20, 20])
    """

    site_part: ClassVar[type[RelationPart]] = FedMSGLSite
    embedding_: Floats
    affinity_: csr_array
    eigenvalues_: Floats
    view_weights_: dict[str, float]
    n_clusters_: int

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        share_penalty: float = 5.0,
        distance_penalty: float = 0.0,
        norm: str = "l2",
        n_neighbors: int = 50,
        hyperedge_sizes: Sequence[int] = (5, 10, 20),
        incidence: Kind = "sqrt",
        max_iter: int = 1,
        site_pull: float | None = None,
        embedding_pull: float = 2.0,
        n_init: int = 10,
        landmarks: int | Literal["auto"] | None = "auto",
        selection: Literal["stability", "eigengap"] = "stability",
        max_clusters: int = 20,
        tol: float = 5e-3,
        person_key: str = IDENTIFIER,
        incomplete: bool = False,
        random_state: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.share_penalty = share_penalty
        self.distance_penalty = distance_penalty
        self.norm = norm
        self.n_neighbors = n_neighbors
        self.hyperedge_sizes = hyperedge_sizes
        self.incidence = incidence
        self.max_iter = max_iter
        self.site_pull = site_pull
        self.embedding_pull = embedding_pull
        self.n_init = n_init
        self.landmarks = landmarks
        self.selection = selection
        self.max_clusters = max_clusters
        self.tol = tol
        self.person_key = person_key
        self.incomplete = incomplete
        self.random_state = random_state

    def _fit(self, session: Session) -> None:
        n = len(self.pseudonyms_)
        self._check(n)
        views = session.once("views", Views, lambda: describe_views(session))
        self.history_ = []
        n_landmarks = self._n_landmarks(n)
        vectors = self._coded(session, views, n, n_landmarks) if n_landmarks else self._embedded(session, views, n)
        if not self.history_:
            equal = keep_present(session, views.sites, np.full(len(views.sites), 1.0))[0]
            self._weigh(views.sites, views.views, equal)
        self.n_clusters_ = self._chosen(vectors, self.eigenvalues_)
        self.embedding_ = unit_rows(vectors[:, : self.n_clusters_])
        placed = np.flatnonzero(self.embedding_.any(axis=1))
        self.labels_ = np.full(n, -1, dtype=np.int64)
        self.labels_[placed] = partition_rows(
            self.embedding_[placed], self.n_clusters_, n_init=self.n_init, random_state=self.random_state
        )

    def _check_parameters(self) -> None:
        check_landmarks(self.landmarks)
        check_parameters(self.get_params(deep=False), MANY, 0)

    def _embedded(self, session: Session, views: Views, n: int) -> Floats:
        if self.max_iter > 1:
            self.affinity_ = self._refined(session, views, n)
        else:
            self.affinity_ = session.once("affinity", Sparse, lambda: self._related(session, views, n)).matrix
        related = np.flatnonzero(np.asarray(self.affinity_.sum(axis=1)).ravel() > 0)
        if len(related) == n:
            vectors, self.eigenvalues_ = self._span(self.affinity_)
            return vectors
        warnings.warn(
            f"{n - len(related)} patients have no view with data, or are like nobody: they are in no cluster (-1)",
            stacklevel=5,
        )
        found, self.eigenvalues_ = self._span(self.affinity_[related][:, related])
        vectors = np.zeros((n, found.shape[1]))
        vectors[related] = found
        return vectors

    def _coded(self, session: Session, views: Views, n: int, n_landmarks: int) -> Floats:
        if session.protection == "unmasked":
            self._warn_of_lists()
        terms = self._terms()
        seed = self.random_state
        self.affinity_ = session.once(
            "codes", Sparse, lambda: unmasked(lambda: code_patients(session, terms, views, n, n_landmarks, seed))
        ).matrix
        vectors, self.eigenvalues_ = embed_samples(self.affinity_, self._n_vectors(n_landmarks + 1))
        return vectors

    def stability_path(
        self, federation: Consortium | Alignment, share_penalties: Sequence[float] = (3.0, 5.0, 10.0, 30.0)
    ) -> dict[float, float]:
        """Return the mean adjusted Rand index between the clusters of each `share_penalty` and those of the others.

        Each value is a fit of its own, with all that it lets out of a site.

        Parameters
        ----------
        federation : Federation or Alignment
        share_penalties : sequence of float, default (3, 5, 10, 30)
            At least two.

        Raises
        ------
        ConfigurationError
            Fewer than two values.
        """
        if len(set(share_penalties)) < 2:
            raise ConfigurationError("two or more values are compared", where="share_penalties")
        aligned = self.aligned(federation)
        found = {
            share_penalty: clone(self).set_params(share_penalty=share_penalty).fit(aligned).labels_
            for share_penalty in share_penalties
        }
        return {
            share_penalty: float(
                np.mean([adjusted_rand(labels, other) for at, other in found.items() if at != share_penalty])
            )
            for share_penalty, labels in found.items()
        }

    def profiles(self) -> dict[str, Profile]:
        """Ask the sites, once, what their columns look like in each cluster, and return it by ``<site>/<view>``.

        Only where policies say ``relations = "listed"``: clusters come from the coordinator. Means are in standard
        deviations from the mean of all, to a quarter. Clusters of fewer than ten patients at the site have size 0 and
        means that are not a number.

        Raises
        ------
        RefusedByPolicy
            A site's policy does not allow it.
        """
        answers = self.session.ask(self.site_part.profile, sent.Grouping(self.labels_, self.n_clusters_))
        return {
            f"{site}/{view}": Profile(sizes, np.where(sizes[:, None] > 0, answer.means[view], np.nan))
            for site, answer in answers.items()
            for view, sizes in answer.sizes.items()
        }

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return clusters in two dimensions, the affinity by cluster, sizes, weights and profiles, in a simulation."""
        return show_clusters(self, sites, labels)

    def asked_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may ask of a site."""
        related = {"refine", "tell_parts"} if self.max_iter > 1 else {"relate", "list_relations"}
        related |= {"count_shared"} if self.incomplete else set()
        coded = {"code", "list_codes"}
        if self.landmarks == "auto":
            return frozenset({"describe", *related, *coded})
        return frozenset({"describe", *(coded if self.landmarks else related)})

    def _related(self, session: Session, views: Views, n: int) -> Sparse:
        if session.protection == "masked":
            return add_relations(session, self._terms(), views, n)
        self._warn_of_lists()
        return unmasked(lambda: collect_lists(session, self._terms(), n))

    def _refined(self, session: Session, views: Views, n: int) -> csr_array:
        if views.n_incomplete:
            raise ConfigurationError(
                "some patients lack a view", where="max_iter", hint="Take max_iter=1, or leave them out."
            )
        pull = Pull(2.0 * self.share_penalty if self.site_pull is None else self.site_pull, self.embedding_pull)
        rounds = refine(session, self._terms(), views, n, self.max_iter, pull, self._rows_of)
        self.history_, state = rounds.history, rounds.state
        self._weigh(state.sites, state.views, state.weights)
        return csr_array(state.affinity)

    def _weigh(self, sites: Sequence[str], views: Sequence[str], weights: Floats) -> None:
        self.view_weights_ = {
            f"{site}/{view}": float(weight) for site, view, weight in zip(sites, views, weights, strict=True)
        }

    def _warn_of_lists(self) -> None:
        warnings.warn(
            "every site's lists of whom its patients resemble reach the coordinator; secure_sum=True shows it their "
            "sum alone",
            DisclosureWarning,
            stacklevel=5,
        )

    def _rows_of(self, affinity: csr_array) -> Floats:
        vectors, eigenvalues = self._span(affinity)
        return unit_rows(vectors[:, : self._chosen(vectors, eigenvalues)])

    def _span(self, affinity: csr_array) -> tuple[Floats, Floats]:
        n = affinity.shape[0]
        return embed(hyperedge_factor(affinity, fit_sizes(self.hyperedge_sizes, n), self.incidence), self._n_vectors(n))

    def _chosen(self, vectors: Floats, eigenvalues: Floats) -> int:
        if self.n_clusters is not None:
            return self.n_clusters
        most = min(self.max_clusters, len(eigenvalues) - 1)
        if self.selection == "eigengap":
            return choose_n_clusters(eigenvalues, most)
        return choose_stable_number(vectors, eigenvalues, most, self.random_state)

    def _n_vectors(self, n: int) -> int:
        return min((self.n_clusters or self.max_clusters) + BEYOND, n - 1)

    def _n_landmarks(self, n: int) -> int:
        if self.landmarks == "auto":
            return USUAL_LANDMARKS if n > MOST_WITHOUT_LANDMARKS else 0
        return self.landmarks or 0

    def _terms(self) -> sent.Terms:
        return sent.Terms(
            norm=self.norm,
            lambda_1=2.0 * self.share_penalty,
            lambda_2=float(self.distance_penalty),
            lambda_3=2.0 * self.share_penalty,
            tolerance=float(self.tol),
            top=int(self.n_neighbors),
        )

    def _check(self, n: int) -> None:
        check_landmarks(self.landmarks)
        check_parameters(self.get_params(deep=False), n, self._n_landmarks(n))
        if self.share_penalty < LEAST_MU:
            warnings.warn(
                f"share_penalty={self.share_penalty:g} is small: similar groups may merge. "
                "Compare the clusters with stability_path().",
                stacklevel=5,
            )

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, facts = super()._state()
        kept = Sparse.of(self.affinity_)
        arrays |= {
            "embedding": self.embedding_,
            "eigenvalues": self.eigenvalues_,
            "affinity_data": kept.data,
            "affinity_indices": kept.indices,
            "affinity_indptr": kept.indptr,
        }
        return arrays, facts | {"view_weights": self.view_weights_, "n_columns": kept.n_columns}

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.embedding_, self.eigenvalues_ = arrays["embedding"], arrays["eigenvalues"]
        parts = (arrays["affinity_data"], arrays["affinity_indices"], arrays["affinity_indptr"])
        self.affinity_ = Sparse(*parts, int(facts["n_columns"])).matrix
        self.view_weights_ = dict(facts["view_weights"])
        self.n_clusters_ = self.embedding_.shape[1]
