"""The steps by which sites agree on masks, and the terms that a site insists on.

The coordinator carries every message and is taken to follow the protocol while reading all it can. It learns the sum,
who was in it, and nothing else, as long as fewer than `threshold` sites show it what they hold. With the help of other
sites it learns the sum over the rest: all sites but one together know the last one's value of any exact sum, and of two
sites each knows the other's.

Against a coordinator that cheats: keys are signed together with the terms, shares are bound to sender and receiver,
masks serve once, and shares of both kinds cannot be had of any site, since more than half of the sites, and of those
that help, would be needed for each. By naming other survivors to some sites than to others it could read a sum over
fewer sites than the threshold, though without help not over one. The round of signatures that would prevent
that (Bonawitz et al. 2017, ConsistencyCheck) is not made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from multicentre.federation.engine import Call
from multicentre.federation.errors import ConfigurationError, RefusedByPolicy
from multicentre.federation.steps import Acknowledgement, SitePart, step
from multicentre.privacy.secure_sum.agreement import Agreement
from multicentre.privacy.secure_sum.identity import Identity
from multicentre.privacy.secure_sum.messages import (
    Advertisement,
    Advertisements,
    Boxes,
    BoxesFor,
    Invitation,
    Unmasked,
    Unmasking,
)
from multicentre.privacy.secure_sum.streams import Sign

MOST_SUMS = 1024


class MaskingKeys(SitePart):
    """Holds a site's keys of one session; they are never written down.

    Parameters
    ----------
    site : str
    identity : Identity
        The site's signing key.
    peers : mapping of str to bytes
        Public identity of every site that this one knows.
    min_sites : int
        Smallest threshold that the site accepts.
    n_colluding : int
        So many of the sites may show the coordinator what they hold.
    """

    method: ClassVar[str] = "secure-sum"

    def __init__(
        self, site: str, identity: Identity, peers: Mapping[str, bytes], min_sites: int = 2, n_colluding: int = 0
    ) -> None:
        super().__init__(site, None)
        self._identity = identity
        self._peers = peers
        self._min_sites = max(min_sites, 2)
        self._n_colluding = n_colluding
        self._seen: set[str] = set()
        self._agreement: Agreement | None = None

    @step(releases=Advertisement)
    def advertise(self, ask: Invitation) -> Advertisement:
        """Make keys for a batch of sums and publish their public halves; earlier keys are forgotten."""
        self._check_sites(ask)
        self._check_threshold(ask)
        self._seen.add(ask.agreement)
        self._agreement = Agreement(ask, self.site)
        return self._agreement.advertise(self._identity)

    @step(releases=Acknowledgement)
    def agree(self, ask: Advertisements) -> Acknowledgement:
        """Take in the peers' public keys, where sums need every site."""
        self._open(ask.agreement, recovers=False).take_keys(ask, self._peers)
        return Acknowledgement()

    @step(releases=Boxes)
    def share(self, ask: Advertisements) -> Boxes:
        """Take in the peers' public keys and give every peer its shares of this site's seeds, encrypted."""
        agreement = self._open(ask.agreement, recovers=True)
        agreement.take_keys(ask, self._peers)
        return agreement.share()

    @step(releases=Acknowledgement)
    def accept(self, ask: BoxesFor) -> Acknowledgement:
        """Take in this site's shares of the peers' seeds."""
        self._open(ask.agreement, recovers=True).accept(ask)
        return Acknowledgement()

    @step(releases=Unmasked)
    def unmask(self, ask: Unmasking) -> Unmasked:
        """Give one share for each site, once for each sum: of its own mask if it is in the sum, of its key if not."""
        return self._open(ask.agreement, recovers=True).unmask(ask)

    def masks(self, call: Call) -> list[tuple[bytes, Sign]]:
        """Return key and sign of every stream that masks the answer to a call; they serve once.

        Raises
        ------
        ConfigurationError
            Keys were not agreed with the sites, or on the terms, of this call.
        RefusedByPolicy
            The masks of this number were used before, or are beyond the agreement.
        """
        agreement, mask = self._agreement, call.mask
        fits = (
            agreement is not None
            and mask is not None
            and agreement.is_ready
            and (agreement.terms.study, agreement.terms.session) == (call.study, call.session)
            and (agreement.terms.agreement, agreement.terms.threshold) == (mask.agreement, mask.threshold)
            and sorted(agreement.terms.sites) == sorted(call.peers)
        )
        if not fits or agreement is None or mask is None:
            raise ConfigurationError("keys were not agreed with the sites of this sum", where=call.step.name)
        return agreement.masks(mask.number, call.step.name)

    def _open(self, name: str, *, recovers: bool) -> Agreement:
        agreement = self._agreement
        if agreement is None or agreement.terms.agreement != name or agreement.terms.recovers != recovers:
            raise ConfigurationError("there is no such agreement of keys", where="secure_sum", mend="Agree anew.")
        return agreement

    def _check_sites(self, terms: Invitation) -> None:
        if terms.agreement in self._seen or not 1 <= terms.n_sums <= MOST_SUMS:
            raise RefusedByPolicy("the agreement was made before or is too large", where="advertise")
        if terms.sites.count(self.site) != 1 or len(set(terms.sites)) < len(terms.sites):
            raise RefusedByPolicy("every site must be named once, this one too", where="advertise")
        strangers = [site for site in terms.sites if site != self.site and site not in self._peers]
        if strangers:
            raise RefusedByPolicy(
                "the identity of a site is not known here",
                where=", ".join(strangers),
                mend="Ask its steward for its public identity, or leave it out.",
            )

    def _check_threshold(self, terms: Invitation) -> None:
        if terms.threshold < self._min_sites:
            raise RefusedByPolicy(
                f"a sum of {terms.threshold} sites is too small a crowd, says the site's policy",
                where="min_sites_in_sum",
                mend="Raise the study's quorum or bring more sites in.",
            )
        n_sites = len(terms.sites)
        if not n_sites + self._n_colluding < 2 * terms.threshold <= 2 * n_sites:
            raise RefusedByPolicy(
                f"with a threshold of {terms.threshold} among {n_sites} sites two parts of them could unmask one site",
                where="threshold",
                mend="More than half of the sites, and of those that may work together, must be needed.",
            )
