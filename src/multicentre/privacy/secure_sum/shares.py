"""Shares of seeds (Shamir, CACM 1979, in GF(2**128)) and the boxes they travel in (ChaCha20-Poly1305, RFC 8439)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from multicentre.federation.errors import IntegrityError
from multicentre.privacy.secure_sum.messages import Bytes, Invitation
from multicentre.privacy.secure_sum.streams import SEED_BYTES, derive, exchange

_NONCE = bytes(12)


def split_seeds(seeds: Sequence[bytes], threshold: int, n_sites: int) -> Bytes:
    """Return shares of seeds of 16 bytes, shape (n_sites, n_seeds, 16); fewer than `threshold` of a seed say nothing.

    Examples
    --------
    >>> shares = split_seeds([b"sixteen bytes ok"], 2, 3)
    >>> combine_shares({2: shares[2, 0], 0: shares[0, 0]}, 2)
    b'sixteen bytes ok'
    """
    split = [[share for _, share in Shamir.split(threshold, n_sites, seed, ssss=False)] for seed in seeds]
    flat = b"".join(share for shares in split for share in shares)
    return np.frombuffer(flat, dtype=np.uint8).reshape(len(seeds), n_sites, SEED_BYTES).swapaxes(0, 1)


def combine_shares(shares: Mapping[int, Bytes], threshold: int) -> bytes:
    """Return the seed behind at least `threshold` shares, each under its site's position (from 0).

    Examples
    --------
    >>> shares = split_seeds([bytes(16)], 2, 3)
    >>> combine_shares({0: shares[0, 0], 1: shares[1, 0], 2: shares[2, 0]}, 2) == bytes(16)
    True
    """
    numbered = [(position + 1, share.tobytes()) for position, share in islice(shares.items(), threshold)]
    return Shamir.combine(numbered, ssss=False)


def seal_box(shares: Bytes, private: X25519PrivateKey, public: bytes, terms: Invitation, way: tuple[str, str]) -> bytes:
    """Return shares encrypted so that one peer alone can read them and nobody can change or misdirect them.

    Parameters
    ----------
    shares : ndarray of uint8
    private : X25519PrivateKey
        The sender's channel key; new for every agreement, so that each key encrypts one box.
    public : bytes
        The receiver's public channel key.
    terms : Invitation
        Bound to the box: its study, session and agreement.
    way : (str, str)
        Sender and receiver, bound to the box.

    Examples
    --------
    >>> from multicentre.privacy.secure_sum.streams import key_pair
    >>> terms = Invitation("study", "0.1", "first", ("lyon", "nice", "metz"), 2, 1, 0)
    >>> lyon, nice = key_pair(bytes(16)), key_pair(bytes(15) + b"1")
    >>> way = ("lyon", "nice")
    >>> box = seal_box(np.arange(4, dtype=np.uint8), lyon, nice.public_key().public_bytes_raw(), terms, way)
    >>> open_box(box, nice, lyon.public_key().public_bytes_raw(), terms, way).tolist()
    [0, 1, 2, 3]
    """
    key, bound = _box_key(private, public, terms, way, peer=way[1])
    return ChaCha20Poly1305(key).encrypt(_NONCE, shares.tobytes(), bound)


def open_box(box: bytes, private: X25519PrivateKey, public: bytes, terms: Invitation, way: tuple[str, str]) -> Bytes:
    """Return the bytes in a box; see :func:`seal_box` for parameters and an example.

    Raises
    ------
    IntegrityError
        The box was changed, or is not the one from this sender to this receiver in this agreement.
    """
    key, bound = _box_key(private, public, terms, way, peer=way[0])
    try:
        return np.frombuffer(ChaCha20Poly1305(key).decrypt(_NONCE, box, bound), dtype=np.uint8)
    except InvalidTag:
        raise IntegrityError(
            "the shares from this site were changed on their way", where=way[0], mend="Start the run anew."
        ) from None


def _box_key(
    private: X25519PrivateKey, public: bytes, terms: Invitation, way: tuple[str, str], peer: str
) -> tuple[bytes, bytes]:
    label = ("shares", terms.study, terms.session, terms.agreement, *way)
    return derive(exchange(private, public, peer), *label), repr(label).encode()
