"""Folds by a keyed hash of an identifier, which keep all records of a person together across sites."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.session import Session
from multicentre.data.identifiers import IDENTIFIER, Identifiers
from multicentre.errors import ConfigurationError
from multicentre.linkage.persons import array_strata
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.identifier_normalisation import NORMALISATION, DateOrder, Kind
from multicentre.validation.folds.keyed import HashedFolds, hash_people
from multicentre.validation.folds.plan import FoldPlan, bucket_number, pack_buckets
from multicentre.validation.folds.rounds import (
    Packed,
    Prepared,
    RepeatedIdentifiers,
    agree,
    check_missing,
    find_crowded,
    pack,
)
from multicentre.validation.folds.site import FoldPart, Hashing, Survey, count_table, number_patients
from multicentre.validation.folds.splitter import FoldSplitter, checked_splits, needed_groups

Integers = NDArray[np.int64]
# Largest number of repeats; each splits the records at all sites again.
MAX_REPEATS = 1000


class HashGroupKFold(FoldSplitter):
    """Folds by a keyed hash of an identifier: all records of one person are in one fold, at all sites.

    Parameters
    ----------
    n_splits : int, default 5
        Number of folds, from 2 to 100.
    person_key : str, default "identifier"
        Column of identifiers that are the same at all sites, such as a national number or a birth date. The default is
        the only column of identifiers, whatever its name.
    kind : {"identifier", "name", "date", "nhs-number", "nir", "combined"}, default "identifier"
        Normalisation of identifiers, see :func:`multicentre.privacy.identifier_normalisation.normalise`.
    date_order : {"iso", "ymd", "dmy", "mdy"} or mapping of str to these, default "iso"
        Format of dates, at all sites or by site; sites that are not in a mapping use "iso".
    patient_key : str, optional
        Column that identifies a patient at a site. The records of a patient use their most common identifier.
    stratify : bool, default True
        Balance folds by classes of the outcome; otherwise by size only.
    study : str, optional
        Name that enters the hash; by default that of the federation.
    repeat : int, default 0
        Number of the repeat; different numbers give different folds.
    max_missing : float, default 0.01
        Largest permitted share of records without an identifier. They have no fold.
    key : PseudonymKey, optional
        Key for splits of arrays; sites of a federation use their key. By default it is derived from `study`.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> people = {"lyon": range(0, 200), "oslo": range(100, 300)}
    >>> sites = {
    ...     name: mc.data.TableData(rng.normal(size=(200, 2)), np.arange(200) % 2, [f"p{number}" for number in numbers])
    ...     for name, numbers in people.items()
    ... }
    >>> plan = HashGroupKFold(4).plan(mc.Federation.in_process(sites))
    >>> plan.duplicate_safe, plan.counts.tolist()
    (True, [100.0, 99.0, 99.0, 102.0])
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
        self._lost_key = False

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_key": None, "_lost_key": self._lost_key or self._key is not None}

    def __deepcopy__(self, memory: dict[int, Any]) -> Self:
        duplicate = object.__new__(type(self))
        duplicate.__dict__.update(copy.deepcopy(vars(self), memory))
        return duplicate

    def _request(self, study: str) -> Hashing:
        orders = self.date_order if isinstance(self.date_order, Mapping) else {}
        return Hashing(
            n_splits=checked_splits(self.n_splits),
            study=self.study or study,
            repeat=self.repeat,
            person_key=self.person_key,
            kind=self.kind,
            rules=NORMALISATION,
            sites=tuple(orders),
            date_orders=tuple(orders.values()),
            date_order="iso" if isinstance(self.date_order, Mapping) else str(self.date_order),
            patient_key=self.patient_key or "",
            stratify=bool(self.stratify),
        )

    def _divide(self, session: Session) -> Mapping[str, object]:
        hashing = self._request(session.terms.study)
        if (strangers := sorted(set(hashing.sites) - set(session.sites))) and session.selection is None:
            raise ConfigurationError(
                f"date_order must name participating sites; got {', '.join(strangers)}",
                where="date_order",
                hint=f"The participating sites are {', '.join(session.sites)}.",
            )
        exact = session.once("agreed", Prepared, lambda: agree(session, hashing)).exact
        survey = session.once("surveyed", Survey, lambda: session.sum(HashedFolds.count_missing, hashing))
        self._check_survey(session, hashing, survey)
        packed = session.once("packed", Packed, lambda: pack(session, hashing, round(survey.records), exact))
        return {"n_buckets": len(packed.fold_of_bucket), "balanced": packed.balanced}

    def _check_survey(self, session: Session, hashing: Hashing, survey: Survey) -> None:
        check_missing(round(survey.missing), round(survey.records), self.max_missing, self.person_key)
        if survey.crowded:
            sites = session.once("crowded", RepeatedIdentifiers, lambda: find_crowded(session, hashing)).sites
            warnings.warn(
                f"{', '.join(sites)}: one value of {self.person_key!r} has many more records than the others, for "
                "example a placeholder for missing identifiers; these records are all in one fold",
                stacklevel=4,
            )

    def _folds(self, X: NDArray[Any], y: NDArray[Any] | None, groups: NDArray[Any] | None) -> Integers:
        hashing, group_columns = self._request("study"), needed_groups(groups, "identifiers")
        if hashing.sites:
            raise ConfigurationError(
                "date_order must be a text for arrays; got a mapping",
                where="date_order",
                hint='Pass one order, such as "dmy".',
            )
        values, patients = _columns(group_columns, hashing)
        people = hash_people(values, patients, self._array_key(hashing.study), hashing, hashing.date_order)
        check_missing(people.n_missing, len(people), self.max_missing, "groups")
        strata, n_strata = (
            array_strata(y, len(people)) if hashing.stratify else (np.zeros(len(people), dtype=np.int64), 1)
        )
        n_buckets = bucket_number(len(people), hashing.n_splits)
        bucket = people.buckets(n_buckets)
        packed = pack_buckets(count_table(bucket, strata, n_buckets, n_strata), hashing.n_splits)
        return np.where(bucket < 0, -1, packed[bucket])

    def _array_key(self, study: str) -> PseudonymKey:
        if self._lost_key:
            raise ConfigurationError(
                "the splitter must have its key for arrays; it is a copy, and keys are not copied",
                where="key",
                hint="Create the splitter in the process that uses it.",
            )
        return self._key or PseudonymKey.simulated(study)


class RepeatedHashGroupKFold(HashGroupKFold):
    """Repeated folds by a keyed hash: different folds in every repeat, with the same guarantee.

    Parameters
    ----------
    n_splits : int, default 5
        Number of folds per repeat.
    n_repeats : int, default 2
        Number of repeats, from 1 to 1000.
    **hashing
        Other parameters of :class:`HashGroupKFold`; `repeat` is the number of the first plan.

    Examples
    --------
    >>> people = np.arange(60) % 40
    >>> splits = list(RepeatedHashGroupKFold(4, 3).split(np.zeros((60, 1)), groups=people))
    >>> len(splits), sum(len(test) for _, test in splits)
    (12, 180)
    """

    def __init__(self, n_splits: int = 5, n_repeats: int = 2, **hashing: Any) -> None:
        super().__init__(n_splits, **hashing)
        self.n_repeats = n_repeats

    def plans(self, federation: Consortium) -> list[FoldPlan]:
        """Return one plan per repeat."""
        return [repeat.plan(federation) for repeat in self._repeats()]

    def get_n_splits(self, X: object = None, y: object = None, groups: object = None) -> int:
        """Return the number of folds of all repeats."""
        return self.n_splits * len(self._repeats())

    def split(
        self, X: ArrayLike, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Iterator[tuple[Integers, Integers]]:
        """Yield rows for training and rows for testing of every fold of every repeat, on arrays."""
        for repeat in self._repeats():
            yield from repeat.split(X, y, groups)

    def _repeats(self) -> list[HashGroupKFold]:
        if int(self.n_repeats) != self.n_repeats or not 1 <= self.n_repeats <= MAX_REPEATS:
            raise ConfigurationError(
                f"n_repeats must be an integer from 1 to {MAX_REPEATS}; got {self.n_repeats}",
                where="n_repeats",
                hint="Example: 2.",
            )
        return [self._once(self.repeat + place) for place in range(self.n_repeats)]

    def _once(self, repeat: int) -> HashGroupKFold:
        splitter = object.__new__(HashGroupKFold)
        splitter.__dict__.update({name: value for name, value in vars(self).items() if name != "n_repeats"})
        splitter.repeat = repeat
        return splitter


def _columns(groups: NDArray[Any], hashing: Hashing) -> tuple[list[str | None], Integers | None]:
    """Return the identifiers of arrays, and the numbers of patients if there is a column of patients."""
    n_columns = 2 if hashing.patient_key else 1
    columns = groups.reshape(len(groups), -1)
    if columns.shape[1] != n_columns:
        raise ConfigurationError(
            f"groups must have {n_columns} column(s); got {columns.shape[1]}",
            where="groups",
            hint="Pass the identifiers and, with patient_key, a second column of patients.",
        )
    person, *patient = (Identifiers(list(column)).column(IDENTIFIER) for column in columns.T)
    return person, number_patients(patient[0]) if patient else None
