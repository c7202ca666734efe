"""Stability of linkage keys between records of one person, measured on labelled pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from multicentre.data.identifiers import Identifiers
from multicentre.privacy.identifier_normalisation import normalise
from multicentre_papers.stratified_cv.divisions import hash_folds

Key = Sequence[str | None]
PERSON, YEAR, BIRTH_DATE = "person", "year of birth", "birth date"
FULL = "full name and birth date"


def joined(*columns: Key) -> list[str | None]:
    """Return columns joined by "|", None where one is missing.

    Examples
    --------
    >>> joined(["SMITH", "ROY"], ["1950-01-31", None])
    ['SMITH|1950-01-31', None]
    """
    return [
        None if any(value is None for value in row) else "|".join(map(str, row)) for row in zip(*columns, strict=True)
    ]


def linkage_keys(identifier: Identifiers) -> dict[str, Key]:
    """Return the candidate keys of the records of :func:`multicentre.datasets.load_record_linkage`."""
    birth = normalise(identifier.column("birth_date"), "date")
    first, last = (normalise(identifier.column(name), "name") for name in ("first_name", "last_name"))
    return {
        PERSON: identifier.column("person"),
        YEAR: [None if date is None else date[:4] for date in birth],
        "year and month of birth": [None if date is None else date[:7] for date in birth],
        BIRTH_DATE: birth,
        "last name": last,
        "first and last name": joined(first, last),
        FULL: joined(first, last, birth),
    }


def pairs_of(person: NDArray[np.str_]) -> NDArray[np.int64]:
    """Return the indices of all pairs of records of one person, shape (p, 2).

    Examples
    --------
    >>> pairs_of(np.array(["a", "b", "a"])).tolist()
    [[0, 2]]
    """
    first, second = np.nonzero(np.triu(person[:, None] == person[None, :], k=1))
    return np.column_stack([first, second])


def stability(one: Key, other: Key, n_seeds: int) -> Mapping[str, float]:
    """Return percentages of missing keys, of equal keys and of keys in the same fold, for records of one person.

    Parameters
    ----------
    one, other : sequence of str or None
        Keys of two records per person.
    n_seeds : int
        Number of divisions into five folds by hash; the last percentage is their mean.
    """
    both = np.array([first is not None and second is not None for first, second in zip(one, other, strict=True)])
    equal = np.array([first == second for first, second in zip(one, other, strict=True)])[both]
    texts = np.array([[str(first), str(second)] for first, second in zip(one, other, strict=True)])[both]
    folds = [hash_folds(texts.ravel(), seed).reshape(-1, 2) for seed in range(n_seeds)]
    return {
        "missing_one": 100 * float(np.mean([value is None for value in one])),
        "missing_other": 100 * float(np.mean([value is None for value in other])),
        "equal": 100 * float(equal.mean()),
        "same_fold": 100 * float(np.mean([pair[:, 0] == pair[:, 1] for pair in folds])),
    }
