"""Estimator of the number of people with records at more than one site, via secure sums over buckets of a hash."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Message, array, number, text
from multicentre.core.session import Session
from multicentre.data.identifiers import IDENTIFIER
from multicentre.errors import ConfigurationError, DataError
from multicentre.linkage.duplicates.rate import (
    DuplicateRate,
    check_controls,
    choose_buckets,
    duplicate_rate,
    normalise_controls,
)
from multicentre.linkage.duplicates.site import Counting, DuplicatesPart, Marking, Sizes
from multicentre.linkage.keys.union import count_union, read_marks
from multicentre.linkage.persons import agree_on_key, check_present, describe_persons, draw_label
from multicentre.privacy.identifier_normalisation import DateOrder, Kind

UNPROVEN = (
    "a rate of 0 cannot be distinguished from identifiers that differ between sites (separate pseudonyms, shifted "
    "dates); register test patients at all sites and pass them as controls="
)
# 4096 buckets are 32 KiB of traffic per person and site.
MOST_PER_RECORD = 4096


def estimate_duplicate_rate(
    federation: Consortium,
    *,
    person_key: str = IDENTIFIER,
    kind: Kind = "identifier",
    date_order: DateOrder | Mapping[str, DateOrder] = "iso",
    buckets_per_record: int = 32,
    by_outcome: bool = False,
    controls: Sequence[str] = (),
    study: str | None = None,
) -> DuplicateRate:
    """Estimate how many people have records at more than one site; no identifier or token leaves a site.

    Parameters
    ----------
    federation : Federation
        Sites to compare, with masked sums (``secure_sum=True``) or policies without a minimum of patients.
    person_key : str, default "identifier"
        Column of identifiers that are the same at all sites. The default is the only column, whatever its name.
    kind : {"identifier", "name", "date", "nhs-number", "nir", "combined"}, default "identifier"
        Kind of identifier, which determines its normalisation; see
        :func:`multicentre.privacy.identifier_normalisation.normalise`.
    date_order : {"iso", "ymd", "dmy", "mdy"} or mapping of str to these, default "iso"
        Order of day, month and year, at all sites or by site; "iso" for sites left out of a mapping.
    buckets_per_record : int, default 32
        Number of buckets of the hash per person at a site, from 1 to 4096. More buckets give a shorter interval and
        more traffic (8 bytes per bucket and site). The total is from 1024 to 8,388,608.
    by_outcome : bool, default False
        Also estimate the rate within each class of the outcome.
    controls : sequence of str, optional
        Test patients that every site has registered, see :mod:`multicentre.linkage.duplicates.rate`. They show that
        identifiers are comparable, and are excluded from the counts.
    study : str, optional
        Name of the study, which enters the hash; by default that of the federation.

    Returns
    -------
    DuplicateRate
        Estimate with its interval, and the counts it is based on.

    Raises
    ------
    ConfigurationError
        The sites have different keys, a site lacks a control, or `buckets_per_record` is out of range.
    DataError
        A site lacks the column, or no record has an identifier.
    QuorumLost
        A site left the session between two counts.
    DisclosureRefused
        Sums are unmasked, which would disclose who is at a site.
    RefusedByPolicy
        A control could be a person's identifier.

    Warns
    -----
    UserWarning
        The interval contains 0 and there are no controls.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> sites = {}
    >>> for name, first in {"lyon": 0, "oslo": 900}.items():
    ...     people = [f"p{number}" for number in range(first, first + 1000)] + ["TEST-PATIENT-1"]
    ...     sites[name] = mc.data.TableData(rng.normal(size=(1001, 2)), np.arange(1001) % 2, people)
    >>> estimate = estimate_duplicate_rate(
    ...     mc.Federation.in_process(sites), buckets_per_record=512, controls=["TEST-PATIENT-1"]
    ... )
    >>> estimate.n_local, round(estimate.rate, 2), estimate.controls
    (2000, 0.05, {'TEST-PATIENT-1': 2})
    """
    _check_fineness(buckets_per_record)
    normalise_controls(controls, kind)
    persons = describe_persons(federation, person_key, kind, date_order, study)
    question = Counting(**persons, controls=tuple(controls))
    for attempt in federation.attempts(DuplicatesPart, f"{question}, {buckets_per_record}, {by_outcome}"):
        with attempt as opened:
            rate = _estimate(opened, question, buckets_per_record, by_outcome=by_outcome)
    for line in rate.warnings:
        warnings.warn(line, stacklevel=2)
    return rate


def _estimate(opened: Session, persons: Counting, buckets_per_record: int, *, by_outcome: bool) -> DuplicateRate:
    key = opened.once(
        "key", _Key, lambda: _Key(agree_on_key(opened, DuplicatesPart, persons.study, persons.person_key))
    )
    control_counts = opened.once("controls", _ControlCounts, lambda: _ControlCounts(_count_controls(opened, persons)))
    sites = opened.sites
    controls = check_controls(control_counts.sites, persons.controls, len(sites))
    sizes = opened.once("sizes", Sizes, lambda: opened.sum(DuplicatesPart.count_persons, persons))
    if sizes.sites < len(sites) or sizes.sites < 2:
        raise DataError(
            f"all sites, and at least 2, must have identifiers; got {sizes.sites} of {len(sites)} sites",
            where=persons.person_key,
            hint="Add them with data.with_identifier(...), or leave the other sites out.",
        )
    counts = [sizes.persons, *(sizes.by_class.tolist() if by_outcome else [])]
    rates = [
        _rate(opened, persons, stratum, int(n_local), buckets_per_record)
        for stratum, n_local in enumerate(counts, start=-1)
    ]
    check_present(opened, sites)
    return DuplicateRate(
        rate=rates[0].rate,
        interval=rates[0].interval,
        n_records=round(sizes.records),
        n_missing=round(sizes.missing),
        n_within=round(sizes.records - sizes.missing - sizes.persons),
        n_local=round(sizes.persons),
        n_union=rates[0].union,
        n_buckets=rates[0].n_buckets,
        by_class={f"class {number}": (one.rate, one.interval) for number, one in enumerate(rates[1:])},
        controls=controls,
        fingerprint=key.fingerprint,
        warnings=_warnings(rates[0], bool(controls)),
    )


@dataclass(frozen=True)
class _Key(Message):
    fingerprint: str = text("fingerprint of the sites' common key")


@dataclass(frozen=True)
class _ControlCounts(Message):
    sites: NDArray[np.int64] = array("number of sites that have each control", ("c",), dtype="i8")


@dataclass(frozen=True)
class _Empty(Message):
    share: float = number("share of the buckets that are empty at all sites")


@dataclass(frozen=True)
class _Rate:
    rate: float
    interval: tuple[float, float]
    union: float
    n_buckets: int


def _count_controls(session: Session, persons: Counting) -> NDArray[np.int64]:
    if not persons.controls:
        return np.zeros(0, dtype=np.int64)
    return session.sum(DuplicatesPart.find_controls, persons).present


def _rate(session: Session, persons: Counting, stratum: int, n_local: int, per_record: int) -> _Rate:
    n_buckets = choose_buckets(n_local, per_record)
    empty = session.once(f"marked-{stratum}", _Empty, lambda: _mark(session, persons, stratum, n_buckets))
    union, deviation = count_union(round(empty.share * n_buckets), n_buckets)
    return _Rate(*duplicate_rate(union, deviation, n_local), union, n_buckets)


def _mark(session: Session, persons: Counting, stratum: int, n_buckets: int) -> _Empty:
    fields: dict[str, Any] = {name: getattr(persons, name) for name in Counting.declarations()}
    nonces = draw_label(session, DuplicatesPart)
    request = Marking(**fields, nonces=nonces, n_buckets=n_buckets, stratum=stratum)
    occupied = read_marks(session.sum(DuplicatesPart.mark, request).marks)
    return _Empty(float(1 - occupied.mean()))


def _warnings(rate: _Rate, has_controls: bool) -> tuple[str, ...]:
    return () if has_controls or rate.interval[0] > 0 else (UNPROVEN,)


def _check_fineness(per_record: int) -> None:
    if int(per_record) != per_record or not 1 <= per_record <= MOST_PER_RECORD:
        raise ConfigurationError(
            f"buckets_per_record must be an integer from 1 to {MOST_PER_RECORD}; got {per_record}",
            where="buckets_per_record",
            hint="Example: 32.",
        )
