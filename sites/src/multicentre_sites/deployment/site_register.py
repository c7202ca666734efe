"""Register of sites at the coordinator: cards, states and Flower's node numbers."""

from __future__ import annotations

import dataclasses
import json
import time
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self, get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from multicentre.core.parsing import load_json, read_toml
from multicentre.core.storage import write_atomically
from multicentre.errors import ConfigurationError, IntegrityError, MulticentreError
from multicentre.privacy.site_cards import SiteCard
from multicentre_sites.deployment.release_key import ReleaseKey, Signature, verifies


@dataclass(frozen=True)
class Roster:
    """Public cards of all sites, sorted by name.

    Parameters
    ----------
    cards : tuple of SiteCard
    signature : Signature, optional
        Signature of a release key over the cards.

    Raises
    ------
    ConfigurationError
        Two sites share a name, a public key or an identity.
    """

    cards: tuple[SiteCard, ...]
    signature: Signature | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cards", tuple(sorted(self.cards, key=lambda card: card.name)))
        for number, card in enumerate(self.cards):
            check_distinct(card, self.cards[:number])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sites, in a fixed order."""
        return tuple(card.name for card in self.cards)

    @property
    def identities(self) -> dict[str, bytes]:
        """Public identity of every site, 32 bytes, by name."""
        return {card.name: bytes.fromhex(card.identity) for card in self.cards}

    @property
    def public_keys(self) -> dict[str, str]:
        """OpenSSH public key of every site, by name."""
        return {card.name: card.public_key for card in self.cards}

    @property
    def signed_content(self) -> bytes:
        """Bytes that a release key signs: names and keys of all sites."""
        cards = [[card.name, card.public_key, card.identity] for card in self.cards]
        return b"multicentre roster v1\0" + json.dumps(cards).encode()

    def signed_by(self, key: ReleaseKey) -> Self:
        """Return the same roster with the key's signature of now."""
        return dataclasses.replace(self, signature=key.sign(self.signed_content, int(time.time())))

    def is_signed_by(self, keys: Iterable[Ed25519PublicKey]) -> bool:
        """Return whether the signature is one of these keys; the name of a key in the file is not relied on."""
        signature = self.signature
        return signature is not None and any(verifies(key, signature, self.signed_content) for key in keys)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read ``roster.toml``.

        Raises
        ------
        ConfigurationError
            The file is missing or not a roster, or two sites share a name or a key.
        IntegrityError
            A card's fingerprint is not that of the card.
        """
        return cls.from_tables(read_toml(path, "the roster"), str(path))

    @classmethod
    def from_tables(cls, content: dict[str, Any], where: str) -> Self:
        """Read the tables of a roster; see :meth:`read`."""
        tables, signature = content.pop("site", []), content.pop("signature", None)
        if content or not (isinstance(tables, list) and all(isinstance(one, dict) for one in tables)):
            raise ConfigurationError(
                "a roster must have one [[site]] table per site and a [signature] at most; got another content",
                where=where,
            )
        cards = tuple(SiteCard.from_mapping(one, f"{where}, site {i}") for i, one in enumerate(tables, 1))
        try:
            return cls(cards, None if signature is None else Signature.from_flower(signature))
        except ConfigurationError as error:
            raise error.at(where) from None
        except (KeyError, TypeError, ValueError):
            raise ConfigurationError(
                "the signature of a roster must have the fields of the coordinator's; got others", where=where
            ) from None

    def write(self, path: Path) -> None:
        """Write the roster; a crash leaves the old one or the new one."""
        header = "# The sites of this consortium. Compare the fingerprints with the sites before you approve it.\n"
        tables = [f"\n[[site]]\n{card.as_toml()}" for card in self.cards]
        if self.signature is not None:
            lines = [f"{name} = {json.dumps(value)}\n" for name, value in self.signature.as_flower().items()]
            tables.append(f"\n[signature]\n{''.join(lines)}")
        write_atomically(path, (header + "".join(tables)).encode())


def check_distinct(card: SiteCard, others: Iterable[SiteCard]) -> None:
    """Raise ConfigurationError when a card shares a name, a public key or an identity with another.

    Names are compared after Unicode normalisation and without case.
    """
    for other in others:
        if _fold_case(card.name) == _fold_case(other.name):
            raise _clash(card, f"sites must have different names; got {other.name!r} again", "Choose another name.")
        if card.public_key == other.public_key:
            raise _clash(
                card,
                f"sites must have different public keys; got that of {other.name}",
                "Every site makes its keys with site keygen.",
            )
        if card.identity == other.identity:
            raise _clash(
                card,
                f"sites must have different identities; got that of {other.name}",
                "Every site makes its keys with site keygen.",
            )


def _fold_case(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _clash(card: SiteCard, message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(message, where=f"site {card.name}", hint=hint)


State = Literal["pending", "registered", "removed"]

_VERSION = 1  # of the file; raised when its keys change


@dataclass(frozen=True)
class RegisterEntry:
    """Entry of one site.

    Parameters
    ----------
    card : SiteCard
    state : {"pending", "registered", "removed"}
        ``"pending"`` until the SuperLink has confirmed the site.
    node_id : int, optional
        Flower's node number of the site, once registered.
    since : str
        Time of the last change of state (UTC).
    """

    card: SiteCard
    state: State
    node_id: int | None
    since: str

    def __post_init__(self) -> None:
        fits = self.state in get_args(State) and isinstance(self.since, str)
        whole = isinstance(self.node_id, int) and not isinstance(self.node_id, bool)
        if not fits or (self.state == "registered" and not whole) or not (whole or self.node_id is None):
            raise ValueError("not an entry")


@dataclass(frozen=True)
class SiteRegister:
    """All sites that were ever added, in this order. Instances are immutable.

    Parameters
    ----------
    entries : tuple of RegisterEntry

    Notes
    -----
    The entry of a removed site stays, since Flower never accepts its public key again.
    """

    entries: tuple[RegisterEntry, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the register; it is empty before the first write.

        Raises
        ------
        IntegrityError
            The file was changed or damaged.
        """
        if not path.exists():
            return cls()
        try:
            content = load_json(path.read_text(encoding="utf-8"))
            if content["version"] != _VERSION:
                raise ValueError("another version")
            return cls(tuple(_entry(one, str(path)) for one in content["sites"]))
        except (ValueError, KeyError, TypeError, MulticentreError):
            raise IntegrityError(
                "the register cannot be read: it was changed or damaged",
                where=str(path),
                hint="Restore it from a copy.",
            ) from None

    def write(self, path: Path) -> None:
        """Write the register; a crash leaves the old one or the new one."""
        sites = [
            {
                "name": one.card.name,
                "public_key": one.card.public_key,
                "identity": one.card.identity,
                "fingerprint": one.card.fingerprint,
                "state": one.state,
                "node_id": one.node_id,
                "since": one.since,
            }
            for one in self.entries
        ]
        page = json.dumps({"version": _VERSION, "sites": sites}, indent=2, ensure_ascii=False) + "\n"
        write_atomically(path, page.encode(), mode=0o600)

    @property
    def current(self) -> tuple[RegisterEntry, ...]:
        """Sites that are not removed."""
        return tuple(one for one in self.entries if one.state != "removed")

    @property
    def pending(self) -> tuple[RegisterEntry, ...]:
        """Sites that the SuperLink has not confirmed."""
        return tuple(one for one in self.entries if one.state == "pending")

    @property
    def roster(self) -> Roster:
        """Roster of the registered sites."""
        return Roster(tuple(one.card for one in self.entries if one.state == "registered"))

    @property
    def node_ids(self) -> frozenset[int]:
        """Flower's node numbers of all sites that were ever registered."""
        return frozenset(one.node_id for one in self.entries if one.node_id is not None)

    def find(self, name: str) -> RegisterEntry:
        """Return the entry of a site that was not removed.

        Raises
        ------
        ConfigurationError
            There is no such site.
        """
        for one in self.current:
            if one.card.name == name:
                return one
        site_names = ", ".join(one.card.name for one in self.current) or "none"
        raise ConfigurationError(f"name must be one of {site_names}; got {name!r}", where="register")

    def adding(self, card: SiteCard) -> Self:
        """Return a register with a pending card; unchanged if the card is in it already.

        Raises
        ------
        ConfigurationError
            Another site has its name or one of its keys, or the key was used by a site that was removed.
        """
        if any(one.card == card for one in self.current):
            return self
        check_distinct(card, (one.card for one in self.current))
        for one in self.entries:
            if one.state == "removed" and one.card.public_key == card.public_key:
                raise ConfigurationError(
                    f"the public key must be new; got that of {one.card.name}, which was removed",
                    where=f"site {card.name}",
                    hint="Flower accepts a key once: the site must make new ones with multicentre site keygen.",
                )
        return type(self)((*self.entries, RegisterEntry(card, "pending", None, _now())))

    def registered(self, name: str, node_id: int) -> Self:
        """Return a register with a site that the SuperLink has confirmed."""
        return self._with_changes(name, state="registered", node_id=node_id)

    def removed(self, name: str) -> Self:
        """Return a register with a removed site; a site that the SuperLink never confirmed is deleted."""
        entry = self.find(name)
        if entry.node_id is None:
            return type(self)(tuple(one for one in self.entries if one is not entry))
        return self._with_changes(name, state="removed")

    def _with_changes(self, name: str, **changes: Any) -> Self:
        entry = self.find(name)
        new = dataclasses.replace(entry, since=_now(), **changes)
        return type(self)(tuple(new if one is entry else one for one in self.entries))


def check_named(roster: Roster, card: SiteCard) -> None:
    """Check that a roster names a site with its current keys.

    Raises
    ------
    ConfigurationError
        The roster lacks the site or names other keys.
    """
    if card.name not in roster.names:
        raise ConfigurationError(
            f"the roster must name this site, {card.name!r}; got others",
            where="roster",
            hint="Send the coordinator this site's card, and ask for a new roster.",
        )
    roster_keys = (roster.identities[card.name].hex(), roster.public_keys[card.name])
    if roster_keys != (card.identity, card.public_key):
        raise ConfigurationError(
            f"the roster must name {card.name} with the keys of this site; got other keys",
            where="roster",
            hint="Somebody else may have registered under this name. Compare fingerprints with the coordinator.",
        )


def _entry(content: dict[str, Any], where: str) -> RegisterEntry:
    keys = ("name", "public_key", "identity", "fingerprint")
    card = SiteCard.from_mapping({key: content[key] for key in keys}, where)
    return RegisterEntry(card, content["state"], content["node_id"], content["since"])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
