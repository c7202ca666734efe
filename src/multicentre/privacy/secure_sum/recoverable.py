"""Secrets of one site in a key agreement that tolerates the loss of sites: each sum has separate keys.

The protocol is that of Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning (CCS 2017,
figure 4), over the full graph of sites. The key of a sum is erased as soon as it is used.

For speed, two things differ:

- A site that is present when a sum is unmasked sends the seed of its self-mask. Shares are used only for lost sites.
- The seeds of a site's self-masks are derived from one seed per agreement, so that one secret less is shared per sum.

A site therefore sends shares for only one sum of an agreement, which ends the agreement. Otherwise shares of a site's
key for one sum and of the seed of its self-masks for another could be combined. Two such sums would each require
`threshold` sites, and no honest site sends shares for both, so there are not enough sites.

The keys of different sums are independent. If they were derived from one secret, or from a chain whose links are
shared, the shares that recover a lost site would also reveal its masks of earlier sums, whose self-masks the
coordinator has already removed.

A site signs one list of the survivors of a sum. It unmasks the sum only if enough sites on the list signed the same
list (Bonawitz et al., figure 4, round 3, ConsistencyCheck). If c sites sign anything, two lists with `threshold`
signatures each would require 2 (threshold - c) of the n - c honest sites. There are fewer, because every site requires
2 threshold > n + c.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice

import numpy as np

from multicentre.errors import ConfigurationError, IntegrityError, MessageError, ProtocolRefused
from multicentre.privacy.secure_sum.agreement import HINT, Agreement, digest_of, to_bytes
from multicentre.privacy.secure_sum.identity import Identity, verify
from multicentre.privacy.secure_sum.mask import (
    SEED_BYTES,
    Sign,
    check_of,
    key_pair,
    pair_key,
    seed_of_sum,
    self_mask_key,
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

_TAG_BYTES = 16  # length of the tag of ChaCha20-Poly1305
Sites = tuple[str, ...]


class SurvivorLists:
    """Lists of survivors that one site signed in one agreement, and the progress of each sum.

    Parameters
    ----------
    terms : Invitation
    site : str
        Name of the site.
    identities : mapping of str to bytes
        Public identity of every peer.
    keys_digest : bytes
        Hash of all public keys of the agreement. Lists are signed together with it, so that a signature is not valid in
        an agreement with other keys, whatever its name.

    Attributes
    ----------
    answered : set of int
        Sums for which the site sent masked values and has not signed a list.
    """

    def __init__(self, terms: Invitation, site: str, identities: Mapping[str, bytes], keys_digest: bytes) -> None:
        self.answered: set[int] = set()
        self._terms = terms
        self._site = site
        self._identities = identities
        self._keys_digest = keys_digest
        self._signed: dict[int, Sites] = {}
        self._unmasked: dict[int, Sites] = {}

    def sign(self, request: Confirming, identity: Identity) -> bytes:
        """Return the site's signature of a list, 64 bytes. No other list of this sum is signed afterwards.

        Raises
        ------
        ProtocolRefused
            The site did not answer this sum, or signed a list of it before. Or the survivors are too few, are not in
            this agreement, or do not include this site.
        """
        self._check_list(request)
        self.answered.remove(request.number)
        self._signed[request.number] = request.survivors
        return identity.sign(self._content(self._site, request.number))

    def take_signatures(self, request: Unmasking) -> Sites:
        """Return this site's signed list of a sum, once, if `threshold` sites on it signed the same list.

        Raises
        ------
        ProtocolRefused
            The site signed no list of this sum, or unmasked it before.
        MessageError
            The number of signatures differs from the number of sites.
        IntegrityError
            Too few signatures are valid for this list, this sum, these keys and their site.
        """
        if request.number not in self._signed:
            raise ProtocolRefused(
                "a sum must be unmasked once, after its list was signed; it was not signed, or was unmasked before",
                where="unmask",
                hint=HINT,
            )
        if request.signatures.shape != (len(self._terms.sites), 64):
            raise MessageError(
                f"there must be {len(self._terms.sites)} signatures of 64 bytes, one per site; got shape "
                f"{request.signatures.shape}",
                where="unmask",
            )
        if not self._has_enough(request):
            raise IntegrityError(
                f"at least {self._terms.threshold} sites must have signed the same list of survivors; fewer did",
                where="unmask",
                hint=HINT,
            )
        self._unmasked[request.number] = self._signed.pop(request.number)
        return self._unmasked[request.number]

    def check_lost(self, request: Recovering) -> None:
        """Check that this site unmasked a sum, and that all named sites are on its list.

        Raises
        ------
        ProtocolRefused
            The sum was not unmasked, or a named site is not on the list.
        """
        survivors = self._unmasked.get(request.number)
        if survivors is None:
            raise ProtocolRefused(
                "shares must be requested once, after the sum was unmasked; it was not, or they were sent before",
                where="recover_masks",
                hint=HINT,
            )
        if not request.lost or not set(request.lost) <= set(survivors):
            raise ProtocolRefused(
                "lost must name sites on the list of survivors, at least one; got others",
                where="recover_masks",
                hint=HINT,
            )

    def end_with(self, number: int | None) -> None:
        """Erase all lists except that of one unmasked sum. No other request of the agreement is answered afterwards."""
        self.answered.clear()
        self._signed.clear()
        self._unmasked = {one: survivors for one, survivors in self._unmasked.items() if one == number}

    def _check_list(self, request: Confirming) -> None:
        reasons = {
            "a list must be signed once, for a sum that this site masked": request.number not in self.answered,
            "survivors must be named once": len(set(request.survivors)) < len(request.survivors),
            "survivors must be part of the agreement": not set(request.survivors) <= set(self._terms.sites),
            "survivors must include this site": self._site not in request.survivors,
            f"at least {self._terms.threshold} sites must survive": len(request.survivors) < self._terms.threshold,
        }
        for reason, is_violated in reasons.items():
            if is_violated:
                raise ProtocolRefused(f"{reason}; got a different list or sum", where="confirm", hint=HINT)

    def _has_enough(self, request: Unmasking) -> bool:
        survivors = self._signed[request.number]
        peers = ((j, peer) for j, peer in enumerate(self._terms.sites) if peer in survivors and peer != self._site)
        valid = (peer for j, peer in peers if self._is_signed(peer, request.signatures[j].tobytes(), request.number))
        others = self._terms.threshold - 1
        return len(list(islice(valid, others))) == others

    def _is_signed(self, peer: str, signature: bytes, number: int) -> bool:
        return any(signature) and verify(self._identities[peer], signature, self._content(peer, number))

    def _content(self, signer: str, number: int) -> bytes:
        return self._terms.signed_list(signer, number, self._signed[number], self._keys_digest)


def shape_of_boxes(terms: Invitation) -> tuple[int, int]:
    """Return the number of boxes per site and their size: shares of the seed of self-masks and of one key per sum."""
    return len(terms.sites), (1 + terms.n_sums) * SEED_BYTES + _TAG_BYTES


class RecoverableAgreement(Agreement):
    """Agreement whose sums can be read after the loss of sites.

    Parameters
    ----------
    terms : Invitation
        Terms that all sites sign.
    site : str
        Name of the site.
    """

    def __init__(self, terms: Invitation, site: str) -> None:
        super().__init__(terms, site)
        self._key_seeds = [os.urandom(SEED_BYTES) for _ in range(terms.n_sums)]
        self._key_pairs = {number: key_pair(seed) for number, seed in enumerate(self._key_seeds)}
        self._mask_seed = os.urandom(SEED_BYTES)
        self._shares: Bytes | None = None
        self._lists: SurvivorLists | None = None

    def share(self) -> Boxes:
        """Return the shares of this site's seeds, encrypted for each peer.

        Notes
        -----
        A box contains a share of the seed of the site's self-masks and, for each sum, a share of the seed of its key,
        16 bytes each.
        """
        shares = split_seeds([self._mask_seed, *self._key_seeds], self.terms.threshold, len(self.terms.sites))
        boxes = np.zeros(shape_of_boxes(self.terms), dtype=np.uint8)
        for peer, j in self._peers():
            channel = self._keys_of_all().channels[j].tobytes()
            boxes[j] = to_bytes(seal_box(shares[j], self._channel_key(), channel, self.terms, (self.site, peer)))
        self._shares = np.zeros_like(shares)
        self._shares[self._position] = shares[self._position]
        return Boxes(boxes)

    def accept(self, request: BoxesFor) -> None:
        """Decrypt and store this site's shares of the seeds of all sites.

        Raises
        ------
        IntegrityError
            A box was changed or misdirected.
        ConfigurationError, MessageError
            Shares were stored before, or their number differs from the agreement.
        """
        if self._shares is None or self.is_ready:
            raise ConfigurationError(
                "shares must arrive once, after the keys; they were stored before, or the keys are missing",
                where=self.terms.agreement,
            )
        if request.boxes.shape != shape_of_boxes(self.terms):
            raise MessageError(
                f"boxes must have shape {shape_of_boxes(self.terms)}; got {request.boxes.shape}",
                where=type(request).__name__,
            )
        for peer, j in self._peers():
            channel = self._keys_of_all().channels[j].tobytes()
            opened = open_box(request.boxes[j].tobytes(), self._channel_key(), channel, self.terms, (peer, self.site))
            self._shares[j] = opened.reshape(-1, SEED_BYTES)
        self._channel = None  # so that boxes cannot be opened after a later compromise of this site
        self.is_ready = True

    def confirm(self, request: Confirming, identity: Identity) -> Confirmed:
        """Return the signature of a list of survivors, once per sum; see :meth:`SurvivorLists.sign` for errors."""
        return Confirmed(to_bytes(self._lists_of().sign(request, identity)))

    def unmask(self, request: Unmasking) -> Unmasked:
        """Return the seed of this site's self-mask and, for each site not on the list, the share of that site's key.

        This is possible once per sum. If shares are sent, only :meth:`recover_masks` of this sum is answered
        afterwards. See :meth:`SurvivorLists.take_signatures` for errors.
        """
        survivors = self._lists_of().take_signatures(request)
        stored = self._shares_of()
        lost = [j for j, site in enumerate(self.terms.sites) if site not in survivors]
        shares, seed = stored[lost, 1 + request.number], seed_of_sum(self._mask_seed, request.number)
        stored[:, 1 + request.number] = 0
        if lost:
            self._end_with(request.number)
            stored[:, 1:] = stored[lost] = 0
        return Unmasked(to_bytes(seed), shares)

    def recover_masks(self, request: Recovering) -> Recovered:
        """Return the share of the seed of self-masks of each lost site, once; this ends the agreement.

        See :meth:`SurvivorLists.check_lost` for errors.
        """
        self._lists_of().check_lost(request)
        stored = self._shares_of()
        shares = stored[[self.terms.sites.index(site) for site in request.lost], 0]
        self._end_with(None)
        stored[:] = 0
        return Recovered(shares)

    def _public_of_sums(self) -> tuple[bytes, bytes]:
        keys = b"".join(pair.public_key().public_bytes_raw() for pair in self._key_pairs.values())
        seeds = (seed_of_sum(self._mask_seed, number) for number in range(self.terms.n_sums))
        return keys, b"".join(check_of(seed) for seed in seeds)

    def _keys_taken(self, identities: Mapping[str, bytes]) -> None:
        self._lists = SurvivorLists(self.terms, self.site, identities, digest_of(self._keys_of_all()))

    def _streams(self, number: int, label: tuple[str | int, ...]) -> list[tuple[bytes, Sign]]:
        private, public = self._key_pairs[number], self._keys_of_all().keys[:, number]
        streams = [pair_key(private, public[j].tobytes(), self.site, peer, label) for peer, j in self._peers()]
        streams.append((self_mask_key(seed_of_sum(self._mask_seed, number), label), 1))
        self._lists_of().answered.add(number)
        for used in [used for used in self._key_pairs if used <= number]:
            del self._key_pairs[used]
            self._key_seeds[used] = b""
        return streams

    def _end_with(self, number: int | None) -> None:
        """Erase this site's seeds and keys, and all lists except that of one sum."""
        self._lists_of().end_with(number)
        self.next_sum = self.terms.n_sums
        self._key_pairs.clear()
        self._key_seeds, self._mask_seed = [b""] * self.terms.n_sums, b""

    def _lists_of(self) -> SurvivorLists:
        if self._lists is None:
            raise ConfigurationError("keys must be agreed before this step; they were not", where=self.terms.agreement)
        return self._lists

    def _shares_of(self) -> Bytes:
        if self._shares is None:
            raise ConfigurationError(
                "shares must be agreed before this step; they were not", where=self.terms.agreement
            )
        return self._shares
