"""The strategies by which records are divided into five folds."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.privacy.pseudonyms import PseudonymKey, pseudonymise
from multicentre.privacy.secrets import Secret
from multicentre.reproduction.stratified_cv.records import Floats, Integers, Pooled

N_SPLITS = 5
N_BINS = 20
UNBIASED, RANDOM, HASH = "unbiased", "random", "hash of the person"
BINNED_COLUMN = 4
BINNED = f"x{BINNED_COLUMN + 1} in {N_BINS} hashed bins"


def random_folds(records: Pooled, seed: int) -> Integers:
    """Divide the records of every hospital by chance into equal parts."""
    folds = np.empty(len(records.y), dtype=np.int64)
    for place in np.unique(records.site):
        rows = np.flatnonzero(records.site == place)
        random = np.random.default_rng([seed, place])
        order = random.permutation(N_SPLITS)
        folds[random.permutation(rows)] = order[np.arange(len(rows)) % N_SPLITS]
    return folds


def hash_folds(keys: NDArray[np.str_], y: Floats, seed: int) -> Integers:
    """Divide records by the keyed hash of whom they are about."""
    tokens = pseudonymise(keys.tolist(), _key(seed), purpose="folds")
    return np.where(tokens.present, tokens.buckets(N_SPLITS), -1)


def threshold_folds(values: ArrayLike) -> Integers:
    """Divide records by thresholds of a column, so that folds have equally many (the paper's strategy)."""
    column = np.asarray(values, dtype=np.float64)
    return np.searchsorted(np.quantile(column, np.arange(1, N_SPLITS) / N_SPLITS), column)


def binned_hash_folds(values: ArrayLike, seed: int) -> Integers:
    """Cut a column into bins with equally many records, and divide the bins by chance."""
    column = np.asarray(values, dtype=np.float64)
    bins = np.searchsorted(np.quantile(column, np.arange(1, N_BINS) / N_BINS), column)
    return (np.random.default_rng(seed).permutation(N_BINS) % N_SPLITS)[bins]


def _key(seed: int) -> PseudonymKey:
    return PseudonymKey(Secret(hashlib.sha256(f"reproduction {seed}".encode()).digest()))
