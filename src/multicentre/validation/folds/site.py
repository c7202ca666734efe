"""Folds beside the patients: what every strategy shares. The fold of a record never leaves its site."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, DisclosureRefused
from multicentre.federation.lengths import Length, Lengths
from multicentre.federation.messages import Message, Nothing
from multicentre.federation.steps import Pieces, step
from multicentre.federation.wire import encode
from multicentre.linkage.keys.audited import AuditedPart
from multicentre.linkage.strata import outcome_strata
from multicentre.validation.folds import messages as sent
from multicentre.validation.folds.crowds import count_patients, count_patients_outside, spare_few

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class FoldPart(AuditedPart):
    """Base of the site parts that divide records into folds.

    A strategy adds a step that works out the fold of every record and hands it to :meth:`settle`.
    """

    remembers: ClassVar[type[Message]] = sent.Folds
    lengths: ClassVar[Lengths] = {
        "K": Length("folds", "n_splits"),
        "C": "classes of the outcome",
        "B": "buckets that persons are hashed into",
        "b": "parts that the covariate is cut into, or sub-cells of a cell in which thresholds are looked for",
    }
    state: sent.Folds | None = None

    @property
    def folds(self) -> Integers | None:
        """Fold of each record, once the folds were counted and found large enough."""
        return self.state.fold if self.state is not None and self.state.counted else None

    @property
    def division(self) -> str:
        """Hash of what the site was told to divide by; empty before."""
        return "" if self.state is None else self.state.digest

    @property
    def pieces(self) -> Pieces:
        """Smallest groups of records that another plan could put into other folds."""
        return Pieces("", 0) if self.state is None else Pieces(self.state.source, self.state.movable)

    def source_of(self, told: Message) -> str:
        """Return what the parts of a division come from, the same for all divisions that can differ by one part.

        Parameters
        ----------
        told : Message
            Request that the records are divided by.
        """
        return ""

    @step(releases=sent.DigestTold, when="once")
    def tell_digest(self, ask: Nothing) -> sent.DigestTold:
        """Tell by what the site divided its records, as a hash."""
        return sent.DigestTold(self._settled.digest, outcome_strata(self.data)[1])

    @step(releases=sent.FoldCounts, when="once", summed=True)
    def count_folds(self, ask: Nothing) -> sent.FoldCounts:
        """Count records by fold and class of the outcome; folds of few patients are refused unmasked, else emptied."""
        settled = self._spared(self._settled) if self.masked else self._settled
        strata, n_strata = outcome_strata(self.data)
        table = count_table(settled.fold, strata, settled.n_splits, n_strata)
        if not self.masked:
            self._check_sizes(settled)
        self.state = replace(settled, counted=True)
        inside, outside = self._enough(settled)
        return sent.FoldCounts(
            table,
            float((settled.fold < 0).sum()),
            (inside & outside).astype(np.int64),
            float(settled.left_out),
            patients=len(strata) if self.masked else int(table[table > 0].min(initial=len(strata))),
        )

    @step(releases=sent.Presence, when="on request")
    def tell_presence(self, ask: Nothing) -> sent.Presence:
        """Tell for which counted folds the site has as many patients as its policy asks for, in them and outside."""
        settled = self._settled
        if not settled.counted:
            raise ConfigurationError("the folds are not counted yet", where=self.method, mend="Make a plan anew.")
        if settled.movable < self.least_behind and not settled.keyed:
            raise DisclosureRefused(
                "for which folds this site has enough patients would tell of values that few of them have",
                where=self.site,
                mend='Take fewer folds, so that it has enough in each, or a hash (HashGroupKFold, scheme="hash").',
            )
        return sent.Presence(*self._enough(settled), patients=len(self.data))

    def settle(
        self, fold: Integers, n_splits: int, told: Message, *, movable: int | None = None, keyed: bool = False
    ) -> None:
        """Remember the fold of every record, once.

        Parameters
        ----------
        fold : array of int, shape (n,)
            0 to n_splits - 1, or -1.
        n_splits : int
        told : Message
            What the coordinator told all sites to divide by.
        movable : int, optional
            Patients in the smallest part that another plan could put into another fold. Unmasked it must not be of
            few: two plans would tell of them. By default nothing less than a fold can be moved.
        keyed : bool, default False
            Whether a key that the coordinator lacks decides who is in a part.
        """
        if self.state is not None:
            raise ConfigurationError("the records are divided already", where=self.method, mend="Make a plan anew.")
        digest = hashlib.sha256(encode(told)).hexdigest()
        least = self.n_patients(np.ones(len(self.data), dtype=np.bool_)) if movable is None else movable
        source, folds = self.source_of(told), np.asarray(fold, dtype=np.int64)
        self.state = sent.Folds(folds, n_splits, digest, least, source, keyed, 0, counted=False)

    def patients_by(self, name: str) -> Integers:
        """Return a number for each record's patient, shape (n,); records without an identifier are patients apart."""
        if not name:
            return np.arange(len(self.data))
        return number_patients(self.identifiers(name))

    def n_patients(self, chosen: Flags) -> int:
        """Return how many patients have a record among those chosen, as far as the site knows.

        Parameters
        ----------
        chosen : array of bool, shape (n,)
        """
        return int(count_patients(chosen.astype(np.int64) - 1, 1, self.persons)[0])

    @property
    def _settled(self) -> sent.Folds:
        if self.state is None:
            raise ConfigurationError("the records are not divided yet", where=self.method, mend="Make a plan anew.")
        return self.state

    def _enough(self, settled: sent.Folds) -> tuple[Flags, Flags]:
        """Return whether enough patients have a record in each fold, and whether enough have one in another."""
        known = settled.fold, settled.n_splits, self.persons
        least = max(self.least_behind, 1)
        return count_patients(*known) >= least, count_patients_outside(*known) >= least

    def _spared(self, settled: sent.Folds) -> sent.Folds:
        sizes = count_patients(settled.fold, settled.n_splits, self.persons)
        if not ((sizes > 0) & (sizes < self.least_behind)).any():
            return settled
        order = self.generator(0, int(self.data.digest()[:16], 16)).permutation(len(settled.fold))
        fold = spare_few(settled.fold, settled.n_splits, self.least_behind, order, self.persons)
        n_left = int((fold < 0).sum() - (settled.fold < 0).sum())
        return replace(settled, fold=fold, left_out=settled.left_out + n_left)

    def _check_sizes(self, settled: sent.Folds) -> None:
        sizes = count_patients(settled.fold, settled.n_splits, self.persons)
        n_excluded = self.n_patients(settled.fold < 0)
        smallest = min([int(size) for size in (*sizes, n_excluded, settled.movable) if size], default=0)
        if smallest < self.least_behind:
            raise DisclosureRefused(
                f"a fold, or what is in none, has fewer than {self.least_behind} of this site's patients",
                where=self.site,
                mend="Take fewer folds, mask the sums (secure_sum=True), or leave the site out.",
            )


def number_patients(known: Sequence[str | None]) -> Integers:
    """Return a number for each record's patient, shape (n,); records without an identifier are patients apart.

    Examples
    --------
    >>> number_patients(["b", None, "a", "b", None]).tolist()
    [1, 2, 0, 1, 3]
    """
    apart = [f"record {row:09d}" if one is None else f"patient {one}" for row, one in enumerate(known)]
    return np.unique(apart, return_inverse=True)[1].astype(np.int64)


def count_table(group: Integers, strata: Integers, n_groups: int, n_strata: int) -> Integers:
    """Return records by group and class, shape (n_groups, n_strata); those of group -1 are left out.

    Examples
    --------
    >>> count_table(np.array([0, 1, 1, -1]), np.array([1, 0, 1, 1]), 2, 2).tolist()
    [[0, 1], [1, 1]]
    """
    table = np.zeros((n_groups, n_strata), dtype=np.int64)
    np.add.at(table, (group[group >= 0], strata[group >= 0]), 1)
    return table
