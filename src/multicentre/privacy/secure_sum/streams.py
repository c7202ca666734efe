"""Streams of ring numbers that look random to all who lack their key (HKDF-SHA256, RFC 5869; ChaCha20, RFC 8439)."""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from multicentre.federation.errors import IntegrityError
from multicentre.privacy.secure_sum.ring import Ring

SEED_BYTES = 16
Sign = Literal[1, -1]
Label = tuple[str | int, ...]
_CHUNK = 2**15
# Above this length the cost per number outweighs that of starting a cipher.
_SHORT = 2**12
_ZEROS = memoryview(bytes(8 * _CHUNK))
_NO_SALT = bytes(32)
_NONCE = bytes(12)
# The bare cipher takes block number (little endian) and nonce as one; ChaCha20-Poly1305 keeps block 0 for itself.
_BLOCK_1 = (1).to_bytes(4, "little") + _NONCE


def derive(secret: bytes, *label: str | int, n_bytes: int = 32) -> bytes:
    """Return a key for one purpose; other labels give keys that have nothing in common with it.

    Parameters
    ----------
    secret : bytes
        A seed of 16 random bytes or the outcome of a key exchange.
    *label : str or int
        What the key is for.
    n_bytes : int
        At most 32.

    Examples
    --------
    >>> derive(bytes(16), "one purpose") == derive(bytes(16), "another")
    False
    """
    # HKDF-SHA256 without salt and for one block, which the standard library does five times faster than cryptography.
    info = json.dumps(["multicentre secure sum", *label]).encode()
    extracted = hmac.digest(_NO_SALT, secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")[:n_bytes]


def text_of(label: Label) -> bytes:
    """Return a label as bytes; different labels give different bytes."""
    return json.dumps(label).encode()


def sign_of(site: str, peer: str) -> Sign:
    """Return the sign by which `site` adds the stream that it shares with `peer`; the peer's is the opposite."""
    return 1 if site < peer else -1


def key_pair(seed: bytes) -> X25519PrivateKey:
    """Return the key pair that a seed of 16 bytes stands for.

    Examples
    --------
    >>> len(key_pair(bytes(16)).public_key().public_bytes_raw())
    32
    """
    return X25519PrivateKey.from_private_bytes(derive(seed, "key pair"))


def exchange(private: X25519PrivateKey, public: bytes, peer: str) -> bytes:
    """Return the secret that two sites share (X25519, RFC 7748).

    Raises
    ------
    IntegrityError
        The peer's key is of low order: its secret would be known to all.

    Examples
    --------
    >>> one, two = key_pair(bytes(16)), key_pair(bytes(15) + b"1")
    >>> public = [pair.public_key().public_bytes_raw() for pair in (one, two)]
    >>> exchange(one, public[1], "lyon") == exchange(two, public[0], "nice")
    True
    """
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise IntegrityError("a public key cannot be used", where=peer, mend="Start the run anew.") from None


def pair_mask(private: X25519PrivateKey, public: bytes, site: str, peer: str, label: Label) -> tuple[bytes, Sign]:
    """Return the stream by which `site` masks one sum against `peer`: its key, and the sign that the peer's lacks.

    Examples
    --------
    >>> one, two = key_pair(bytes(16)), key_pair(bytes(15) + b"1")
    >>> public = [pair.public_key().public_bytes_raw() for pair in (one, two)]
    >>> mine = pair_mask(one, public[1], "lyon", "nice", ("first sum",))
    >>> theirs = pair_mask(two, public[0], "nice", "lyon", ("first sum",))
    >>> mine[0] == theirs[0], mine[1], theirs[1]
    (True, 1, -1)
    """
    return derive(exchange(private, public, peer), "pair mask", *label), sign_of(site, peer)


def own_mask(seed: bytes, label: Label) -> bytes:
    """Return the key of the stream by which a site masks one sum by itself.

    Examples
    --------
    >>> own_mask(bytes(16), ("first sum",)) == own_mask(bytes(16), ("second sum",))
    False
    """
    return derive(seed, "own mask", *label)


def seed_of_sum(seed: bytes, number: int) -> bytes:
    """Return the seed, 16 bytes, of a site's own mask of one sum; it says nothing about those of other sums.

    Parameters
    ----------
    seed : bytes
        The seed of the site's own masks in one agreement.
    number : int
        Number of the sum.

    Examples
    --------
    >>> seed_of_sum(bytes(16), 0) == seed_of_sum(bytes(16), 1)
    False
    """
    return derive(seed, "own seed", number, n_bytes=SEED_BYTES)


def check_of(seed: bytes) -> bytes:
    """Return the hash, 16 bytes, by which the coordinator sees that it has the right seed of an own mask.

    Examples
    --------
    >>> len(check_of(bytes(16)))
    16
    """
    return derive(seed, "check", n_bytes=16)


def add_streams(vector: Ring, streams: Sequence[tuple[bytes, Sign]]) -> None:
    """Add to (+1) or subtract from (-1) a vector, in place, the stream of each 32-byte key. Each key serves once.

    Notes
    -----
    A stream is ChaCha20 with a nonce of zeros, from block 1. A short one comes from ChaCha20-Poly1305, which starts
    three times faster than the bare cipher and appends a tag that is not used. Long ones pass through one buffer of
    256 KiB, so that no stream is ever held whole.

    Examples
    --------
    >>> vector = np.arange(3, dtype=np.uint64)
    >>> add_streams(vector, [(bytes(32), 1)])
    >>> add_streams(vector, [(bytes(32), -1)])
    >>> vector.tolist()
    [0, 1, 2]
    """
    if len(vector) > _SHORT:
        _add_in_chunks(vector, streams)
        return
    zeros = _ZEROS[: 8 * len(vector)]
    for key, sign in streams:
        stream = np.frombuffer(ChaCha20Poly1305(key).encrypt(_NONCE, zeros, None), "<u8", len(vector))
        (np.add if sign > 0 else np.subtract)(vector, stream, out=vector)


def _add_in_chunks(vector: Ring, streams: Sequence[tuple[bytes, Sign]]) -> None:
    ciphers = [(Cipher(algorithms.ChaCha20(key, _BLOCK_1), mode=None).encryptor(), sign) for key, sign in streams]
    buffer = bytearray(8 * _CHUNK)
    view, numbers = memoryview(buffer), np.frombuffer(buffer, dtype="<u8")
    for start in range(0, len(vector), _CHUNK):
        part = vector[start : start + _CHUNK]
        stream, n_bytes = numbers[: len(part)], 8 * len(part)
        for cipher, sign in ciphers:
            cipher.update_into(_ZEROS[:n_bytes], view[:n_bytes])
            (np.add if sign > 0 else np.subtract)(part, stream, out=part)
