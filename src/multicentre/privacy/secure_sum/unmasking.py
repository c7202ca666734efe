"""Answers that unmask a sum, which can be read only if enough sites received the same list of survivors.

A site encrypts what it discloses of a sum under a new key, and splits this key among all sites (Shamir). Each share is
hidden by a pad that the site has in common with one peer. The pad is derived from a secret of the pair and from the
list of survivors. With its own answer, each peer discloses the pads of the list that it received itself. Answers to
the same list can therefore be opened with those of `threshold` sites, and answers to a list that fewer sites received
with those of none.

This is the consistency check of Bonawitz et al. (CCS 2017, figure 4, round 3) without signatures and without the
exchange for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b, sha256
from itertools import islice

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from multicentre.errors import IntegrityError, name_some
from multicentre.privacy.secure_sum.mask import derive
from multicentre.privacy.secure_sum.messages import Advertisements, Bytes, Invitation, Unmasked
from multicentre.privacy.secure_sum.shares import SEED_BYTES, combine_shares, new_seeds, split_seeds

_NONCE = bytes(12)  # each key encrypts one answer, so that a constant nonce is safe
_TAG_BYTES = 16  # length of the tag of ChaCha20-Poly1305


@dataclass(frozen=True)
class Opened:
    """Seed and shares that one site discloses of a sum.

    Parameters
    ----------
    seed : ndarray of uint8, shape (16,)
        Seed of the site's self-mask of the sum.
    shares : ndarray of uint8, shape (n_lost, 16)
        For each site not on the list, the share of its key of the sum.
    """

    seed: Bytes
    shares: Bytes


def list_digest(terms: Invitation, number: int, survivors: tuple[str, ...], keys_digest: bytes) -> bytes:
    """Return the hash of a list of survivors, of its sum, and of all public keys of the agreement."""
    return sha256(terms.list_content(number, survivors, keys_digest)).digest()


def digest_of(public: Advertisements) -> bytes:
    """Return a hash of all public keys of an agreement."""
    return sha256(public.channels.tobytes() + public.keys.tobytes() + public.checks.tobytes()).digest()


def seal_answer(
    content: Opened, position: int, pad_keys: Mapping[int, bytes], threshold: int, n_sites: int, digest: bytes
) -> Unmasked:
    """Return a site's answer to one list of survivors, which can be opened with those of `threshold` sites.

    Parameters
    ----------
    content : Opened
    position : int
        Position of the site among all sites.
    pad_keys : mapping of int to bytes
        Keys of the pads, in common with each peer on the list, by position.
    threshold, n_sites : int
    digest : bytes
        From :func:`list_digest`.

    Examples
    --------
    >>> key, digest = bytes(32), bytes(range(32))
    >>> content = Opened(np.arange(16, dtype=np.uint8), np.zeros((1, 16), np.uint8))
    >>> lyon = seal_answer(content, 0, {1: key}, 2, 3, digest)
    >>> nice = seal_answer(content, 1, {0: key}, 2, 3, digest)
    >>> opened = open_answers(("lyon", "nice", "metz"), 2, {"lyon": lyon, "nice": nice}, digest)
    >>> opened["lyon"].seed.tolist() == list(range(16)), opened["nice"].shares.shape
    (True, (1, 16))
    """
    (secret,) = new_seeds(1)
    hidden, pads = np.zeros((n_sites, SEED_BYTES), np.uint8), np.zeros((n_sites, SEED_BYTES), np.uint8)
    shares = split_seeds([secret], threshold, n_sites)[:, 0]
    hidden[position] = shares[position]
    if pad_keys:
        peers = list(pad_keys)
        hidden[peers] = shares[peers] ^ _joined(_pad(pad_keys[j], digest, position, j) for j in peers)
        pads[peers] = _joined(_pad(pad_keys[j], digest, j, position) for j in peers)
    plain = content.seed.tobytes() + content.shares.tobytes()
    sealed = ChaCha20Poly1305(_answer_key(secret, digest)).encrypt(_NONCE, plain, None)
    return Unmasked(np.frombuffer(sealed, dtype=np.uint8), hidden, pads)


def open_answers(
    sites: tuple[str, ...], threshold: int, answers: Mapping[str, Unmasked], digest: bytes
) -> dict[str, Opened]:
    """Return what the sites disclose; see :func:`seal_answer` for an example.

    Wrong pads of one site are ignored as long as `threshold` other sites answered.

    Parameters
    ----------
    sites : tuple of str
        All sites of the agreement, in order.
    threshold : int
    answers : mapping of str to Unmasked
        From at least `threshold` sites.
    digest : bytes
        From :func:`list_digest`.

    Raises
    ------
    IntegrityError
        An answer cannot be opened: fewer than `threshold` sites received this list, or answers were changed.
    """
    by_position = {sites.index(site): answer for site, answer in answers.items()}
    closed = tuple(by_position)
    for helpers in _choices(tuple(by_position), threshold):
        opened = {j: _opened(j, by_position, helpers, threshold, digest) for j in by_position}
        if all(opened.values()):
            return {sites[j]: content for j, content in opened.items() if content}
        closed = min(closed, tuple(j for j, content in opened.items() if content is None), key=len)
    raise IntegrityError(
        f"at least {threshold} sites must have received the same list of survivors, and their answers must arrive "
        "unchanged; they did not",
        where=name_some([sites[j] for j in closed]),
        hint="The sum was not read. Resume the run.",
    )


def _choices(positions: tuple[int, ...], threshold: int) -> Iterator[tuple[int, ...]]:
    """Yield sites whose pads open the answers: the first ones, then without each of these in turn."""
    yield positions[:threshold]
    for left_out in positions[:threshold] if len(positions) > threshold else ():
        yield tuple(islice((j for j in positions if j != left_out), threshold))


def _opened(
    j: int, by_position: Mapping[int, Unmasked], helpers: tuple[int, ...], threshold: int, digest: bytes
) -> Opened | None:
    answer = by_position[j]
    shares = {i: answer.shares[i] ^ by_position[i].pads[j] if i != j else answer.shares[i] for i in helpers}
    key = _answer_key(combine_shares(shares, threshold), digest)
    try:
        plain = ChaCha20Poly1305(key).decrypt(_NONCE, answer.sealed.tobytes(), None)
    except InvalidTag:
        return None
    content = np.frombuffer(plain, dtype=np.uint8)
    n_shares = len(content) // SEED_BYTES - 1
    if n_shares < 0 or len(content) % SEED_BYTES:
        return None
    return Opened(content[:SEED_BYTES], content[SEED_BYTES:].reshape(n_shares, SEED_BYTES))


def _answer_key(secret: bytes, digest: bytes) -> bytes:
    return derive(secret, "unmasking", digest.hex())


def _pad(key: bytes, digest: bytes, sharer: int, helper: int) -> bytes:
    """Return the pad that hides the share of one site for another; each is used for one list of one sum."""
    place = sharer.to_bytes(4, "little") + helper.to_bytes(4, "little")
    return blake2b(digest + place, key=key, digest_size=SEED_BYTES).digest()


def _joined(pads: Iterator[bytes]) -> Bytes:
    return np.frombuffer(b"".join(pads), dtype=np.uint8).reshape(-1, SEED_BYTES)
