"""Strategies for the division of records into five folds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.validation.folds.by_site import FederatedKFold
from multicentre.validation.folds.covariate import CovariateFoldKFold
from multicentre.validation.folds.hashed import HashGroupKFold
from multicentre.validation.folds.splitter import FoldSplitter
from multicentre_papers.stratified_cv.records import Floats, Integers, Pooled

# Number of folds of the paper.
N_SPLITS = 5
# Bins of the hashed covariate: four per fold, so that folds have similar sizes.
N_BINS = 20
STUDY = "reproduction"
UNBIASED, RANDOM, HASH = "unbiased", "random", "hash of the person"
# Index of x5, for which thresholds have the largest bias in the paper; bins show that thresholds cause it.
BINNED_COLUMN = 4
BINNED = f"x{BINNED_COLUMN + 1} in {N_BINS} hashed bins"
# Keeps the seeds of all sites and repeats distinct.
_MAX_SITES = 1000


def random_folds(records: Pooled, seed: int) -> Integers:
    """Divide the records of every hospital at random into equal parts."""
    folds = np.empty(len(records.y), dtype=np.int64)
    for place in np.unique(records.site):
        here = records.site == place
        drawn = FederatedKFold(N_SPLITS, random_state=_MAX_SITES * seed + int(place))
        folds[here] = _fold_of(drawn, int(np.count_nonzero(here)))
    return folds


def hash_folds(keys: NDArray[np.str_], seed: int, y: Floats | None = None) -> Integers:
    """Divide records by the keyed hash of the person, stratified by the classes `y` if given."""
    return _fold_of(hash_splitter(seed, stratify=y is not None), len(keys), keys, y)


def hash_splitter(seed: int, *, stratify: bool = True) -> HashGroupKFold:
    """Return the splitter by the keyed hash of the person, for arrays and for federations."""
    return HashGroupKFold(N_SPLITS, person_key="person", study=STUDY, repeat=seed, stratify=stratify)


def threshold_folds(values: ArrayLike) -> Integers:
    """Divide records by thresholds of a column, into folds of about equal size (the paper's strategy)."""
    column = np.asarray(values, dtype=np.float64)
    return _fold_of(CovariateFoldKFold(N_SPLITS, max_missing=1.0), len(column), column)


def binned_hash_folds(values: ArrayLike, seed: int) -> Integers:
    """Cut a column into bins of about equal size, and divide the bins by their keyed hash."""
    column = np.asarray(values, dtype=np.float64)
    splitter = CovariateFoldKFold(N_SPLITS, scheme="binned-hash", n_bins=N_BINS, study=STUDY, repeat=seed)
    return _fold_of(splitter, len(column), column)


def _fold_of(
    splitter: FoldSplitter, n_records: int, groups: NDArray[np.generic] | None = None, y: Floats | None = None
) -> Integers:
    """Return the fold of every record, -1 outside all folds."""
    folds = np.full(n_records, -1, dtype=np.int64)
    labels = None if y is None else y.astype(np.int64)
    for fold, (_, test) in enumerate(splitter.split(np.zeros((n_records, 1)), labels, groups)):
        folds[test] = fold
    return folds
