"""A site's secrets of one key agreement whose sums outlive the loss of sites: each sum has its own keys.

Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning (CCS 2017, figure 4), over the
full graph of sites. The key of a sum is erased as soon as it is used.

It differs in two things, for speed. A site that is there to unmask a sum gives the seed of its own mask itself; shares
serve for lost sites alone. And the seeds of its own masks come from one seed of the agreement, so that one secret fewer
is shared for each sum. For this, a site gives shares for one sum of an agreement only, which then is at its end:
otherwise shares of a site's key for one sum and of the seed of its own masks for another could meet. Two such sums
would each need `threshold` sites of which none honest gave shares for both, and there are not as many.

The keys of different sums are independent of each other. If they followed from one secret, or from a chain whose links
are shared, the shares that recover a lost site would uncover its masks of earlier sums as well, whose own masks the
coordinator has already taken off.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice

import numpy as np

from multicentre.federation.errors import ConfigurationError, IntegrityError, MessageError, ProtocolRefused
from multicentre.privacy.secure_sum.agreement import MEND, Agreement, digest_of, to_bytes
from multicentre.privacy.secure_sum.identity import Identity, verify
from multicentre.privacy.secure_sum.mask import (
    SEED_BYTES,
    Sign,
    check_of,
    key_pair,
    own_mask,
    pair_mask,
    seed_of_sum,
)
from multicentre.privacy.secure_sum.messages import (
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
from multicentre.privacy.secure_sum.recovery import open_box, seal_box, split_seeds

_TAG_BYTES = 16  # of ChaCha20-Poly1305
Sites = tuple[str, ...]


class SurvivorLists:
    """The lists that one site signed in one agreement, and how far each sum has come.

    Parameters
    ----------
    terms : Invitation
    site : str
        The site that holds this.
    identities : mapping of str to bytes
        Public identity of every peer.
    keys_digest : bytes
        Hash of all public keys of the agreement. Lists are signed together with it, so that a signature says nothing
        about an agreement with other keys, whatever its name.

    Attributes
    ----------
    answered : set of int
        Sums that the site gave masked values for, and signed no list of.
    """

    def __init__(self, terms: Invitation, site: str, identities: Mapping[str, bytes], keys_digest: bytes) -> None:
        self.answered: set[int] = set()
        self._terms = terms
        self._site = site
        self._identities = identities
        self._keys_digest = keys_digest
        self._signed: dict[int, Sites] = {}
        self._unmasked: dict[int, Sites] = {}

    def sign(self, told: Confirming, identity: Identity) -> bytes:
        """Return the site's signature of a list, 64 bytes; no other list of this sum will be signed.

        Raises
        ------
        ProtocolRefused
            The site did not answer this sum, or signed a list of it before; or the survivors are too few, not of this
            agreement, or without this site.
        """
        self._check_list(told)
        self.answered.remove(told.number)
        self._signed[told.number] = told.survivors
        return identity.sign(self._content(self._site, told.number))

    def take_signatures(self, told: Unmasking) -> Sites:
        """Return the list that this site signed for a sum, once, if `threshold` sites on it signed the same one.

        Raises
        ------
        ProtocolRefused
            The site signed no list of this sum, or unmasked it before.
        MessageError
            There is not one place for the signature of each site.
        IntegrityError
            Too few of the signatures are of this list, this sum, these keys, and of the site in whose place they are.
        """
        if told.number not in self._signed:
            raise ProtocolRefused(
                "no list was signed for this sum, or it was unmasked before", where="unmask", mend=MEND
            )
        if told.signatures.shape != (len(self._terms.sites), 64):
            raise MessageError("there is not one signature for each site", where="unmask")
        if not self._has_enough(told):
            raise IntegrityError(
                f"fewer than {self._terms.threshold} sites signed the list of survivors that this site knows",
                where="unmask",
                mend=MEND,
            )
        self._unmasked[told.number] = self._signed.pop(told.number)
        return self._unmasked[told.number]

    def check_lost(self, told: Recovering) -> None:
        """Check that this site unmasked a sum, and that all sites named are on its list.

        Raises
        ------
        ProtocolRefused
            It is not so.
        """
        survivors = self._unmasked.get(told.number)
        if survivors is None:
            raise ProtocolRefused(
                "this sum was not unmasked here, or shares were given", where="recover_own", mend=MEND
            )
        if not told.lost or not set(told.lost) <= set(survivors):
            raise ProtocolRefused("the sites named are not on the list of survivors", where="recover_own", mend=MEND)

    def end_with(self, number: int | None) -> None:
        """Forget all lists, but that of one unmasked sum: nothing else of the agreement is answered any more."""
        self.answered.clear()
        self._signed.clear()
        self._unmasked = {one: survivors for one, survivors in self._unmasked.items() if one == number}

    def _check_list(self, told: Confirming) -> None:
        reasons = {
            "this sum was not masked here, or its list was signed before": told.number not in self.answered,
            "a site is named twice": len(set(told.survivors)) < len(told.survivors),
            "a site took no part in the agreement": not set(told.survivors) <= set(self._terms.sites),
            "this site is not among those whose values arrived": self._site not in told.survivors,
            "fewer sites answered than agreed": len(told.survivors) < self._terms.threshold,
        }
        for reason, holds in reasons.items():
            if holds:
                raise ProtocolRefused(reason, where="confirm", mend=MEND)

    def _has_enough(self, told: Unmasking) -> bool:
        survivors = self._signed[told.number]
        peers = ((j, peer) for j, peer in enumerate(self._terms.sites) if peer in survivors and peer != self._site)
        valid = (peer for j, peer in peers if self._is_signed(peer, told.signatures[j].tobytes(), told.number))
        others = self._terms.threshold - 1
        return len(list(islice(valid, others))) == others

    def _is_signed(self, peer: str, signature: bytes, number: int) -> bool:
        return any(signature) and verify(self._identities[peer], signature, self._content(peer, number))

    def _content(self, signer: str, number: int) -> bytes:
        return self._terms.signed_list(signer, number, self._signed[number], self._keys_digest)


def shape_of_boxes(terms: Invitation) -> tuple[int, int]:
    """Return the number of boxes of each site and their bytes: shares of a seed of masks and of one key per sum."""
    return len(terms.sites), (1 + terms.n_sums) * SEED_BYTES + _TAG_BYTES


class RecoverableAgreement(Agreement):
    """An agreement whose sums can be read although sites were lost.

    Parameters
    ----------
    terms : Invitation
        Terms that all sites sign.
    site : str
        The site that holds this.
    """

    def __init__(self, terms: Invitation, site: str) -> None:
        super().__init__(terms, site)
        self._key_seeds = [os.urandom(SEED_BYTES) for _ in range(terms.n_sums)]
        self._key_pairs = {number: key_pair(seed) for number, seed in enumerate(self._key_seeds)}
        self._mask_seed = os.urandom(SEED_BYTES)
        self._shares: Bytes | None = None
        self._lists: SurvivorLists | None = None

    def share(self) -> Boxes:
        """Return, encrypted for each peer, its shares of this site's seeds.

        Notes
        -----
        A box holds a share of the seed of the site's own masks and, for each sum, one of its key's seed, 16 bytes each.
        """
        shares = split_seeds([self._mask_seed, *self._key_seeds], self.terms.threshold, len(self.terms.sites))
        boxes = np.zeros(shape_of_boxes(self.terms), dtype=np.uint8)
        for peer, j in self._peers():
            channel = self._keys_of_all().channels[j].tobytes()
            boxes[j] = to_bytes(seal_box(shares[j], self._channel_key(), channel, self.terms, (self.site, peer)))
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
        if told.boxes.shape != shape_of_boxes(self.terms):
            raise MessageError("the shares do not fit the agreement", where=type(told).__name__)
        for peer, j in self._peers():
            channel = self._keys_of_all().channels[j].tobytes()
            opened = open_box(told.boxes[j].tobytes(), self._channel_key(), channel, self.terms, (peer, self.site))
            self._shares[j] = opened.reshape(-1, SEED_BYTES)
        self._channel = None  # a later compromise of this site opens no box
        self.is_ready = True

    def confirm(self, told: Confirming, identity: Identity) -> Confirmed:
        """Return the signature of a list of survivors, once a sum; see :meth:`SurvivorLists.sign` for errors."""
        return Confirmed(to_bytes(self._lists_of().sign(told, identity)))

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
        return Unmasked(to_bytes(seed), shares)

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

    def _public_of_sums(self) -> tuple[bytes, bytes]:
        keys = b"".join(pair.public_key().public_bytes_raw() for pair in self._key_pairs.values())
        seeds = (seed_of_sum(self._mask_seed, number) for number in range(self.terms.n_sums))
        return keys, b"".join(check_of(seed) for seed in seeds)

    def _keys_taken(self, identities: Mapping[str, bytes]) -> None:
        self._lists = SurvivorLists(self.terms, self.site, identities, digest_of(self._keys_of_all()))

    def _streams(self, number: int, label: tuple[str | int, ...]) -> list[tuple[bytes, Sign]]:
        private, public = self._key_pairs[number], self._keys_of_all().keys[:, number]
        streams = [pair_mask(private, public[j].tobytes(), self.site, peer, label) for peer, j in self._peers()]
        streams.append((own_mask(seed_of_sum(self._mask_seed, number), label), 1))
        self._lists_of().answered.add(number)
        for spent in [spent for spent in self._key_pairs if spent <= number]:
            del self._key_pairs[spent]
            self._key_seeds[spent] = b""
        return streams

    def _end_with(self, number: int | None) -> None:
        """Erase this site's seeds and keys, and all lists except that of one sum."""
        self._lists_of().end_with(number)
        self.next_sum = self.terms.n_sums
        self._key_pairs.clear()
        self._key_seeds, self._mask_seed = [b""] * self.terms.n_sums, b""

    def _lists_of(self) -> SurvivorLists:
        if self._lists is None:
            raise ConfigurationError("keys were not agreed yet", where=self.terms.agreement)
        return self._lists

    def _shares_of(self) -> Bytes:
        if self._shares is None:
            raise ConfigurationError("no shares were agreed on", where=self.terms.agreement)
        return self._shares
