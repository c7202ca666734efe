"""Folds by site (external validation), and random folds within sites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.calls import suggest_masks
from multicentre.core.messages import Message, Nothing
from multicentre.core.session import Session
from multicentre.core.steps import Acknowledgement, step
from multicentre.data.identifiers import IDENTIFIER
from multicentre.errors import ConfigurationError, DisclosureRefused, QuorumLost
from multicentre.linkage.persons import Persons, agree_on_key, describe_persons
from multicentre.linkage.pseudonyms import Pseudonyms
from multicentre.privacy.identifier_normalisation import DateOrder, Kind
from multicentre.validation.folds.keyed import hash_site, hash_terms, inside
from multicentre.validation.folds.site import (
    Drawing,
    FoldPart,
    Marking,
    Occupied,
    Presence,
    RecordCount,
    Roster,
    Unshared,
)
from multicentre.validation.folds.splitter import FoldSplitter, checked_splits, needed_groups

Integers = NDArray[np.int64]

# Largest number of sites; bounds the roster and the arrays with one row per fold.
MAX_SITES = 10_000

# About one record in 32 then shares a bucket with a record of another person.
BUCKETS_PER_RECORD = 32

_WHO_IS_HERE = "An unmasked answer discloses who is at this site."

# One number of 8 bytes per bucket: 32 MiB. From 131,072 records on, there are fewer than 32 buckets per record.
MAX_BUCKETS = 2**22


class SiteFolds(FoldPart):
    """Site part of folds by site."""

    method: ClassVar[str] = "site-folds"

    @step(releases=Acknowledgement, when="once")
    def take_place(self, request: Roster) -> Acknowledgement:
        """Put all records into the fold of this site."""
        place = self._place(request.sites)
        self.settle(np.full(len(self.data), place, dtype=np.int64), len(request.sites), request)
        return Acknowledgement()

    @step(releases=RecordCount, when="on request", summed=True)
    def count_records(self, request: Nothing) -> RecordCount:
        """Count records."""
        return RecordCount(float(len(self.data)), patients=len(self.data))

    @step(releases=Occupied, when="on request", summed=True)
    def mark_people(self, request: Marking) -> Occupied:
        """Mark the buckets of a keyed hash that contain one of this site's people, for masked sums only."""
        if not self.masked and self.least_behind > 1:
            raise DisclosureRefused(
                "an answer on persons must be masked; got an unmasked request",
                where=self.site,
                hint=suggest_masks(_WHO_IS_HERE, protection="unmasked", n_sites=self.n_peers),
            )
        if not 1 <= request.n_buckets <= MAX_BUCKETS:
            raise ConfigurationError(
                f"the number of buckets must be from 1 to {MAX_BUCKETS}; got {request.n_buckets}", where="n_buckets"
            )
        bucket = self._people(request).buckets(request.n_buckets)
        is_occupied = np.bincount(bucket[bucket >= 0], minlength=request.n_buckets) > 0
        return Occupied(is_occupied.astype(np.int64), patients=len(self.data))

    @step(releases=Acknowledgement, when="on request")
    def take_unshared(self, request: Unshared) -> Acknowledgement:
        """Put the records of people who are only at this site into its fold; other records have no fold."""
        place, n_buckets = self._place(request.roster), len(request.shared)
        if not 1 <= n_buckets <= MAX_BUCKETS:
            raise ConfigurationError(
                f"the number of buckets must be from 1 to {MAX_BUCKETS}; got {n_buckets}", where="shared"
            )
        bucket = self._people(request).buckets(n_buckets)
        is_unshared = (bucket >= 0) & ~request.shared[bucket]
        self.settle(np.where(is_unshared, place, -1), len(request.roster), request, movable=1)
        return Acknowledgement()

    def _people(self, hashing: Persons) -> Pseudonyms:
        return hash_site(self, hashing, self._purpose(hashing))

    def source_of(self, request: Message) -> str:
        """Return the purpose of the hash by which people are left out; empty if all records are in one fold."""
        return self._purpose(request) if isinstance(request, Unshared) else ""

    def _purpose(self, hashing: Persons) -> str:
        return f"fold/v1/{hashing.study}/unshared/{hash_terms(hashing)}{inside(self.within)}"

    def _place(self, roster: tuple[str, ...]) -> int:
        if roster.count(self.site) != 1 or len(roster) > MAX_SITES:
            raise ConfigurationError(
                f"the roster must name this site once, and at most {MAX_SITES} sites; got {roster.count(self.site)} "
                f"times, and {len(roster)} sites",
                where=self.site,
            )
        return roster.index(self.site)


class LeaveOneSiteOut(FoldSplitter):
    """One fold per site, for external validation.

    A patient of the held-out site may have records at another site, so this is **not** safe against duplicates, unless
    the records of people at several sites are dropped. The number of folds is that of the sites. The held-out site
    answers unmasked, as its policy permits, even if other sums are masked. On arrays, `groups` holds each row's site.

    Parameters
    ----------
    drop_shared : bool, default False
        Leave out the records of people at several sites, and those without an identifier, so that sites are tested on
        patients of no other site. This requires secure sums. About one more record in 32 is left out, because it shares
        a bucket of the hash with another person.
    person_key : str, optional
        Column that identifies people, for `drop_shared`; as for :class:`multicentre.validation.HashGroupKFold`.
    kind : {"identifier", "name", "date", "nhs-number", "nir", "combined"}, default "identifier"
        Normalisation of the identifiers.
    date_order : {"iso", "ymd", "dmy", "mdy"} or mapping of str to these, default "iso"
        Order of dates, at all sites or by site.
    study : str, optional
        Name that enters the hash; by default that of the federation.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: mc.data.TableData(rng.normal(size=(60, 2)), np.arange(60) % 2) for name in ("lyon", "oslo")}
    >>> plan = LeaveOneSiteOut().plan(mc.Federation.in_process(sites))
    >>> plan.facts["held_out"], plan.test(0).sites, plan.train(0).sites
    (('lyon', 'oslo'), ('lyon',), ('oslo',))
    """

    site_part: ClassVar[type[FoldPart]] = SiteFolds
    needs_all_classes: ClassVar[bool] = False
    mixes_sites: ClassVar[bool] = False

    def __init__(
        self,
        *,
        drop_shared: bool = False,
        person_key: str = IDENTIFIER,
        kind: Kind = "identifier",
        date_order: DateOrder | Mapping[str, DateOrder] = "iso",
        study: str | None = None,
    ) -> None:
        self.drop_shared = drop_shared
        self.person_key = person_key
        self.kind = kind
        self.date_order = date_order
        self.study = study

    @property
    def duplicate_safe(self) -> bool:  # type: ignore[override]
        """True if people at several sites are left out."""
        return self.drop_shared

    def get_n_splits(self, X: object = None, y: object = None, groups: Any = None) -> int:
        """Return the number of sites in `groups`."""
        return len(np.unique(needed_groups(None if groups is None else np.asarray(groups), "names of sites")))

    def _divide(self, session: Session) -> Mapping[str, object]:
        roster = session.sites
        if len(roster) < 2:
            raise ConfigurationError(
                f"folds by site must have at least 2 sites; got {len(roster)}",
                where=", ".join(roster),
                hint="Use another splitter.",
            )
        if self.drop_shared:
            persons = describe_persons(session.federation, self.person_key, self.kind, self.date_order, self.study)
            session.once("divided", Nothing, lambda: _unshared(session, persons))
        else:
            session.once("divided", Nothing, lambda: _placed(session))
        return {"held_out": roster}

    def _presence(self, session: Session, sizes: Integers) -> Mapping[str, Presence]:
        if len(session.sites) != len(sizes):
            lost = QuorumLost(
                f"all {len(sizes)} sites must participate in folds by site; got {len(session.sites)}",
                where="folds by site",
                hint="Make the plan again.",
            )
            lost.refusal = session.refusal
            raise lost
        is_own_fold, has_records = np.eye(len(sizes), dtype=np.bool_), sizes > 0
        return {
            site: Presence(row & present, ~row & present)
            for site, row, present in zip(session.sites, is_own_fold, has_records, strict=True)
        }

    def _folds(self, X: NDArray[Any], y: NDArray[Any] | None, groups: NDArray[Any] | None) -> Integers:
        if self.drop_shared:
            raise ConfigurationError(
                "drop_shared must be False with arrays; got True",
                where="drop_shared",
                hint="Leave out the records of people at several sites before the split.",
            )
        return np.unique(needed_groups(groups, "names of sites"), return_inverse=True)[1].astype(np.int64)


def _placed(session: Session) -> Nothing:
    session.ask(SiteFolds.take_place, Roster(session.sites))
    return Nothing()


def _unshared(session: Session, persons: Mapping[str, Any]) -> Nothing:
    agree_on_key(session, SiteFolds, persons["study"], persons["person_key"])
    n_records = session.sum(SiteFolds.count_records, Nothing()).records
    n_buckets = int(np.clip(BUCKETS_PER_RECORD * n_records, 1, MAX_BUCKETS))
    occupied = session.sum(SiteFolds.mark_people, Marking(**persons, n_buckets=n_buckets))
    session.ask(SiteFolds.take_unshared, Unshared(**persons, roster=session.sites, shared=occupied.sites > 1))
    return Nothing()


class DrawnFolds(FoldPart):
    """Site part of random folds."""

    method: ClassVar[str] = "random-folds"

    @step(releases=Acknowledgement, when="once")
    def draw(self, request: Drawing) -> Acknowledgement:
        """Draw a fold for every patient of this site."""
        n_splits = checked_splits(request.n_splits)
        random = self.generator(request.seed, int(self.data.digest()[:16], 16))
        self.settle(draw_folds(self.patients_by(request.patient_key), n_splits, random), n_splits, request)
        return Acknowledgement()


class FederatedKFold(FoldSplitter):
    """Random folds of equal size, drawn within every site: not safe against duplicates.

    A person with records at two sites is in two folds with probability 1 - 1/K. Then the model is fitted to one record
    and tested on the other, and scores are too optimistic. This splitter is used to measure the optimism, see
    :func:`multicentre.validation.leakage_report`.

    Parameters
    ----------
    n_splits : int, default 5
        Number of folds, from 2 to 100.
    patient_key : str, optional
        Column that identifies a patient at a site; records of a patient are in one fold. By default every record is a
        patient.
    random_state : int, default 0
        Seed. A site combines it with its data, so that nobody else can search for seeds with folds that differ by one
        record.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: mc.data.TableData(rng.normal(size=(60, 2)), np.arange(60) % 2) for name in ("lyon", "oslo")}
    >>> plan = FederatedKFold(3).plan(mc.Federation.in_process(sites))
    >>> plan.counts.tolist(), plan.duplicate_safe
    ([40.0, 40.0, 40.0], False)
    """

    site_part: ClassVar[type[FoldPart]] = DrawnFolds
    duplicate_safe: ClassVar[bool] = False

    def __init__(self, n_splits: int = 5, *, patient_key: str | None = None, random_state: int = 0) -> None:
        self.n_splits = n_splits
        self.patient_key = patient_key
        self.random_state = random_state

    def _divide(self, session: Session) -> Mapping[str, object]:
        drawing = Drawing(checked_splits(self.n_splits), int(self.random_state), self.patient_key or "")
        session.once("divided", Nothing, lambda: _drawn(session, drawing))
        return {}

    def _folds(self, X: NDArray[Any], y: NDArray[Any] | None, groups: NDArray[Any] | None) -> Integers:
        patients = np.arange(len(X)) if groups is None else np.unique(groups, return_inverse=True)[1]
        return draw_folds(patients, checked_splits(self.n_splits), np.random.default_rng(self.random_state))


def draw_folds(patients: Integers, n_splits: int, random: np.random.Generator) -> Integers:
    """Draw folds of about equal numbers of patients, with all records of a patient in one fold.

    Parameters
    ----------
    patients : array of int, shape (n,)
        Number of every record's patient, from 0.
    n_splits : int
    random : numpy.random.Generator

    Examples
    --------
    >>> folds = draw_folds(np.arange(7), 3, np.random.default_rng(0))
    >>> sorted(np.bincount(folds).tolist())
    [2, 2, 3]
    """
    n_patients = int(patients.max(initial=-1)) + 1
    order = random.permutation(n_splits)
    fold = np.empty(n_patients, dtype=np.int64)
    fold[random.permutation(n_patients)] = order[np.arange(n_patients) % n_splits]
    return fold[patients]


def _drawn(session: Session, drawing: Drawing) -> Nothing:
    session.ask(DrawnFolds.draw, drawing)
    return Nothing()
