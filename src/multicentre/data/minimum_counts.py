"""Counts of how few patients an unmasked answer would rest on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Patients behind an update of a network that leaves a site unmasked. A unit can be sent that responds to one patient
# alone; the update of its weights is then a multiple of that patient's row.
BEHIND_AN_UPDATE = 1


def fewest_alike(rows: NDArray[Any]) -> int:
    """Count the patients of the smallest group whose rows are the same, bit by bit.

    Any sum over patients of a function of their rows alone rests on such whole groups, and so does any combination of
    many sums: whatever weights a coordinator makes up, the effective number of patients (Kish) is not below this.

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


def fewest_different(X: NDArray[np.float64]) -> int:
    """Count the patients who stand out in the column where they are fewest but some.

    They differ from the column's commonest value, lack a value that others have, or have one that others lack.

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
        known = values[~np.isnan(values)]
        commonest = int(np.unique(known, return_counts=True)[1].max(initial=0))
        groups = (len(known), len(values) - len(known), len(known) - commonest)
        fewest = min([fewest, *(size for size in groups if size)])
    return fewest
