"""Estimator of the number of people with records at more than one site, via secure sums over buckets of a hash."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Message, array, number, text
from multicentre.core.session import Session
from multicentre.data.identifiers import IDENTIFIER
from multicentre.errors import ConfigurationError, DataError
from multicentre.linkage.duplicates.rate import (
    COARSE,
    HIDDEN_ERRORS,
    NO_REPEATED,
    DuplicateRate,
    Floats,
    Interval,
    Sensitivity,
    check_controls,
    choose_buckets,
    corrected_rate,
    declared_sensitivity,
    duplicate_rate,
    include_exclude,
    measured_sensitivity,
    normalise_controls,
)
from multicentre.linkage.duplicates.site import Agreeing, Agreement, Counting, DuplicatesPart, Marking, Sizes
from multicentre.linkage.keys.occupied_buckets import count_union, read_marks
from multicentre.linkage.keys.person_keys import read_keys
from multicentre.linkage.persons import agree_on_key, check_present, describe_persons, draw_label
from multicentre.privacy.identifier_normalisation import DateOrder

# Sensitivity of the keys, and plausible values of it.
_SensitivityValues = tuple[Sensitivity, Floats]

UNPROVEN = (
    "a rate of 0 cannot be distinguished from identifiers that differ between sites (separate pseudonyms, shifted "
    "dates); register test patients at all sites and pass them as controls="
)
# 4096 buckets are 32 KiB of traffic per person and site.
MAX_PER_RECORD = 4096


# Expected agreements by chance per person: with 5 %, a second agreement of the same person, which is counted too often,
# changes the expected number by at most a fortieth.
MAX_CHANCE = 0.05


def estimate_duplicate_rate(
    federation: Consortium,
    *,
    person_key: str = IDENTIFIER,
    kind: str = "identifier",
    person_keys: Sequence[str | Mapping[str, str]] = (),
    date_order: DateOrder | Mapping[str, DateOrder] = "iso",
    patient_key: str | None = None,
    sensitivity: float | tuple[float, float] | None = None,
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
    kind : str, default "identifier"
        Kind of `person_key`: "identifier", "name", "date", "nhs-number", "nir" or "combined" (see
        :func:`multicentre.privacy.identifier_normalisation.normalise`), "soundex" or "cologne" (sound of an English or
        German name), "prefix-2" to "prefix-9" (first characters), "year", "year-month" or "month-day" (parts of a
        date).
    person_keys : sequence of str or mapping of str to str, optional
        Up to four keys instead of `person_key`. Two records are of one person if they agree in at least one of them. A
        key is a column (of kind `kind`), or a mapping from columns to kinds; all columns of a mapping must agree.
        Example: ``["insurance", {"surname": "soundex", "birth_date": "date"}]``.
    date_order : {"iso", "ymd", "dmy", "mdy"} or mapping of str to these, default "iso"
        Order of day, month and year, at all sites or by site; "iso" for sites left out of a mapping.
    patient_key : str, optional
        Column by which each site identifies its own patients, for example its patient number. Sites then measure how
        often two records of one patient agree in a key, and how often records of different patients do; the rate is
        corrected for both, and its interval includes both. It must not be derived from the columns of the keys.
    sensitivity : float or tuple of float, optional
        Share of pairs of records of one person that agree in a key, or its limits, if it is known from elsewhere: from
        0 (excluded) to 1. ``1.0`` declares that identifiers have no errors. Excludes `patient_key`.
    buckets_per_record : int, default 32
        Number of buckets of the hash per person at a site, from 1 to 4096. More buckets give a shorter interval and
        more traffic (8 bytes per bucket, site and combination of keys). The total is from 1024 to 8,388,608.
    by_outcome : bool, default False
        Also estimate the rate within each class of the outcome.
    controls : sequence of str, optional
        Test patients that every site has registered, see :mod:`multicentre.linkage.duplicates.rate`. They show that
        identifiers are comparable, and are excluded from the counts. With `person_keys`, they are values of the first
        key, which must then be a single column.
    study : str, optional
        Name of the study, which enters the hash; by default that of the federation.

    Returns
    -------
    DuplicateRate
        Estimate with its interval, and the counts it is based on. Without `patient_key` and `sensitivity` it has no
        interval, because the share of people that typing errors hide is unknown.

    Raises
    ------
    ConfigurationError
        The sites have different keys, a site lacks a control, a parameter is out of range, or two parameters exclude
        each other.
    DataError
        A site lacks a column, or no record has a key.
    QuorumLost
        A site left the session between two counts.
    DisclosureRefused
        Sums are unmasked, which would disclose who is at a site.
    RefusedByPolicy
        A control could be a person's identifier.

    Warns
    -----
    UserWarning
        The interval contains 0 and there are no controls; no patient has repeated records; or different people agree in
        a key too often.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> sites = {}
    >>> for name, first in {"lyon": 0, "oslo": 900}.items():
    ...     people = [f"p{number}" for number in range(first, first + 1000)] + ["TEST-PATIENT-1"]
    ...     sites[name] = mc.data.TableData(rng.normal(size=(1001, 2)), np.arange(1001) % 2, people)
    >>> estimate = estimate_duplicate_rate(
    ...     mc.Federation.in_process(sites), sensitivity=1.0, buckets_per_record=512, controls=["TEST-PATIENT-1"]
    ... )
    >>> estimate.n_local, round(estimate.rate, 2), estimate.controls
    (2000, 0.05, {'TEST-PATIENT-1': 2})
    """
    _check(buckets_per_record, person_key, person_keys, patient_key, sensitivity)
    keys = read_keys(person_keys or [person_key], kind)
    persons = describe_persons(federation, keys[0].columns[0], keys[0].plain_kind, date_order, study)
    normalise_controls(controls, keys[0].plain_kind)
    question = Counting(
        **persons,
        controls=tuple(controls),
        patient_key=patient_key or "",
        key_columns={f"key {number}": key.columns for number, key in enumerate(keys, start=1)},
        key_kinds={f"key {number}": key.kinds for number, key in enumerate(keys, start=1)},
    )
    declared = None if sensitivity is None else declared_sensitivity(sensitivity)
    for attempt in federation.attempts(DuplicatesPart, f"{question}, {buckets_per_record}, {by_outcome}"):
        with attempt as opened:
            rate = _estimate(opened, question, buckets_per_record, declared, by_outcome=by_outcome)
    for line in rate.warnings:
        if line != HIDDEN_ERRORS:  # shown by the missing interval
            warnings.warn(line, stacklevel=2)
    return rate


def _estimate(
    opened: Session,
    persons: Counting,
    buckets_per_record: int,
    declared: _SensitivityValues | None,
    *,
    by_outcome: bool,
) -> DuplicateRate:
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
            where=", ".join(map(str, persons.keys)),
            hint="Add them with data.with_identifier(...), or leave the other sites out.",
        )
    agreement = _count_agreement(opened, persons, sizes.persons) if persons.patient_key else None
    linkage = _linkage_error(agreement, declared, round(sizes.persons), len(sites))
    n_local = [sizes.persons, *(sizes.by_class.tolist() if by_outcome else [])]
    detected = [
        _detect(opened, persons, stratum, round(number), sizes.values[:, stratum + 1].tolist(), buckets_per_record)
        for stratum, number in enumerate(n_local, start=-1)
    ]
    check_present(opened, sites)
    rates = [_rate(one, linkage, sizes.persons) for one in detected]
    return DuplicateRate(
        rate=rates[0][0],
        interval=rates[0][1],
        detected=detected[0].rate,
        detected_interval=detected[0].interval,
        n_records=round(sizes.records),
        n_missing=round(sizes.missing),
        n_within=round(sizes.records - (0 if persons.patient_key else sizes.missing) - sizes.persons),
        n_local=round(sizes.persons),
        n_union=sizes.persons * (1 - rates[0][0]),
        n_buckets=detected[0].n_buckets,
        sensitivity=linkage.sensitivity[0] if linkage.sensitivity else None,
        n_chance=None if agreement is None else agreement.chance,
        by_class={f"class {number}": rate for number, rate in enumerate(rates[1:])},
        controls=controls,
        fingerprint=key.fingerprint,
        warnings=linkage.warnings if controls or detected[0].interval[0] > 0 else (*linkage.warnings, UNPROVEN),
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
class _Detected:
    """Duplicates whose records agree in a key: their number with its variance, and their rate."""

    number: float
    variance: float
    n_local: int
    n_buckets: int

    @property
    def rate(self) -> float:
        return duplicate_rate(self.n_local - self.number, 0.0, self.n_local)[0]

    @property
    def interval(self) -> Interval:
        return duplicate_rate(self.n_local - self.number, math.sqrt(self.variance), self.n_local)[1]


@dataclass(frozen=True)
class _LinkageError:
    """Sensitivity of the keys, if known, and expected number of agreements by chance per person, with its variance."""

    sensitivity: _SensitivityValues | None
    chance: float = 0.0
    chance_variance: float = 0.0
    n_sites: int = 2
    warnings: tuple[str, ...] = ()


def _count_controls(session: Session, persons: Counting) -> NDArray[np.int64]:
    if not persons.controls:
        return np.zeros(0, dtype=np.int64)
    return session.sum(DuplicatesPart.find_controls, persons).present


def _count_agreement(session: Session, persons: Counting, n_persons: float) -> Agreement:
    request = Agreeing(**_fields(persons), persons=n_persons)
    return session.once("agreement", Agreement, lambda: session.sum(DuplicatesPart.count_agreement, request))


def _linkage_error(
    agreement: Agreement | None, declared: _SensitivityValues | None, n_persons: int, n_sites: int
) -> _LinkageError:
    if agreement is None:
        return _LinkageError(declared, n_sites=n_sites, warnings=() if declared else (HIDDEN_ERRORS,))
    if not agreement.repeated[0].sum():
        return _LinkageError(None, warnings=(NO_REPEATED,))
    if agreement.chance > MAX_CHANCE / 2 * n_persons:
        return _LinkageError(None, warnings=(COARSE,))
    # Half a pair at a site, as in Jeffreys' prior of a count; with sites of equal size it stands for n_sites - 1 pairs.
    variance = agreement.chance_variance + (n_sites - 1) ** 2 / 2
    return _LinkageError(measured_sensitivity(agreement.repeated), agreement.chance, variance, n_sites)


def _detect(
    session: Session, persons: Counting, stratum: int, n_local: int, n_values: Sequence[float], per_record: int
) -> _Detected:
    n_buckets = choose_buckets(n_local, per_record)
    numbers, variances = [], []
    for code, n_different in enumerate(n_values, start=1):
        mark = partial(_mark, session, persons, stratum, code, n_buckets)
        empty = session.once(f"marked-{stratum}-{code}", _Empty, mark)
        union, deviation = count_union(round(empty.share * n_buckets), n_buckets)
        numbers.append(n_different - union)
        variances.append(deviation**2)
    return _Detected(include_exclude(numbers), sum(variances), n_local, n_buckets)


def _mark(session: Session, persons: Counting, stratum: int, combination: int, n_buckets: int) -> _Empty:
    nonces = draw_label(session, DuplicatesPart)
    request = Marking(**_fields(persons), nonces=nonces, n_buckets=n_buckets, stratum=stratum, combination=combination)
    occupied = read_marks(session.sum(DuplicatesPart.mark, request).marks)
    return _Empty(float(1 - occupied.mean()))


def _fields(persons: Counting) -> dict[str, Any]:
    return {name: getattr(persons, name) for name in Counting.declarations()}


def _rate(detected: _Detected, linkage: _LinkageError, n_persons: float) -> tuple[float, Interval | None]:
    """Return the rate and its interval. A class of the outcome has agreement by chance as the square of its share."""
    if linkage.sensitivity is None:
        return detected.rate, None
    share = detected.n_local / n_persons
    number = detected.number - linkage.chance * share**2
    variance = detected.variance + linkage.chance_variance * share**4
    return corrected_rate(number, variance, detected.n_local, linkage.n_sites, *linkage.sensitivity)


def _check(
    per_record: int,
    person_key: str,
    person_keys: Sequence[str | Mapping[str, str]],
    patient_key: str | None,
    sensitivity: float | tuple[float, float] | None,
) -> None:
    if int(per_record) != per_record or not 1 <= per_record <= MAX_PER_RECORD:
        raise ConfigurationError(
            f"buckets_per_record must be an integer from 1 to {MAX_PER_RECORD}; got {per_record}",
            where="buckets_per_record",
            hint="Example: 32.",
        )
    if isinstance(person_keys, str | Mapping) or (person_keys and person_key != IDENTIFIER):
        raise ConfigurationError(
            "person_keys must be a sequence of keys, without person_key",
            where="person_keys",
            hint="Pass one of the two.",
        )
    if patient_key and sensitivity is not None:
        raise ConfigurationError(
            "sensitivity must be measured with patient_key or declared; got both",
            where="sensitivity",
            hint="Leave one of the two out.",
        )
