"""A site's secrets of one key agreement, for a batch of sums of which each has its own keys.

Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning (CCS 2017, figure 4), over the
full graph of sites. Nothing here is ever written down; the key of a sum is forgotten as soon as it is used.

It differs in two things, for speed. A site that is there to unmask a sum gives the seed of its own mask itself; shares
serve for lost sites alone. And the seeds of its own masks come from one seed of the agreement, so that one secret fewer
is shared for each sum. For this, a site gives shares for one sum of an agreement only, which then is at its end:
otherwise shares of a site's key for one sum and of the seed of its own masks for another could meet. Two such sums
would each need `threshold` sites of which none honest gave shares for both, and there are not as many.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256

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
    Confirmed,
    Confirming,
    Invitation,
    Recovered,
    Recovering,
    Unmasked,
    Unmasking,
)
from multicentre.privacy.secure_sum.shares import open_box, seal_box, split_seeds
from multicentre.privacy.secure_sum.streams import (
    SEED_BYTES,
    Sign,
    check_of,
    key_pair,
    own_mask,
    pair_mask,
    seed_of_sum,
)
from multicentre.privacy.secure_sum.survivors import MEND, SurvivorLists

_TAG_BYTES = 16


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
    unused : set of int
        Sums that were not masked yet.
    """

    def __init__(self, terms: Invitation, site: str) -> None:
        self.terms = terms
        self.site = site
        self.is_ready = False
        self.unused = set(range(terms.n_sums))
        self._position = terms.sites.index(site)
        self._channel = X25519PrivateKey.generate()
        self._key_seeds = [os.urandom(SEED_BYTES) for _ in self.unused]
        self._mask_seed = os.urandom(SEED_BYTES)
        self._public: Advertisements | None = None
        self._shares: Bytes | None = None
        self._lists: SurvivorLists | None = None

    def advertise(self, identity: Identity) -> Advertisement:
        """Return the public halves, signed together with the terms."""
        channel = self._channel.public_key().public_bytes_raw()
        keys = b"".join(key_pair(seed).public_key().public_bytes_raw() for seed in self._key_seeds)
        checks = b"".join(check_of(seed_of_sum(self._mask_seed, number)) for number in range(self.terms.n_sums))
        signature = identity.sign(self.terms.signed_by(self.site, channel, keys, checks))
        columns = (_bytes(channel), _bytes(keys).reshape(-1, 32), _bytes(checks).reshape(-1, 16), _bytes(signature))
        return Advertisement(*columns)

    def take_keys(self, told: Advertisements, identities: Mapping[str, bytes]) -> None:
        """Take everybody's public keys in.

        Raises
        ------
        IntegrityError
            A peer did not sign its keys and these terms, or the keys said to be this site's are not.
        MessageError
            There are not as many keys as sites and sums.
        ConfigurationError
            Keys were taken in before.
        """
        if told.keys.shape[:2] != (len(self.terms.sites), self.terms.n_sums):
            raise MessageError("the keys do not fit the agreement", where=type(told).__name__)
        if self._public is not None:
            raise ConfigurationError("keys were agreed before", where=self.terms.agreement)
        if told.channels[self._position].tobytes() != self._channel.public_key().public_bytes_raw():
            raise IntegrityError("these are not the keys that this site gave", where=self.site, mend=MEND)
        for peer, j in self._peers():
            parts = (told.channels[j].tobytes(), told.keys[j].tobytes(), told.checks[j].tobytes())
            if not verify(identities[peer], told.signatures[j].tobytes(), self.terms.signed_by(peer, *parts)):
                raise IntegrityError("the keys do not carry this site's signature", where=peer, mend=MEND)
        digest = sha256(told.channels.tobytes() + told.keys.tobytes() + told.checks.tobytes()).digest()
        self._lists = SurvivorLists(self.terms, self.site, identities, digest)
        self._public = told
        self.is_ready = not self.terms.recovers

    def share(self) -> Boxes:
        """Return, encrypted for each peer, its shares of this site's seeds.

        Notes
        -----
        A box holds a share of the seed of the site's own masks and, for each sum, one of its key's seed, 16 bytes each.
        """
        shares = split_seeds([self._mask_seed, *self._key_seeds], self.terms.threshold, len(self.terms.sites))
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

    def check_unused(self, number: int, step: str) -> None:
        """Raise RefusedByPolicy if the masks of a sum were used before, or never agreed."""
        if not self.is_ready or number not in self.unused:
            raise RefusedByPolicy("the masks of this sum were used before, or not agreed", where=step, mend=MEND)

    def masks(self, number: int, step: str, question: str) -> list[tuple[bytes, Sign]]:
        """Return key and sign of every stream of one sum, and forget what they were made from.

        Raises
        ------
        RefusedByPolicy
            The masks of this sum were used before, or never agreed.
        """
        self.check_unused(number, step)
        self.unused.remove(number)
        label, private = self.terms.label(number, step, question), key_pair(self._key_seeds[number])
        public = self._keys_of_all().keys[:, number]
        streams = [pair_mask(private, public[j].tobytes(), self.site, peer, label) for peer, j in self._peers()]
        if self.terms.recovers:
            self._lists_of().answered.add(number)
            streams.append((own_mask(seed_of_sum(self._mask_seed, number), label), 1))
        self._key_seeds[number] = b""
        return streams

    def confirm(self, told: Confirming, identity: Identity) -> Confirmed:
        """Return the signature of a list of survivors, once a sum; see :meth:`SurvivorLists.sign` for errors."""
        return Confirmed(_bytes(self._lists_of().sign(told, identity)))

    def unmask(self, told: Unmasking) -> Unmasked:
        """Return the seed of this site's own mask, and for each site not on the list its share of that one's key.

        Once a sum; if shares are given, nothing else of the agreement is answered but :meth:`recover_own` of this sum.
        See :meth:`SurvivorLists.take_signatures` for errors.
        """
        survivors = self._lists_of().take_signatures(told)
        held = self._shares_of()
        lost = [j for j, site in enumerate(self.terms.sites) if site not in survivors]
        shares, seed = held[lost, 1 + told.number], seed_of_sum(self._mask_seed, told.number)
        held[:, 1 + told.number] = 0
        if lost:
            self._end_with(told.number)
            held[:, 1:] = held[lost] = 0
        return Unmasked(_bytes(seed), shares)

    def recover_own(self, told: Recovering) -> Recovered:
        """Return for each site named the share of the seed of its own masks, once; the agreement ends with it.

        See :meth:`SurvivorLists.check_lost` for errors.
        """
        self._lists_of().check_lost(told)
        held = self._shares_of()
        shares = held[[self.terms.sites.index(site) for site in told.lost], 0]
        self._end_with(None)
        held[:] = 0
        return Recovered(shares)

    def _end_with(self, number: int | None) -> None:
        """Forget this site's seeds, and all lists but that of one sum."""
        self._lists_of().end_with(number)
        self.unused.clear()
        self._key_seeds, self._mask_seed = [b""] * self.terms.n_sums, b""

    def _lists_of(self) -> SurvivorLists:
        if self._lists is None:
            raise ConfigurationError("keys were not agreed yet", where=self.terms.agreement)
        return self._lists

    def _shares_of(self) -> Bytes:
        if self._shares is None:
            raise ConfigurationError("no shares were agreed on", where=self.terms.agreement)
        return self._shares

    def _peers(self) -> list[tuple[str, int]]:
        return [(site, j) for j, site in enumerate(self.terms.sites) if j != self._position]

    def _keys_of_all(self) -> Advertisements:
        if self._public is None:
            raise ConfigurationError("keys were not agreed yet", where=self.terms.agreement)
        return self._public


def _bytes(content: bytes) -> Bytes:
    return np.frombuffer(content, dtype=np.uint8)
