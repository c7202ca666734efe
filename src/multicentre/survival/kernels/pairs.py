"""Compiled counts of pairs of patients whose order in time is known."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@njit(cache=True)
def _count_below(tree: Integers, end: int) -> int:
    total = 0
    while end > 0:
        total += tree[end]
        end -= end & -end
    return total


@njit(cache=True)
def _add(tree: Integers, place: int) -> None:
    place += 1
    while place < tree.shape[0]:
        tree[place] += 1
        place += place & -place


@njit(cache=True)
def count_pairs(
    time: NDArray[np.float64], event: NDArray[np.bool_], order: Integers, place: Integers, low: Integers, high: Integers
) -> Integers:
    """Count, for every patient with an event, those known to be free of it for longer, by their place in risk.

    Parameters
    ----------
    time, event : arrays of shape (n,)
    order : array of shape (n,)
        Patients from the latest time to the earliest.
    place : array of shape (n,)
        Each patient's own place when risks are sorted upwards.
    low, high : arrays of shape (n,)
        Places from which on risks are tied with the patient's, and from which on they are above it.

    Returns
    -------
    array of shape (n, 3)
        Patients of lower risk, of tied risk, and of any, among those who are followed for longer or are censored at
        the same time; zeros for a patient without an event.

    Examples
    --------
    >>> ranks = np.array([2, 1, 0])
    >>> count_pairs(np.array([1.0, 2.0, 3.0]), np.array([True, True, False]), ranks, ranks, ranks, ranks + 1).tolist()
    [[2, 0, 2], [1, 0, 1], [0, 0, 0]]
    """
    n_patients = time.shape[0]
    found = np.zeros((n_patients, 3), dtype=np.int64)
    tree = np.zeros(n_patients + 1, dtype=np.int64)
    first, inside = 0, 0
    while first < n_patients:
        end = first
        while end < n_patients and time[order[end]] == time[order[first]]:
            if not event[order[end]]:
                _add(tree, place[order[end]])
                inside += 1
            end += 1
        for patient in order[first:end]:
            if event[patient]:
                below = _count_below(tree, low[patient])
                found[patient, 0] = below
                found[patient, 1] = _count_below(tree, high[patient]) - below
                found[patient, 2] = inside
        for patient in order[first:end]:
            if event[patient]:
                _add(tree, place[patient])
                inside += 1
        first = end
    return found


@njit(cache=True)
def count_partners(
    time: NDArray[np.float64], event: NDArray[np.bool_], order: Integers, place: Integers, low: Integers, high: Integers
) -> Integers:
    """Count, for every patient, those known to have had their event before; arguments as in :func:`count_pairs`.

    Returns
    -------
    array of shape (n, 3)
        Patients of higher risk, of tied risk, and of any, with an event earlier, or at the same time where the patient
        is censored then.

    Examples
    --------
    >>> ranks = np.array([2, 1, 0])
    >>> events = np.array([True, True, False])
    >>> count_partners(np.array([1.0, 2.0, 3.0]), events, ranks, ranks, ranks, ranks + 1).tolist()
    [[0, 0, 0], [1, 0, 1], [2, 0, 2]]
    """
    n_patients = time.shape[0]
    found = np.zeros((n_patients, 3), dtype=np.int64)
    tree = np.zeros(n_patients + 1, dtype=np.int64)
    first, inside = n_patients - 1, 0
    while first >= 0:
        end = first
        while end >= 0 and time[order[end]] == time[order[first]]:
            end -= 1
        for censored in (False, True):
            for patient in order[end + 1 : first + 1]:
                if event[patient] != censored:
                    upto = _count_below(tree, high[patient])
                    found[patient, 0] = inside - upto
                    found[patient, 1] = upto - _count_below(tree, low[patient])
                    found[patient, 2] = inside
            if not censored:
                for patient in order[end + 1 : first + 1]:
                    if event[patient]:
                        _add(tree, place[patient])
                        inside += 1
        first = end
    return found
