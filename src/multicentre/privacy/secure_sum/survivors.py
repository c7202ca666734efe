"""Which sites a sum holds, as one site knows it: one list a sum, signed by enough of those on it.

Bonawitz et al. (CCS 2017, figure 4, round 3, ConsistencyCheck). An honest site signs one list for each sum. With c
sites that sign anything, two lists with `threshold` signatures each would need 2 (threshold - c) of the n - c honest
sites, more than there are, since 2 threshold > n + c is among the terms that every site insists on.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from multicentre.federation.errors import IntegrityError, MessageError, ProtocolRefused
from multicentre.privacy.secure_sum.identity import Identity, verify
from multicentre.privacy.secure_sum.messages import Confirming, Invitation, Recovering, Unmasking

MEND = "Nothing was disclosed. Start the run anew; if it happens again, ask whoever runs the coordinator."
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
