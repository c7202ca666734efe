"""A plan: which folds there are, at which sites, and how large they are. Whose record lies where stays at the sites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import ConfigurationError, DataError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FoldPlan:
    """Folds over the records of several sites.

    Attributes
    ----------
    strategy : str
        The splitter that made it.
    duplicate_safe : bool
        Whether all records of one person are in one fold, wherever they lie, if the sites' identifiers are right.
    class_table : array of shape (K, C)
        Records of all sites by fold and class of the outcome. In clear, a site counts a class that few of its records
        in a fold have among the first.
    n_excluded : int
        Records in no fold.
    present : dict of str to tuple of int
        Folds that a site has records in.
    digest : str
        Hash of what every site divided its records by; the same at all of them.
    facts : dict
        What the strategy tells of its folds (thresholds, number of buckets).
    """

    strategy: str
    duplicate_safe: bool
    class_table: Floats
    n_excluded: int
    present: Mapping[str, tuple[int, ...]]
    digest: str
    federation: Federation = field(repr=False)
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def n_splits(self) -> int:
        """Number of folds."""
        return len(self.class_table)

    @property
    def counts(self) -> Floats:
        """Records of all sites by fold, shape (K,)."""
        return np.asarray(self.class_table.sum(axis=1))

    def train(self, fold: int) -> Federation:
        """Return the federation of all records outside a fold."""
        self._check(fold)
        return self._select([other for other in range(self.n_splits) if other != fold])

    def test(self, fold: int) -> Federation:
        """Return the federation of the records in a fold."""
        self._check(fold)
        return self._select([fold])

    def imbalance(self) -> float:
        """Return the largest difference between a fold's share of a class and the share of all, in percentage points."""
        shares = self.class_table / np.maximum(self.counts[:, None], 1)
        overall = self.class_table.sum(axis=0) / self.counts.sum()
        return float(100 * np.abs(shares - overall).max())

    def __iter__(self) -> Iterator[tuple[Federation, Federation]]:
        for fold in range(self.n_splits):
            yield self.train(fold), self.test(fold)

    def _select(self, folds: list[int]) -> Federation:
        sites = [site for site, present in self.present.items() if set(present) & set(folds)]
        return self.federation.select(folds, sites)

    def _check(self, fold: int) -> None:
        if not 0 <= fold < self.n_splits:
            raise ConfigurationError(f"there are folds 0 to {self.n_splits - 1}", where="fold")


def check_outcomes(plan: FoldPlan, least: int) -> None:
    """Check that every fold has enough records of every class of the outcome that occurs.

    Raises
    ------
    DataError
        A fold has fewer than `least` of a class.
    """
    occurring = plan.class_table.sum(axis=0) > 0
    fewest = plan.class_table[:, occurring].min(initial=np.inf)
    if fewest < least:
        raise DataError(
            f"a fold has {int(fewest)} records of a class of the outcome; at least {least} are needed",
            where=plan.strategy,
            mend="Take fewer folds, balance them by the outcome, or ask for fewer events a fold.",
        )
