"""FedMSGL: clusters of patients from views at different sites, by self-expression and a hypergraph."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from multicentre.clustering.candidates import judge_candidates
from multicentre.clustering.fedmsgl import messages
from multicentre.clustering.fedmsgl.figures import show_clusters
from multicentre.clustering.fedmsgl.fitted import FedMSGLModel, Floats, Integers
from multicentre.clustering.fedmsgl.local_views import MAX_PENALTY, NORMS
from multicentre.clustering.fedmsgl.maths.landmarks import embed_samples
from multicentre.clustering.fedmsgl.maths.preparation import Profile, ViewNorm
from multicentre.clustering.fedmsgl.rounds import (
    Penalties,
    Sparse,
    Views,
    add_relations,
    code_patients,
    collect_lists,
    describe_views,
    keep_present,
    refine,
)
from multicentre.clustering.fedmsgl.site import MAX_ROUNDS, MIN_COUPLING, FedMSGLSite, RelationPart
from multicentre.clustering.hypergraph import (
    EXPONENTS,
    IncidenceKind,
    choose_n_clusters,
    count_dimensions,
    diffuse,
    embed,
    fit_sizes,
    hyperedge_factor,
    scale_locally,
    unit_rows,
)
from multicentre.clustering.metrics import adjusted_rand
from multicentre.clustering.partition import MAX_SEED, partition_rows
from multicentre.core.consortium import Consortium
from multicentre.core.session import Session
from multicentre.data.identifiers import IDENTIFIER
from multicentre.errors import ConfigurationError, DataError, DisclosureWarning
from multicentre.estimator.figures import Figure
from multicentre.estimator.parameters import Applicable, Flag, Integer, OneOf, Only, ParameterRanges, Real, Where
from multicentre.linkage.alignment import Alignment

# Patients up to which "auto" expresses everyone by everyone: a table of their pairs takes 200 MB.
MAX_WITHOUT_LANDMARKS = 5_000
# Number of landmarks of "auto": several per cluster for up to a hundred clusters.
USUAL_LANDMARKS = 500
# Penalty of shares below which similar groups may merge: on Handwritten, two digits merged at 3 but not at 5.
MIN_SHARE_PENALTY = 4.0
# Eigenvectors beyond the number of clusters, so that eigenvalues_ shows the gap after it.
BEYOND = 5
# Steps after which only the first eigenvectors would have weights that differ from 0.
MAX_STEPS = 64
# Upper limit of counts, far above any number of patients per study; larger values are typing errors.
MANY = 10**6
# Fewest patients (or landmarks) for which two or more numbers of clusters can be compared.
MIN_TO_CHOOSE = 4


def _are_sizes(value: object) -> bool:
    if not isinstance(value, list | tuple | np.ndarray):
        return False
    return len(value) > 0 and all(Integer(2, MANY).accepts(size) for size in value)


class FedMSGL(FedMSGLModel):
    """Clusters of patients from views that lie at different sites, by self-expression and a hypergraph.

    1. The sites align their patients (:func:`multicentre.linkage.align`).
    2. Each site expresses every patient as a weighted mean of the others, view by view: weights in the simplex, from
       the exact solution of the penalised self-expression. It keeps the `n_neighbors` largest weights per patient.
    3. The coordinator receives only the masked sum of these relations over sites; or the lists of every site, if sums
       are not masked and policies allow it.
    4. Each patient spans hyperedges with its nearest patients by affinity, at several scales. K-means partitions the
       leading eigenvectors of the hypergraph, with rows scaled to length 1.

    With ``max_iter > 1`` the coordinator sends the consensus of the views back to the sites. In later rounds the
    distance of each view from the consensus is penalised, with weights that depend on this distance.

    Parameters
    ----------
    n_clusters : int, optional
        Number of clusters; by default chosen by `selection`, up to `max_clusters`.
    share_penalty : float, default 5.0
        Penalty on the weights of the self-expression (the paper's lambda_1 and lambda_3 are twice this value).
        Below 4 similar groups may merge; see :meth:`stability_path`.
    distance_penalty : float, default 0.0
        Additional penalty on weights of distant patients (the paper's lambda_2).
    norm : {"auto", "l2", "z", "mms", "raw"}, default "auto"
        Scaling: each patient's row to length 1 ("l2"); each column to variance 1 ("z"); each row to [0, 1] ("mms");
        none ("raw"). With "auto" each site uses "z" for a view in which fewer than five columns make up the lengths of
        the rows, as if columns have different units, or in which most of the variance is in these lengths, as if
        columns have a common level; and "l2" for other views.
    n_neighbors : int, default 50
        Number of largest weights kept per patient.
    hyperedge_sizes : sequence of int, default (5, 10, 20)
        Numbers of patients per hyperedge, one per scale.
    incidence : {"sqrt", "soft", "binary"}, default "sqrt"
        Power of the affinity that is the membership in a hyperedge: 1/2, 1 or 0.
    local_scaling : float, default 0.5
        Power of the local scales by which affinities are divided at the coordinator, from 0 (none) to 1. It helps
        small, loose groups next to large ones. Not used with landmarks.
    diffusion_steps : int, default 4
        Steps of diffusion over the hypergraph, which weight its eigenvectors before k-means; 0 for equal weights of
        the first `n_clusters` eigenvectors, as with landmarks.
    max_iter : int, default 1
        Maximum number of rounds. With 1, a single sum leaves the sites; with more, every site receives the consensus.
    consensus_penalty : float, optional
        Penalty on the distance between views and consensus if `max_iter` is above 1; by default twice
        `share_penalty`.
    embedding_penalty : float, default 2.0
        Penalty on the distance between consensus and embedding if `max_iter` is above 1.
    n_init : int, default 10
        Number of k-means starts.
    landmarks : int, "auto" or None, default "auto"
        Number of patients by which all are expressed; None for all patients, "auto" for 500 landmarks above 5,000
        patients.
    selection : {"stability", "eigengap"}, default "stability"
        Choice of the number of clusters. "stability": the number whose partitions agree best over starts of k-means and
        over samples of patients. "eigengap": the number before the largest gap of the eigenvalues, for well separated
        groups. Either is a suggestion: see `candidates_`.
    max_clusters : int, default 20
        Largest number of clusters to choose from.
    tol : float, default 0.005
        Residual at which the site's solver stops.
    person_key : str, default "identifier"
        Identifiers that align the sites.
    incomplete : bool, default False
        Include patients whom some sites lack.
    random_state : int, default 0
        Seed of k-means and of the landmarks.

    Attributes
    ----------
    embedding_ : array of shape (n, q)
        Leading eigenvectors of the hypergraph, weighted by `diffusion_steps`; rows have length 1.
    affinity_ : csr_array of shape (n, n)
        Affinity of the patients; (n, m) of patients and landmarks.
    eigenvalues_ : array
        Smallest eigenvalues of the hypergraph's Laplacian, ascending.
    view_weights_ : dict of str to float
        Weight of every view, by ``<site>/<view>``; equal after one round.
    n_clusters_ : int
        Number of clusters.
    candidates_ : Candidates
        Numbers of clusters with the evidence for each, if `n_clusters` was not set; ``candidates_.to_frame()`` is a
        table, ``candidates_.certainty`` is "reproducible", "several" or "weak", and ``candidates_.describe()`` says how
        often such a number was right where groups were known.

    References
    ----------
    D. Li, Z. Yang, S. Xie (2025), FedMSGL: a self-expressive hypergraph based federated multi-view learning, AAAI.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> group = np.repeat([0, 1, 2], 20)
    >>> names = [f"p{i}" for i in range(60)]
    >>> views = [rng.normal(size=(3, 8))[group] + 0.3 * rng.normal(size=(60, 8)) for _ in range(3)]
    >>> sites = {f"site-{k}": mc.data.MultiViewData({"v": view}, names) for k, view in enumerate(views)}
    >>> model = mc.clustering.FedMSGL(3).fit(mc.Federation.in_process(sites))
    >>> labels = model.labels_for(names)
    >>> [len(set(labels[group == g])) for g in range(3)], sorted(np.bincount(labels).tolist())
    ([1, 1, 1], [20, 20, 20])
    """

    site_part: ClassVar[type[RelationPart]] = FedMSGLSite
    parameter_ranges: ClassVar[ParameterRanges] = {
        "n_clusters": (None, Integer(2, MANY)),
        "share_penalty": Real(1e-9, MAX_PENALTY / 2.0),
        "distance_penalty": Real(0.0, MAX_PENALTY),
        "norm": OneOf(*NORMS),
        "n_neighbors": Integer(1, MANY),
        "hyperedge_sizes": Where(f"a non-empty sequence of integers from 2 to {MANY}", _are_sizes),
        "incidence": OneOf(*EXPONENTS),
        "local_scaling": Real(0.0, 1.0),
        "diffusion_steps": Integer(0, MAX_STEPS),
        "max_iter": Integer(1, MAX_ROUNDS),
        "consensus_penalty": (None, Real(0.0, MAX_PENALTY)),
        "embedding_penalty": Real(0.0, MAX_PENALTY),
        "n_init": Integer(1, MANY),
        "landmarks": (None, OneOf("auto"), Integer(2, MANY)),
        "selection": OneOf("stability", "eigengap"),
        "max_clusters": Integer(2, MANY),
        "tol": Real(1e-10, 0.1),
        "incomplete": Flag(),
        "random_state": Integer(0, MAX_SEED),
    }
    applicable: ClassVar[Applicable] = {
        **dict.fromkeys(("selection", "max_clusters"), Only("n_clusters=None", lambda model: model.n_clusters is None)),
        **dict.fromkeys(
            ("consensus_penalty", "embedding_penalty"), Only("max_iter above 1", lambda model: model.max_iter > 1)
        ),
        **dict.fromkeys(
            ("hyperedge_sizes", "incidence", "local_scaling", "diffusion_steps"),
            Only('landmarks=None or "auto"', lambda model: model.landmarks in (None, "auto")),
        ),
    }

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        share_penalty: float = 5.0,
        distance_penalty: float = 0.0,
        norm: ViewNorm = "auto",
        n_neighbors: int = 50,
        hyperedge_sizes: Sequence[int] = (5, 10, 20),
        incidence: IncidenceKind = "sqrt",
        local_scaling: float = 0.5,
        diffusion_steps: int = 4,
        max_iter: int = 1,
        consensus_penalty: float | None = None,
        embedding_penalty: float = 2.0,
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
        self.local_scaling = local_scaling
        self.diffusion_steps = diffusion_steps
        self.max_iter = max_iter
        self.consensus_penalty = consensus_penalty
        self.embedding_penalty = embedding_penalty
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
        steps = 0 if n_landmarks else self.diffusion_steps
        self.n_clusters_ = self._chosen(self.eigenvalues_, np.flatnonzero(vectors.any(axis=1)), steps)
        self.embedding_ = diffuse(vectors, self.eigenvalues_, self.n_clusters_, steps)
        placed = np.flatnonzero(self.embedding_.any(axis=1))
        self.labels_ = np.full(n, -1, dtype=np.int64)
        self.labels_[placed] = partition_rows(
            self.embedding_[placed], self.n_clusters_, n_init=self.n_init, random_state=self.random_state
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        least = MIN_COUPLING * 2.0 * self.share_penalty
        if self.consensus_penalty is not None and self.consensus_penalty < least:
            raise ConfigurationError(
                f"consensus_penalty must be at least {least:g}, a hundredth of twice share_penalty; "
                f"got {self.consensus_penalty:g}",
                where="consensus_penalty",
                hint="Increase consensus_penalty, or leave it out.",
            )

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
            f"{n - len(related)} patients have no view with data or no relation to others; their label is -1.",
            stacklevel=5,
        )
        leading, self.eigenvalues_ = self._span(self.affinity_[related][:, related])
        vectors = np.zeros((n, leading.shape[1]))
        vectors[related] = leading
        return vectors

    def _coded(self, session: Session, views: Views, n: int, n_landmarks: int) -> Floats:
        if session.protection == "unmasked":
            self._warn_of_lists()
        terms = self._terms()
        seed = self.random_state
        self.affinity_ = session.once(
            "codes", Sparse, lambda: code_patients(session, terms, views, n, n_landmarks, seed)
        ).matrix
        vectors, self.eigenvalues_ = self._span(self.affinity_)
        return vectors

    def stability_path(
        self, federation: Consortium | Alignment, share_penalties: Sequence[float] = (3.0, 5.0, 10.0, 30.0)
    ) -> dict[float, float]:
        """Return the mean adjusted Rand index between the clusters of each `share_penalty` and those of the others.

        Each value needs a separate fit, with all its releases.

        Parameters
        ----------
        federation : Federation or Alignment
            As for :meth:`fit`.
        share_penalties : sequence of float, default (3, 5, 10, 30)
            At least two different values.

        Raises
        ------
        ConfigurationError
            Fewer than two values.
        """
        if len(set(share_penalties)) < 2:
            raise ConfigurationError(
                f"share_penalties must be two or more different values; got {share_penalties!r}",
                where="share_penalties",
                hint="Add a value.",
            )
        models = [clone(self).set_params(share_penalty=share_penalty) for share_penalty in share_penalties]
        for model in models:
            model._check_parameters()  # all of them before the alignment, which is the first call to a site
        aligned = self.aligned(federation)
        by_penalty = {model.share_penalty: model.fit(aligned).labels_ for model in models}
        return {
            penalty: float(np.mean([adjusted_rand(labels, other) for at, other in by_penalty.items() if at != penalty]))
            for penalty, labels in by_penalty.items()
        }

    def profiles(self) -> dict[str, Profile]:
        """Return rounded column means of every cluster, by ``<site>/<view>``; the sites answer once per fit.

        Policies must have ``relations = "listed"``, since the coordinator chooses the clusters. Means are in standard
        deviations from the overall mean, rounded to a quarter. Clusters of fewer than ten patients at the site have
        size 0 and NaN means.

        Raises
        ------
        RefusedByPolicy
            A site's policy does not allow it.
        """
        check_is_fitted(self, "labels_")
        answers = self.session.ask(self.site_part.profile, messages.ClusterLabels(self.labels_, self.n_clusters_))
        return {
            f"{site}/{view}": Profile(sizes, np.where(sizes[:, None] > 0, answer.means[view], np.nan))
            for site, answer in answers.items()
            for view, sizes in answer.sizes.items()
        }

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return clusters in two dimensions, the affinity by cluster, sizes, weights and profiles, in a simulation."""
        check_is_fitted(self, "labels_")
        return show_clusters(self, sites, labels)

    def _remarks(self) -> str:
        remarks = [super()._remarks()]
        if "candidates_" in vars(self):
            remarks.insert(0, self.candidates_.describe())
        return " ".join(remark for remark in remarks if remark)

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may request from a site."""
        related = {"refine", "sum_parts"} if self.max_iter > 1 else {"relate", "list_relations"}
        related |= {"count_shared"} if self.incomplete else set()
        coded = {"code", "list_codes"}
        if self.landmarks == "auto":
            return frozenset({"describe", *related, *coded})
        return frozenset({"describe", *(coded if self.landmarks else related)})

    def _related(self, session: Session, views: Views, n: int) -> Sparse:
        if session.protection == "masked":
            return add_relations(session, self._terms(), views, n)
        self._warn_of_lists()
        return collect_lists(session, self._terms(), n)

    def _refined(self, session: Session, views: Views, n: int) -> csr_array:
        if views.n_incomplete:
            raise ConfigurationError(
                f"max_iter must be 1 if some patients lack a view; got {self.max_iter}",
                where="max_iter",
                hint="Set max_iter=1, or leave these patients out.",
            )
        penalties = Penalties(
            2.0 * self.share_penalty if self.consensus_penalty is None else self.consensus_penalty,
            self.embedding_penalty,
        )
        rounds = refine(session, self._terms(), views, n, self.max_iter, penalties, self._rows_of)
        self.history_, state = rounds.history, rounds.state
        self._weigh(state.sites, state.views, state.weights)
        return csr_array(state.affinity)

    def _weigh(self, sites: Sequence[str], views: Sequence[str], weights: Floats) -> None:
        self.view_weights_ = {
            f"{site}/{view}": float(weight) for site, view, weight in zip(sites, views, weights, strict=True)
        }

    def _warn_of_lists(self) -> None:
        warnings.warn(
            "The coordinator receives every site's lists of related patients. With secure_sum=True it receives only "
            "their sum.",
            DisclosureWarning,
            stacklevel=5,
        )

    def _rows_of(self, affinity: csr_array) -> Floats:
        vectors, eigenvalues = self._span(affinity, local_scaling=0.0)
        n_clusters = self.n_clusters or choose_n_clusters(eigenvalues, self._most(eigenvalues))
        return unit_rows(vectors[:, :n_clusters])

    def _span(self, affinity: csr_array, local_scaling: float | None = None) -> tuple[Floats, Floats]:
        if affinity.shape[0] != affinity.shape[1]:
            return embed_samples(affinity, self._n_vectors(affinity.shape[1] + 1))
        n = affinity.shape[0]
        scaled = scale_locally(affinity, self.local_scaling if local_scaling is None else local_scaling)
        return embed(hyperedge_factor(scaled, fit_sizes(self.hyperedge_sizes, n), self.incidence), self._n_vectors(n))

    def _chosen(self, eigenvalues: Floats, related: Integers, steps: int) -> int:
        """Return the number of clusters; without `n_clusters`, judge candidates on the related patients."""
        self.__dict__.pop("candidates_", None)
        if self.n_clusters is not None:
            return self.n_clusters
        most = self._most(eigenvalues)
        affinity = self.affinity_[related]
        square = affinity.shape[1] == self.affinity_.shape[0]

        def span(places: Integers) -> tuple[Floats, Floats]:
            some = affinity[places]
            return self._span(csr_array(some[:, related[places]] if square else some))

        self.candidates_ = judge_candidates(span, len(related), most, steps, self.random_state)
        return choose_n_clusters(eigenvalues, most) if self.selection == "eigengap" else self.candidates_.best

    def _most(self, eigenvalues: Floats) -> int:
        return min(self.max_clusters, len(eigenvalues) - 1)

    def _n_vectors(self, n: int) -> int:
        most = self.n_clusters or self.max_clusters
        return min(max(most + BEYOND, count_dimensions(most, self.diffusion_steps)), n - 1)

    def _n_landmarks(self, n: int) -> int:
        if self.landmarks == "auto":
            return USUAL_LANDMARKS if n > MAX_WITHOUT_LANDMARKS else 0
        return self.landmarks or 0

    def _terms(self) -> messages.Settings:
        return messages.Settings(
            norm=self.norm,
            lambda_1=2.0 * self.share_penalty,
            lambda_2=float(self.distance_penalty),
            lambda_3=2.0 * self.share_penalty,
            tolerance=float(self.tol),
            top=int(self.n_neighbors),
        )

    def _check(self, n: int) -> None:
        """Raise DataError unless the patients, or the landmarks, suffice for the number of clusters."""
        if self.n_clusters is not None and self.n_clusters >= n:
            raise DataError(
                f"n_clusters must be below the number of patients, {n}; got {self.n_clusters}",
                where="n_clusters",
                hint="Decrease n_clusters.",
            )
        n_landmarks = self._n_landmarks(n)
        available, kind = n_landmarks or n, "landmarks" if n_landmarks else "patients"
        least = MIN_TO_CHOOSE if self.n_clusters is None else self.n_clusters
        if available < least:
            task = "to choose n_clusters" if self.n_clusters is None else f"for {self.n_clusters} clusters"
            raise DataError(
                f"{kind} must be at least {least} {task}; got {available}",
                where="n_clusters",
                hint="Set n_clusters, or increase landmarks.",
            )
        if self.share_penalty < MIN_SHARE_PENALTY:
            warnings.warn(
                f"share_penalty={self.share_penalty:g} is below {MIN_SHARE_PENALTY:g}: similar groups may merge. "
                "Compare the clusters with stability_path().",
                stacklevel=5,
            )
