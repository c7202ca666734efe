"""Folds beside the patients: what every strategy shares. The fold of a record never leaves its site."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, DisclosureRefused
from multicentre.federation.messages import Length, Lengths, Message, Nothing, array, count, flag, number, text, texts
from multicentre.federation.steps import Pieces, Release, step
from multicentre.federation.wire import encode
from multicentre.linkage.keys.audited import AuditedPart
from multicentre.linkage.persons import Persons, outcome_strata
from multicentre.validation.folds.crowds import count_patients, count_patients_outside, spare_few

Integers = NDArray[np.int64]

MOST_RECORDS = 2.0**31

MOST_SPLITS = 100


@dataclass(frozen=True)
class Folds(Message):
    """The fold of every record, which stays where it was made."""

    fold: Integers = array("fold of each record, -1 for none", ("n",), dtype="i8")
    n_splits: int = count("number of folds")
    digest: str = text("what the site was told to divide by, as a hash")
    movable: int = count("patients in the smallest part that another plan could put elsewhere")
    source: str = text("what the parts come from, the same for all plans that can differ by a part; empty for none")
    keyed: bool = flag("whether a key that the coordinator lacks decides who is in a part")
    left_out: int = count("records that are in no fold for too few patients were in theirs")
    counted: bool = flag("whether the folds were found large enough")


@dataclass(frozen=True)
class Drawing(Message):
    """How to draw folds at random."""

    n_splits: int = count("number of folds")
    seed: int = count("seed of the site's own draw")
    patient_key: str = text("identifiers by which a site knows the records of one patient; empty for none")


@dataclass(frozen=True)
class Roster(Message):
    """All sites, each a fold of its own."""

    sites: tuple[str, ...] = texts("names of the sites, in the order of the folds")


@dataclass(frozen=True)
class Marking(Persons):
    """Into how many buckets people are hashed, to find those at several sites."""

    n_buckets: int = count("number of buckets")


@dataclass(frozen=True)
class Unshared(Persons):
    """All sites, each a fold of its own, and which people are left out of all."""

    roster: tuple[str, ...] = texts("names of the sites, in the order of the folds")
    shared: NDArray[np.bool_] = array("whether people of several sites are in a bucket", ("B",), dtype="b1")


@dataclass(frozen=True)
class RecordCount(Release):
    """How many records a site has."""

    records: float = number("records", unit="records", bound=MOST_RECORDS)


@dataclass(frozen=True)
class Occupied(Release):
    """How many sites have somebody in a bucket of the keyed hash."""

    sites: Integers = array("sites with somebody, by bucket", ("B",), dtype="i8", unit="sites", bound=1.0)


@dataclass(frozen=True)
class Hashing(Persons):
    """By what people are hashed, the same at all sites."""

    n_splits: int = count("number of folds")
    repeat: int = count("number of the repeat, part of what is hashed")
    patient_key: str = text("identifiers by which a site knows the records of one patient; empty for none")
    stratify: bool = flag("whether classes of the outcome are told apart")


@dataclass(frozen=True)
class Bucketing(Hashing):
    """Into how many buckets people are hashed."""

    n_buckets: int = count("number of buckets")


@dataclass(frozen=True)
class Packing(Hashing):
    """Which fold each bucket belongs to."""

    fold_of_bucket: Integers = array("fold of each bucket", ("B",), dtype="i8")


@dataclass(frozen=True)
class KeyTold(Release):
    """What a site holds apart from its patients."""

    concerns_patients: ClassVar[bool] = False
    fingerprint: str = text("eight digits that are the same for the same key; empty without one")
    spares_few: bool = flag("whether the site's policy asks for a minimum of patients")
    n_classes: int = count("classes of the outcome")
    identifier: str = text("name of the column that the default name of identifiers stands for")


@dataclass(frozen=True)
class Survey(Release):
    """How many records can be divided."""

    records: float = number("records", unit="records", bound=MOST_RECORDS)
    missing: float = number("records without an identifier", unit="records", bound=MOST_RECORDS)
    crowded: float = number("sites where many records share one identifier", bound=1.0)


@dataclass(frozen=True)
class Crowding(Release):
    """Whether many records of a site share one identifier."""

    crowded: bool = flag("whether one identifier is that of many more records than others are")


@dataclass(frozen=True)
class Fineness(Release):
    """How finely a site's records may be counted unmasked."""

    n_buckets: int = count("most buckets none of whose counts is of few patients; 0 for none")


@dataclass(frozen=True)
class BucketTable(Release):
    """Records by bucket of the keyed hash and class of the outcome."""

    records: Integers = array(
        "records, by bucket and class", ("B", "C"), dtype="i8", unit="records", bound=MOST_RECORDS
    )


@dataclass(frozen=True)
class FoldCounts(Release):
    """Records by fold and class of the outcome, and those in no fold."""

    records: Integers = array(
        "records, by fold and class", ("K", "C"), dtype="i8", unit="records", bound=MOST_RECORDS, counts=True
    )
    excluded: float = number("records in no fold", unit="records", bound=MOST_RECORDS)
    sites: Integers = array("sites with enough patients in and outside a fold", ("K",), dtype="i8", bound=1.0)
    left_out: float = number("those of them that were in folds of few patients", unit="records", bound=MOST_RECORDS)


@dataclass(frozen=True)
class DigestTold(Release):
    """What a site divided by, as a hash."""

    concerns_patients: ClassVar[bool] = False
    digest: str = text("hash of what the site divided by")
    n_classes: int = count("classes of the outcome")


@dataclass(frozen=True)
class Presence(Release):
    """For which folds a site has as many patients as its policy asks for."""

    inside: NDArray[np.bool_] = array("whether there are enough in the fold", ("K",), dtype="b1")
    outside: NDArray[np.bool_] = array("whether there are enough in the other folds", ("K",), dtype="b1")


Flags = NDArray[np.bool_]


class FoldPart(AuditedPart):
    """Base of the site parts that divide records into folds.

    A strategy adds a step that works out the fold of every record and hands it to :meth:`settle`.
    """

    remembers: ClassVar[type[Message]] = Folds
    lengths: ClassVar[Lengths] = {
        "K": Length("folds", "n_splits"),
        "C": "classes of the outcome",
        "B": "buckets that persons are hashed into",
        "b": "parts that the covariate is cut into, or sub-cells of a cell in which thresholds are looked for",
    }
    state: Folds | None = None

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

    @step(releases=DigestTold, when="once")
    def tell_digest(self, ask: Nothing) -> DigestTold:
        """Tell by what the site divided its records, as a hash."""
        return DigestTold(self._settled.digest, outcome_strata(self.data)[1])

    @step(releases=FoldCounts, when="once", summed=True)
    def count_folds(self, ask: Nothing) -> FoldCounts:
        """Count records by fold and class of the outcome; folds of few patients are refused unmasked, else emptied."""
        settled = self._spared(self._settled) if self.masked else self._settled
        strata, n_strata = outcome_strata(self.data)
        table = count_table(settled.fold, strata, settled.n_splits, n_strata)
        if not self.masked:
            self._check_sizes(settled)
        self.state = replace(settled, counted=True)
        inside, outside = self._enough(settled)
        return FoldCounts(
            table,
            float((settled.fold < 0).sum()),
            (inside & outside).astype(np.int64),
            float(settled.left_out),
            patients=len(strata) if self.masked else int(table[table > 0].min(initial=len(strata))),
        )

    @step(releases=Presence, when="on request")
    def tell_presence(self, ask: Nothing) -> Presence:
        """Tell for which counted folds the site has as many patients as its policy asks for, in them and outside."""
        settled = self._settled
        if not settled.counted:
            raise ConfigurationError("the folds are not counted yet", where=self.method, hint="Make a plan anew.")
        if settled.movable < self.least_behind and not settled.keyed:
            raise DisclosureRefused(
                "for which folds this site has enough patients would tell of values that few of them have",
                where=self.site,
                hint='Take fewer folds, so that it has enough in each, or a hash (HashGroupKFold, scheme="hash").',
            )
        return Presence(*self._enough(settled), patients=len(self.data))

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
            raise ConfigurationError("the records are divided already", where=self.method, hint="Make a plan anew.")
        digest = hashlib.sha256(encode(told)).hexdigest()
        least = self.n_patients(np.ones(len(self.data), dtype=np.bool_)) if movable is None else movable
        source, folds = self.source_of(told), np.asarray(fold, dtype=np.int64)
        self.state = Folds(folds, n_splits, digest, least, source, keyed, 0, counted=False)

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
    def _settled(self) -> Folds:
        if self.state is None:
            raise ConfigurationError("the records are not divided yet", where=self.method, hint="Make a plan anew.")
        return self.state

    def _enough(self, settled: Folds) -> tuple[Flags, Flags]:
        """Return whether enough patients have a record in each fold, and whether enough have one in another."""
        known = settled.fold, settled.n_splits, self.persons
        least = max(self.least_behind, 1)
        return count_patients(*known) >= least, count_patients_outside(*known) >= least

    def _spared(self, settled: Folds) -> Folds:
        sizes = count_patients(settled.fold, settled.n_splits, self.persons)
        if not ((sizes > 0) & (sizes < self.least_behind)).any():
            return settled
        order = self.generator(0, int(self.data.digest()[:16], 16)).permutation(len(settled.fold))
        fold = spare_few(settled.fold, settled.n_splits, self.least_behind, order, self.persons)
        n_left = int((fold < 0).sum() - (settled.fold < 0).sum())
        return replace(settled, fold=fold, left_out=settled.left_out + n_left)

    def _check_sizes(self, settled: Folds) -> None:
        sizes = count_patients(settled.fold, settled.n_splits, self.persons)
        n_excluded = self.n_patients(settled.fold < 0)
        smallest = min([int(size) for size in (*sizes, n_excluded, settled.movable) if size], default=0)
        if smallest < self.least_behind:
            raise DisclosureRefused(
                f"a fold, or what is in none, has fewer than {self.least_behind} of this site's patients",
                where=self.site,
                hint="Take fewer folds, mask the sums (secure_sum=True), or leave the site out.",
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
