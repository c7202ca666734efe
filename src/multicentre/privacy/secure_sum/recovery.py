"""Recovery of sums after the loss of sites: shares of seeds, and removal of masks by the coordinator.

Shares (:mod:`multicentre.privacy.secure_sum.shares`) are sent in encrypted boxes (ChaCha20-Poly1305, RFC 8439). From
the total the coordinator removes the self-masks of the sites that answered and the pair masks of the lost sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from multicentre.errors import IntegrityError, MessageError
from multicentre.privacy.secure_sum.fixed_point import Ring
from multicentre.privacy.secure_sum.mask import (
    Sign,
    add_streams,
    check_of,
    derive,
    key_pair,
    pair_key,
    seed_of_sum,
    self_mask_key,
)
from multicentre.privacy.secure_sum.messages import Advertisements, Bytes, Invitation, Recovered
from multicentre.privacy.secure_sum.shares import SEED_BYTES, combine_shares
from multicentre.privacy.secure_sum.unmasking import Opened

_NONCE = bytes(12)  # each key encrypts one box, so that a constant nonce is safe


def seal_box(shares: Bytes, secret: bytes, terms: Invitation, way: tuple[str, str]) -> bytes:
    """Return shares encrypted for one peer, authenticated against changes and misdirection.

    Parameters
    ----------
    shares : ndarray of uint8
    secret : bytes
        Result of the key exchange with the peer, new for every agreement, so that each derived key encrypts one box.
    terms : Invitation
        Terms whose study, session and agreement are bound to the box.
    way : (str, str)
        Sender and receiver, bound to the box.

    Examples
    --------
    >>> terms = Invitation("study", "0.1", "first", ("lyon", "nice", "metz"), 2, 1, 0)
    >>> box = seal_box(np.arange(4, dtype=np.uint8), bytes(32), terms, ("lyon", "nice"))
    >>> open_box(box, bytes(32), terms, ("lyon", "nice")).tolist()
    [0, 1, 2, 3]
    """
    key, bound = _box_key(secret, terms, way)
    return ChaCha20Poly1305(key).encrypt(_NONCE, shares.tobytes(), bound)


def open_box(box: bytes, secret: bytes, terms: Invitation, way: tuple[str, str]) -> Bytes:
    """Return the bytes in a box; see :func:`seal_box` for parameters and an example.

    Raises
    ------
    IntegrityError
        The box was changed, or is not from this sender to this receiver in this agreement.
    """
    key, bound = _box_key(secret, terms, way)
    try:
        return np.frombuffer(ChaCha20Poly1305(key).decrypt(_NONCE, box, bound), dtype=np.uint8)
    except InvalidTag:
        raise IntegrityError(
            "the shares of this site must arrive unchanged; they were changed",
            where=way[0],
            hint="Start the run again.",
        ) from None


def _box_key(secret: bytes, terms: Invitation, way: tuple[str, str]) -> tuple[bytes, bytes]:
    label = ("shares", terms.study, terms.session, terms.agreement, *way)
    return derive(secret, *label), repr(label).encode()


@dataclass(frozen=True)
class UnmaskingAnswers:
    """Answers of the sites that unmask one sum.

    Parameters
    ----------
    survivors : tuple of str
        Sites whose masked values are in the total.
    unmasked : mapping of str to Opened
        Seeds and shares from at least ``terms.threshold`` survivors.
    recovered : mapping of str to Recovered
        Shares for sites that are missing in `unmasked`, in the order of `survivors`, from at least
        ``terms.threshold`` sites.
    """

    survivors: tuple[str, ...]
    unmasked: Mapping[str, Opened]
    recovered: Mapping[str, Recovered] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[str, ...]:
        """Sites whose values are in the total and that did not answer the request to unmask it."""
        return tuple(site for site in self.survivors if site not in self.unmasked)


def remove_masks(
    total: Ring, terms: Invitation, public: Advertisements, label: tuple[str | int, ...], answers: UnmaskingAnswers
) -> None:
    """Remove the masks from a sum of masked values, in place.

    Parameters
    ----------
    total : ndarray of uint64, shape (m,)
        Sum of the survivors' masked values.
    terms : Invitation
    public : Advertisements
    label : tuple
        Label of the sum, ``terms.label(number, step, transcript)``.
    answers : UnmaskingAnswers

    Raises
    ------
    IntegrityError
        A seed, or a seed from shares, differs from the commitment of its site.
    MessageError
        A site sent fewer shares than requested.
    """
    streams: list[tuple[bytes, Sign]] = []
    for site, seed in _self_mask_seeds(terms, int(label[3]), answers).items():
        _check(check_of(seed), public.checks[terms.sites.index(site), int(label[3])].tobytes(), site)
        streams.append((self_mask_key(seed, label), -1))
    for site, seed in _key_seeds(terms, answers).items():
        streams += _pair_masks(seed, site, terms, public, label, answers.survivors)
    add_streams(total, streams)


def _self_mask_seeds(terms: Invitation, number: int, answers: UnmaskingAnswers) -> dict[str, bytes]:
    sent_seeds = {site: answer.seed.tobytes() for site, answer in answers.unmasked.items()}
    shares = {site: answer.shares for site, answer in answers.recovered.items()}
    recovered_seeds = _combined(terms, shares, answers.missing)
    return sent_seeds | {site: seed_of_sum(seed, number) for site, seed in recovered_seeds.items()}


def _key_seeds(terms: Invitation, answers: UnmaskingAnswers) -> dict[str, bytes]:
    lost = tuple(site for site in terms.sites if site not in answers.survivors)
    return _combined(terms, {site: answer.shares for site, answer in answers.unmasked.items()}, lost)


def _combined(terms: Invitation, shares_by_sender: Mapping[str, Bytes], sites: tuple[str, ...]) -> dict[str, bytes]:
    """Return the seeds of some sites; each sender sent its shares in that order."""
    for sender, shares in shares_by_sender.items():
        if shares.shape != (len(sites), SEED_BYTES) or shares.dtype != np.uint8:
            raise MessageError(
                f"there must be {len(sites)} shares of {SEED_BYTES} bytes, one per lost site; got shape {shares.shape}",
                where=sender,
            )
    by_position = {terms.sites.index(sender): shares for sender, shares in shares_by_sender.items()}
    return {
        site: combine_shares({position: shares[j] for position, shares in by_position.items()}, terms.threshold)
        for j, site in enumerate(sites)
    }


def _pair_masks(
    seed: bytes,
    lost: str,
    terms: Invitation,
    public: Advertisements,
    label: tuple[str | int, ...],
    survivors: tuple[str, ...],
) -> list[tuple[bytes, Sign]]:
    private, keys = key_pair(seed), public.keys[:, int(label[3])]
    _check(private.public_key().public_bytes_raw(), keys[terms.sites.index(lost)].tobytes(), lost)
    # The masks of the lost site would have cancelled those of its peers; adding them here cancels them.
    return [pair_key(private, keys[terms.sites.index(peer)].tobytes(), lost, peer, label) for peer in survivors]


def _check(recovered_seeds: bytes, expected: bytes, site: str) -> None:
    if recovered_seeds != expected:
        raise IntegrityError(
            "the seed of this site's masks, or its shares, must match its commitment; they do not",
            where=site,
            hint="The sum was not read. Resume the run.",
        )
