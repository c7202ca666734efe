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
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from multicentre.clustering.fedmsgl.maths.preparation import factor_gram, manifold_weights
from multicentre.clustering.fedmsgl.maths.published_graph import link_nearest, link_similar, measure_squares
from multicentre.clustering.hypergraph import embed
from multicentre.federation.errors import ConfigurationError

Floats = NDArray[np.float64]
Operator: TypeAlias = tuple[Floats, ...]
LARGEST_DISTANCE = 30.0


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
        for name, least in (("lambda_1", 0.0), ("lambda_3", 0.0)):
            if not least < getattr(self, name) < np.inf:
                raise ConfigurationError("a penalty must be above 0 and finite", where=name)
        for name in ("lambda_2", "beta"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise ConfigurationError("a weight must be at least 0 and finite", where=name)
        for name, fewest in (("n_neighbours", 2), ("n_rounds", 1), ("n_local", 1), ("n_central", 1)):
            if getattr(self, name) < fewest:
                raise ConfigurationError(f"at least {fewest} is needed", where=name)


@dataclass(frozen=True)
class Variant:
    """Where the two variants differ. `dataclasses.replace` makes the ablations.

    Parameters
    ----------
    prepare : callable
        View to view, shape (n, d).
    consistent : callable
        Prepared view and terms to the operator of equation (13).
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
    consistent: Callable[[Floats, PublishedTerms], Operator]
    shifts_unclipped: bool
    weigh: Callable[[Floats], Floats]
    link: Callable[[Floats, int], csr_array]
    embeds_first: bool
    keeps_positive: bool


@dataclass(frozen=True)
class Operators:
    """What a site's two steps multiply by; the same in every round.

    Parameters
    ----------
    consistent, specific : tuple of arrays
        Factors whose product, of shape (n, n), is applied in equations (13) and (19): one array, or a thin pair where
        the view has few features.
    """

    consistent: Operator
    specific: Operator


def scale_ranges(view: Floats) -> Floats:
    """Return each sample (row) scaled to [0, 1] over its own features; a constant sample becomes 0.

    Examples
    --------
    >>> scale_ranges(np.array([[1.0, 2.0, 5.0], [7.0, 7.0, 7.0]])).tolist()
    [[0.0, 0.25, 1.0], [0.0, 0.0, 0.0]]
    """
    low = view.min(axis=1, keepdims=True)
    width = view.max(axis=1, keepdims=True) - low
    return np.asarray((view - low) / np.where(width > 0.0, width, 1.0), dtype=np.float64)


def measure_crowding(view: Floats) -> Floats:
    """Return the diagonal of the matrix product M M, shape (n,), M the relative distances of equation (3).

    It is sum_j d_ij^2 / (s_i s_j), s the sums of distances: the same whether the rows (printed) or the columns of M
    sum to one. Duplicates of all other samples have 0.

    Examples
    --------
    >>> measure_crowding(np.array([[0.0], [1.0], [3.0]])).round(4).tolist()
    [0.5333, 0.35, 0.7167]
    """
    relative = manifold_weights(view) / max(len(view) - 1, 1)
    return np.asarray(np.einsum("ij,ji->i", relative, relative), dtype=np.float64)


def invert_ridge(view: Floats, penalty: Floats) -> Operator:
    """Return factors of (K + Diag(penalty))^-1 K with K = X X' over samples, as in equations (13) and (19).

    Parameters
    ----------
    view : array of shape (n, d)
    penalty : array of shape (n,)
        Above 0.

    Examples
    --------
    >>> (only,) = invert_ridge(np.eye(2), np.array([1.0, 3.0]))
    >>> only.round(6).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    root = np.sqrt(penalty)[:, None]
    gram = factor_gram(view / root)
    left, right = gram.vectors * (gram.values / (gram.values + 1.0)) / root, (gram.vectors * root).T
    return (left, right) if 2 * left.shape[1] < len(view) else (left @ right,)


def penalise_samples(view: Floats, terms: PublishedTerms) -> Operator:
    """Return the operator of equation (13) with diag(M^2) read as a diagonal matrix, that of the product M M.

    The stationary point of equation (12) has another diagonal for each column and no common inverse; the printed
    formula has one, and of a matrix squared the diagonal is the one of the product.

    Examples
    --------
    >>> terms = PublishedTerms(lambda_1=1.0, lambda_2=2.0)
    >>> (only,) = penalise_samples(np.array([[1.0, 0.0], [0.0, 1.0]]), terms)
    >>> only.round(3).tolist()
    [[0.25, 0.0], [0.0, 0.25]]
    """
    return invert_ridge(view, terms.lambda_1 + terms.lambda_2 * measure_crowding(view))


def penalise_rows(view: Floats, terms: PublishedTerms) -> Operator:
    """Return (K + l1 I + l2 v 1')^-1 K, v the diagonal of M M: as run, a vector added to every column of the matrix.

    The inverse with the rank-one term is that without it, corrected (Sherman and Morrison 1950).

    Examples
    --------
    >>> terms = PublishedTerms(lambda_1=1.0, lambda_2=2.0)
    >>> (only,) = penalise_rows(np.array([[1.0, 0.0], [0.0, 1.0]]), terms)
    >>> only.round(3).tolist()
    [[0.333, -0.167], [-0.167, 0.333]]
    """
    ridge = invert_ridge(view, np.full(len(view), terms.lambda_1))
    crowding = terms.lambda_2 * measure_crowding(view)
    solved = (crowding - _apply(ridge, crowding)) / terms.lambda_1
    direction = solved / (1.0 + solved.sum())
    return (ridge[0] - np.outer(direction, ridge[0].sum(axis=0)), *ridge[1:])


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
    "paper": Variant(np.asarray, penalise_samples, True, weigh_near, link_similar, False, False),
    "as_published": Variant(scale_ranges, penalise_rows, False, weigh_far, link_nearest, True, True),
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
    return Operators(variant.consistent(prepared, terms), specific)


def start(n: int, generator: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Return C = 0, U random with columns that sum to one, and G = I, all of shape (n, n).

    Examples
    --------
    >>> C, U, G = start(3, np.random.default_rng(0))
    >>> U.sum(axis=0).round(12).tolist(), C.any().item(), G.trace().item()
    ([1.0, 1.0, 1.0], False, 3.0)
    """
    drawn = generator.random((n, n))
    return np.zeros((n, n)), drawn / drawn.sum(axis=0), np.eye(n)


def update_part(operator: Operator, own: Floats, other: Floats, *, unclipped: bool) -> Floats:
    """Return C from U by equations (13) and (17), or U from C by (19) and (20), shape (n, n).

    The unconstrained solution, each row moved by the same amount, phi_i = (1 - sum_j (c_ij + u_ij)) / n, negative
    entries and the diagonal set to 0. The sum over i in the printed (17) contradicts its own subscript and is left
    out; the shift of (20) is computed in the same way from the other part's present value. Rows need not sum to one
    afterwards: nothing is projected again.

    Parameters
    ----------
    operator : tuple of arrays
        From `prepare_operators`.
    own, other : arrays of shape (n, n)
        The part's last iterate and the other part.
    unclipped : bool
        phi reads the unconstrained solution (printed), or the last iterate.

    Examples
    --------
    >>> none = np.zeros((2, 2))
    >>> update_part((0.5 * np.eye(2),), none, none, unclipped=True).tolist()
    [[0.0, 0.25], [0.25, 0.0]]
    >>> update_part((0.5 * np.eye(2),), none, none, unclipped=False).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    n = len(own)
    rest = -other
    rest[np.diag_indices(n)] += 1.0
    found = _apply(operator, rest)
    read = found if unclipped else own
    found = found + (1.0 - read.sum(axis=1) - other.sum(axis=1))[:, None] / n
    np.maximum(found, 0.0, out=found)
    np.fill_diagonal(found, 0.0)
    return found


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
    >>> C, U, _ = start(3, np.random.default_rng(0))
    >>> terms, variant = PublishedTerms(n_neighbours=2), VARIANTS["as_published"]
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
    theta = variant.weigh(np.minimum(distances, LARGEST_DISTANCE))
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


def _apply(operator: Operator, operand: Floats) -> Floats:
    for factor in reversed(operator):
        operand = factor @ operand
    return operand
