"""Base of the site parts that compare persons between sites: one shared key, and a new label per question.

Every site contributes a nonce to the label of the tokens. The coordinator sends all nonces to all sites. A site refuses
if its nonce is missing or was used before. Tokens of two questions can therefore not be compared.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.calls import suggest_masks
from multicentre.core.consortium import Consortium
from multicentre.core.messages import Message, Nothing, array, arrays, text, texts
from multicentre.core.session import Session
from multicentre.core.steps import Release, SitePart, step
from multicentre.data.events.tensor import EventTensor
from multicentre.data.identifiers import IDENTIFIER
from multicentre.data.survival import SurvivalData
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, ProtocolRefused, QuorumLost
from multicentre.linkage.pseudonyms import PseudonymKey, Pseudonyms, pseudonymise
from multicentre.privacy.identifier_normalisation import NORMALISATION, DateOrder, Kind

Nonces = dict[str, NDArray[np.uint8]]

# 128 random bits: the probability that a site draws the same nonce twice is negligible.
NONCE_BYTES = 16

_HAND_OVER = "One site generates the study's key and gives it to the others; the coordinator never has it."

_SIMULATE = "An unmasked answer discloses who is at this site; a policy with min_patients = 0 is for simulations."


@dataclass(frozen=True)
class Study(Message):
    """Identifier of the study's key."""

    study: str = text("name of the study")


@dataclass(frozen=True)
class Persons(Message):
    """Identification of persons, the same at all sites."""

    study: str = text("name of the study, which enters the hash")
    person_key: str = text("identifiers of a person, the same at all sites")
    kind: str = text("kind of the identifiers, which determines their normalisation")
    rules: str = text("version of the rules of normalisation")
    sites: tuple[str, ...] = texts("sites whose order of dates is declared separately")
    date_orders: tuple[str, ...] = texts("order of dates at each of these sites")
    date_order: str = text("order of dates at all other sites")

    def order_at(self, site: str) -> Any:
        """Return the order of day, month and year at a site."""
        return dict(zip(self.sites, self.date_orders, strict=False)).get(site, self.date_order)


@dataclass(frozen=True)
class Fingerprint(Release):
    """Fingerprint of a site's key; the same at all sites that hold the same key."""

    concerns_patients: ClassVar[bool] = False
    fingerprint: str = text("eight digits that are the same for the same key; empty without a key")
    identifier: str = text("name of the default column of identifiers")


@dataclass(frozen=True)
class Nonce(Release):
    """Nonce of one site for the label of the next question."""

    concerns_patients: ClassVar[bool] = False
    nonce: NDArray[np.uint8] = array("random bytes", (NONCE_BYTES,), dtype="u1")


@dataclass(frozen=True)
class Labelled(Persons):
    """Question about persons under a separate label."""

    nonces: Nonces = arrays("random nonce of each site for this question", (NONCE_BYTES,), dtype="u1")


class KeyedPart(SitePart):
    """Base of the site parts that compare people between sites."""

    data: Any
    sees_identifiers: ClassVar[bool] = True
    counts_persons: ClassVar[bool] = True
    _nonce: bytes = b""

    @step(releases=Fingerprint, when="once")
    def send_fingerprint(self, request: Study) -> Fingerprint:
        """Return a fingerprint of the study's key, and the name of the default identifier."""
        return Fingerprint("" if self.key is None else self.key.fingerprint(request.study), self.default_identifier)

    @step(releases=Nonce, when="on request")
    def draw_nonce(self, request: Nothing) -> Nonce:
        """Draw this site's nonce for the label of the next question; an earlier unused one becomes invalid."""
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        return Nonce(np.frombuffer(self._nonce, dtype=np.uint8).copy())

    def use_label(self, nonces: Nonces) -> str:
        """Return the label of a question, made of the nonces of all sites, once.

        Raises
        ------
        ProtocolRefused
            This site's nonce is missing or was used before.
        """
        site_nonce, received_nonce = self._nonce, nonces.get(self.site)
        if not site_nonce or received_nonce is None or received_nonce.tobytes() != site_nonce:
            raise ProtocolRefused(
                "the label of a question must contain this site's current nonce; got a missing or used one",
                where=self.site,
                hint="Let all sites draw new nonces before each question.",
            )
        self._nonce = b""
        return label_of(nonces)

    def tokens(self, values: list[str | None], persons: Persons, purpose: str) -> Pseudonyms:
        """Return the tokens of identifiers for a purpose.

        Raises
        ------
        ConfigurationError
            The site has no key, the rules of normalisation are of another version, or kind or order is unknown.
        DataError
            A value is invalid.
        """
        if not isinstance(self.key, PseudonymKey):
            raise ConfigurationError(
                "the site must have the study's key of pseudonyms; it has none", where=self.site, hint=_HAND_OVER
            )
        check_rules(persons)
        kind: Any = persons.kind
        order = persons.order_at(self.site)
        try:
            return pseudonymise(values, self.key, purpose=f"{purpose}/{persons.study}", kind=kind, date_order=order)
        except DataError as refused:
            raise DataError(refused.what, where=f"{self.site}, {persons.person_key}", hint=refused.hint) from None

    @property
    def default_identifier(self) -> str:
        """Name of the default column of identifiers: the column named "identifier", or the only column."""
        columns = getattr(self.data, "identifier", None)
        return IDENTIFIER if columns is None else str(columns.column_name(IDENTIFIER))

    def identifiers(self, name: str) -> list[str | None]:
        """Return a column of identifiers. "identifier" means the only column, or the names of the records.

        Raises
        ------
        DataError
            The site lacks the column.
        """
        columns = getattr(self.data, "identifier", None)
        if columns is not None:
            if columns.column_name(name) not in columns.names:
                raise DataError(
                    f"person_key must be one of {', '.join(columns.names)}; got {name!r}",
                    where=IDENTIFIER,
                    hint=f"Use person_key={columns.names[0]!r}.",
                )
            values: list[str | None] = columns.column(name)
            return values
        identifiers = getattr(self.data, "ids", None)
        if identifiers is None or name != IDENTIFIER:
            raise DataError(
                "the records must have identifiers; got none",
                where=f"{self.site}, {name}",
                hint="Add them with data.with_identifier(...).",
            )
        return [str(one) for one in identifiers]

    def check_masked(self) -> None:
        """Refuse to answer unmasked, unless the site's policy has no minimum of patients.

        Raises
        ------
        DisclosureRefused
        """
        if not self.masked and self.least_behind > 0:
            raise DisclosureRefused(
                "an answer on persons must be masked; got an unmasked request",
                where=self.site,
                hint=suggest_masks(_SIMULATE, protection="unmasked", n_sites=self.n_peers),
            )


def label_of(nonces: Nonces) -> str:
    """Return the hash of all sites' nonces, 64 hex digits.

    Examples
    --------
    >>> drawn = {"oslo": np.arange(16, dtype=np.uint8), "lyon": np.ones(16, dtype=np.uint8)}
    >>> label_of(drawn) == label_of(dict(sorted(drawn.items()))), len(label_of(drawn))
    (True, 64)
    """
    parts = [hashlib.sha256(site.encode()).digest() + nonces[site].tobytes() for site in sorted(nonces)]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def check_rules(persons: Persons) -> None:
    """Raise ConfigurationError unless the rules of normalisation are those of this version of the package."""
    if persons.rules != NORMALISATION:
        raise ConfigurationError(
            f"rules of normalisation must be of version {NORMALISATION!r}; got a different version",
            where="rules",
            hint="Install the same version of the package at all sites.",
        )


def describe_persons(
    federation: Consortium,
    person_key: str,
    kind: Kind,
    date_order: DateOrder | Mapping[str, DateOrder],
    study: str | None,
) -> dict[str, Any]:
    """Return the fields of :class:`Persons`.

    Parameters
    ----------
    federation : Federation
    person_key : str
        Column of identifiers.
    kind, date_order
        See :func:`multicentre.privacy.identifier_normalisation.normalise`. Orders may be by site; the default is "iso".
    study : str, optional
        Name of the study; the session's by default.

    Raises
    ------
    ConfigurationError
        An order is for a site that does not take part.
    """
    orders = date_order if isinstance(date_order, Mapping) else {}
    if strangers := sorted(set(orders) - set(federation.sites)):
        raise ConfigurationError(
            f"date_order must name participating sites; got {', '.join(strangers)}",
            where="date_order",
            hint=f"The participating sites are {', '.join(federation.sites)}.",
        )
    return {
        "study": study or federation.terms.study,
        "person_key": person_key,
        "kind": kind,
        "rules": NORMALISATION,
        "sites": tuple(orders),
        "date_orders": tuple(orders.values()),
        "date_order": date_order if isinstance(date_order, str) else "iso",
    }


def agree_on_key(session: Session, part: type[KeyedPart], study: str, person_key: str) -> str:
    """Return the fingerprint of the sites' common key, after checking that `person_key` is the same at all sites.

    Raises
    ------
    ConfigurationError
        A site has no key, two sites hold different keys, or their default identifiers have different names.
    """
    answers = session.ask(part.send_fingerprint, Study(study))
    fingerprints = {site: answer.fingerprint for site, answer in answers.items()}
    check_keys(fingerprints)
    check_identifiers(person_key, {site: answer.identifier for site, answer in answers.items()})
    return next(iter(fingerprints.values()))


def check_identifiers(person_key: str, site_columns: Mapping[str, str]) -> None:
    """Check that the default column of identifiers has the same name at all sites.

    Raises
    ------
    ConfigurationError
        The columns differ; the message names them.

    Examples
    --------
    >>> check_identifiers("identifier", {"lyon": "birth_date", "oslo": "birth_date"})
    """
    if person_key == IDENTIFIER and len(set(site_columns.values())) > 1:
        raise ConfigurationError(
            "sites must identify people by the same identifier; got "
            + ", ".join(f"{name!r} at {site}" for site, name in site_columns.items()),
            where="person_key",
            hint="Rename the column so that it has the same name at all sites, or set person_key to a common column.",
        )


def check_keys(fingerprints: Mapping[str, str]) -> None:
    """Check that all sites hold the same key.

    Raises
    ------
    ConfigurationError
        At least one site has no key or a different key; the message names it.

    Examples
    --------
    >>> check_keys({"lyon": "1f0a77c2", "oslo": "1f0a77c2"})
    """
    without = [site for site, mark in fingerprints.items() if not mark]
    if without:
        raise ConfigurationError(
            "every site must have the study's key of pseudonyms; these have none",
            where=", ".join(without),
            hint=_HAND_OVER,
        )
    [(commonest, n_sites), *others] = Counter(fingerprints.values()).most_common()
    if others:
        is_tie = others[0][1] == n_sites
        strangers = [site for site, mark in fingerprints.items() if is_tie or mark != commonest]
        raise ConfigurationError(
            "all sites must have the same key of pseudonyms; these have different keys",
            where=", ".join(strangers),
            hint="Compare PseudonymKey.fingerprint(study) and distribute the right key.",
        )


def draw_label(session: Session, part: type[KeyedPart]) -> Nonces:
    """Return the nonce of every site for the next question."""
    return {site: drawn.nonce for site, drawn in session.ask(part.draw_nonce, Nothing()).items()}


def check_present(session: Session, sites: Sequence[str]) -> None:
    """Raise QuorumLost if one of `sites` has left the session."""
    lost = [site for site in sites if site not in session.sites]
    if lost:
        error = QuorumLost(
            "all sites of the first count must participate until the end; these were lost",
            where=", ".join(lost),
            hint="Run again, with or without the site.",
        )
        error.refusal = session.refusal
        raise error


Integers = NDArray[np.int64]


def outcome_strata(data: Any) -> tuple[Integers, int]:
    """Return the class of every record's outcome, shape (n,), and the number of classes, which all sites share.

    A table has the classes of its outcome. Times to an event have two classes, with and without an event. Patients with
    events and outcomes have two. All other data have one.

    Examples
    --------
    >>> outcome_strata(SurvivalData([[1.0], [2.0]], [3.0, 4.0], [0, 2]))
    (array([0, 1]), 2)
    """
    if isinstance(data, TableData) and data.outcome == "class":
        return data.y.astype(np.int64), len(data.classes)
    if isinstance(data, SurvivalData):
        return (data.event > 0).astype(np.int64), 2
    if isinstance(data, EventTensor) and data.outcomes is not None:
        return data.outcomes.astype(np.int64), 2
    return np.zeros(len(data), dtype=np.int64), 1


def array_strata(y: NDArray[Any] | None, n_records: int) -> tuple[Integers, int]:
    """Return the class of every row's outcome, shape (n,), and the number of classes, for arrays.

    Labels and integers are classes if a class has at least two rows on average. Pairs of event and time
    (scikit-survival's structured arrays) have two classes, with and without an event. Other numbers have one.

    Examples
    --------
    >>> array_strata(np.array(["ill", "well", "ill"]), 3)
    (array([0, 1, 0]), 2)
    >>> array_strata(np.array([0.5, 1.5, 0.5]), 3)
    (array([0, 0, 0]), 1)
    """
    if y is not None and y.dtype.names:
        y = next((y[name] for name in y.dtype.names if y[name].dtype == bool), None)
    if y is not None and y.ndim == 1 and (y.dtype.kind != "f" or np.array_equal(y, np.round(y))):
        classes, strata = np.unique(y, return_inverse=True)
        if 2 * len(classes) <= max(n_records, 4):
            return strata.astype(np.int64), len(classes)
    return np.zeros(n_records, dtype=np.int64), 1
