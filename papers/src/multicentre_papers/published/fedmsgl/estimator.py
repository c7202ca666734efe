"""FedMSGL as its authors' code runs, and as the paper prints it."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from multicentre.clustering.fedmsgl import FedMSGL
from multicentre.clustering.fedmsgl.rounds import Views, describe_views
from multicentre.clustering.fedmsgl.site import MAX_ROUNDS
from multicentre.clustering.partition import MAX_SEED, partition_rows
from multicentre.core.session import Session
from multicentre.data.identifiers import IDENTIFIER
from multicentre.errors import ConfigurationError, DataError
from multicentre.estimator.parameters import Applicable, Integer, ParameterRanges, Real, check_parameters
from multicentre_papers.published.fedmsgl.maths.variants import PublishedTerms
from multicentre_papers.published.fedmsgl.rounds import iterate
from multicentre_papers.published.fedmsgl.site import MAX_LOCAL, AsPrintedSite, AsPublishedSite, IteratingPart


class FedMSGLAsPublished(FedMSGL):
    """FedMSGL as the code of its authors runs, which gives the printed table.

    For comparison with the publication only: the clusters are worse and more fragile than those of
    :class:`multicentre.clustering.FedMSGL`, and far more leaves a site.

    Parameters
    ----------
    n_clusters : int
        Number of clusters.
    lambda_1 : float, default 100
        Penalty of the consistent part, above 0 (equation 4).
    lambda_2 : float, default 1
        Penalty by distance, at least 0.
    lambda_3 : float, default 1e-4
        Penalty of the view-specific part, above 0 (equation 4).
    beta : float, default 1
        Weight of the hypergraph, at least 0 (equation 9).
    n_neighbours : int, default 25
        Samples in a hyperedge, including the sample that spans it; cut to the number of samples.
    n_rounds : int, default 5
        Number of rounds.
    n_local : int, default 10
        Number of iterations per site and round.
    n_central : int, default 10
        Number of iterations of the coordinator per round.
    person_key : str, default "identifier"
        Identifiers by which sites are aligned.
    random_state : int, default 0
        Seed of the first view-specific parts and of k-means.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)
        Cluster of every patient, in the common order.
    embedding_ : array of shape (n, c)
        Eigenvectors of the hypergraph; rows are not scaled.
    affinity_ : csr_array of shape (n, n)
        Affinity of the patients.
    view_weights_ : dict of str to float
        Weight of every view, by ``<site>/<view>``.

    References
    ----------
    D. Li, Z. Yang and S. Xie (2025), FedMSGL: a self-expressive hypergraph based federated multi-view learning, AAAI.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> from multicentre_papers.published import FedMSGLAsPublished
    >>> rng = np.random.default_rng(0)
    >>> group = np.repeat([0, 1, 2], 20)
    >>> names = [f"p{i}" for i in range(60)]
    >>> views = [rng.normal(size=(3, 8))[group] + 0.3 * rng.normal(size=(60, 8)) for _ in range(3)]
    >>> sites = {f"site-{k}": mc.data.MultiViewData({"v": view}, names) for k, view in enumerate(views)}
    >>> model = FedMSGLAsPublished(3, n_neighbours=8).fit(mc.Federation.in_process(sites))
    >>> model.embedding_.shape
    (60, 3)
    """

    site_part: ClassVar[type[IteratingPart]] = AsPublishedSite
    applicable: ClassVar[Applicable] = {}
    parameter_ranges: ClassVar[ParameterRanges] = {
        "n_clusters": Integer(2),
        "lambda_1": Real(0.0, open="low"),
        "lambda_2": Real(0.0),
        "lambda_3": Real(0.0, open="low"),
        "beta": Real(0.0),
        "n_neighbours": Integer(2),
        "n_rounds": Integer(1, MAX_ROUNDS),
        "n_local": Integer(1, MAX_LOCAL),
        "n_central": Integer(1),
        "random_state": Integer(0, MAX_SEED),
    }
    n_clusters: int
    incomplete: bool = False

    def __init__(
        self,
        n_clusters: int,
        *,
        lambda_1: float = 100.0,
        lambda_2: float = 1.0,
        lambda_3: float = 1e-4,
        beta: float = 1.0,
        n_neighbours: int = 25,
        n_rounds: int = 5,
        n_local: int = 10,
        n_central: int = 10,
        person_key: str = IDENTIFIER,
        random_state: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.lambda_1 = lambda_1
        self.lambda_2 = lambda_2
        self.lambda_3 = lambda_3
        self.beta = beta
        self.n_neighbours = n_neighbours
        self.n_rounds = n_rounds
        self.n_local = n_local
        self.n_central = n_central
        self.person_key = person_key
        self.random_state = random_state

    def _fit(self, session: Session) -> None:
        n = len(self.pseudonyms_)
        if self.n_clusters >= n:
            raise DataError(f"n_clusters must be below the number of patients, {n}; got {self.n_clusters}")
        views = session.once("views", Views, lambda: describe_views(session, self.site_part))
        if views.n_incomplete:
            raise ConfigurationError(
                "every patient must have every view; got patients who lack a view",
                where="views",
                hint="Leave the others out.",
            )
        rounds = iterate(session, self.site_part, self._published_terms(), n, self.n_clusters, self.random_state)
        self.history_, state = rounds.history, rounds.state
        self._weigh(state.sites, state.views, state.weights)
        self.affinity_, self.eigenvalues_ = csr_array(state.affinity), np.zeros(0)
        self.embedding_, self.n_clusters_ = state.embedding, self.n_clusters
        self.labels_ = partition_rows(self.embedding_, self.n_clusters, n_init=1, random_state=self.random_state)

    def _check_parameters(self) -> None:
        # The rule on consensus_penalty does not apply, since this method has no such parameter.
        check_parameters(self.get_params(deep=False), self.parameter_ranges)

    def _published_terms(self) -> PublishedTerms:
        return PublishedTerms(**{field.name: getattr(self, field.name) for field in dataclasses.fields(PublishedTerms)})

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit may ask of a site."""
        return frozenset({"describe", "iterate", "sum_parts"})


class FedMSGLAsPrinted(FedMSGLAsPublished):
    """FedMSGL by the formulas of the paper, which do not give the printed table.

    Parameters and attributes are those of :class:`FedMSGLAsPublished`.

    Examples
    --------
    >>> from multicentre_papers.published import FedMSGLAsPrinted
    >>> FedMSGLAsPrinted(3, n_neighbours=8).site_part.method
    'fed-msgl-as-printed'
    """

    site_part: ClassVar[type[IteratingPart]] = AsPrintedSite
