"""Base of the site parts of splitters. The fold of a record does not leave its site."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.calls import Protection, suggest_masks
from multicentre.core.messages import Length, Lengths, Message, Nothing, array, count, flag, number, text, texts
from multicentre.core.steps import Pieces, Release, step
from multicentre.core.wire import encode
from multicentre.errors import ConfigurationError, DisclosureRefused
from multicentre.linkage.keys.fold_check_site import AuditedPart
from multicentre.linkage.persons import Persons, outcome_strata
from multicentre.validation.folds.group_sizes import count_patients, count_patients_outside, spare_few

Integers = NDArray[np.int64]

# Largest number of records of a site, for masking: about 2 billion, far more than a site has.
MAX_RECORDS = 2.0**31

# Largest number of folds; bounds the number of fits, and more folds give no better estimate.
MAX_SPLITS = 100


@dataclass(frozen=True)
class Folds(Message):
    """State of a site: the fold of every record, which does not leave the site."""

    fold: Integers = array("fold of each record, -1 for none", ("n",), dtype="i8")
    n_splits: int = count("number of folds")
    digest: str = text("hash of the parameters of the split")
    movable: int = count("patients in the smallest part that another plan could put into another fold")
    source: str = text("origin of the parts, the same for all plans that can differ by a part; empty without parts")
    keyed: bool = flag("parts depend on a key that the coordinator does not have")
    left_out: int = count("records without a fold because of too few patients in it")
    counted: bool = flag("the folds were counted and are large enough")


@dataclass(frozen=True)
class Drawing(Message):
    """Parameters of random folds."""

    n_splits: int = count("number of folds")
    seed: int = count("seed of the site's draw")
    patient_key: str = text("column that identifies a patient at a site; empty for none")


@dataclass(frozen=True)
class Roster(Message):
    """Roster of the sites, one fold per site."""

    sites: tuple[str, ...] = texts("names of the sites, in the order of the folds")


@dataclass(frozen=True)
class Marking(Persons):
    """Hash of people into buckets, to find those at several sites."""

    n_buckets: int = count("number of buckets")


@dataclass(frozen=True)
class Unshared(Persons):
    """Roster of the sites, one fold per site, and the people who are left out."""

    roster: tuple[str, ...] = texts("names of the sites, in the order of the folds")
    shared: NDArray[np.bool_] = array("buckets with people of several sites", ("B",), dtype="b1")


@dataclass(frozen=True)
class RecordCount(Release):
    """Number of records of a site."""

    records: float = number("records", unit="records", bound=MAX_RECORDS)


@dataclass(frozen=True)
class Occupied(Release):
    """Number of sites with somebody in a bucket of the keyed hash."""

    sites: Integers = array("sites with somebody, by bucket", ("B",), dtype="i8", unit="sites", bound=1.0)


@dataclass(frozen=True)
class Hashing(Persons):
    """Parameters of the hash of people, the same at all sites."""

    n_splits: int = count("number of folds")
    repeat: int = count("number of the repeat, which enters the hash")
    patient_key: str = text("column that identifies a patient at a site; empty for none")
    stratify: bool = flag("balance folds by classes of the outcome")


@dataclass(frozen=True)
class Bucketing(Hashing):
    """Hash of people into a number of buckets."""

    n_buckets: int = count("number of buckets")


@dataclass(frozen=True)
class Packing(Hashing):
    """Fold of each bucket."""

    fold_of_bucket: Integers = array("fold of each bucket", ("B",), dtype="i8")


@dataclass(frozen=True)
class KeyFacts(Release):
    """Properties of a site that do not concern its patients."""

    concerns_patients: ClassVar[bool] = False
    fingerprint: str = text("eight digits that identify the key; empty without a key")
    spares_few: bool = flag("the site's policy requires a minimum of patients")
    n_classes: int = count("classes of the outcome")
    identifier: str = text("name of the default column of identifiers")


@dataclass(frozen=True)
class Survey(Release):
    """Numbers of records with and without an identifier."""

    records: float = number("records", unit="records", bound=MAX_RECORDS)
    missing: float = number("records without an identifier", unit="records", bound=MAX_RECORDS)
    crowded: float = number("sites where many records share one identifier", bound=1.0)


@dataclass(frozen=True)
class RecordsPerIdentifier(Release):
    """Flag of a site where many records share one identifier."""

    crowded: bool = flag("one identifier has many more records than others")


@dataclass(frozen=True)
class Fineness(Release):
    """Largest number of buckets in which a site's records may be counted unmasked."""

    n_buckets: int = count("largest number of buckets without a count of few patients; 0 for none")


@dataclass(frozen=True)
class BucketTable(Release):
    """Records by bucket of the keyed hash and class of the outcome."""

    records: Integers = array("records, by bucket and class", ("B", "C"), dtype="i8", unit="records", bound=MAX_RECORDS)


@dataclass(frozen=True)
class FoldCounts(Release):
    """Records by fold and class of the outcome, and those without a fold."""

    records: Integers = array(
        "records, by fold and class", ("K", "C"), dtype="i8", unit="records", bound=MAX_RECORDS, counts=True
    )
    excluded: float = number("records without a fold", unit="records", bound=MAX_RECORDS)
    sites: Integers = array("sites with enough patients in and outside a fold", ("K",), dtype="i8", bound=1.0)
    left_out: float = number(
        "records without a fold because of too few patients in it", unit="records", bound=MAX_RECORDS
    )


@dataclass(frozen=True)
class SplitDigest(Release):
    """Hash of the parameters of a site's split."""

    concerns_patients: ClassVar[bool] = False
    digest: str = text("hash of the parameters of the split")
    n_classes: int = count("classes of the outcome")


@dataclass(frozen=True)
class Presence(Release):
    """Folds for which a site has at least its policy's minimum of patients."""

    inside: NDArray[np.bool_] = array("there are enough patients in the fold", ("K",), dtype="b1")
    outside: NDArray[np.bool_] = array("there are enough patients in the other folds", ("K",), dtype="b1")


Flags = NDArray[np.bool_]


class FoldPart(AuditedPart):
    """Base of the site parts that split records into folds.

    A subclass adds a step that computes the fold of every record and passes it to :meth:`settle`.
    """

    remembers: ClassVar[type[Message]] = Folds
    lengths: ClassVar[Lengths] = {
        "K": Length("folds", "n_splits"),
        "C": "classes of the outcome",
        "B": "buckets that persons are hashed into",
        "b": "parts of the covariate, or sub-cells of a cell in which thresholds are searched",
    }
    state: Folds | None = None

    @property
    def folds(self) -> Integers | None:
        """Fold of each record; None before the folds were counted and are large enough."""
        return self.state.fold if self.state is not None and self.state.counted else None

    @property
    def division(self) -> str:
        """Hash of the parameters of the split; empty before the split."""
        return "" if self.state is None else self.state.digest

    @property
    def pieces(self) -> Pieces:
        """Smallest groups of records that another plan could put into other folds."""
        return Pieces("", 0) if self.state is None else Pieces(self.state.source, self.state.movable)

    def source_of(self, request: Message) -> str:
        """Return the origin of the parts of a split, the same for all splits that can differ by one part.

        Parameters
        ----------
        request : Message
            Request of the split.
        """
        return ""

    @step(releases=SplitDigest, when="once")
    def send_digest(self, request: Nothing) -> SplitDigest:
        """Return the hash of the parameters of the split."""
        return SplitDigest(self._settled.digest, outcome_strata(self.data)[1])

    @step(releases=FoldCounts, when="once", summed=True)
    def count_folds(self, request: Nothing) -> FoldCounts:
        """Count records by fold and class of the outcome. Folds of few patients are refused unmasked, else emptied."""
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
            patients=self.n_contributing(len(strata), table),
        )

    @step(releases=Presence, when="on request")
    def find_presence(self, request: Nothing) -> Presence:
        """Return the counted folds with at least the policy's minimum of patients, in the fold and outside."""
        settled = self._settled
        if not settled.counted:
            raise ConfigurationError(
                "the folds must be counted before this step; got uncounted folds",
                where=self.method,
                hint="Make a new plan.",
            )
        if settled.movable < self.least_behind and not settled.keyed:
            raise DisclosureRefused(
                f"the sizes of folds must depend on values of at least {self.least_behind} patients; they depend on "
                "fewer",
                where=self.site,
                hint="Use fewer folds, so that the site has enough patients in each, or a hash (HashGroupKFold, "
                'scheme="hash").',
            )
        return Presence(*self._enough(settled), patients=len(self.data))

    def settle(
        self, fold: Integers, n_splits: int, request: Message, *, movable: int | None = None, keyed: bool = False
    ) -> None:
        """Store the fold of every record, once per plan.

        Parameters
        ----------
        fold : array of int, shape (n,)
            0 to n_splits - 1, or -1.
        n_splits : int
        request : Message
            Request of the split, the same at all sites.
        movable : int, optional
            Number of patients in the smallest part that another plan could put into another fold. If sums are unmasked,
            the part must have enough patients, because two plans would disclose them. By default the parts are the
            folds.
        keyed : bool, default False
            The parts depend on a key that the coordinator does not have.
        """
        if self.state is not None:
            raise ConfigurationError(
                "the records must be split once per plan; they were split before",
                where=self.method,
                hint="Make a new plan.",
            )
        digest = hashlib.sha256(encode(request)).hexdigest()
        least = self.n_patients(np.ones(len(self.data), dtype=np.bool_)) if movable is None else movable
        source, folds = self.source_of(request), np.asarray(fold, dtype=np.int64)
        self.state = Folds(folds, n_splits, digest, least, source, keyed, 0, counted=False)

    def patients_by(self, name: str) -> Integers:
        """Return the number of each record's patient, shape (n,); records without an identifier are separate ones."""
        if not name:
            return np.arange(len(self.data))
        return number_patients(self.identifiers(name))

    def n_patients(self, selected: Flags) -> int:
        """Return the number of patients with a selected record; without identifiers of patients, the number of records.

        Parameters
        ----------
        selected : array of bool, shape (n,)
        """
        return int(count_patients(selected.astype(np.int64) - 1, 1, self.persons)[0])

    @property
    def _settled(self) -> Folds:
        if self.state is None:
            raise ConfigurationError(
                "the records must be split before this step; got records without folds",
                where=self.method,
                hint="Make a new plan.",
            )
        return self.state

    def _enough(self, settled: Folds) -> tuple[Flags, Flags]:
        """Flag folds with enough patients in the fold, and with enough patients in other folds."""
        folds_and_persons = settled.fold, settled.n_splits, self.persons
        least = max(self.least_behind, 1)
        return count_patients(*folds_and_persons) >= least, count_patients_outside(*folds_and_persons) >= least

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
        protection: Protection = "masked" if self.masked else "unmasked"
        if smallest < self.least_behind:
            raise DisclosureRefused(
                f"every fold, and the records without a fold, must have at least {self.least_behind} patients of this "
                "site, or none; got fewer",
                where=self.site,
                hint=suggest_masks(
                    "Use fewer folds, or leave the site out.", protection=protection, n_sites=self.n_peers
                ),
            )


def number_patients(identifiers: Sequence[str | None]) -> Integers:
    """Return the number of each record's patient, shape (n,); records without an identifier are separate patients.

    Examples
    --------
    >>> number_patients(["b", None, "a", "b", None]).tolist()
    [1, 2, 0, 1, 3]
    """
    names = [f"record {row:09d}" if one is None else f"patient {one}" for row, one in enumerate(identifiers)]
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


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
