"""What the coordinator takes out of a masked total: own masks of those who answered, pair masks of those lost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from multicentre.federation.errors import IntegrityError, MessageError
from multicentre.privacy.secure_sum.messages import Advertisements, Invitation, Unmasked
from multicentre.privacy.secure_sum.ring import Ring
from multicentre.privacy.secure_sum.shares import combine_shares
from multicentre.privacy.secure_sum.streams import Sign, add_streams, check_of, key_pair, own_mask, pair_mask


def remove_masks(
    total: Ring,
    terms: Invitation,
    public: Advertisements,
    label: tuple[str | int, ...],
    survivors: tuple[str, ...],
    told: Mapping[str, Unmasked],
) -> None:
    """Turn, in place, the sum of masked values into the sum of the values.

    Parameters
    ----------
    total : ndarray of uint64, shape (m,)
        Sum of the survivors' masked values.
    terms : Invitation
    public : Advertisements
    label : tuple
        ``terms.label(number, step)``; tells the sum from others.
    survivors : tuple of str
        Sites whose masked values are in the total.
    told : mapping of str to Unmasked
        Shares from at least ``terms.threshold`` of them.

    Raises
    ------
    IntegrityError
        Shares do not give the seed that a site committed itself to.
    MessageError
        A site gave fewer shares than there are sites.
    """
    _check_shapes(terms, told)
    number = int(label[3])
    streams: list[tuple[bytes, Sign]] = []
    for j, site in enumerate(terms.sites):
        held = {terms.sites.index(holder): answer.shares[j] for holder, answer in told.items()}
        seed = combine_shares(held, terms.threshold)
        if site in survivors:
            _check(check_of(seed), public.checks[j, number].tobytes(), site)
            streams.append((own_mask(seed, label), -1))
        else:
            streams += _pair_masks(seed, site, terms, public, label, survivors)
    add_streams(total, streams)


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
            "the shares of this site's seed do not fit together", where=site, mend="Nothing was read. Resume the run."
        )


def _check_shapes(terms: Invitation, told: Mapping[str, Unmasked]) -> None:
    for site, answer in told.items():
        if answer.shares.shape != (len(terms.sites), 16) or answer.shares.dtype != np.uint8:
            raise MessageError("there is not one share for each site", where=site)
