"""Site part of the alignment of records.

All sites have the study's key; the coordinator does not. Each site sends keyed pseudonyms to the coordinator, which
returns the order of the pseudonyms to use. Every site seals this order with the key and checks the seals of all other
sites. All sites therefore use the same order.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message
from multicentre.core.steps import Acknowledgement, Common, step
from multicentre.core.wire import encode
from multicentre.errors import ConfigurationError, DataError, ProtocolRefused
from multicentre.linkage.alignment import messages
from multicentre.linkage.persons import KeyedPart, Persons
from multicentre.linkage.pseudonyms import PseudonymKey, Pseudonyms, pseudonymise
from multicentre.privacy.identifier_normalisation import DateOrder, normalise_identifier

Rows = NDArray[np.int64]
# An order of one patient would identify that person.
MIN_COMMON = 2


class AlignmentPart(KeyedPart):
    """Site part of an alignment."""

    method: ClassVar[str] = "alignment"
    remembers: ClassVar[type[Message]] = messages.Ordered
    lengths: ClassVar[Lengths] = {"n": "patients of the site who have an identifier"}
    state: messages.Ordered | None = None
    _cached: tuple[str, Pseudonyms] | None = None
    _answered_purpose: str = ""

    @property
    def folds(self) -> Rows | None:
        """0 for aligned records, -1 for others; None before all sites sealed the same order."""
        if self.state is None or not self.state.sites:
            return None
        folds = np.full(len(self.data), -1, dtype=np.int64)
        folds[self.state.rows] = 0
        return folds

    @property
    def alignment(self) -> tuple[Rows, Common] | None:
        """Rows of the aligned records in the common order, and their places in it."""
        if self.state is None or not self.state.sites:
            return None
        state = self.state
        return state.rows, Common(state.places, state.n_common, frozenset(state.sites), state.incomplete)

    @property
    def division(self) -> str:
        """Hash of the order; the same at all sites."""
        return "" if self.state is None else self.state.order.tobytes().hex()

    @step(releases=messages.Counted, when="once")
    def count_records(self, request: Persons) -> messages.Counted:
        """Count records that have no identifier, or the identifier of an earlier record."""
        pseudonyms = self._pseudonyms(request)
        return messages.Counted(
            self._coarse(pseudonyms.n_missing), self._coarse(pseudonyms.n_duplicates), patients=len(pseudonyms)
        )

    @step(releases=messages.Pseudonyms, when="once")
    def send_pseudonyms(self, request: Persons) -> messages.Pseudonyms:
        """Return the pseudonyms of the site's patients, each once and in ascending order."""
        pseudonyms = self._pseudonyms(request)
        self._answered_purpose = purpose_of(request)
        return messages.Pseudonyms(short(pseudonyms.tokens[first_rows(pseudonyms)]))

    @step(releases=messages.Sealed, when="once")
    def agree(self, request: messages.Agreeing) -> messages.Sealed:
        """Store and seal an order of patients who are all at this site."""
        return messages.Sealed(self._sealed(request, incomplete=False))

    @step(releases=messages.SealedIncomplete, when="on request")
    def agree_incomplete(self, request: messages.Agreeing) -> messages.SealedIncomplete:
        """Store and seal an order of patients, some of whom may be missing at this site."""
        return messages.SealedIncomplete(self._sealed(request, incomplete=True))

    def _sealed(self, request: messages.Agreeing, *, incomplete: bool) -> messages.Bytes:
        if self.state is not None or self._answered_purpose != purpose_of(request):
            raise ConfigurationError(
                "pseudonyms must be requested before an order, and records aligned once; got a different sequence",
                where=self.site,
                hint="Align the records again.",
            )
        pseudonyms = self._pseudonyms(request)
        rows = first_rows(pseudonyms)
        site_names, order = as_names(short(pseudonyms.tokens[rows])), as_names(request.pseudonyms)
        if np.any(order[1:] <= order[:-1]):
            raise ConfigurationError(
                "pseudonyms must be in strictly ascending order; got unsorted or repeated ones",
                where=self.site,
                hint="Align the records again.",
            )
        places = np.flatnonzero(np.isin(order, site_names))
        if not incomplete and len(places) < len(order):
            raise ProtocolRefused(
                "the order must contain only patients of this site; got unknown pseudonyms",
                where=self.site,
                hint="Use incomplete=True if sites may lack patients.",
            )
        self._check_crowd(len(places))
        digest = np.frombuffer(hashlib.sha256(encode(request)).digest(), dtype=np.uint8).copy()
        site_rows = rows[np.searchsorted(site_names, order[places])]
        self.state = messages.Ordered(site_rows, places, len(order), digest, incomplete, ())
        return seal_of(self._study_key(), self.site, digest)

    def _check_crowd(self, n_aligned: int) -> None:
        """Refuse to align few records."""
        least = max(self.least_behind, MIN_COMMON)
        if n_aligned < least:
            raise DataError(
                f"the order must contain at least {least} of this site's patients; got fewer",
                where=self.site,
                hint="Check that all sites use the same identifier and hold the same key.",
            )

    @step(releases=Acknowledgement, when="once")
    def confirm(self, request: messages.Seals) -> Acknowledgement:
        """Compare the seals of all sites with those of this site's order; no value is returned."""
        state = self.state
        if state is None:
            raise ConfigurationError(
                "an order must be sealed before it is confirmed; this site has not sealed one",
                where=self.site,
                hint="Align the records again.",
            )
        if self.site not in request.seals or len(request.seals) < self.n_peers:
            raise ProtocolRefused(
                "seals must include one of every participating site; at least one is missing",
                where=self.site,
                hint="Align the records again.",
            )
        key = self._study_key()
        strangers = [site for site, seal in request.seals.items() if not _same(seal, seal_of(key, site, state.order))]
        if strangers:
            raise ProtocolRefused(
                "all sites must seal the same order with the same key; these used a different order or key",
                where=", ".join(strangers),
                hint="Compare the sites' keys (PseudonymKey.fingerprint) and align again.",
            )
        self.state = replace(state, sites=tuple(request.seals))
        return Acknowledgement()

    def _pseudonyms(self, persons: Persons) -> Pseudonyms:
        purpose = purpose_of(persons)
        if self._cached is None or self._cached[0] != purpose:
            values = self.identifiers(persons.person_key)
            if getattr(self.data, "identifier", None) is None:
                values = prefix_placeholders(values)
            self._cached = purpose, self.tokens(values, persons, purpose)
        return self._cached[1]

    def _study_key(self) -> PseudonymKey:
        if not isinstance(self.key, PseudonymKey):
            raise ConfigurationError(
                "the site must have the study's key of pseudonyms; it has none",
                where=self.site,
                hint="Ask the site that generated the key.",
            )
        return self.key

    def _coarse(self, n_records: int) -> int:
        return max(n_records, self.least_behind) if n_records else 0


def purpose_of(persons: Persons) -> str:
    """Return the purpose of pseudonyms: ``alignment/v1/<16 hex digits of all terms>``."""
    terms = [getattr(persons, name) for name in Persons.declarations()]
    return f"alignment/v1/{hashlib.sha256(repr(terms).encode()).hexdigest()[:16]}"


def pseudonyms_of(values: list[Any], key: PseudonymKey, persons: Persons, order: DateOrder) -> Pseudonyms:
    """Return the pseudonyms of identifiers under a key, with an order of dates."""
    kind: Any = persons.kind
    return pseudonymise(values, key, purpose=f"{purpose_of(persons)}/{persons.study}", kind=kind, date_order=order)


def prefix_placeholders(names: Sequence[str | None]) -> list[str | None]:
    """Return the records' names, with a prefix for names such as 1111, which normalisation reads as placeholders.

    Examples
    --------
    >>> prefix_placeholders(["1110", "1111", "p7"])
    ['1110', 'record 1111', 'p7']
    """
    return [f"record {name}" if name and normalise_identifier(name) is None else name for name in names]


def first_rows(pseudonyms: Pseudonyms) -> Rows:
    """Return the first row of each patient who has an identifier, in the order of the pseudonyms."""
    order = pseudonyms.order()
    tokens = pseudonyms.tokens[order]
    is_new = np.r_[True, np.any(tokens[1:] != tokens[:-1], axis=1)] if len(order) else np.zeros(0, dtype=np.bool_)
    return np.asarray(order[is_new])


def short(tokens: messages.Bytes) -> messages.Bytes:
    """Return the first half of each token, shape (n, 16), which is enough to distinguish patients."""
    return np.ascontiguousarray(tokens[:, : messages.PSEUDONYM_BYTES])


def as_names(pseudonyms: messages.Bytes) -> NDArray[np.bytes_]:
    """Return pseudonyms as an array that can be sorted and looked up, shape (n,).

    Examples
    --------
    >>> names = as_names(np.array([[0] * 15 + [2], [1] + [0] * 15], dtype=np.uint8))
    >>> bool(names[0] < names[1])
    True
    """
    return np.ascontiguousarray(pseudonyms).view(f"S{messages.PSEUDONYM_BYTES}").ravel()


def seal_of(key: PseudonymKey, site: str, order: messages.Bytes) -> messages.Bytes:
    """Return the seal of a site with this key on an order, shape (32,)."""
    sealing = key.hash_for(f"alignment/v1/seal/{site}")
    sealing.update(order.tobytes())
    return np.frombuffer(sealing.digest(), dtype=np.uint8).copy()


def _same(seal: messages.Bytes, expected: messages.Bytes) -> bool:
    return hmac.compare_digest(seal.tobytes(), expected.tobytes())
