"""Coordinator part of the alignment of records; it compares pseudonyms without the key."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Message, array, count
from multicentre.core.session import Session
from multicentre.data.frames import is_frame
from multicentre.data.identifiers import IDENTIFIER
from multicentre.errors import DataError
from multicentre.linkage.alignment import messages
from multicentre.linkage.alignment.site import AlignmentPart, as_names, prefix_placeholders, pseudonyms_of, short
from multicentre.linkage.persons import Persons, agree_on_key, describe_persons
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.identifier_normalisation import DateOrder, Kind

# A site that loses more than half its patients probably uses another identifier or format: a warning names it.
FEW_SHARE = 0.5


@dataclass(frozen=True)
class _Agreed(Message):
    """Agreed order and counts by site, stored for a resumed run."""

    pseudonyms: messages.Bytes = array("pseudonyms in the common order", ("n", messages.PSEUDONYM_BYTES), dtype="u1")
    at_site: dict[str, int] = count("patients by site", keyed=True)
    aligned: dict[str, int] = count("aligned patients by site", keyed=True)
    missing: dict[str, int] = count("records without an identifier", keyed=True)
    repeated: dict[str, int] = count("records of a patient who has an earlier record", keyed=True)


@dataclass(frozen=True, eq=False)
class Alignment:
    """The same patients at several sites, in one order.

    Attributes
    ----------
    federation : Federation
        Federation of the aligned records. Estimators that are fitted on it receive them in the common order.
    pseudonyms : array of uint8, shape (n, 16)
        Pseudonym of each patient in the common order, ascending. Only the study's key links it to a person.
    n_at_site, n_aligned : dict of str to int
        Number of patients and of aligned patients, by site.
    n_missing, n_repeated : dict of str to int
        Records that were left out because they have no identifier, or the identifier of an earlier record. Numbers from
        1 to the policy's minimum are reported as that minimum.
    """

    federation: Consortium = field(repr=False)
    pseudonyms: messages.Bytes = field(repr=False)
    n_at_site: dict[str, int]
    n_aligned: dict[str, int]
    n_missing: dict[str, int]
    n_repeated: dict[str, int]
    persons: Persons = field(repr=False)

    @property
    def n_common(self) -> int:
        """Number of patients in the common order."""
        return len(self.pseudonyms)

    @property
    def n_unmatched(self) -> dict[str, int]:
        """Number of patients of each site who are not aligned because another site lacks them."""
        return {site: n - self.n_aligned[site] for site, n in self.n_at_site.items()}


def align(
    federation: Consortium,
    *,
    person_key: str = IDENTIFIER,
    kind: Kind = "identifier",
    date_order: DateOrder | Mapping[str, DateOrder] = "iso",
    incomplete: bool = False,
    study: str | None = None,
) -> Alignment:
    """Align the patients whom sites have in common, without disclosing identifiers to the coordinator.

    Every site computes keyed pseudonyms of its patients' identifiers. The coordinator has no key. It selects the
    pseudonyms that all sites have and sends back their order. Each site seals the received order with the key, and
    continues only if all sites sealed the same order.

    The coordinator receives the pseudonyms of each site. It can therefore count the patients per site and in common,
    but cannot identify them.

    Parameters
    ----------
    federation : Federation
        Sites that hold different views of the same patients.
    person_key : str, default "identifier"
        Column of identifiers. The default is the only column, whatever its name. At a site without identifiers it is
        the names of records (``ids``).
    kind : {"identifier", "name", "date", "nhs-number", "nir", "combined"}, default "identifier"
        Kind of identifier, which determines its normalisation; see
        :func:`multicentre.privacy.identifier_normalisation.normalise`.
    date_order : {"iso", "ymd", "dmy", "mdy"} or mapping of str to these, default "iso"
        Order of day, month and year, at all sites or by site.
    incomplete : bool, default False
        Align the patients of all sites, for methods that accept missing views. Otherwise only patients who are at every
        site are aligned. If True, every site receives the pseudonyms of all patients, and can check whether a person
        whose identifier it has is among them.
    study : str, optional
        Name of the study, which enters the pseudonyms; by default that of the federation.

    Raises
    ------
    ConfigurationError
        A site has no key, or two sites hold different keys.
    DataError
        A site lacks the column of identifiers, or sites share fewer than two patients.
    RefusedByPolicy
        A site's policy does not permit answers about single patients (``relations = "none"``).

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> blood = mc.data.MultiViewData({"blood": rng.normal(size=(30, 2))}, ids=[f"p{i}" for i in range(30)])
    >>> image = mc.data.MultiViewData({"image": rng.normal(size=(25, 3))}, ids=[f"p{i}" for i in range(29, 4, -1)])
    >>> aligned = align(mc.Federation.in_process({"lab": blood, "radiology": image}))
    >>> aligned.n_common, aligned.n_unmatched
    (25, {'lab': 5, 'radiology': 0})
    """
    persons = Persons(**describe_persons(federation, person_key, kind, date_order, study))
    for attempt in federation.attempts(AlignmentPart, repr((persons, incomplete))):
        with attempt as opened:
            agreed = _agreed(opened, persons, incomplete)
    sites = [site for site in agreed.at_site if site in opened.sites]
    aligned = Alignment(
        opened.select((0,), sites),
        agreed.pseudonyms,
        n_at_site=_plain(agreed.at_site),
        n_aligned=_plain(agreed.aligned),
        n_missing=_plain(agreed.missing),
        n_repeated=_plain(agreed.repeated),
        persons=persons,
    )
    _warn_of_losses(aligned)
    return aligned


def _agreed(session: Session, persons: Persons, incomplete: bool) -> _Agreed:
    return session.once("aligned", _Agreed, lambda: _agree(session, persons, incomplete))


def _agree(session: Session, persons: Persons, incomplete: bool) -> _Agreed:
    agree_on_key(session, AlignmentPart, persons.study, persons.person_key)
    counted = session.ask(AlignmentPart.count_records, persons)
    site_names = {
        site: as_names(answer.pseudonyms)
        for site, answer in session.ask(AlignmentPart.send_pseudonyms, persons).items()
    }
    order = _common_order(site_names, incomplete)
    pseudonyms = np.frombuffer(order.tobytes(), dtype=np.uint8).reshape(-1, messages.PSEUDONYM_BYTES).copy()
    request = messages.Agreeing(
        **{name: getattr(persons, name) for name in Persons.declarations()}, pseudonyms=pseudonyms
    )
    sealed = _seals(session, request, incomplete)
    session.ask(AlignmentPart.confirm, messages.Seals(sealed))
    return _Agreed(
        pseudonyms,
        at_site={site: len(site_names[site]) for site in sealed},
        aligned={site: int(np.isin(site_names[site], order).sum()) for site in sealed},
        missing={site: counted[site].n_missing for site in sealed},
        repeated={site: counted[site].n_repeated for site in sealed},
    )


def _seals(session: Session, request: messages.Agreeing, incomplete: bool) -> dict[str, messages.Bytes]:
    if incomplete:
        answers = session.ask(AlignmentPart.agree_incomplete, request)
        return {site: answer.seal for site, answer in answers.items()}
    return {site: answer.seal for site, answer in session.ask(AlignmentPart.agree, request).items()}


def _common_order(site_names: Mapping[str, NDArray[np.bytes_]], incomplete: bool) -> NDArray[np.bytes_]:
    names, n_sites = np.unique(np.concatenate(list(site_names.values())), return_counts=True)
    order = names if incomplete else names[n_sites == len(site_names)]
    if len(order) < 2:
        raise DataError(
            f"at least 2 patients must be at every site; got {len(order)}",
            where=", ".join(site_names),
            hint="Check that all sites use the same identifier in the same format (person_key, kind).",
        )
    return np.asarray(order)


def find_places(
    records: Iterable[object],
    pseudonyms: messages.Bytes,
    persons: Persons,
    key: PseudonymKey,
    *,
    date_order: DateOrder = "iso",
) -> NDArray[np.int64]:
    """Return the place of each record in a common order, or -1. This requires the key.

    Parameters
    ----------
    records : iterable, or data
        Identifiers as recorded, names of records, or data with one of these.
    pseudonyms : array of uint8, shape (n, 16)
        The common order.
    persons : Persons
        Identifiers that the pseudonyms were made from.
    key : PseudonymKey
        Key under which the pseudonyms were made.
    date_order : {"iso", "ymd", "dmy", "mdy"}

    Returns
    -------
    array of int64, shape (n_records,)
        Row of each record in `pseudonyms`, or -1.

    Raises
    ------
    DataError
        The data have neither identifiers nor names.

    Examples
    --------
    >>> import multicentre as mc
    >>> lab, ward = (
    ...     mc.data.MultiViewData({"x": np.eye(3)}, ids=names) for names in (["a", "b", "c"], ["d", "c", "b"])
    ... )
    >>> aligned = align(mc.Federation.in_process({"lab": lab, "ward": ward}, policy=mc.Policy(min_patients=1)))
    >>> key = PseudonymKey.simulated("study")
    >>> sorted(find_places(["d", "c", "b"], aligned.pseudonyms, aligned.persons, key).tolist())
    [-1, 0, 1]
    """
    local = pseudonyms_of(_values(records, persons.person_key), key, persons, date_order)
    names, order = as_names(short(local.tokens)), as_names(pseudonyms)
    places = np.minimum(np.searchsorted(order, names), len(order) - 1)
    return np.where(local.present & (order[places] == names), places, -1).astype(np.int64)


def _values(records: Any, person_key: str) -> list[Any]:
    if isinstance(records, str) or is_frame(records):
        raise DataError(
            f"records must be a column of identifiers; got {type(records).__name__}",
            where="records",
            hint="Give a list with one identifier per record.",
        )
    columns = getattr(records, "identifier", None)
    if columns is not None:
        return list(columns.column(person_key))
    names = getattr(records, "ids", records)
    if names is None:
        raise DataError("the records must have identifiers; got none", where=person_key, hint="Pass them as ids=.")
    return list(prefix_placeholders(list(names))) if person_key == IDENTIFIER else list(names)


def _plain(counts: Mapping[str, int]) -> dict[str, int]:
    return {site: int(n) for site, n in counts.items()}


def _warn_of_losses(aligned: Alignment) -> None:
    for site, n in aligned.n_missing.items():
        if n:
            warnings.warn(f"{site}: up to {n} records have no readable identifier and are left out", stacklevel=3)
    for site, n in aligned.n_at_site.items():
        if aligned.n_aligned[site] < FEW_SHARE * n:
            warnings.warn(
                f"{site}: {n - aligned.n_aligned[site]} of {n} patients are not at all other sites and are left out; "
                "pass incomplete=True to keep them for methods that accept missing views",
                stacklevel=3,
            )
