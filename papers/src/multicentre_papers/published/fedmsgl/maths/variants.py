"""FedMSGL as it was printed, and as it was run for the printed table: two historical variants, in rounds.

What is printed does not give the printed table. `VARIANTS["paper"]` follows the formulas; `VARIANTS["as_published"]`
does what gives Table 3 on BBCSport. Views have samples in rows; C and U keep the paper's orientation: column j
expresses sample j. Where the print can be read in several ways the docstring of the function says which one is taken.

A round: every site runs `local_round` from the consensus G and sends `measure_distance`; the coordinator turns the
distances into shares by `weigh_distances`; the sites send share times C, and U, of which the coordinator needs the sums
alone, for `central_round`. The weights of the views therefore stay as they are during a coordinator's round.

References
----------
D. Li, Z. Yang and S. Xie (2025), FedMSGL: a self-expressive hypergraph based federated multi-view learning, AAAI.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from multicentre.clustering.hypergraph import embed
from multicentre.errors import ConfigurationError
from multicentre_papers.published.fedmsgl.maths.graph import link_nearest, link_similar, measure_squares
from multicentre_papers.published.fedmsgl.maths.local import (
    Operator,
    invert_ridge,
    penalise_rows,
    penalise_samples,
    scale_ranges,
    update_part,
)

Floats = NDArray[np.float64]
# Largest distance in an exponent: the sum of weights is then positive and finite for exp(-d) and exp(d).
MAX_DISTANCE = 30.0


@dataclass(frozen=True)
class PublishedTerms:
    """Penalties, hyperedges and rounds; the defaults are those of the printed table's BBCSport column.

    Parameters
    ----------
    lambda_1, lambda_3 : float, default 100 and 1e-4
        Penalties of the consistent and of the view-specific part, above 0 (equation 4).
    lambda_2 : float, default 1
        Penalty by distance, at least 0.
    beta : float, default 1
        Weight of the hypergraph, at least 0 (equation 9).
    n_neighbours : int, default 25
        k, samples in a hyperedge, the sample itself included; cut to the number of samples.
    n_rounds, n_local, n_central : int, default 5, 10 and 10
        Rounds, and iterations of a site and of the coordinator in each.

    Raises
    ------
    ConfigurationError
        A value outside its range.

    Examples
    --------
    >>> PublishedTerms(beta=0.1).n_neighbours
    25
    """

    lambda_1: float = 100.0
    lambda_2: float = 1.0
    lambda_3: float = 1e-4
    beta: float = 1.0
    n_neighbours: int = 25
    n_rounds: int = 5
    n_local: int = 10
    n_central: int = 10

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("lambda_1", "lambda_3"):
            if not 0.0 < getattr(self, name) < np.inf:
                raise ConfigurationError(f"{name} must be above 0 and finite; got {getattr(self, name):g}", where=name)
        for name in ("lambda_2", "beta"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise ConfigurationError(
                    f"{name} must be at least 0 and finite; got {getattr(self, name):g}", where=name
                )
        for name, fewest in (("n_neighbours", 2), ("n_rounds", 1), ("n_local", 1), ("n_central", 1)):
            if getattr(self, name) < fewest:
                raise ConfigurationError(f"{name} must be at least {fewest}; got {getattr(self, name)}", where=name)


@dataclass(frozen=True)
class Variant:
    """Where the two variants differ. `dataclasses.replace` makes the ablations.

    Parameters
    ----------
    prepare : callable
        View to view, shape (n, d).
    identity : bool
        G begins as the identity, or as 0 (the print names no start).
    consistent : callable
        Prepared view, lambda_1 and lambda_2 to the operator of equation (13).
    shifts_unclipped : bool
        Equation (17) reads the row sums of the unconstrained solution (printed) or those of the last iterate.
    weigh : callable
        Distances between C^k and G, at most 30 each, to weights above 0, both of shape (K,) (equation 6).
    link : callable
        Affinity and k to the factor B of the hypergraph.
    embeds_first : bool
        F before G in every iteration of the coordinator, or G before F (Algorithm 1).
    keeps_positive : bool
        Negative entries of G become 0.
    """

    prepare: Callable[[Floats], Floats]
    identity: bool
    consistent: Callable[[Floats, float, float], Operator]
    shifts_unclipped: bool
    weigh: Callable[[Floats], Floats]
    link: Callable[[Floats, int], csr_array]
    embeds_first: bool
    keeps_positive: bool


@dataclass(frozen=True)
class Operators:
    """Constant factors of a site's two steps.

    Parameters
    ----------
    consistent, specific : tuple of arrays
        Factors whose product, of shape (n, n), is applied in equations (13) and (19): one array, or a thin pair where
        the view has few features.
    """

    consistent: Operator
    specific: Operator


def weigh_near(distances: Floats) -> Floats:
    """Return theta_k = exp(-d_k) / 2 of equation (6): near views count more.

    Examples
    --------
    >>> weigh_near(np.array([0.0, 1.0])).round(3).tolist()
    [0.5, 0.184]
    """
    return np.asarray(0.5 * np.exp(-distances), dtype=np.float64)


def weigh_far(distances: Floats) -> Floats:
    """Return theta_k = exp(d_k) / 2, as run: far views count more, and the hypergraph less.

    Examples
    --------
    >>> weigh_far(np.array([0.0, 1.0])).round(3).tolist()
    [0.5, 1.359]
    """
    return np.asarray(0.5 * np.exp(distances), dtype=np.float64)


VARIANTS: dict[str, Variant] = {
    "paper": Variant(np.asarray, False, penalise_samples, True, weigh_near, link_similar, False, False),
    "as_published": Variant(scale_ranges, True, penalise_rows, False, weigh_far, link_nearest, True, True),
}


def prepare_operators(view: Floats, terms: PublishedTerms, variant: Variant) -> Operators:
    """Return what a site computes once from its view, shape (n, d), finite.

    Examples
    --------
    >>> operators = prepare_operators(np.eye(3), PublishedTerms(), VARIANTS["paper"])
    >>> operators.specific[0].shape
    (3, 3)
    """
    prepared = variant.prepare(view)
    specific = invert_ridge(prepared, np.full(len(prepared), terms.lambda_3))
    return Operators(variant.consistent(prepared, terms.lambda_1, terms.lambda_2), specific)


def start(n: int, generator: np.random.Generator, *, identity: bool = True) -> tuple[Floats, Floats, Floats]:
    """Return C = 0, U random with columns that sum to one, and G, all of shape (n, n).

    From G = I the distances of the first round are about the root of n, and exp of them is out of all proportion: the
    variant as run shrugs it off, because there it only puts the hypergraph to sleep for a round; with the printed
    weights the hypergraph would drown the data for good. As printed, G therefore begins as 0, like C.

    Parameters
    ----------
    n : int
    generator : numpy.random.Generator
    identity : bool, default True
        The variant's `identity`: G = I, or 0.

    Examples
    --------
    >>> C, U, G = start(3, np.random.default_rng(0))
    >>> U.sum(axis=0).round(12).tolist(), C.any().item(), G.trace().item()
    ([1.0, 1.0, 1.0], False, 3.0)
    """
    drawn = generator.random((n, n))
    return np.zeros((n, n)), drawn / drawn.sum(axis=0), float(identity) * np.eye(n)


def local_round(
    operators: Operators, C: Floats, U: Floats, terms: PublishedTerms, variant: Variant
) -> tuple[Floats, Floats]:
    """Return C and U of a view after a site's iterations.

    Algorithm 1 prints its branches the wrong way round: it would replace C by G in every iteration but the first, and
    send G back. Read with the text ("replaces C before a new round"), C starts as G and every iteration updates C,
    then U. As printed, (17) never reads that start.

    Parameters
    ----------
    operators : Operators
    C, U : arrays of shape (n, n)
        In the first round from `start`; later C is the consensus G, and U as the last round left it.
    terms : PublishedTerms
    variant : Variant

    Examples
    --------
    >>> terms, variant = PublishedTerms(n_neighbours=2), VARIANTS["as_published"]
    >>> C, U, _ = start(3, np.random.default_rng(0))
    >>> C, U = local_round(prepare_operators(np.eye(3), terms, variant), C, U, terms, variant)
    >>> bool((C >= 0).all()), C.trace().item()
    (True, 0.0)
    """
    for _ in range(terms.n_local):
        C = update_part(operators.consistent, C, U, unclipped=variant.shifts_unclipped)
        U = update_part(operators.specific, U, C, unclipped=variant.shifts_unclipped)
    return C, U


def measure_distance(C: Floats, G: Floats) -> float:
    """Return ||C - G||, the Frobenius norm in equation (6).

    Examples
    --------
    >>> measure_distance(np.zeros((2, 2)), np.ones((2, 2)))
    2.0
    """
    return float(np.linalg.norm(C - G))


def weigh_distances(distances: Floats, variant: Variant) -> tuple[Floats, float]:
    """Return theta_k / sum theta, shape (K,), and sum theta (equation 6).

    Distances grow with the number of samples, and exp leaves the range of numbers: above 30 they count as 30, where
    the weights are 5e-14 or 5e12.

    Parameters
    ----------
    distances : array of shape (K,)
        From `measure_distance`, one for each view.
    variant : Variant

    Examples
    --------
    >>> shares, total = weigh_distances(np.array([1.0, 1.0]), VARIANTS["paper"])
    >>> shares.tolist(), round(total, 3)
    ([0.5, 0.5], 0.368)
    """
    theta = variant.weigh(np.minimum(distances, MAX_DISTANCE))
    total = float(theta.sum())
    return theta / total, total


def fuse(mean_C: Floats, total: float, F: Floats, beta: float) -> Floats:
    """Return G of equation (24): the weighted mean of the C^k less beta / 4 of the squared distances in F.

    Parameters
    ----------
    mean_C : array of shape (n, n)
        Sum over views of share times C.
    total : float
        Sum of theta, which divides the second term.
    F : array of shape (n, c)
        Its rows are not scaled.
    beta : float

    Examples
    --------
    >>> fuse(np.ones((2, 2)), 0.5, np.array([[0.0], [1.0]]), 1.0).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    return mean_C - (0.25 * beta / total) * measure_squares(F)


def central_round(
    mean_C: Floats, mean_U: Floats, total: float, G: Floats, F: Floats, terms: PublishedTerms, variant: Variant
) -> tuple[Floats, Floats, Floats]:
    """Return the consensus G, the embedding F and the affinity A after the coordinator's iterations.

    Parameters
    ----------
    mean_C, total
        As in `fuse`.
    mean_U : array of shape (n, n)
        Sum of U over views, divided by their number.
    G : array of shape (n, n)
        The consensus that the sites started from.
    F : array of shape (n, c)
        The embedding of the last round; zeros in the first.
    terms : PublishedTerms
    variant : Variant

    Returns
    -------
    G : array of shape (n, n)
    F : array of shape (n, c)
        Eigenvectors of the smallest eigenvalues of the hypergraph's Laplacian (equation 25).
    A : array of shape (n, n)
        The affinity that F was computed from, symmetric.

    Examples
    --------
    >>> block = np.kron(np.eye(2), 1.0 - np.eye(3))
    >>> terms = PublishedTerms(n_neighbours=3)
    >>> _, F, _ = central_round(block, block, 1.0, np.eye(6), np.zeros((6, 2)), terms, VARIANTS["paper"])
    >>> np.linalg.matrix_rank(F.round(6)).item(), len(np.unique(F.round(6), axis=0))
    (2, 2)
    """
    for _ in range(terms.n_central):
        if not variant.embeds_first:
            G = _consensus(mean_C, total, F, terms, variant)
        A = G + mean_U
        A = 0.5 * (A + A.T)
        F = embed(variant.link(A, terms.n_neighbours), F.shape[1])[0]
        if variant.embeds_first:
            G = _consensus(mean_C, total, F, terms, variant)
    return G, F, A


def _consensus(mean_C: Floats, total: float, F: Floats, terms: PublishedTerms, variant: Variant) -> Floats:
    G = fuse(mean_C, total, F, terms.beta)
    return np.maximum(G, 0.0) if variant.keeps_positive else G
