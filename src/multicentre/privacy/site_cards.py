"""Public card of a site: name and public keys, in a file for the coordinator."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from multicentre.core.parsing import read_toml
from multicentre.core.storage import check_site_name, write_atomically
from multicentre.errors import ConfigurationError, IntegrityError
from multicentre.privacy.secure_sum.identity import check_public

SUFFIX = ".site.toml"
_KEYS = ("name", "public_key", "identity", "fingerprint")
_IDENTITY = re.compile(r"[0-9a-f]{64}")
_GROUPS = 10  # 40 hexadecimal digits: 160 bits, short enough to be read out by telephone


@dataclass(frozen=True)
class SiteCard:
    """Public card of a site.

    Parameters
    ----------
    name : str
        Name of the site.
    public_key : str
        OpenSSH public key on the curve P-384, which authenticates its connection; a comment is dropped.
    identity : str
        Public half of its Ed25519 identity, 64 hexadecimal digits, which authenticates its masks.

    Raises
    ------
    ConfigurationError
        The name is invalid, a key is of another kind, or the identity is a key under which anyone can sign.
    """

    name: str
    public_key: str
    identity: str

    def __post_init__(self) -> None:
        check_site_name(self.name)
        object.__setattr__(self, "public_key", _plain_key(self.public_key, f"site {self.name}, public_key"))
        if not _IDENTITY.fullmatch(self.identity):
            raise ConfigurationError(
                "identity must be 64 lower-case hexadecimal digits; got another text",
                where=f"site {self.name}, identity",
                hint="multicentre site keygen writes a valid card.",
            )
        check_public(bytes.fromhex(self.identity), f"site {self.name}, identity")

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the whole card, to be compared by telephone."""
        content = "\0".join(["multicentre site card v1", self.name, self.public_key, self.identity])
        digits = hashlib.sha256(content.encode()).hexdigest()
        return "-".join(digits[4 * i : 4 * i + 4] for i in range(_GROUPS))

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any], where: str) -> Self:
        """Make a card from the keys of a table.

        Raises
        ------
        ConfigurationError
            A key is missing, unknown or not a string, or the card is invalid.
        IntegrityError
            The fingerprint differs from that of the card.
        """
        _check_keys(content, where)
        try:
            card = cls(content["name"], content["public_key"], content["identity"])
        except ConfigurationError as error:
            raise error.at(where) from None
        if content["fingerprint"] != card.fingerprint:
            raise IntegrityError(
                "the fingerprint must be that of the card; got another",
                where=where,
                hint="The card was changed: ask the site for it again, and compare fingerprints by telephone.",
            )
        return card

    def as_toml(self) -> str:
        """Return the card's lines."""
        values = (self.name, self.public_key, self.identity, self.fingerprint)
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in zip(_KEYS, values, strict=True)]
        return "\n".join(lines) + "\n"


def read_card(path: Path) -> SiteCard:
    """Read ``NAME.site.toml``.

    Raises
    ------
    ConfigurationError
        The file cannot be read, is not TOML, or does not hold a card.
    IntegrityError
        The fingerprint differs from that of the card.
    """
    return SiteCard.from_mapping(read_toml(path, "the card"), str(path))


def write_card(card: SiteCard, folder: Path) -> Path:
    """Write a card into a folder as ``NAME.site.toml`` and return its path."""
    path = folder / f"{card.name}{SUFFIX}"
    page = "# The public card of a site. Nothing here is secret: send this file to the coordinator.\n" + card.as_toml()
    write_atomically(path, page.encode())
    return path


def _check_keys(content: Mapping[str, Any], where: str) -> None:
    unknown = sorted(set(content) - set(_KEYS))
    missing = [key for key in _KEYS if key not in content]
    if unknown or missing:
        message = f"it has no {missing[0]!r}" if missing else f"the key {unknown[0]!r} is not one of a card"
        raise ConfigurationError(message, where=where, hint=f"A card has exactly the keys {', '.join(_KEYS)}.")
    for key in _KEYS:
        if not isinstance(content[key], str):
            raise ConfigurationError("a text is needed", where=f"{where}, {key}")


def _plain_key(text: object, where: str) -> str:
    """Return an OpenSSH public key as type and base64, without its comment."""
    parts = text.split() if isinstance(text, str) and "\n" not in text.strip() else []
    try:
        key = load_ssh_public_key(" ".join(parts[:2]).encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not (isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP384R1)):
        raise ConfigurationError(
            "an OpenSSH public key on the curve P-384 is needed",
            where=where,
            hint="multicentre site keygen makes one; so does: ssh-keygen -t ecdsa -b 384.",
        )
    return f"{parts[0]} {base64.b64encode(base64.b64decode(parts[1])).decode()}"
