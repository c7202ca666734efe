"""Compiled counts of comparable pairs of patients, and random draws that depend on the records only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.compilation import njit

Integers = NDArray[np.int64]


@njit(cache=True, nogil=True)
def _count_below(tree: Integers, end: int) -> int:
    total = 0
    while end > 0:
        total += tree[end]
        end -= end & -end
    return total


@njit(cache=True, nogil=True)
def _add(tree: Integers, place: int) -> None:
    place += 1
    while place < tree.shape[0]:
        tree[place] += 1
        place += place & -place


@njit(cache=True, nogil=True)
def count_pairs(
    time: NDArray[np.float64], event: NDArray[np.bool_], order: Integers, place: Integers, low: Integers, high: Integers
) -> Integers:
    """Count, for every patient with an event, the patients without an event up to that time, by rank of risk.

    Parameters
    ----------
    time, event : arrays of shape (n,)
    order : array of shape (n,)
        Patients from the latest time to the earliest.
    place : array of shape (n,)
        Rank of each patient's risk, in increasing order.
    low, high : arrays of shape (n,)
        Ranks from which risks are tied with the patient's, and from which they are above it.

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
    counts = np.zeros((n_patients, 3), dtype=np.int64)
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
                counts[patient, 0] = below
                counts[patient, 1] = _count_below(tree, high[patient]) - below
                counts[patient, 2] = inside
        for patient in order[first:end]:
            if event[patient]:
                _add(tree, place[patient])
                inside += 1
        first = end
    return counts


@njit(cache=True, nogil=True)
def count_partners(
    time: NDArray[np.float64], event: NDArray[np.bool_], order: Integers, place: Integers, low: Integers, high: Integers
) -> Integers:
    """Count, for every patient, the patients with an earlier event; arguments as in :func:`count_pairs`.

    Returns
    -------
    array of shape (n, 3)
        Patients of higher risk, of tied risk, and of any, with an earlier event, or an event at the same time if the
        patient is censored.

    Examples
    --------
    >>> ranks = np.array([2, 1, 0])
    >>> events = np.array([True, True, False])
    >>> count_partners(np.array([1.0, 2.0, 3.0]), events, ranks, ranks, ranks, ranks + 1).tolist()
    [[0, 0, 0], [1, 0, 1], [2, 0, 2]]
    """
    n_patients = time.shape[0]
    counts = np.zeros((n_patients, 3), dtype=np.int64)
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
                    counts[patient, 0] = inside - upto
                    counts[patient, 1] = upto - _count_below(tree, low[patient])
                    counts[patient, 2] = inside
            if not censored:
                for patient in order[end + 1 : first + 1]:
                    if event[patient]:
                        _add(tree, place[patient])
                        inside += 1
        first = end
    return counts


Floats = NDArray[np.float64]

Keys = NDArray[np.uint64]

# Constants of SplitMix64 (Steele, Lea and Flood 2014), and an odd multiplier that separates columns.
_STEP = np.uint64(0x9E3779B97F4A7C15)

_FIRST = np.uint64(0xBF58476D1CE4E5B9)

_SECOND = np.uint64(0x94D049BB133111EB)

_COLUMN = np.uint64(0xD1B54A32D192ED03)

# Probabilities that a Poisson variable of mean 1 is at most 0, 1, 2, ...
_AT_MOST = np.exp(-1.0) * np.cumsum(1.0 / np.cumprod(np.concatenate([[1.0], np.arange(1.0, 13.0)])))


def patient_keys(X: Floats, time: Floats, event: NDArray[np.int8], ids: NDArray[np.str_] | None) -> Keys:
    """Return a key per patient, shape (n,), from identifiers if available, else from columns, time and event.

    Examples
    --------
    >>> rows, one = np.array([[1.0], [2.0], [1.0]]), np.ones(3)
    >>> keys = patient_keys(rows, one, one.astype(np.int8), None)
    >>> bool(keys[0] == keys[2]), bool(keys[0] == keys[1])
    (True, False)
    """
    if ids is not None:
        codes = np.ascontiguousarray(ids)
        return _fold_texts(codes.view(np.uint32).reshape(len(codes), -1))
    folded = np.zeros(len(time), dtype=np.uint64)
    for values in (*X.T, time, event):
        plain = np.where(np.isnan(values), np.nan, values + 0.0).astype(np.float64)
        folded = _fold(folded, plain.view(np.uint64))
    return folded


@njit(cache=True, nogil=True)
def _mix(state: np.uint64) -> np.uint64:
    mixed = state + _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))


@njit(cache=True, nogil=True)
def _fold(keys: Keys, bits: Keys) -> Keys:
    folded = np.empty_like(keys)
    for patient in range(keys.shape[0]):
        folded[patient] = _mix(keys[patient] * _COLUMN ^ bits[patient])
    return folded


@njit(cache=True, nogil=True)
def _fold_texts(codes: NDArray[np.uint32]) -> Keys:
    folded = np.zeros(codes.shape[0], dtype=np.uint64)
    for patient in range(codes.shape[0]):
        for place in range(codes.shape[1]):
            if codes[patient, place] == 0:
                break
            folded[patient] = _mix(folded[patient] * _COLUMN ^ np.uint64(codes[patient, place]))
    return folded


@njit(cache=True, nogil=True)
def draw_uniform(keys: Keys, seed: int, number: int) -> Floats:
    """Draw a uniform number between 0 and 1 per patient, for one purpose (for example a tree's number), shape (n,).

    Examples
    --------
    >>> keys = np.arange(4, dtype=np.uint64)
    >>> draws = draw_uniform(keys, 0, 1)
    >>> bool(((0 <= draws) & (draws < 1)).all()), bool((draws == draw_uniform(keys, 0, 2)).any())
    (True, False)
    """
    stream = _mix(_mix(np.uint64(seed)) ^ np.uint64(number))
    drawn = np.empty(keys.shape[0])
    for patient in range(keys.shape[0]):
        drawn[patient] = (_mix(keys[patient] ^ stream) >> np.uint64(11)) * 2.0**-53
    return drawn


def draw_poisson(keys: Keys, seed: int, number: int) -> NDArray[np.uint8]:
    """Draw a Poisson number of mean 1 per patient, shape (n,): the number of times in a bootstrap sample.

    Examples
    --------
    >>> counts = draw_poisson(np.arange(10000, dtype=np.uint64), 0, 0)
    >>> counts.mean().round(1), counts.var().round(1)
    (np.float64(1.0), np.float64(1.0))
    """
    return np.searchsorted(_AT_MOST, draw_uniform(keys, seed, number), side="right").astype(np.uint8)
