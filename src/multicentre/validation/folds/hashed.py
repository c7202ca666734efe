"""Folds that keep all records of one person together, wherever they lie: by a keyed hash of an identifier."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.identifiers import IDENTIFIER, Identifiers
from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import ConfigurationError, DataError, RefusedByPolicy
from multicentre.federation.messages import Message, array, flag
from multicentre.privacy.normalisation import NORMALISATION, DateOrder, Kind
from multicentre.privacy.pseudonyms import PseudonymKey
from multicentre.privacy.secrets import Secret
from multicentre.validation.folds import messages as sent
from multicentre.validation.folds.keyed import HashedFolds, count_table, hash_people
from multicentre.validation.folds.packing import bucket_number, pack_buckets
from multicentre.validation.folds.site import FoldPart, number_patients
from multicentre.validation.folds.splitter import FoldSplitter, check_classes, checked_splits, needed_groups
from multicentre.validation.folds.strata import array_strata

Integers = NDArray[np.int64]
FEW_TO_BALANCE = 4


class HashGroupKFold(FoldSplitter):
    """Folds by a keyed hash of who a record is about: one person's records are in one fold, at whichever sites they lie.

    Parameters
    ----------
    n_splits : int, default 5
        Folds, from 2 to 100.
    person_key : str, default "identifier"
        Column of identifiers that are the same at all sites: a national number, a birth date.
    kind : {"identifier", "name", "date", "nhs-number", "nir", "combined"}, default "identifier"
        How they are normalised, see :func:`multicentre.privacy.normalisation.normalise`.
    date_order : {"iso", "ymd", "dmy", "mdy"} or mapping of str to these, default "iso"
        How dates are written, at all sites or by site; sites left out of a mapping write "iso".
    patient_key : str, optional
        Column by which a site knows the records of one patient. They take the identifier that most of them have.
    stratify : bool, default True
        Make folds alike in the classes of the outcome; else in size alone.
    study : str, optional
        Name that the hash depends on; the federation's own by default.
    repeat : int, default 0
        Another number gives other folds.
    max_missing : float, default 0.01
        Largest share of records without an identifier; they are in no fold.
    key : PseudonymKey, optional
        For arrays alone: sites of a federation use a key of their own. By default one that follows from `study`.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> people = {"lyon": range(0, 200), "oslo": range(100, 300)}
    >>> sites = {
    ...     name: mc.data.TableData(rng.normal(size=(200, 2)), np.arange(200) % 2, [f"p{number}" for number in numbers])
    ...     for name, numbers in people.items()
    ... }
    >>> plan = HashGroupKFold(4).plan(mc.Federation.in_process(sites, secure_sum=True))
    >>> plan.duplicate_safe, plan.counts.tolist()
    (True, [100.0, 100.0, 100.0, 100.0])
    """

    site_part: ClassVar[type[FoldPart]] = HashedFolds
    duplicate_safe: ClassVar[bool] = True

    def __init__(
        self,
        n_splits: int = 5,
        *,
        person_key: str = IDENTIFIER,
        kind: Kind = "identifier",
        date_order: DateOrder | Mapping[str, DateOrder] = "iso",
        patient_key: str | None = None,
        stratify: bool = True,
        study: str | None = None,
        repeat: int = 0,
        max_missing: float = 0.01,
        key: PseudonymKey | None = None,
    ) -> None:
        self.n_splits = n_splits
        self.person_key = person_key
        self.kind = kind
        self.date_order = date_order
        self.patient_key = patient_key
        self.stratify = stratify
        self.study = study
        self.repeat = repeat
        self.max_missing = max_missing
        self._key = key

    def _told(self, study: str, within: str = "") -> sent.Hashing:
        orders = self.date_order if isinstance(self.date_order, Mapping) else {}
        return sent.Hashing(
            n_splits=checked_splits(self.n_splits),
            study=self.study or study,
            repeat=self.repeat,
            within=within,
            person_key=self.person_key,
            kind=self.kind,
            rules=NORMALISATION,
            sites=tuple(orders),
            date_orders=tuple(orders.values()),
            date_order="iso" if orders or not isinstance(self.date_order, str) else self.date_order,
            patient_key=self.patient_key or "",
            stratify=bool(self.stratify),
        )

    def _divide(self, federation: Federation) -> Mapping[str, object]:
        told = self._told(federation.terms.study, _outer_folds(federation))
        exact = federation.once("agreed", _Agreed, lambda: _agree(federation, told)).exact
        surveyed = federation.once("surveyed", sent.Survey, lambda: federation.sum(HashedFolds.count_missing, told))
        self._check_survey(federation, told, surveyed)
        packed = federation.once("packed", _Packed, lambda: _pack(federation, told, round(surveyed.records), exact))
        return {"n_buckets": len(packed.fold_of_bucket), "balanced": packed.balanced}

    def _check_survey(self, federation: Federation, told: sent.Hashing, surveyed: sent.Survey) -> None:
        check_missing(round(surveyed.missing), round(surveyed.records), self.max_missing, self.person_key)
        if surveyed.crowded:
            warnings.warn(
                f"{_crowded_sites(federation, told)}: many more records share one value of {self.person_key!r} than "
                "others do, which may stand for a value that is not known; they are all in one fold",
                stacklevel=5,
            )

    def _folds(self, X: NDArray[Any], y: NDArray[Any] | None, groups: NDArray[Any] | None) -> Integers:
        told = self._told("study")
        given = needed_groups(groups, "identifiers")
        values, patients = _columns(given, told)
        known = hash_people(values, patients, self._key or _simulated(told.study), told, told.date_order)
        check_missing(known.n_missing, len(known), self.max_missing, "groups")
        strata, n_strata = array_strata(y, len(known)) if told.stratify else (np.zeros(len(known), dtype=np.int64), 1)
        n_buckets = bucket_number(len(known), told.n_splits)
        bucket = known.buckets(n_buckets)
        packed = pack_buckets(count_table(bucket, strata, n_buckets, n_strata), told.n_splits)
        return np.where(bucket < 0, -1, packed[bucket])


def check_missing(n_missing: int, n_records: int, max_missing: float, where: str) -> None:
    """Raise DataError if more records than `max_missing`, as a share, have no identifier."""
    if n_missing > max_missing * n_records:
        raise DataError(
            f"{n_missing} of {n_records} records have no identifier",
            where=where,
            mend="Complete them at the sites, or allow more with max_missing; these records will be in no fold.",
        )


@dataclass(frozen=True)
class _Agreed(Message):
    """Whether small counts of a site may go into the sums."""

    exact: bool = flag("whether all counts may be told")


@dataclass(frozen=True)
class _Packed(Message):
    """The fold of each bucket."""

    fold_of_bucket: Integers = array("fold of each bucket", ("B",), dtype="i8")
    balanced: bool = flag("whether buckets were packed by their counts")


def _agree(federation: Federation, told: sent.Hashing) -> _Agreed:
    answers = federation.ask(HashedFolds.tell_key, told)
    check_keys({site: answer.fingerprint for site, answer in answers.items()})
    check_classes({site: answer.n_classes for site, answer in answers.items()})
    spares_few = any(answer.spares_few for answer in answers.values())
    return _Agreed(federation.protection == "masked" or not spares_few)


def _pack(federation: Federation, told: sent.Hashing, n_records: int, exact: bool) -> _Packed:
    n_buckets = bucket_number(n_records, told.n_splits) if exact else _finest(federation, told)
    balanced = n_buckets >= FEW_TO_BALANCE * told.n_splits
    if balanced:
        table = federation.sum(HashedFolds.count_buckets, sent.Bucketing(**_fields(told), n_buckets=n_buckets))
        fold_of_bucket = pack_buckets(table.records, told.n_splits)
    else:
        fold_of_bucket = np.arange(told.n_splits, dtype=np.int64)
    federation.ask(HashedFolds.assign, sent.Packing(**_fields(told), fold_of_bucket=fold_of_bucket))
    return _Packed(fold_of_bucket, balanced)


def _finest(federation: Federation, told: sent.Hashing) -> int:
    return min(answer.n_buckets for answer in federation.ask(HashedFolds.tell_fineness, told).values())


def _fields(told: sent.Hashing) -> dict[str, Any]:
    return {name: getattr(told, name) for name in sent.Hashing.declarations()}


def _outer_folds(federation: Federation) -> str:
    """Return the folds that a federation was selected by, outermost first; empty for a whole one."""
    selection, folds = federation._selection, []
    while selection is not None:
        folds.append(".".join(map(str, sorted(selection.folds))))
        selection = selection.within
    return "/".join(reversed(folds))


def _crowded_sites(federation: Federation, told: sent.Hashing) -> str:
    try:
        answers = federation.ask(HashedFolds.tell_crowding, told)
    except RefusedByPolicy:
        return "a site"
    return ", ".join(site for site, answer in answers.items() if answer.crowded)


def check_keys(fingerprints: Mapping[str, str]) -> None:
    """Check that all sites hold the same key.

    Raises
    ------
    ConfigurationError
        Sites have none, or another one than most; the error names them.

    Examples
    --------
    >>> check_keys({"lyon": "1f0a77c2", "oslo": "1f0a77c2"})
    """
    without = [site for site, mark in fingerprints.items() if not mark]
    if without:
        raise ConfigurationError(
            "there is no key of pseudonyms",
            where=", ".join(without),
            mend="One site generates the study's key and hands it to the others; the coordinator never has it.",
        )
    [(commonest, n_sites), *others] = Counter(fingerprints.values()).most_common()
    if others:
        is_tie = others[0][1] == n_sites
        strangers = [site for site, mark in fingerprints.items() if is_tie or mark != commonest]
        raise ConfigurationError(
            "the sites hold different keys of pseudonyms, and one person would have several pseudonyms",
            where=", ".join(strangers),
            mend="Compare PseudonymKey.fingerprint(study) and hand over the right key.",
        )


def _columns(groups: NDArray[Any], told: sent.Hashing) -> tuple[list[str | None], Integers | None]:
    """Return identifiers, and numbers of patients where they are told apart, of arrays."""
    wanted = 2 if told.patient_key else 1
    columns = groups.reshape(len(groups), -1)
    if columns.shape[1] != wanted:
        raise ConfigurationError(
            "one column of identifiers is needed, and with patient_key a second one of patients", where="groups"
        )
    person, *patient = (Identifiers(list(column)).column(IDENTIFIER) for column in columns.T)
    return person, number_patients(patient[0]) if patient else None


def _simulated(study: str) -> PseudonymKey:
    return PseudonymKey(Secret(hashlib.sha256(f"simulated/{study}".encode()).digest()))
