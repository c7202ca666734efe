"""Division of a site's patients into folds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def divide(n_folds: int, strata: Integers, persons: Integers | None, key: bytes) -> Integers:
    """Return the fold of each record from 0, shape (n,).

    Folds of each stratum differ by at most one record. If persons have several records, these are in one fold, and
    folds differ by at most one person.

    Parameters
    ----------
    n_folds : int
    strata : array of int, shape (n,)
        Class of each record.
    persons : array of int, shape (n,), optional
        Number of the person of each record, -1 if unknown; None if nobody has two records.
    key : bytes
        Key of the division; equal keys give equal folds.

    Examples
    --------
    >>> folds = divide(2, np.array([0, 0, 0, 0, 1, 1]), None, b"key")
    >>> np.bincount(folds[:4]).tolist(), np.bincount(folds[4:]).tolist()
    ([2, 2], [1, 1])
    >>> repeated = divide(2, np.zeros(4, dtype=int), np.array([5, 5, 7, 7]), b"key")
    >>> bool(repeated[0] == repeated[1]), bool(repeated[2] == repeated[3]), bool(repeated[0] == repeated[2])
    (True, True, False)
    """
    random = np.random.default_rng(int.from_bytes(key, "big"))
    unit_of = np.arange(len(strata))
    if persons is not None:
        named = np.where(persons < 0, -1 - np.arange(len(persons)), persons)
        unit_of = np.unique(named, return_inverse=True)[1]
    n_units = int(unit_of.max()) + 1
    stratum = strata if persons is None else np.zeros(n_units, dtype=np.int64)
    shuffled = random.permutation(n_units)
    ordered = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    fold = np.empty(n_units, dtype=np.int64)
    fold[ordered] = (np.arange(n_units) + int(random.integers(n_folds))) % n_folds
    return fold[unit_of]
