"""Canary records for privacy audits, effective numbers of records, and the range of their sums of squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.concatenate import concatenate
from multicentre.data.kinds import kind_of
from multicentre.errors import DataError

T = TypeVar("T")


def amplify_record(data: T, row: int, factor: float, random: np.random.Generator | None = None) -> T:
    """Multiply every number of one patient; the result is of the same kind.

    Truth values and missing entries are unchanged. Counts with a negative sign are left out.

    Parameters
    ----------
    data : array of shape (n, d), MultiViewData, SurvivalData or another of ``multicentre.data.kinds.KINDS``
        A site's patients.
    row : int
        Row of the patient.
    factor : float
    random : numpy.random.Generator, optional
        Source of a random sign for every number; by default signs are unchanged.

    Raises
    ------
    ConfigurationError
        The kind of data is not registered.

    Examples
    --------
    >>> amplify_record(np.array([[1.0, 2.0], [3.0, -4.0]]), 1, 10.0).tolist()
    [[30.0, -40.0]]
    """
    record: T = kind_of(data).amplify(data, row, factor, random)
    return record


def add_record(data: T, record: T) -> T:
    """Append one patient to the data.

    Parameters
    ----------
    data : array of shape (n, d), MultiViewData, SurvivalData or another of ``multicentre.data.kinds.KINDS``
    record : of the kind of `data`
        From :func:`amplify_record`.

    Raises
    ------
    ConfigurationError
        The kind of data is not registered.

    Examples
    --------
    >>> add_record(np.zeros((2, 2)), np.ones((1, 2))).shape
    (3, 2)
    """
    return concatenate({"site": data, "added": record})


# Patients behind an unmasked update of a network. The coordinator can send a unit that responds to a single patient;
# the update of its weights is then a multiple of that patient's row.
BEHIND_AN_UPDATE = 1
# Largest share of one patient in an unmasked sum; the default of ACRO's rule of dominance.
MAX_SHARE = 0.7


def fewest_alike(rows: NDArray[Any]) -> int:
    """Count the patients of the smallest group with bitwise identical rows.

    A sum over patients of a function of their rows depends only on whole groups, and so does any combination of sums.
    For any choice of weights, the effective number of patients (Kish) is therefore at least this count.

    Parameters
    ----------
    rows : array of shape (n, d)

    Examples
    --------
    >>> fewest_alike(np.array([[1.0, np.nan], [1.0, np.nan], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]]))
    2
    """
    lines = np.ascontiguousarray(rows)
    if not lines.size:
        return len(rows)
    keys = lines.view(np.dtype((np.void, lines.dtype.itemsize * lines.shape[1]))).ravel()
    return int(np.unique(keys, return_counts=True)[1].min())


def effective_number(weights: NDArray[np.float64]) -> float:
    """Return the effective number of patients of a weighted sum, ``(sum |w|)^2 / sum w^2``; inf if all weights are 0.

    References
    ----------
    L. Kish (1965), Survey sampling, Wiley, section 11.7.

    Examples
    --------
    >>> effective_number(np.array([2.0, 2.0, -2.0])), effective_number(np.array([1.0, 0.0]))
    (3.0, 1.0)
    """
    sizes = np.abs(weights)
    largest = float(sizes.max(initial=0.0))
    if not largest:
        return float("inf")
    shares = sizes / largest
    return float(shares.sum() ** 2 / (shares @ shares))


def effective_departures(terms: NDArray[np.float64]) -> float:
    """Return the effective number of patients whose term of a sum departs from the most frequent term.

    The sum does not single out a patient whose term is the most frequent one.

    Examples
    --------
    >>> effective_departures(np.array([0.0, 0.0, 0.0, 5.0])), effective_departures(np.array([2.0, 2.0, 3.0, 3.0]))
    (1.0, 2.0)
    """
    values, counts = np.unique(terms, return_counts=True)
    return effective_number(terms - values[counts.argmax()]) if len(values) else float("inf")


def fewest_told_apart(columns: NDArray[np.float64], *, in_pairs: bool = False) -> int:
    """Return the fewest patients, in effect, whose value of a column differs from its median; all if none differs.

    Parameters
    ----------
    columns : array of shape (n, k)
        Predictions of models, which a coordinator may have made up.
    in_pairs : bool, default False
        Compare the differences of two columns too, because two answers have a difference.

    Examples
    --------
    >>> fewest_told_apart(np.array([[7.0, 1.0], [7.0, 2.0], [9.0, 3.0]])), fewest_told_apart(np.ones((2, 1)))
    (1, 2)
    """
    fewest = len(columns)
    others = (columns[:, :place] - columns[:, [place]] for place in range(1, columns.shape[1])) if in_pairs else ()
    for values in (columns, *others):
        distances = np.abs(values - np.median(values, axis=0)).T
        # Rounding of ten equal distances must not make nine.
        fewest = min([fewest, *(int(effective_number(each) + 1e-6) for each in distances if each.any())])
    return fewest


def is_dominated(values: NDArray[np.float64]) -> bool:
    """Return whether one patient makes more than 70 % of the sum of the values, or of their squares about the mean.

    The p % rule of statistical disclosure control; the limit is that of ACRO.

    Examples
    --------
    >>> is_dominated(np.array([2.0, 3.0, 90.0])), is_dominated(np.array([2.0, 3.0, 4.0])), is_dominated(np.zeros(2))
    (True, False, False)
    """
    if len(values) < 3:  # two values are equally far from their mean; their number alone refuses them
        return False
    scaled = values / (float(np.abs(values).max()) or 1.0)
    sums = np.abs(scaled), np.square(scaled - scaled.mean())
    return any(float(terms.max()) > MAX_SHARE * float(terms.sum()) for terms in sums)


def fewest_different(X: NDArray[np.float64]) -> int:
    """Count the smallest non-empty group of patients who differ from the others in a column; 1 if one dominates it.

    The groups of a column are the patients without a value, those with a value, and those whose value differs from the
    most frequent one. A patient dominates a column by the rule of :func:`is_dominated`.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where missing.

    Examples
    --------
    >>> fewest_different(np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 3.0]]))
    1
    >>> fewest_different(np.array([[np.nan], [np.nan], [np.nan], [5.0], [5.0]]))
    2
    """
    fewest = len(X)
    for values in X.T:
        observed = values[~np.isnan(values)]
        commonest = int(np.unique(observed, return_counts=True)[1].max(initial=0))
        groups = (len(observed), len(values) - len(observed), len(observed) - commonest)
        fewest = min([fewest, *(size for size in groups if size), *([1] if is_dominated(observed) else [])])
    return fewest


def check_squares(names: Sequence[str], squares: NDArray[np.float64], most: float) -> None:
    """Raise DataError if sums of squares are beyond the range of sums; the message names the columns, no value."""
    beyond = [name for name, square in zip(names, squares.tolist(), strict=True) if abs(square) > most]
    if beyond:
        raise DataError(
            f"sums of squares about the means must be at most {most:.3g}; they are larger for {', '.join(beyond[:5])}",
            where="columns",
            hint="Use a larger unit, for example thousands per microlitre.",
        )
