"""Analysts: the key and card of one, and the list of those whom a coordinator admits."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from multicentre.core.parsing import load_json, read_toml
from multicentre.core.requester import COORDINATOR
from multicentre.core.storage import held, write_atomically
from multicentre.engines.remote.opening import LONGEST_NAME, analyst_fingerprint, is_analyst_name
from multicentre.errors import ConfigurationError, IntegrityError
from multicentre.privacy.secure_sum.identity import Identity, check_public

SUFFIX = ".analyst.toml"
KEY = "key"
_KEYS = ("name", "public_key", "fingerprint")
_LOCK_WAIT_S = 10.0  # another command holds the lock for milliseconds
_HEX_DIGITS = 64  # 32 bytes of an Ed25519 key


@dataclass(frozen=True)
class AnalystCard:
    """Public card of an analyst.

    Parameters
    ----------
    name : str
    public_key : str
        Ed25519, 64 hexadecimal digits.

    Raises
    ------
    ConfigurationError
        The name or the key cannot be used.
    """

    name: str
    public_key: str

    def __post_init__(self) -> None:
        if not is_analyst_name(self.name) or self.name.casefold() == COORDINATOR:
            raise ConfigurationError(
                f"an analyst's name must be printable, free of / \\ | < > : \" ? *, at most {LONGEST_NAME} characters "
                f"long and not {COORDINATOR!r}; got {self.name[:LONGEST_NAME]!r}",
                where="name",
            )
        if len(self.public_key) != _HEX_DIGITS or set(self.public_key) - set("0123456789abcdef"):
            raise ConfigurationError(
                "public_key must be 64 lower-case hexadecimal digits",
                where=f"analyst {self.name}",
                hint="multicentre analyst keygen writes a fitting card.",
            )
        check_public(bytes.fromhex(self.public_key), f"analyst {self.name}")

    @property
    def fingerprint(self) -> str:
        """Fingerprint of name and key, to be compared by telephone and recorded in ledgers."""
        return analyst_fingerprint(self.name, self.public_key)

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any], where: str) -> Self:
        """Make a card from the keys of a table.

        Raises
        ------
        ConfigurationError
            A key is missing, unknown or not a string, or the card is invalid.
        IntegrityError
            The fingerprint is not that of name and key.
        """
        if {key: type(value) for key, value in content.items()} != dict.fromkeys(_KEYS, str):
            raise ConfigurationError(f"a card must have exactly the texts {', '.join(_KEYS)}", where=where)
        try:
            card = cls(content["name"], content["public_key"])
        except ConfigurationError as error:
            raise error.at(where) from None
        if content["fingerprint"] != card.fingerprint:
            raise IntegrityError(
                "the fingerprint must be that of the card's name and key",
                where=where,
                hint="The card was changed: ask the analyst for it again, and compare fingerprints by telephone.",
            )
        return card

    def as_toml(self) -> str:
        """Return the card's lines."""
        values = (self.name, self.public_key, self.fingerprint)
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in zip(_KEYS, values, strict=True)]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Analyst:
    """Folder of an analyst: signing key and public card."""

    folder: Path
    card: AnalystCard
    identity: Identity


def make_analyst(name: str, folder: Path) -> Analyst:
    """Create an analyst's folder with a new key (folder 0700, key 0600) and the public card.

    Raises
    ------
    ConfigurationError
        The name is invalid, the folder has a key already, or it cannot be written.
    """
    folder, identity = folder.absolute(), Identity.generate()
    card = AnalystCard(name, identity.public.hex())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise ConfigurationError(f"the folder cannot be created ({error.strerror})", where=str(folder)) from None
    if os.path.lexists(folder / KEY):
        raise ConfigurationError(
            "the folder must be without a key, since keys are never overwritten; it has one",
            where=str(folder),
            hint="Name another folder.",
        )
    identity.write(folder / KEY)
    page = "# The public card of an analyst. Nothing here is secret: send this file to coordinator and sites.\n"
    write_atomically(folder / f"{name}{SUFFIX}", (page + card.as_toml()).encode())
    return Analyst(folder, card, identity)


def read_analyst(folder: Path) -> Analyst:
    """Read an analyst's folder.

    Raises
    ------
    ConfigurationError
        It does not contain exactly one card, its key is unreadable or accessible to others, or key and card differ.
    """
    cards = sorted(folder.glob(f"*{SUFFIX}"))
    if len(cards) != 1:
        raise ConfigurationError(
            f"an analyst's folder must hold one NAME{SUFFIX}; got {len(cards)}",
            where=str(folder),
            hint="Make a folder: multicentre analyst keygen NAME.",
        )
    card, identity = read_analyst_card(cards[0]), Identity.read(folder / KEY)
    if identity.public.hex() != card.public_key:
        raise ConfigurationError("key and card must belong together", where=str(folder), hint="Restore both files.")
    return Analyst(folder, card, identity)


def read_analyst_card(path: Path) -> AnalystCard:
    """Read ``NAME.analyst.toml``.

    Raises
    ------
    ConfigurationError
        The file cannot be read, is not TOML, or does not hold a card.
    IntegrityError
        The fingerprint is not that of name and key.
    """
    return AnalystCard.from_mapping(read_toml(path, "the card"), str(path))


class AdmittedAnalysts:
    """List of the analysts that a coordinator admits, in a file of its folder.

    Parameters
    ----------
    path : Path
        ``analysts.json``; nobody is admitted while it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def cards(self) -> tuple[AnalystCard, ...]:
        """Cards of all admitted analysts, sorted by name.

        Raises
        ------
        IntegrityError
            The list cannot be read.
        """
        if not self._path.exists():
            return ()
        try:
            cards = [AnalystCard(**one) for one in load_json(self._path.read_bytes())]
        except (OSError, ValueError, TypeError, ConfigurationError):
            raise IntegrityError(
                "the list of admitted analysts cannot be read", where=str(self._path), hint="Restore it from a copy."
            ) from None
        return tuple(sorted(cards, key=lambda card: card.name))

    def add(self, card: AnalystCard) -> None:
        """Admit an analyst; without effect if the card is admitted already.

        Raises
        ------
        ConfigurationError
            An analyst of this name is admitted with another key.
        """
        with held(self._path.with_suffix(".lock"), _LOCK_WAIT_S):
            cards = self.cards
            if any(one.name == card.name and one != card for one in cards):
                raise ConfigurationError(
                    "analysts must have different names; one of this name is admitted with another key",
                    where=card.name,
                    hint=f"Compare fingerprints; then first: multicentre coordinator remove-analyst {card.name}.",
                )
            self._write({one.name: one for one in (*cards, card)})

    def remove(self, name: str) -> None:
        """Remove an analyst.

        Raises
        ------
        ConfigurationError
            No analyst of this name is admitted.
        """
        with held(self._path.with_suffix(".lock"), _LOCK_WAIT_S):
            cards = {one.name: one for one in self.cards}
            if name not in cards:
                raise ConfigurationError("the analyst must be admitted; got another name", where=name)
            del cards[name]
            self._write(cards)

    def _write(self, cards: Mapping[str, AnalystCard]) -> None:
        content = json.dumps([asdict(card) for card in cards.values()], indent=1)
        write_atomically(self._path, content.encode(), mode=0o600)
