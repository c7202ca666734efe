"""Release key of a coordinator, which signs the bundles that sites accept."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from multicentre.errors import ConfigurationError
from multicentre.privacy.secure_sum.identity import Identity
from multicentre_sites.deployment.private_files import write_private


@dataclass(frozen=True)
class Signature:
    """A release signature of a bundle, as Flower's sites check it.

    Parameters
    ----------
    key_id : str
        Name under which sites look up the public key.
    signature : bytes
        Ed25519, over the time (8 bytes, most significant first) and the SHA-256 of the bundle.
    signed_at : int
        Seconds since 1970.
    """

    key_id: str
    signature: bytes
    signed_at: int

    def as_flower(self) -> dict[str, Any]:
        """Return the signature in Flower's format."""
        text = base64.urlsafe_b64encode(self.signature).rstrip(b"=").decode()
        return {"public_key_id": self.key_id, "signature": text, "signed_at": self.signed_at}

    @classmethod
    def from_flower(cls, fields: Mapping[str, Any]) -> Self:
        """Read a signature in the format of :meth:`as_flower`."""
        text = str(fields["signature"])
        padded = text + "=" * (-len(text) % 4)
        return cls(str(fields["public_key_id"]), base64.urlsafe_b64decode(padded), int(fields["signed_at"]))


class ReleaseKey:
    """Key that signs bundles; sites trust its public key.

    Parameters
    ----------
    private : Ed25519PrivateKey
    """

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private

    @classmethod
    def generate(cls) -> Self:
        """Return a new key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a key in OpenSSH's format, without a password.

        Raises
        ------
        ConfigurationError
            The file cannot be read or is another kind of key.
        """
        try:
            key = load_ssh_private_key(path.read_bytes(), password=None)
        except (OSError, ValueError, TypeError):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigurationError(
                "the release key must be an Ed25519 key in OpenSSH format without a password; got another file",
                where=str(path),
                hint="Restore the file from a copy; sites trust no other key.",
            )
        return cls(key)

    def write(self, path: Path) -> None:
        """Write the key in OpenSSH's format (mode 0600)."""
        write_private(path, self._private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))

    @property
    def public(self) -> Ed25519PublicKey:
        """Public key."""
        return self._private.public_key()

    @property
    def identity(self) -> Identity:
        """The key as identity for runs of the coordinator's administrator."""
        return Identity(self._private)

    @property
    def key_id(self) -> str:
        """Name of the key at the sites."""
        return key_id_of(self.public)

    def sign(self, content: bytes, signed_at: int) -> Signature:
        """Return the signature of a bundle."""
        return Signature(self.key_id, self._private.sign(_signed_text(content, signed_at)), signed_at)

    def vouches_for(self, content: bytes, signatures: Iterable[Signature]) -> bool:
        """Return True if one of a bundle's signatures is a valid signature of this key."""
        return any(one.key_id == self.key_id and verifies(self.public, one, content) for one in signatures)


def verifies(public: Ed25519PublicKey, signature: Signature, content: bytes) -> bool:
    """Return True if the signature of a bundle is valid."""
    try:
        public.verify(signature.signature, _signed_text(content, signature.signed_at))
    except (InvalidSignature, OverflowError):
        return False
    return True


def key_id_of(public: Ed25519PublicKey) -> str:
    """Return the name of a release key in Flower, which is derived from the key."""
    return f"fpk_{hashlib.sha256(public.public_bytes_raw()).hexdigest()[:32]}"


def openssh_line(public: Ed25519PublicKey) -> str:
    """Return a public key as an OpenSSH line."""
    return f"{public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()} release"


def trusted_entities(keys: Iterable[Ed25519PublicKey]) -> str:
    """Return the content of the file for ``flower-supernode --trusted-entities``."""
    return "".join(f"{key_id_of(one)}: '{openssh_line(one)}'\n" for one in keys)


def _signed_text(content: bytes, signed_at: int) -> bytes:
    return signed_at.to_bytes(8, "big") + hashlib.sha256(content).digest()
