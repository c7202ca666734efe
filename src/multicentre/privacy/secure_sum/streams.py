"""Streams of ring numbers that look random to all who lack their key (HKDF-SHA256, RFC 5869; ChaCha20, RFC 8439)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from multicentre.federation.errors import IntegrityError
from multicentre.privacy.secure_sum.ring import Ring

SEED_BYTES = 16
Sign = Literal[1, -1]
Label = tuple[str | int, ...]
_CHUNK = 2**15
_ZEROS = memoryview(bytes(8 * _CHUNK))
_NONCE = bytes(16)


def derive(secret: bytes, *label: str | int, n_bytes: int = 32) -> bytes:
    """Return a key for one purpose; other labels give keys that have nothing in common with it.

    Parameters
    ----------
    secret : bytes
        A seed of 16 random bytes or the outcome of a key exchange.
    *label : str or int
        What the key is for.
    n_bytes : int

    Examples
    --------
    >>> derive(bytes(16), "one purpose") == derive(bytes(16), "another")
    False
    """
    info = json.dumps(["multicentre secure sum", *label]).encode()
    return HKDF(algorithm=SHA256(), length=n_bytes, salt=None, info=info).derive(secret)


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
    return derive(exchange(private, public, peer), "pair mask", *label), 1 if site < peer else -1


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
    """Add to (+1) or take from (-1) a vector, in place, the stream of each 32-byte key. Each key serves once.

    Notes
    -----
    Streams pass through one buffer of 256 KiB, so that no stream is ever held whole.

    Examples
    --------
    >>> vector = np.arange(3, dtype=np.uint64)
    >>> add_streams(vector, [(bytes(32), 1)])
    >>> add_streams(vector, [(bytes(32), -1)])
    >>> vector.tolist()
    [0, 1, 2]
    """
    ciphers = [(Cipher(algorithms.ChaCha20(key, _NONCE), mode=None).encryptor(), sign) for key, sign in streams]
    buffer = bytearray(8 * min(_CHUNK, len(vector)))
    view, numbers = memoryview(buffer), np.frombuffer(buffer, dtype="<u8")
    for start in range(0, len(vector), _CHUNK):
        part = vector[start : start + _CHUNK]
        stream, n_bytes = numbers[: len(part)], 8 * len(part)
        for cipher, sign in ciphers:
            cipher.update_into(_ZEROS[:n_bytes], view[:n_bytes])
            (np.add if sign > 0 else np.subtract)(part, stream, out=part)
