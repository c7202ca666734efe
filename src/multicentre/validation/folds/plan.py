"""A plan: which folds there are, at which sites, and how large they are. Whose record lies where stays at the sites."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.consortium import Consortium
from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.federation.session import Session

Floats = NDArray[np.float64]

FEW_RECORDS = 10


@dataclass(frozen=True, eq=False)
class FoldPlan:
    """Folds over the records of several sites.

    A federation of a single site, as in folds by site, sums unmasked even where the plan's sums are masked: there is
    nobody to hide among, and the site's policy says what it lets out by itself.

    A plan that was pickled or copied has no `federation` any more, for keys and connections do not travel: it still
    tells what it counted, and :meth:`train` and :meth:`test` raise ConfigurationError.

    Attributes
    ----------
    strategy : str
        The splitter that made it.
    duplicate_safe : bool
        Whether all records of one person are in one fold, wherever they lie, if the sites' identifiers are right.
    class_table : array of shape (K, C)
        Records of all sites by fold and class of the outcome.
    n_excluded : int
        Records in no fold.
    present, tested : dict of str to tuple of int
        Folds k for which a site takes part in ``train(k)``, and in ``test(k)``: those outside of which, and in which,
        it has as many patients as its policy asks for.
    digest : str
        Hash of what every site divided its records by; the same at all of them.
    facts : dict
        What the strategy tells of its folds (thresholds, number of buckets).
    n_left_out : int
        Records in no fold because their site has fewer patients in a fold than its policy asks for, so that no two
        selections of folds differ by few of a site's patients. They are among `n_excluded`.
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

    @property
    def n_splits(self) -> int:
        """Number of folds."""
        return len(self.class_table)

    @property
    def counts(self) -> Floats:
        """Records of all sites by fold, shape (K,)."""
        return np.asarray(self.class_table.sum(axis=1))

    def train(self, fold: int) -> Consortium:
        """Return the federation of all records outside a fold, at the sites that have enough of them."""
        self._check(fold)
        return self._select([other for other in range(self.n_splits) if other != fold], fold, self.present)

    def test(self, fold: int) -> Consortium:
        """Return the federation of the records in a fold, at the sites that have enough of them."""
        self._check(fold)
        return self._select([fold], fold, self.tested)

    def imbalance(self) -> float:
        """Return the largest difference of a fold's share of a class from that of all, in percentage points."""
        shares = self.class_table / np.maximum(self.counts[:, None], 1)
        overall = self.class_table.sum(axis=0) / self.counts.sum()
        return float(100 * np.abs(shares - overall).max())

    @property
    def exclusions(self) -> str:
        """Sentence on the records that are in no fold; empty where all are in one."""
        if not self.n_excluded:
            return ""
        total = self.n_excluded + round(float(self.counts.sum()))
        said = f"{self.n_excluded} of {total} records are in no fold"
        if not self.n_left_out:
            return f"{said}: they lack what the strategy divides by, or it sets them aside."
        others = "" if self.n_left_out == self.n_excluded else f"{self.n_left_out} of them "
        return f"{said}, {others}because their sites have fewer patients in a fold than their policies ask for."

    def summary(self) -> str:
        """Return the number of folds, their sizes and the records in no fold, in words."""
        folds = f"{self.strategy}: {self.n_splits} folds of {self.counts.min():.0f} to {self.counts.max():.0f} records."
        chance = "" if self.facts.get("balanced", True) else "They are as equal as chance makes them."
        return " ".join(said for said in (folds, chance, self.exclusions) if said)

    def __iter__(self) -> Iterator[tuple[Consortium, Consortium]]:
        for fold in range(self.n_splits):
            yield self.train(fold), self.test(fold)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "session"}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name != "session":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise ConfigurationError(
                "a copied plan has no session with the sites",
                where="FoldPlan",
                hint="Make the plan again with splitter.plan(federation).",
            )

    def _select(self, folds: list[int], fold: int, taking_part: Mapping[str, tuple[int, ...]]) -> Consortium:
        sites = [site for site, own in taking_part.items() if fold in own]
        if not sites:
            raise DataError("no site has enough patients", where=f"fold {fold}", hint="Take fewer folds.")
        chosen = self.session.select(folds, sites)
        return chosen.unmasked() if len(sites) == 1 else chosen

    def _check(self, fold: int) -> None:
        if not 0 <= fold < self.n_splits:
            raise ConfigurationError(f"there are folds 0 to {self.n_splits - 1}", where="fold")


def check_outcomes(plan: FoldPlan, *, needed: bool = True) -> None:
    """Check that every fold has records of every class of the outcome that occurs, and warn of fewer than ten.

    Parameters
    ----------
    plan : FoldPlan
    needed : bool, default True
        Refuse a fold that lacks a class; else warn of it.

    Raises
    ------
    DataError
        A fold has no record of a class that others have.
    """
    occurring = np.flatnonzero(plan.class_table.sum(axis=0))
    table = plan.class_table[:, occurring]
    fold, place = np.unravel_index(int(table.argmin()), table.shape)
    fewest = int(table[fold, place])
    said = f"fold {fold} has {fewest or 'no'} records of class {occurring[place]} of the outcome"
    if needed and not fewest:
        raise DataError(
            said,
            where=plan.strategy,
            hint="Take fewer folds, or balance them by the outcome (HashGroupKFold with secure sums).",
        )
    if fewest < FEW_RECORDS:
        warnings.warn(f"{plan.strategy}: {said}; scores of it say little", stacklevel=3)


Integers = NDArray[np.int64]

RECORDS_A_BUCKET = 20

BUCKETS_A_FOLD = 8

MOST_BUCKETS = 4096


def bucket_number(n_records: int, n_splits: int) -> int:
    """Return how many buckets serve to balance folds: n / 20, at least 8 a fold, at most 4096.

    Examples
    --------
    >>> bucket_number(300, 5), bucket_number(12_000, 5), bucket_number(10**6, 5)
    (40, 600, 4096)
    """
    return int(np.clip(n_records // RECORDS_A_BUCKET, BUCKETS_A_FOLD * n_splits, MOST_BUCKETS))


def pack_buckets(table: Integers, n_splits: int) -> Integers:
    """Return the fold of each bucket, by the greedy rule of scikit-learn's StratifiedGroupKFold.

    Buckets whose classes are least alike in number come first (of equal ones the larger, then the earlier). Each goes
    to the fold that leaves the shares of the classes most alike over the folds: the least mean over classes of the
    standard deviation of the folds' shares, then the fewest records, then the first fold.

    Parameters
    ----------
    table : array of int, shape (B, C)
        Records by bucket and class; below 2**53 / n_splits together, so that any machine packs alike.
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
        own = counts[bucket]
        chosen = np.lexsort((np.arange(n_splits), sizes, _spreads(packed, own, totals)))[0]
        fold[bucket] = chosen
        packed[:, chosen] += own
        sizes[chosen] += own.sum()
    return fold


def _packing_order(counts: Floats) -> Integers:
    n_classes, sizes = counts.shape[1], counts.sum(axis=1)
    unlike = n_classes * (counts**2).sum(axis=1) - sizes**2
    return np.lexsort((np.arange(len(counts)), -sizes, -unlike))


def _spreads(packed: Floats, own: Floats, totals: Floats) -> Floats:
    """Return how unlike the folds are once one has a bucket, shape (K,); whole numbers until the root."""
    n_splits = packed.shape[1]
    squares = (packed**2).sum(axis=1)[:, None] + own[:, None] * (2 * packed + own[:, None])
    sums = (packed.sum(axis=1) + own)[:, None]
    deviations = np.sqrt(n_splits * squares - sums**2) / totals[:, None]
    return np.asarray(sum(deviations), dtype=np.float64)
