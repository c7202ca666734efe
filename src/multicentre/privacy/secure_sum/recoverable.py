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

A site answers one list of the survivors of a sum. Its answer can be read only if `threshold` sites answered the same
list (:mod:`multicentre.privacy.secure_sum.unmasking`, in place of the ConsistencyCheck of Bonawitz et al., figure 4,
round 3). If c sites answer any list, two lists with `threshold` answers each would require 2 (threshold - c) of the
n - c honest sites. There are fewer, because every site requires 2 threshold > n + c.

Shares for :meth:`RecoverableAgreement.recover_masks` are not encrypted in this way. A site sends them for sites on its
list, and shares of keys for sites that are not on it. The coordinator would need shares of both kinds from `threshold`
sites each to unmask a site that is on some lists only, and these would again be too many.
"""

from __future__ import annotations

import numpy as np

from multicentre.errors import ConfigurationError, MessageError, ProtocolRefused
from multicentre.privacy.secure_sum.agreement import HINT, Agreement, to_bytes
from multicentre.privacy.secure_sum.mask import (
    Sign,
    check_of,
    derive,
    exchange,
    key_pair,
    pair_key,
    seed_of_sum,
    self_mask_key,
)
from multicentre.privacy.secure_sum.messages import (
    Boxes,
    BoxesFor,
    Bytes,
    Invitation,
    Recovered,
    Recovering,
    Unmasked,
    Unmasking,
)
from multicentre.privacy.secure_sum.recovery import open_box, seal_box
from multicentre.privacy.secure_sum.shares import SEED_BYTES, new_seeds, split_seeds
from multicentre.privacy.secure_sum.unmasking import Opened, digest_of, list_digest, seal_answer

_TAG_BYTES = 16  # length of the tag of ChaCha20-Poly1305
Sites = tuple[str, ...]


class SurvivorLists:
    """Lists of survivors that one site answered in one agreement.

    Parameters
    ----------
    terms : Invitation
    site : str
        Name of the site.

    Attributes
    ----------
    answered : set of int
        Sums for which the site sent masked values and has not answered a list.
    """

    def __init__(self, terms: Invitation, site: str) -> None:
        self.answered: set[int] = set()
        self._terms = terms
        self._site = site
        self._unmasked: dict[int, Sites] = {}

    def accept(self, request: Unmasking) -> None:
        """Accept the list of a sum. No other list of this sum is accepted afterwards.

        Raises
        ------
        ProtocolRefused
            The site did not answer this sum, or accepted a list of it before. Or the survivors are too few, are not in
            this agreement, or do not include this site.
        """
        reasons = {
            "a list must be answered once, for a sum that this site masked": request.number not in self.answered,
            "survivors must be named once": len(set(request.survivors)) < len(request.survivors),
            "survivors must be part of the agreement": not set(request.survivors) <= set(self._terms.sites),
            "survivors must include this site": self._site not in request.survivors,
            f"at least {self._terms.threshold} sites must survive": len(request.survivors) < self._terms.threshold,
        }
        for reason, is_violated in reasons.items():
            if is_violated:
                raise ProtocolRefused(f"{reason}; got a different list or sum", where="unmask", hint=HINT)
        self.answered.remove(request.number)
        self._unmasked[request.number] = request.survivors

    def check_lost(self, request: Recovering) -> None:
        """Check that this site answered the list of a sum, and that all named sites are on it.

        Raises
        ------
        ProtocolRefused
            The list was not answered, or a named site is not on it.
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
        self._unmasked = {one: survivors for one, survivors in self._unmasked.items() if one == number}


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

    def __init__(self, terms: Invitation, site: str, run: str) -> None:
        super().__init__(terms, site, run)
        self._mask_seed, *self._key_seeds = new_seeds(1 + terms.n_sums)
        self._key_pairs = {number: key_pair(seed) for number, seed in enumerate(self._key_seeds)}
        self._secrets: dict[int, bytes] = {}
        self._pad_keys: dict[int, bytes] = {}
        self._keys_digest = b""
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
            boxes[j] = to_bytes(seal_box(shares[j], self._secrets[j], self.terms, (self.site, peer)))
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
            opened = open_box(request.boxes[j].tobytes(), self._secrets[j], self.terms, (peer, self.site))
            self._shares[j] = opened.reshape(-1, SEED_BYTES)
        self._secrets.clear()  # so that boxes cannot be opened after a later compromise of this site
        self.is_ready = True

    def unmask(self, request: Unmasking) -> Unmasked:
        """Return the seed of this site's self-mask and, for each site not on the list, the share of that site's key.

        They are encrypted, and can be read only if `threshold` sites answered the same list. This is possible once per
        sum. If shares are sent, only :meth:`recover_masks` of this sum is answered afterwards. See
        :meth:`SurvivorLists.accept` for errors.
        """
        self._lists_of().accept(request)
        stored, survivors = self._shares_of(), set(request.survivors)
        lost = [j for j, site in enumerate(self.terms.sites) if site not in survivors]
        shares, seed = stored[lost, 1 + request.number], seed_of_sum(self._mask_seed, request.number)
        pad_keys = {j: self._pad_keys[j] for peer, j in self._peers() if peer in survivors}
        stored[:, 1 + request.number] = 0
        if lost:
            self._end_with(request.number)
            stored[:, 1:] = stored[lost] = 0
        digest = list_digest(self.terms, request.number, request.survivors, self._keys_digest)
        content = Opened(to_bytes(seed), shares)
        return seal_answer(content, self._position, pad_keys, self.terms.threshold, len(self.terms.sites), digest)

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

    def _keys_taken(self) -> None:
        private, channels = self._channel_key(), self._keys_of_all().channels
        self._secrets = {j: exchange(private, channels[j].tobytes(), peer) for peer, j in self._peers()}
        label = self.terms.label_of_keys()
        self._pad_keys = {j: derive(secret, "pads", *label) for j, secret in self._secrets.items()}
        self._keys_digest = digest_of(self._keys_of_all())
        self._lists = SurvivorLists(self.terms, self.site)
        self._channel = None

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
        self._pad_keys.clear()
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
