"""What the coordinator takes out of a masked total: own masks of those who answered, pair masks of those lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from multicentre.federation.errors import IntegrityError, MessageError
from multicentre.privacy.secure_sum.messages import Advertisements, Bytes, Invitation, Recovered, Unmasked
from multicentre.privacy.secure_sum.ring import Ring
from multicentre.privacy.secure_sum.shares import combine_shares
from multicentre.privacy.secure_sum.streams import (
    SEED_BYTES,
    Sign,
    add_streams,
    check_of,
    key_pair,
    own_mask,
    pair_mask,
    seed_of_sum,
)


@dataclass(frozen=True)
class Told:
    """What sites gave to unmask one sum.

    Parameters
    ----------
    survivors : tuple of str
        Sites whose masked values are in the total.
    unmasked : mapping of str to Unmasked
        From at least ``terms.threshold`` of them.
    recovered : mapping of str to Recovered
        From at least ``terms.threshold`` of them, where others are missing in `unmasked`: shares for these, in the
        order of `survivors`.
    """

    survivors: tuple[str, ...]
    unmasked: Mapping[str, Unmasked]
    recovered: Mapping[str, Recovered] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[str, ...]:
        """Sites whose values are in the total and that did not unmask it."""
        return tuple(site for site in self.survivors if site not in self.unmasked)


def remove_masks(
    total: Ring, terms: Invitation, public: Advertisements, label: tuple[str | int, ...], told: Told
) -> None:
    """Turn, in place, the sum of masked values into the sum of the values.

    Parameters
    ----------
    total : ndarray of uint64, shape (m,)
        Sum of the survivors' masked values.
    terms : Invitation
    public : Advertisements
    label : tuple
        ``terms.label(number, step, transcript)``; tells the sum from others.
    told : Told

    Raises
    ------
    IntegrityError
        A seed is not the one that a site committed itself to, or shares do not give it.
    MessageError
        A site gave fewer shares than were asked for.
    """
    streams: list[tuple[bytes, Sign]] = []
    for site, seed in _own_seeds(terms, int(label[3]), told).items():
        _check(check_of(seed), public.checks[terms.sites.index(site), int(label[3])].tobytes(), site)
        streams.append((own_mask(seed, label), -1))
    for site, seed in _key_seeds(terms, told).items():
        streams += _pair_masks(seed, site, terms, public, label, told.survivors)
    add_streams(total, streams)


def _own_seeds(terms: Invitation, number: int, told: Told) -> dict[str, bytes]:
    given = {site: answer.seed.tobytes() for site, answer in told.unmasked.items()}
    shares = {site: answer.shares for site, answer in told.recovered.items()}
    found = _combined(terms, shares, told.missing)
    return given | {site: seed_of_sum(seed, number) for site, seed in found.items()}


def _key_seeds(terms: Invitation, told: Told) -> dict[str, bytes]:
    lost = tuple(site for site in terms.sites if site not in told.survivors)
    return _combined(terms, {site: answer.shares for site, answer in told.unmasked.items()}, lost)


def _combined(terms: Invitation, given: Mapping[str, Bytes], wanted: tuple[str, ...]) -> dict[str, bytes]:
    """Return the seed of every site wanted; each holder gave shares in that order."""
    for holder, shares in given.items():
        if shares.shape != (len(wanted), SEED_BYTES) or shares.dtype != np.uint8:
            raise MessageError("there is not one share for each site that was lost", where=holder)
    held = {terms.sites.index(holder): shares for holder, shares in given.items()}
    return {
        site: combine_shares({position: shares[j] for position, shares in held.items()}, terms.threshold)
        for j, site in enumerate(wanted)
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
    # The lost site's own masks would have cancelled those of its peers: adding them does it now.
    return [pair_mask(private, keys[terms.sites.index(peer)].tobytes(), lost, peer, label) for peer in survivors]


def _check(found: bytes, expected: bytes, site: str) -> None:
    if found != expected:
        raise IntegrityError(
            "the seed of this site's masks, or its shares, do not fit what it committed itself to",
            where=site,
            mend="Nothing was read. Resume the run.",
        )
