"""Masked sums at a site: key agreement, checks of the terms, and masking of the site's answers.

The coordinator forwards every message and can read all of them. As long as fewer than `threshold` sites collude with
it, it obtains only the sum and the list of sites in it. If other sites collude, it obtains the sum over the remaining
sites. Therefore all sites except one can together compute the value of the last one in any exact sum, and each of two
sites can compute the value of the other.

A coordinator that deviates from the protocol can read one such sum as well, but no other. Keys are signed together with
the terms, shares are bound to sender and receiver, and masks are used once. A sum is unmasked only if `threshold` sites
received the same list of the sites in it. The threshold is more than half of the sites, and accounts for colluding
sites, so that no second list can reach enough sites. The coordinator can still leave sites out as if they were lost,
down to the threshold.

The masks of a sum depend on the transcript of the session (:mod:`multicentre.core.transcript`). The masks of
sites that received different requests before, in any step, do not cancel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeVar

from multicentre.core.calls import Call, Mask
from multicentre.core.latest import Latest
from multicentre.core.rosters import roster_of
from multicentre.core.steps import Acknowledgement, Release, SitePart, step
from multicentre.errors import ConfigurationError, RefusedByPolicy
from multicentre.privacy.secure_sum.agreement import Agreement, ChainedAgreement
from multicentre.privacy.secure_sum.fixed_point import encode_release, plan_grids
from multicentre.privacy.secure_sum.identity import Identity, check_public
from multicentre.privacy.secure_sum.mask import Sign, add_streams
from multicentre.privacy.secure_sum.messages import (
    Advertisement,
    Advertisements,
    Boxes,
    BoxesFor,
    Invitation,
    Masked,
    Recovered,
    Recovering,
    Unmasked,
    Unmasking,
)
from multicentre.privacy.secure_sum.recoverable import RecoverableAgreement
from multicentre.privacy.sites_per_field import Field, SiteFields, SitesBehind, sites_behind

# Limits the keys and shares that a site generates in advance if losses are tolerated. Otherwise, new keys after this
# number of sums limit the sums that can be read with a stolen copy of a site's memory.
MAX_SUMS = 1024
K = TypeVar("K", bound=Agreement)
_latest_behind = Latest(sites_behind)


class MaskingKeys(SitePart):
    """Site part with the keys of one session, which are never written to disk.

    Parameters
    ----------
    site : str
    identity : Identity
        Signing key of the site.
    peers : mapping of str to bytes
        Public identity of every registered site.
    min_sites : int
        Smallest threshold that the site accepts.
    n_colluding : int
        Number of sites that may collude with the coordinator.
    fields : SiteFields, optional
        Views and columns of the site.
    used_names : set of (str, str), optional
        Session and name of each agreement so far. It outlives the part, since a coordinator that lets a site forget a
        session could otherwise have the picks of this site alone drawn again under terms that the others signed.
    """

    method: ClassVar[str] = "secure-sum"
    holds_patients: ClassVar[bool] = False
    in_transcript: ClassVar[bool] = False

    def __init__(
        self,
        site: str,
        identity: Identity,
        peers: Mapping[str, bytes],
        min_sites: int = 2,
        n_colluding: int = 0,
        fields: SiteFields | None = None,
        used_names: set[tuple[str, str]] | None = None,
    ) -> None:
        super().__init__(site, None)
        self.fields = fields or SiteFields()
        self._identity = identity
        self._peers = peers
        self._min_sites = max(min_sites, 2)
        self._n_colluding = n_colluding
        self._used_names: set[tuple[str, str]] = set() if used_names is None else used_names
        self._agreement: Agreement | None = None

    @step(releases=Advertisement)
    def advertise(self, request: Invitation) -> Advertisement:
        """Generate keys for a batch of sums and send their public halves, with the site's views and columns.

        Earlier keys are erased.
        """
        if not self.run:
            raise ConfigurationError(
                "the sites of the run must have exchanged random numbers before they agree on keys; they did not",
                where="advertise",
                hint="Use the same version of multicentre at the coordinator and at the sites.",
            )
        self._check_sites(request)
        self._check_threshold(request)
        self._used_names.add((request.session, request.agreement))
        self._agreement = (RecoverableAgreement if request.recovers else ChainedAgreement)(request, self.site, self.run)
        return self._agreement.advertise(self._identity, self.fields)

    @step(releases=Acknowledgement)
    def agree(self, request: Advertisements) -> Acknowledgement:
        """Check and store the peers' public keys, if sums need every site."""
        self._open(request.agreement, ChainedAgreement).take_keys(request, self._peers)
        return Acknowledgement()

    @step(releases=Boxes)
    def share(self, request: Advertisements) -> Boxes:
        """Check the peers' public keys and send every peer its shares of this site's seeds, encrypted."""
        agreement = self._open(request.agreement, RecoverableAgreement)
        agreement.take_keys(request, self._peers)
        return agreement.share()

    @step(releases=Acknowledgement, addressed="each")
    def accept(self, request: BoxesFor) -> Acknowledgement:
        """Store this site's shares of the peers' seeds."""
        self._open(request.agreement, RecoverableAgreement).accept(request)
        return Acknowledgement()

    @step(releases=Unmasked)
    def unmask(self, request: Unmasking) -> Unmasked:
        """Send the seed of this site's self-mask of a sum, and its shares of the keys of sites that are not in the sum.

        They are encrypted, and can be read only if enough sites received the same list of the sites in the sum.
        """
        return self._open(request.agreement, RecoverableAgreement).unmask(request)

    @step(releases=Recovered)
    def recover_masks(self, request: Recovering) -> Recovered:
        """Send shares of the seeds of self-masks of sites on the list that were lost before the sum was unmasked.

        After shares of any kind were sent, the sites agree on new keys before the next sum.
        """
        return self._open(request.agreement, RecoverableAgreement).recover_masks(request)

    def check(self, call: Call) -> None:
        """Check, before anything is computed, that masks for a call exist; see :meth:`masks` for errors."""
        agreement, mask = self._fitting(call)
        agreement.check_unused(mask.number, call.step.name)

    def sites_behind(self, call: Call) -> dict[Field, SitesBehind]:
        """Return the sites behind each view and column that a site lacks and to which this site contributes."""
        agreement, mask = self._fitting(call)
        behind = _latest_behind(agreement.fields_by_site, call.peers, mask.threshold)
        return {place: sites for place, sites in behind.items() if self.fields.adds_to(place)}

    def masks(self, call: Call) -> list[tuple[bytes, Sign]]:
        """Return key and sign of every stream that masks the answer to a call; they are used once.

        Raises
        ------
        ConfigurationError
            Keys were not agreed with the sites and terms of this call.
        RefusedByPolicy
            The masks of this number were used before, or are outside the agreement.
        """
        agreement, mask = self._fitting(call)
        return agreement.masks(mask.number, call.step.name, call.mark.transcript)

    def _fitting(self, call: Call) -> tuple[Agreement, Mask]:
        agreement, mask = self._agreement, call.mask
        if agreement is not None and mask is not None and agreement.is_ready:
            terms = agreement.terms
            agreed = (terms.study, terms.session, terms.agreement, terms.threshold, terms.n_colluding)
            requested = (call.study, call.session, mask.agreement, mask.threshold, mask.colluding)
            if agreed == requested and (terms.sites is call.peers or sorted(terms.sites) == sorted(call.peers)):
                return agreement, mask
        raise ConfigurationError(
            "keys must be agreed with the sites and terms of this sum; they were not", where=call.step.name
        )

    def _open(self, name: str, kind: type[K]) -> K:
        agreement = self._agreement
        if not isinstance(agreement, kind) or agreement.terms.agreement != name:
            raise ConfigurationError(
                "the request must belong to the current key agreement; got one of another agreement",
                where="secure_sum",
                hint="Agree on keys again.",
            )
        return agreement

    def _check_sites(self, terms: Invitation) -> None:
        if (terms.session, terms.agreement) in self._used_names or not 1 <= terms.n_sums <= MAX_SUMS:
            raise RefusedByPolicy(
                f"a key agreement must be new and for 1 to {MAX_SUMS} sums; "
                f"got a repeated one, or one for {terms.n_sums} sums",
                where="advertise",
            )
        roster = roster_of(terms.sites)
        if self.site not in roster.distinct or len(roster.distinct) < len(terms.sites):
            raise RefusedByPolicy("sites must name every site once, including this one; they do not", where="advertise")
        unknown_sites = roster.distinct - self._peers.keys() - {self.site}
        if unknown_sites:
            raise RefusedByPolicy(
                "every site must have a registered identity at this site; these have none",
                where=", ".join(sorted(unknown_sites)),
                hint="Ask their stewards for their public identities, or leave them out.",
            )

    def _check_threshold(self, terms: Invitation) -> None:
        if terms.threshold < self._min_sites:
            raise RefusedByPolicy(
                f"the site's policy requires sums over at least {self._min_sites} sites; got {terms.threshold}",
                where="min_sites_in_sum",
                hint="Increase the study's quorum, or add sites.",
            )
        if terms.n_colluding < self._n_colluding:
            raise RefusedByPolicy(
                f"the site's policy requires masks against {self._n_colluding} colluding sites; "
                f"got {terms.n_colluding}",
                where="colluding_sites",
                hint="Set the coordinator's colluding_sites to the largest number in any site's policy.",
            )
        n_sites = len(terms.sites)
        if not n_sites + terms.n_colluding < 2 * terms.threshold <= 2 * n_sites:
            raise RefusedByPolicy(
                f"the threshold must be above {(n_sites + terms.n_colluding) / 2:g} and at most {n_sites}, so that two "
                f"groups of sites cannot unmask one sum; got {terms.threshold}",
                where="threshold",
                hint="Increase the quorum to more than half of the sites plus half of the colluding sites.",
            )


class MaskingSeal:
    """Masks a site's answers so that they are meaningful only in the sum.

    Parameters
    ----------
    identity : Identity
        Signing key of the site.
    peers : mapping of str to bytes
        Public identity, 32 bytes, of every registered site; this site may be included.
    min_sites : int, default 2
        Smallest threshold, the number of sites needed to read a sum.
    n_colluding : int, default 0
        Number of sites that may collude with the coordinator. The threshold must be higher accordingly.

    Raises
    ------
    ConfigurationError
        A public identity is not an Ed25519 key, or is a key under which anybody can sign.

    Examples
    --------
    >>> lyon, nice = Identity.generate(), Identity.generate()
    >>> seal = MaskingSeal(lyon, {"nice": nice.public})
    >>> seal.new_keys("lyon").site
    'lyon'
    """

    keys: type[SitePart] = MaskingKeys

    def __init__(
        self, identity: Identity, peers: Mapping[str, bytes], *, min_sites: int = 2, n_colluding: int = 0
    ) -> None:
        for peer, public in peers.items():
            check_public(public, peer)
        self._identity = identity
        self._peers = dict(peers)
        self._min_sites = min_sites
        self._n_colluding = n_colluding
        self._used_names: set[tuple[str, str]] = set()

    def new_keys(self, site: str, held: SiteFields | None = None) -> MaskingKeys:
        """Return the site part with the keys of one session and the fields of the site."""
        return MaskingKeys(
            site, self._identity, self._peers, self._min_sites, self._n_colluding, held, self._used_names
        )

    def check(self, call: Call, keys: SitePart) -> None:
        """Check, before anything is computed or paid for, that masks for a call exist."""
        assert isinstance(keys, MaskingKeys)
        keys.check(call)

    def sites_behind(self, call: Call, keys: SitePart) -> dict[Field, SitesBehind]:
        """Return the sites behind each field that a site lacks and to which this site contributes."""
        assert isinstance(keys, MaskingKeys)
        return keys.sites_behind(call)

    def protect(self, call: Call, release: Release, keys: SitePart) -> Masked:
        """Return the masked fixed-point values of `release`.

        Raises
        ------
        DisclosureRefused
            A value is beyond its declared range.
        ConfigurationError, RefusedByPolicy
            Keys were not agreed for this call, or were used before.
        """
        assert isinstance(keys, MaskingKeys)
        streams = keys.masks(call)
        grids = plan_grids(type(release), len(call.peers), call.noise)
        counted = call.mask is not None and call.mask.counted
        vector, layout = encode_release(release, grids, call.step.name, counted=counted)
        add_streams(vector, streams)
        return Masked(vector, layout, call.mark.transcript)
