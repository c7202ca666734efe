"""The roster: every site of a consortium with its public keys, published by the coordinator and pinned by each site."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from multicentre.deployment.cards import SiteCard
from multicentre.deployment.settings import read_toml
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.storage import write_atomically


@dataclass(frozen=True)
class Roster:
    """The cards of all sites, by name.

    Parameters
    ----------
    cards : tuple of SiteCard

    Raises
    ------
    ConfigurationError
        Two sites share a name, a public key or an identity.
    """

    cards: tuple[SiteCard, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "cards", tuple(sorted(self.cards, key=lambda card: card.name)))
        for number, card in enumerate(self.cards):
            check_apart(card, self.cards[:number])

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

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read ``roster.toml``.

        Raises
        ------
        ConfigurationError
            The file is missing, is not a roster, or two sites share a name or a key.
        IntegrityError
            A card's fingerprint is not that of the card.
        """
        content = read_toml(path, "the roster")
        tables = content.pop("site", [])
        if content or not (isinstance(tables, list) and all(isinstance(one, dict) for one in tables)):
            raise ConfigurationError(
                "this is no roster", where=str(path), mend="A roster holds one [[site]] table for each site."
            )
        cards = (SiteCard.from_mapping(one, f"{path}, site {i}") for i, one in enumerate(tables, 1))
        try:
            return cls(tuple(cards))
        except ConfigurationError as error:
            raise error.at(str(path)) from None

    def write(self, path: Path) -> None:
        """Write the roster; a crash leaves the old one or the new one."""
        header = "# The sites of this consortium. Compare the fingerprints with the sites before you approve it.\n"
        tables = [f"\n[[site]]\n{card.as_toml()}" for card in self.cards]
        write_atomically(path, (header + "".join(tables)).encode())


def check_apart(card: SiteCard, others: Iterable[SiteCard]) -> None:
    """Raise ConfigurationError when a card shares a name, a public key or an identity with another.

    Names that differ only in case or in how a letter is composed count as the same.
    """
    for other in others:
        if _folded(card.name) == _folded(other.name):
            raise _clash(card, f"a site {other.name!r} is known already", "Sites need different names.")
        if card.public_key == other.public_key:
            raise _clash(card, f"its public key is that of {other.name}", "Every site makes keys of its own.")
        if card.identity == other.identity:
            raise _clash(card, f"its identity is that of {other.name}", "Every site makes keys of its own.")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _clash(card: SiteCard, what: str, mend: str) -> ConfigurationError:
    return ConfigurationError(what, where=f"site {card.name}", mend=mend)
