"""Smallest number of patients that an unmasked answer may depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Patients behind an unmasked update of a network. The coordinator can send a unit that responds to a single patient;
# the update of its weights is then a multiple of that patient's row.
BEHIND_AN_UPDATE = 1


def fewest_alike(rows: NDArray[Any]) -> int:
    """Count the patients of the smallest group with bitwise identical rows.

    A sum over patients of a function of their rows depends on whole groups only, as does any combination of sums.
    For any weights that a coordinator chooses, the effective number of patients (Kish) is at least this count.

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
    """Count the smallest non-empty group of patients who differ from the others in some column.

    A group consists of the patients who differ from the column's most frequent value, lack a value, or have one.

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
        fewest = min([fewest, *(size for size in groups if size)])
    return fewest
