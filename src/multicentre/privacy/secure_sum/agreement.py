"""A site's secrets of one key agreement, for a batch of sums of which each has its own keys.

Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning (CCS 2017, figure 4), over the
full graph of sites. Nothing here is ever written down; what a sum was masked with is forgotten as soon as it is used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from multicentre.federation.errors import ConfigurationError, IntegrityError, MessageError, RefusedByPolicy
from multicentre.privacy.secure_sum.identity import Identity, verify
from multicentre.privacy.secure_sum.messages import (
    Advertisement,
    Advertisements,
    Boxes,
    BoxesFor,
    Bytes,
    Invitation,
    Unmasked,
    Unmasking,
)
from multicentre.privacy.secure_sum.shares import open_box, seal_box, split_seeds
from multicentre.privacy.secure_sum.streams import SEED_BYTES, Sign, check_of, key_pair, own_mask, pair_mask

_TAG_BYTES = 16
_MEND = "Nothing was disclosed. Start the run anew; if it happens again, ask whoever runs the coordinator."


class Agreement:
    """What one site knows of one agreement.

    Parameters
    ----------
    terms : Invitation
        What all sites agree on.
    site : str
        The site that holds this.

    Attributes
    ----------
    is_ready : bool
        Whether all that masked sums need has arrived.
    unused, answered : set of int
        Sums that were not masked yet; sums that were, and not unmasked.
    """

    def __init__(self, terms: Invitation, site: str) -> None:
        self.terms = terms
        self.site = site
        self.is_ready = False
        self.unused = set(range(terms.n_sums))
        self.answered: set[int] = set()
        self._position = terms.sites.index(site)
        self._channel = X25519PrivateKey.generate()
        self._key_seeds = [os.urandom(SEED_BYTES) for _ in self.unused]
        self._mask_seeds = [os.urandom(SEED_BYTES) for _ in self.unused]
        self._public: Advertisements | None = None
        self._shares: Bytes | None = None

    def advertise(self, identity: Identity) -> Advertisement:
        """Return the public halves, signed together with the terms."""
        channel = self._channel.public_key().public_bytes_raw()
        keys = b"".join(key_pair(seed).public_key().public_bytes_raw() for seed in self._key_seeds)
        checks = b"".join(check_of(seed) for seed in self._mask_seeds)
        signature = identity.sign(self.terms.signed_by(self.site, channel, keys, checks))
        columns = (_bytes(channel), _bytes(keys).reshape(-1, 32), _bytes(checks).reshape(-1, 16), _bytes(signature))
        return Advertisement(*columns)

    def take_keys(self, told: Advertisements, identities: Mapping[str, bytes]) -> None:
        """Take everybody's public keys in.

        Raises
        ------
        IntegrityError
            A peer did not sign its keys and these terms.
        MessageError
            There are not as many keys as sites and sums.
        ConfigurationError
            Keys were taken in before.
        """
        if told.keys.shape[:2] != (len(self.terms.sites), self.terms.n_sums):
            raise MessageError("the keys do not fit the agreement", where=type(told).__name__)
        if self._public is not None:
            raise ConfigurationError("keys were agreed before", where=self.terms.agreement)
        for peer, j in self._peers():
            parts = (told.channels[j].tobytes(), told.keys[j].tobytes(), told.checks[j].tobytes())
            if not verify(identities[peer], told.signatures[j].tobytes(), self.terms.signed_by(peer, *parts)):
                raise IntegrityError("the keys do not carry this site's signature", where=peer, mend=_MEND)
        self._public = told
        self.is_ready = not self.terms.recovers

    def share(self) -> Boxes:
        """Return, encrypted for each peer, its shares of this site's seeds.

        Notes
        -----
        A box holds, sum by sum, a share of the own mask's seed and one of the key's seed: 32 bytes a sum.
        """
        seeds = [seed for pair in zip(self._mask_seeds, self._key_seeds, strict=True) for seed in pair]
        shares = split_seeds(seeds, self.terms.threshold, len(self.terms.sites))
        boxes = np.zeros((len(shares), shares[0].size + _TAG_BYTES), dtype=np.uint8)
        for peer, j in self._peers():
            channel = self._keys_of_all().channels[j].tobytes()
            boxes[j] = _bytes(seal_box(shares[j], self._channel, channel, self.terms, (self.site, peer)))
        self._shares = np.zeros_like(shares)
        self._shares[self._position] = shares[self._position]
        return Boxes(boxes)

    def accept(self, told: BoxesFor) -> None:
        """Take in this site's shares of everybody's seeds.

        Raises
        ------
        IntegrityError
            A box was changed or misdirected on its way.
        ConfigurationError, MessageError
            Shares were taken in before, or are not as many as agreed.
        """
        if self._shares is None or self.is_ready:
            raise ConfigurationError("shares are not expected", where=self.terms.agreement)
        if told.boxes.shape != (len(self._shares), self._shares[0].size + _TAG_BYTES):
            raise MessageError("the shares do not fit the agreement", where=type(told).__name__)
        for peer, j in self._peers():
            channel = self._keys_of_all().channels[j].tobytes()
            opened = open_box(told.boxes[j].tobytes(), self._channel, channel, self.terms, (peer, self.site))
            self._shares[j] = opened.reshape(-1, SEED_BYTES)
        self.is_ready = True

    def masks(self, number: int, step: str) -> list[tuple[bytes, Sign]]:
        """Return key and sign of every stream of one sum, and forget what they were made from.

        Raises
        ------
        RefusedByPolicy
            The masks of this sum were used before, or never agreed.
        """
        if not self.is_ready or number not in self.unused:
            raise RefusedByPolicy("the masks of this sum were used before, or not agreed", where=step, mend=_MEND)
        self.unused.remove(number)
        self.answered.add(number)
        label, private = self.terms.label(number, step), key_pair(self._key_seeds[number])
        public = self._keys_of_all().keys[:, number]
        streams = [pair_mask(private, public[j].tobytes(), self.site, peer, label) for peer, j in self._peers()]
        if self.terms.recovers:
            streams.append((own_mask(self._mask_seeds[number], label), 1))
        self._key_seeds[number] = self._mask_seeds[number] = b""
        return streams

    def unmask(self, told: Unmasking) -> Unmasked:
        """Return one share for each site, and forget the other one.

        Raises
        ------
        RefusedByPolicy
            The site did not answer this sum, or its shares were given before; or the survivors are too few, not
            of this agreement, or without this site.
        """
        self._check_survivors(told)
        self.answered.remove(told.number)
        assert self._shares is not None
        lost = np.array([site not in told.survivors for site in self.terms.sites], dtype=int)
        pair = self._shares[:, 2 * told.number : 2 * told.number + 2]
        shares = pair[np.arange(len(lost)), lost]
        pair[:] = 0
        return Unmasked(shares)

    def _check_survivors(self, told: Unmasking) -> None:
        reasons = {
            "this sum was not masked here, or was unmasked before": told.number not in self.answered,
            "no shares were agreed on": self._shares is None,
            "a site is named twice": len(set(told.survivors)) < len(told.survivors),
            "a site took no part in the agreement": not set(told.survivors) <= set(self.terms.sites),
            "this site is not among those whose values arrived": self.site not in told.survivors,
            "fewer sites answered than agreed": len(told.survivors) < self.terms.threshold,
        }
        for reason, holds in reasons.items():
            if holds:
                raise RefusedByPolicy(reason, where="unmask", mend=_MEND)

    def _peers(self) -> list[tuple[str, int]]:
        return [(site, j) for j, site in enumerate(self.terms.sites) if j != self._position]

    def _keys_of_all(self) -> Advertisements:
        if self._public is None:
            raise ConfigurationError("keys were not agreed yet", where=self.terms.agreement)
        return self._public


def _bytes(content: bytes) -> Bytes:
    return np.frombuffer(content, dtype=np.uint8)
