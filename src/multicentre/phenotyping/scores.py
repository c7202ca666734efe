"""Scores of factorisations: reconstruction errors, and agreement of factors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import DataError


@dataclass(frozen=True)
class TensorErrors:
    """Sums over a tensor and a model of it, and the errors that follow from them.

    Every field is a sum that sites can add up over their patients. Entries are the cells that are not zero. An error at
    the entries does not include cells that a model wrongly fills, so a model that predicts the mean count everywhere
    has a low error. Read every error next to `rmse_of_zero` and `rmse_of_constant`.

    Parameters
    ----------
    n_entries : float
        Number of entries.
    n_cells : float
        Number of cells, the product of the sides.
    sum_counts : float
        Sum of the entries o.
    sum_squares : float
        Sum of their squares.
    squared_error : float
        Sum of ``(o - x)^2`` over all cells. Rounding can leave a perfect model slightly below 0, which counts as 0.
    squared_error_at_entries : float
        The same over the entries.

    Raises
    ------
    DataError
        A sum is not finite, or there are more entries than cells or none.

    Examples
    --------
    >>> errors = TensorErrors(3, 150, 5.0, 9.0, 5.0, 4.0)
    >>> round(errors.rmse, 3), round(errors.rmse_at_entries, 3), round(errors.rmse_of_zero, 3)
    (1.291, 1.155, 1.732)
    """

    n_entries: float
    n_cells: float
    sum_counts: float
    sum_squares: float
    squared_error: float
    squared_error_at_entries: float

    def __post_init__(self) -> None:
        for field in fields(self):
            if not math.isfinite(getattr(self, field.name)):
                raise DataError(
                    f"sums must be finite; got {getattr(self, field.name)}",
                    where=field.name,
                    hint="Check that the fit converged.",
                )
        if not 0 < self.n_entries <= self.n_cells or self.sum_squares <= 0:
            raise DataError(
                "entries must be at least one and at most as many as the cells, with squares that sum to more than 0; "
                f"got {self.n_entries:g} entries in {self.n_cells:g} cells and the sum {self.sum_squares:g}",
                where="n_entries",
                hint="Use tensors with entries.",
            )

    @property
    def rmse_at_entries(self) -> float:
        """Root of the mean squared error over the entries."""
        return _root(self.squared_error_at_entries / self.n_entries)

    @property
    def rmse(self) -> float:
        """Root of the squared error over all cells, divided by the number of entries (the paper's scale)."""
        return _root(self.squared_error / self.n_entries)

    @property
    def fit(self) -> float:
        """``1 - ||O - X|| / ||O||``: 1 for a perfect model, 0 for a model of zeros."""
        return 1.0 - _root(self.squared_error / self.sum_squares)

    @property
    def rmse_of_zero(self) -> float:
        """Both `rmse` and `rmse_at_entries` of a model of zeros: root of the mean squared entry."""
        return _root(self.sum_squares / self.n_entries)

    @property
    def rmse_of_constant(self) -> float:
        """The `rmse_at_entries` of a model that predicts the mean entry: standard deviation of the entries."""
        return _root(self.sum_squares / self.n_entries - (self.sum_counts / self.n_entries) ** 2)


def _root(value: float) -> float:
    return math.sqrt(max(value, 0.0))


Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

Factors = Mapping[str, Floats] | Sequence[Floats]

"""Factor matrices, shape (I_n, r), one per mode; by name of the mode or in order."""


@dataclass(frozen=True, eq=False)
class FactorMatch:
    """Components of a reference and their partners.

    Parameters
    ----------
    score : float
        Mean similarity over the components of the reference; 1 if each has a partner that differs in scale only.
    similarities : array of shape (r,)
        Similarity of every component of the reference and its partner; 0 without a partner.
    partners : array of int, shape (r,)
        Column of the other set that is matched to every component of the reference; -1 without a partner.
    """

    score: float
    similarities: Floats
    partners: Integers


@dataclass(frozen=True, eq=False)
class Stability:
    """Similarity of factorisations from different seeds or samples of patients.

    Parameters
    ----------
    score : float
        Mean factor match score over all pairs.
    scores : array of shape (s, s)
        Factor match score of every pair, 1 on the diagonal.
    most_central : int
        The set most like the others.
    by_component : array of shape (r,)
        Mean similarity of every component of the most central set to its partners in the others.
    """

    score: float
    scores: Floats
    most_central: int
    by_component: Floats


def factor_match_score(reference: Factors, other: Factors) -> FactorMatch:
    """Match the components of two factorisations one to one, such that the sum of similarities is largest.

    Columns are brought to length 1. The similarity of component r of the reference and s of the other set is the
    product over modes of their cosines. A column of length 0 makes it 0. The score is the mean over the reference's
    components, so the ranks may differ: a reference component without a partner counts 0, a surplus component of the
    other set is not counted. Compare a score with its null line, since dense factors are similar by chance
    (`null_match_score`).

    Parameters
    ----------
    reference, other : mapping from str to array, or sequence of arrays, shape (I_n, r)
        Factor matrices of the same modes. The ranks may differ.

    Raises
    ------
    DataError
        The sets differ in modes or sizes, or a matrix is not finite.

    References
    ----------
    E. Acar, D. M. Dunlavy, T. G. Kolda, M. Morup (2011), Scalable tensor factorizations for incomplete data,
    Chemometrics and Intelligent Laboratory Systems 106(1), 41-56.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> truth = {"procedure": np.eye(3), "diagnosis": np.eye(4)[:, :3]}
    >>> swapped = {mode: 5 * factor[:, [2, 0, 1]] for mode, factor in truth.items()}
    >>> match = mc.phenotyping.factor_match_score(truth, swapped)
    >>> match.score, match.partners.tolist()
    (1.0, [1, 2, 0])
    """
    from scipy.optimize import linear_sum_assignment

    ours, theirs = _aligned(reference, other)
    similarities = _similarities(ours, theirs)
    rows, columns = linear_sum_assignment(similarities, maximize=True)
    partners = np.full(similarities.shape[0], -1)
    partners[rows] = columns
    matched = np.zeros(len(partners))
    matched[rows] = similarities[rows, columns]
    return FactorMatch(float(matched.mean()), matched, partners)


def null_match_score(sizes: Sequence[int], rank: int, *, n_draws: int = 5, random_state: int = 0) -> float:
    """Return the mean score of two unrelated sets of dense factors, with entries uniform on (0, 1).

    Parameters
    ----------
    sizes : sequence of int
        Number of rows of every mode's factor.
    rank : int
        Number of components.
    n_draws : int
        Number of pairs to draw.
    random_state : int
        Source of all randomness.

    Examples
    --------
    >>> import multicentre as mc
    >>> round(mc.phenotyping.null_match_score((300, 800), 50), 2)
    0.59
    """
    random = np.random.default_rng(random_state)
    scores = [
        factor_match_score(*([random.random((size, rank)) for size in sizes] for _ in range(2))).score
        for _ in range(n_draws)
    ]
    return float(np.mean(scores))


def permuted_match_score(reference: Factors) -> float:
    """Return the mean score of a factorisation and five copies with shuffled columns, which have the same sparsity.

    Parameters
    ----------
    reference : mapping from str to array, or sequence of arrays, shape (I_n, r)
        Factor matrices.

    Raises
    ------
    DataError
        A matrix is not finite or the ranks of the modes differ.

    Examples
    --------
    >>> sparse = [np.eye(100, 5), np.eye(200, 5)]
    >>> permuted_match_score(sparse) < 0.05
    True
    """
    random = np.random.default_rng(0)
    factors, _ = _aligned(reference, reference)
    scores = [
        factor_match_score(factors, [random.permuted(factor, axis=0) for factor in factors]).score for _ in range(5)
    ]
    return float(np.mean(scores))


def stability(factor_sets: Sequence[Factors]) -> Stability:
    """Compare factorisations of the same data and rank, for example from several seeds.

    Raises
    ------
    DataError
        There are fewer than two sets, or they differ in modes, sizes or rank.

    Examples
    --------
    >>> one = [np.eye(4)[:, :2], np.eye(5)[:, :2]]
    >>> other = [np.eye(4)[:, [1, 2]], np.eye(5)[:, [1, 2]]]
    >>> compared = stability([one, other])
    >>> compared.score, compared.by_component.tolist()
    (0.5, [0.0, 1.0])
    """
    n_sets = len(factor_sets)
    ranks = {_matrices(factors)[0].shape[1] for factors in factor_sets}
    if n_sets < 2 or len(ranks) > 1:
        raise DataError(
            f"factor_sets must be at least two sets of one rank; got {n_sets} of ranks {sorted(ranks)}",
            where="stability",
            hint="Fit with the same rank.",
        )
    scores = np.eye(n_sets)
    for one, two in combinations(range(n_sets), 2):
        scores[one, two] = scores[two, one] = factor_match_score(factor_sets[one], factor_sets[two]).score
    central = int(scores.sum(axis=0).argmax())
    others = [factors for k, factors in enumerate(factor_sets) if k != central]
    by_component = np.mean([factor_match_score(factor_sets[central], one).similarities for one in others], axis=0)
    return Stability(float(scores[np.triu_indices(n_sets, 1)].mean()), scores, central, by_component)


def _aligned(reference: Factors, other: Factors) -> tuple[list[Floats], list[Floats]]:
    if isinstance(reference, Mapping) and isinstance(other, Mapping) and set(reference) == set(other):
        other = {mode: other[mode] for mode in reference}
    elif isinstance(reference, Mapping) or isinstance(other, Mapping):
        raise DataError(
            "both sets must have the same modes; got different ones",
            where="factors",
            hint="Pass both as mappings with the same keys, or both as sequences.",
        )
    ours, theirs = _matrices(reference), _matrices(other)
    if [len(factor) for factor in ours] != [len(factor) for factor in theirs]:
        raise DataError(
            f"both sets must have the same numbers of rows; got {' x '.join(str(len(factor)) for factor in ours)} "
            f"and {' x '.join(str(len(factor)) for factor in theirs)}",
            where="factors",
            hint="Align both to the same codes in the same modes.",
        )
    return ours, theirs


def _matrices(factors: Factors) -> list[Floats]:
    values = factors.values() if isinstance(factors, Mapping) else factors
    matrices = [np.asarray(factor, dtype=np.float64) for factor in values]
    if not matrices or any(matrix.ndim != 2 or matrix.shape[1] != matrices[0].shape[1] for matrix in matrices):
        raise DataError(
            "factors must be matrices with the same number of columns; "
            f"got shapes {', '.join(str(matrix.shape) for matrix in matrices) or 'none'}",
            where="factors",
            hint="Pass one matrix per mode, all with the same number of columns.",
        )
    if not matrices[0].shape[1] or not all(np.isfinite(matrix).all() for matrix in matrices):
        raise DataError(
            "factors must be finite, with at least one column; got others",
            where="factors",
            hint="Check that the fit converged.",
        )
    return matrices


def _similarities(ours: list[Floats], theirs: list[Floats]) -> Floats:
    products = [_unit(one).T @ _unit(two) for one, two in zip(ours, theirs, strict=True)]
    return np.asarray(np.prod(products, axis=0))


def _unit(factor: Floats) -> Floats:
    lengths = np.linalg.norm(factor, axis=0)
    return np.asarray(factor / np.where(lengths > 0, lengths, 1.0))
