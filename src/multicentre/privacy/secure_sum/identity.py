"""Who a site is: a long-lived signing key (Ed25519, RFC 8032) whose public half its peers know."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from multicentre.privacy.secrets import read_secret, write_secret

PUBLIC_BYTES = 32


class Identity:
    """A site's signing key.

    Parameters
    ----------
    private : Ed25519PrivateKey

    Examples
    --------
    >>> lyon = Identity.generate()
    >>> verify(lyon.public, lyon.sign(b"a public key"), b"a public key")
    True
    """

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private

    @classmethod
    def generate(cls) -> Self:
        """Return a new identity."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read an identity from a secret file that only its owner can read.

        Raises
        ------
        ConfigurationError
            The file cannot be read, is open to others, or is not a secret file.
        """
        return cls(Ed25519PrivateKey.from_private_bytes(read_secret(path)))

    def write(self, path: str | Path) -> None:
        """Write the identity to a new secret file (mode 0600).

        Raises
        ------
        ConfigurationError
            The file exists or cannot be written.
        """
        write_secret(path, self._private.private_bytes_raw())

    @property
    def public(self) -> bytes:
        """The public half, 32 bytes, for the site's peers."""
        return self._private.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes."""
        return self._private.sign(message)

    def __repr__(self) -> str:
        return f"Identity({self.public.hex()})"


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether the holder of a public key signed a message.

    Examples
    --------
    >>> verify(Identity.generate().public, bytes(64), b"a forgery")
    False
    """
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
