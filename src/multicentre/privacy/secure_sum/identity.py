"""Identity of a site: a long-lived signing key (Ed25519, RFC 8032). The peers of the site have its public half."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from multicentre.errors import ConfigurationError
from multicentre.privacy.secret_files import read_secret, write_secret

# Length of an Ed25519 public key (RFC 8032, section 5.1.5).
PUBLIC_BYTES = 32
# Prime of the field of Ed25519 (RFC 8032, section 5.1).
_PRIME = 2**255 - 19
# The four points of order 8 have this y-coordinate or its negative. tests/guarantees/test_small_order_keys.py computes
# both from the equation of the curve.
_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
# Order 4 (y = 0), 1 (the identity, y = 1), 2 (y = -1), and 8.
_SMALL_ORDER = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8})
# Remedy for a lost identity: no other site has a copy, and the card of the site names its public half.
_NO_COPY = (
    "Only this site has this key. Restore it from a backup of this site, or create the site's folder again with new "
    "keys (multicentre site keygen) and have the coordinator remove the site and register the new card."
)


class Identity:
    """Signing key of a site.

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
            The file cannot be read, others have rights to it, or it is not a secret file.
        """
        return cls(Ed25519PrivateKey.from_private_bytes(read_secret(path, hint=_NO_COPY)))

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
        """Public half, 32 bytes, for the site's peers."""
        return self._private.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes."""
        return self._private.sign(message)

    def __repr__(self) -> str:
        return f"Identity({self.public.hex()})"


def bytes_of_hex(text: str) -> bytes:
    """Return the bytes of lower-case hexadecimal digits, so that a key or signature has one text only.

    Raises
    ------
    ValueError
        The text has other letters, such as capitals or spaces.

    Examples
    --------
    >>> bytes_of_hex("1f2e").hex()
    '1f2e'
    """
    content = bytes.fromhex(text)
    if content.hex() != text:
        raise ValueError
    return content


@functools.lru_cache(maxsize=1024)  # in one process, all sites check the same signatures
def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether a signature of a message is valid under a public key.

    Examples
    --------
    >>> verify(Identity.generate().public, bytes(64), b"a forgery")
    False
    """
    if has_small_order(public):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def has_small_order(public: bytes) -> bool:
    """Return whether a public key is one of the eight points of small order, in any encoding.

    Anybody can sign under such a key. For the neutral element, one signature is valid for every message.
    """
    y = int.from_bytes(public, "little") % 2**255
    return y % _PRIME in _SMALL_ORDER


@functools.lru_cache(maxsize=1024)  # in one process, every site checks the identities of all others
def _can_be_identity(public: bytes) -> bool:
    fits = len(public) == PUBLIC_BYTES and int.from_bytes(public, "little") % 2**255 < _PRIME
    return fits and not has_small_order(public)


def check_public(public: bytes, where: str) -> None:
    """Raise ConfigurationError unless bytes can be the public half of a site's identity.

    Parameters
    ----------
    public : bytes
    where : str
        Place of the key, for the error message.

    Examples
    --------
    >>> check_public(bytes([1]) + bytes(31), "site lyon, identity")
    Traceback (most recent call last):
        ...
    multicentre.errors.ConfigurationError: site lyon, identity: an identity must be the public half of an ...
    """
    if _can_be_identity(public):
        return
    is_small = len(public) == PUBLIC_BYTES and has_small_order(public)
    got = "a point of small order, under which anybody can sign" if is_small else f"{len(public)} other bytes"
    raise ConfigurationError(
        f"an identity must be the public half of an Ed25519 key in its canonical form; got {got}",
        where=where,
        hint="Ask the site for its card, which multicentre site keygen writes.",
    )
