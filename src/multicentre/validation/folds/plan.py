"""Fold plans: folds, their sites and sizes. The fold of each record stays at its site."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.published_counts import count_text
from multicentre.core.session import Session
from multicentre.errors import ConfigurationError, DataError

Floats = NDArray[np.float64]

# Number of records of a class in a fold below which scores are unreliable: one record then changes a recall by 0.1.
FEW_RECORDS = 10


@dataclass(frozen=True, eq=False)
class FoldPlan:
    """Folds over the records of several sites.

    A federation of a single site, as in folds by site, sums unmasked even if the plan's sums are masked, because there
    are no other sites to mask with. The site's policy decides which unmasked answers it returns.

    A plan that was pickled or copied has no session, because keys and connections are not copied. Its counts remain
    available; :meth:`train` and :meth:`test` raise ConfigurationError.

    Attributes
    ----------
    strategy : str
        Splitter of the plan.
    duplicate_safe : bool
        All records of one person are in one fold, at all sites, if the sites' identifiers are correct.
    class_table : array of shape (K, C)
        Records of all sites by fold and class of the outcome.
    n_excluded : int
        Number of records without a fold.
    present, tested : dict of str to tuple of int
        Folds k for which a site takes part in ``train(k)``, and in ``test(k)``, because it has at least its policy's
        minimum of patients outside the fold, and in the fold.
    digest : str
        Hash of the parameters of the split, which is the same at all sites.
    facts : dict
        Properties of the folds (thresholds, number of buckets).
    n_left_out : int
        Records without a fold because their site has fewer patients in the fold than its policy's minimum, so that no
        two selections of folds differ by few of a site's patients. They are included in `n_excluded`.
    branch : Consortium, optional
        The branch that fits to the folds are part of, if fits run side by side.
    """

    strategy: str
    duplicate_safe: bool
    class_table: Floats
    n_excluded: int
    present: Mapping[str, tuple[int, ...]]
    tested: Mapping[str, tuple[int, ...]]
    digest: str
    session: Session = field(repr=False)
    facts: Mapping[str, object] = field(default_factory=dict)
    n_left_out: int = 0
    branch: Consortium | None = field(default=None, repr=False)

    @property
    def n_splits(self) -> int:
        """Number of folds."""
        return len(self.class_table)

    @property
    def counts(self) -> Floats:
        """Records of all sites by fold, shape (K,)."""
        return np.asarray(self.class_table.sum(axis=1))

    def train(self, fold: int) -> Consortium:
        """Return the federation of all records outside a fold, at the sites with enough of them."""
        self._check(fold)
        return self._select([other for other in range(self.n_splits) if other != fold], fold, self.present)

    def test(self, fold: int) -> Consortium:
        """Return the federation of the records in a fold, at the sites with enough of them."""
        self._check(fold)
        return self._select([fold], fold, self.tested)

    def check_quorum(self) -> None:
        """Check that masked sums of a study are over as many sites as its stewards approved, in all folds.

        Raises
        ------
        ConfigurationError
            A fold has records of fewer sites; sites would refuse its sums.
        """
        consortium = self.session.consortium
        if not (consortium.terms.agreed and consortium.protection == "masked"):
            return
        needed = consortium.terms.needed_of_willing(len(consortium.sites), masked=True)
        for fold in range(self.n_splits):
            for part in (self.present, self.tested):
                n_sites = sum(fold in folds for folds in part.values())
                if 1 < n_sites < needed:  # a sum of one site is not masked
                    raise ConfigurationError(
                        f"each fold must have enough patients at {needed} sites, the quorum of the study; fold {fold} "
                        f"has them at {n_sites}",
                        where="validation",
                        hint=f"Use fewer folds, or agree with the sites on quorum = {n_sites}, under [run].",
                    )

    def branches(self, n_branches: int) -> list[Self]:
        """Return copies of the plan for fits side by side; see :meth:`Consortium.branches`."""
        around = self.branch or self.session.federation
        return [replace(self, branch=branch) for branch in around.branches(n_branches)]

    def imbalance(self) -> float:
        """Return the largest difference of a fold's share of a class from that of all, in percentage points."""
        shares = self.class_table / np.maximum(self.counts[:, None], 1)
        overall = self.class_table.sum(axis=0) / self.counts.sum()
        return float(100 * np.abs(shares - overall).max())

    @property
    def exclusions(self) -> str:
        """Sentence on the records without a fold; empty if there are none."""
        if not self.n_excluded:
            return ""
        total = self.n_excluded + round(float(self.counts.sum()))
        counts_sentence = f"{count_text(self.n_excluded)} of {total:,} records are in no fold"
        if not self.n_left_out:
            return f"{counts_sentence}: they lack an identifier or covariate, or the strategy excludes them."
        others = "" if self.n_left_out == self.n_excluded else f"{count_text(self.n_left_out)} of them "
        return (
            f"{counts_sentence}, {others}because their sites have fewer patients in a fold than their policies require."
        )

    def summary(self) -> str:
        """Return a description of the number of folds, their sizes and the records without a fold."""
        folds = (
            f"{self.strategy}: {self.n_splits} folds of {self.counts.min():,.0f} to {self.counts.max():,.0f} records."
        )
        chance = "" if self.facts.get("balanced", True) else "Their sizes are random."
        return " ".join(sentence for sentence in (folds, chance, self.exclusions) if sentence)

    def __iter__(self) -> Iterator[tuple[Consortium, Consortium]]:
        for fold in range(self.n_splits):
            yield self.train(fold), self.test(fold)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("session", "branch")}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name != "session":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise ConfigurationError(
                "the plan must have a session with the sites; it is a copy, and sessions are not copied",
                where="FoldPlan",
                hint="Create the plan again with splitter.plan(federation).",
            )

    def _select(self, folds: list[int], fold: int, taking_part: Mapping[str, tuple[int, ...]]) -> Consortium:
        sites = [site for site, site_folds in taking_part.items() if fold in site_folds]
        if not sites:
            raise DataError(
                "at least one site must have its policy's minimum of patients; none has",
                where=f"fold {fold}",
                hint="Use fewer folds.",
            )
        chosen = self.session.select(folds, sites)
        chosen = chosen if self.branch is None else chosen.as_part_of(self.branch)
        return chosen.unmasked() if len(sites) == 1 else chosen

    def _check(self, fold: int) -> None:
        if not 0 <= fold < self.n_splits:
            raise ConfigurationError(f"fold must be from 0 to {self.n_splits - 1}; got {fold}", where="fold")


def check_outcomes(plan: FoldPlan, *, needed: bool = True) -> None:
    """Check that every fold has records of every class that occurs, and warn if there are fewer than ten.

    Parameters
    ----------
    plan : FoldPlan
    needed : bool, default True
        Raise an error for a fold that lacks a class; otherwise warn.

    Raises
    ------
    DataError
        A fold has no record of a class that occurs in others.
    """
    occurring = np.flatnonzero(plan.class_table.sum(axis=0))
    table = plan.class_table[:, occurring]
    fold, place = np.unravel_index(int(table.argmin()), table.shape)
    fewest = int(table[fold, place])
    if needed and not fewest:
        raise DataError(
            f"every fold must have records of every class; fold {fold} has none of class {occurring[place]}",
            where=plan.strategy,
            hint="Use fewer folds, or balance them by the outcome (HashGroupKFold with secure sums).",
        )
    if fewest < FEW_RECORDS:
        warnings.warn(
            f"{plan.strategy}: fold {fold} has {count_text(fewest) if fewest else 'no'} records of class "
            f"{occurring[place]} of the outcome; its scores are unreliable",
            stacklevel=3,
        )


Integers = NDArray[np.int64]

# Mean number of records per bucket: large enough to hide a person, small enough for many buckets to pack.
RECORDS_PER_BUCKET = 20

# Enough buckets to even out folds; a power of two, so that finer tables are nested in this one.
BUCKETS_PER_FOLD = 8

# Bounds the table and the time of packing; reached at 4096 * 20 = 81,920 records.
MAX_BUCKETS = 4096


def bucket_number(n_records: int, n_splits: int) -> int:
    """Return the number of buckets for balancing folds: n / 20, at least 8 per fold, at most 4096.

    Examples
    --------
    >>> bucket_number(300, 5), bucket_number(12_000, 5), bucket_number(10**6, 5)
    (40, 600, 4096)
    """
    return int(np.clip(n_records // RECORDS_PER_BUCKET, BUCKETS_PER_FOLD * n_splits, MAX_BUCKETS))


def pack_buckets(table: Integers, n_splits: int) -> Integers:
    """Return the fold of each bucket, by the greedy rule of scikit-learn's StratifiedGroupKFold.

    Buckets are packed in the order of decreasing variance of their class counts (of ties the larger, then the earlier).
    Each is put into the fold that gives the smallest mean over classes of the standard deviation of the folds' shares;
    of ties, into the fold with the fewest records, then the first.

    Parameters
    ----------
    table : array of int, shape (B, C)
        Records by bucket and class; below 2**53 / n_splits in total, so that the result is the same on every machine.
    n_splits : int

    Returns
    -------
    array of int64, shape (B,)

    Examples
    --------
    >>> pack_buckets(np.array([[9, 1], [9, 1], [10, 0], [10, 0]]), 2).tolist()
    [0, 1, 0, 1]
    """
    counts = np.asarray(table, dtype=np.float64)
    totals = np.maximum(counts.sum(axis=0), 1.0)
    packed, sizes = np.zeros((counts.shape[1], n_splits)), np.zeros(n_splits)
    fold = np.empty(len(counts), dtype=np.int64)
    for bucket in _packing_order(counts):
        bucket_counts = counts[bucket]
        chosen = np.lexsort((np.arange(n_splits), sizes, _spreads(packed, bucket_counts, totals)))[0]
        fold[bucket] = chosen
        packed[:, chosen] += bucket_counts
        sizes[chosen] += bucket_counts.sum()
    return fold


def _packing_order(counts: Floats) -> Integers:
    n_classes, sizes = counts.shape[1], counts.sum(axis=1)
    scaled_variance = n_classes * (counts**2).sum(axis=1) - sizes**2
    return np.lexsort((np.arange(len(counts)), -sizes, -scaled_variance))


def _spreads(packed: Floats, bucket_counts: Floats, totals: Floats) -> Floats:
    """Return the imbalance after adding a bucket to each fold, shape (K,); exact integers before the square root."""
    n_splits = packed.shape[1]
    squares = (packed**2).sum(axis=1)[:, None] + bucket_counts[:, None] * (2 * packed + bucket_counts[:, None])
    sums = (packed.sum(axis=1) + bucket_counts)[:, None]
    deviations = np.sqrt(n_splits * squares - sums**2) / totals[:, None]
    return np.asarray(sum(deviations), dtype=np.float64)
