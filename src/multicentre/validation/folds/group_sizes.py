"""Numbers of patients in groups of a site's records: in a fold, a bucket of a hash, or a value of a covariate.

A policy's minimum applies to patients, and one patient may have many records. If the site can assign its
records to patients, the size of a group is the number of patients with a record in it. A record without a patient name
may belong to anybody, so it counts only in a group without named patients. Otherwise each record counts as one patient.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Patients = NDArray[np.int64] | None


def count_patients(group: Integers, n_groups: int, patients: Patients = None) -> Integers:
    """Return the number of patients with a record in each group, shape (n_groups,).

    Parameters
    ----------
    group : array of int, shape (n,)
        Group of each record, 0 to n_groups - 1, or -1 for none.
    n_groups : int
    patients : array of int, shape (n,), optional
        Number of the patient of each record, -1 without a name. By default each record is of a different patient.

    Examples
    --------
    >>> group, patients = np.array([0, 0, 0, 1, 1, 2]), np.array([5, 5, 6, 5, -1, -1])
    >>> count_patients(group, 3, patients).tolist(), count_patients(group, 3).tolist()
    ([2, 1, 1], [3, 2, 1])
    """
    n_records: Integers = np.bincount(group[group >= 0], minlength=n_groups)
    if patients is None:
        return n_records
    counts: Integers = np.maximum(np.bincount(_pairs(group, patients)[0], minlength=n_groups), n_records > 0)
    return counts


def count_patients_outside(group: Integers, n_groups: int, patients: Patients = None) -> Integers:
    """Return, for each group, the number of patients with a record in any other group, shape (n_groups,).

    A patient with records in two groups counts outside of both. Parameters are those of :func:`count_patients`.

    Examples
    --------
    >>> group, patients = np.array([0, 0, 1, 1, 2]), np.array([5, 6, 5, 7, 7])
    >>> count_patients_outside(group, 3, patients).tolist(), count_patients_outside(group, 3).tolist()
    ([2, 3, 3], [3, 3, 4])
    """
    n_records = np.bincount(group[group >= 0], minlength=n_groups)
    n_outside: Integers = n_records.sum() - n_records
    if patients is None:
        return n_outside
    groups, group_patients = _pairs(group, patients)
    n_groups_of = np.bincount(group_patients)
    n_only_here = np.bincount(groups[n_groups_of[group_patients] == 1], minlength=n_groups)
    counts: Integers = np.maximum(np.count_nonzero(n_groups_of) - n_only_here, n_outside > 0)
    return counts


def fewest_patients(group: Integers, n_groups: int, patients: Patients = None) -> int:
    """Return the smallest number of patients in a non-empty group; 0 if all groups are empty.

    Parameters are those of :func:`count_patients`.

    Examples
    --------
    >>> fewest_patients(np.array([0, 0, 2, 2, 2]), 3, np.array([1, 2, 3, 3, 3]))
    1
    """
    counts = count_patients(group, n_groups, patients)
    return int(counts[counts > 0].min(initial=counts.sum()))


def spare_few(fold: Integers, n_splits: int, least: int, order: Integers, patients: Patients = None) -> Integers:
    """Empty folds of few patients: the fold of their records becomes -1.

    The records that are left out belong to no patient or to at least `least` patients. If the small folds have fewer
    patients, patients of the largest fold are left out too, each with all records in that fold.

    Therefore each fold is empty or has at least `least` patients, and any two selections of folds differ by no record
    or by records of at least `least` patients. The same holds for all folds and all records, except for records that
    had no fold before.

    Parameters
    ----------
    fold : array of int, shape (n,)
    n_splits, least : int
    order : array of int, shape (n,)
        Order in which patients are left out, by their first record; it must be secret to the site.
    patients : array of int, shape (n,), optional
        As in :func:`count_patients`.

    Examples
    --------
    >>> np.bincount(1 + spare_few(np.repeat([0, 1, 2, 3], [12, 11, 2, 30]), 4, 10, np.arange(55))).tolist()
    [10, 12, 11, 0, 22]
    >>> patients = np.repeat(np.arange(5), [1, 1, 1, 1, 9])
    >>> spare_few(np.repeat([0, 1], [4, 9]), 2, 2, np.arange(13), patients).tolist()
    [-1, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1]
    """
    sizes = count_patients(fold, n_splits, patients)
    few, largest = sizes < least, int(sizes.argmax())
    spared = np.where((fold >= 0) & few[fold], -1, fold)
    left_out = (fold >= 0) & (spared < 0)
    names = np.arange(len(fold)) if patients is None else patients
    n_left_out = len(np.unique(names[left_out & (names >= 0)]))
    if not left_out.any() or n_left_out >= least:
        return spared
    candidates = names[order[spared[order] == largest]]
    candidates = candidates[(candidates >= 0) & ~np.isin(candidates, names[left_out])]
    first = np.sort(np.unique(candidates, return_index=True)[1])
    added = candidates[first][: least - n_left_out]
    spared[(spared == largest) & np.isin(names, added)] = -1
    if count_patients(spared, n_splits, patients)[largest] < least:
        spared[spared == largest] = -1
    return spared


def _pairs(group: Integers, patients: Integers) -> tuple[Integers, Integers]:
    """Return the unique pairs of a group and a named patient with a common record."""
    is_named = (group >= 0) & (patients >= 0)
    groups, group_patients = np.unique(np.stack([group[is_named], patients[is_named]]), axis=1)
    return groups, group_patients
