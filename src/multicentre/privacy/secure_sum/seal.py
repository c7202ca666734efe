"""How a site's answer becomes a summand that says nothing by itself."""

from __future__ import annotations

from collections.abc import Mapping

from multicentre.federation.engine import Call
from multicentre.federation.steps import Release, SitePart
from multicentre.privacy.fields import Field, HeldFields, SitesBehind
from multicentre.privacy.secure_sum.identity import Identity, check_public
from multicentre.privacy.secure_sum.keys import MaskingKeys
from multicentre.privacy.secure_sum.layout import encode_release
from multicentre.privacy.secure_sum.messages import Masked
from multicentre.privacy.secure_sum.ring import plan_grids
from multicentre.privacy.secure_sum.streams import add_streams


class MaskingSeal:
    """Masks a site's answers.

    Parameters
    ----------
    identity : Identity
        The site's signing key.
    peers : mapping of str to bytes
        Public identity, 32 bytes, of every site that this one knows; its own may be among them.
    min_sites : int, default 2
        The site takes no part in sums that fewer sites suffice for.
    n_colluding : int, default 0
        So many of the sites may show the coordinator what they hold; the threshold must be as much higher.

    Raises
    ------
    ConfigurationError
        A public identity is no Ed25519 key, or one under which anybody can sign.

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

    def new_keys(self, site: str, held: HeldFields | None = None) -> MaskingKeys:
        """Return the part that holds one session's keys and the fields that the site has."""
        return MaskingKeys(site, self._identity, self._peers, self._min_sites, self._n_colluding, held)

    def check(self, call: Call, keys: SitePart) -> None:
        """Check, before anything is computed or paid for, that masks for a call are there."""
        assert isinstance(keys, MaskingKeys)
        keys.check(call)

    def sites_behind(self, call: Call, keys: SitePart) -> dict[Field, SitesBehind]:
        """Return the sites behind each field of a sum that some site lacks and to which this one adds."""
        assert isinstance(keys, MaskingKeys)
        return keys.sites_behind(call)

    def protect(self, call: Call, release: Release, keys: SitePart) -> Masked:
        """Return the masked fixed-point values of `release`.

        Raises
        ------
        DisclosureRefused
            A value lies beyond its declared range.
        ConfigurationError, RefusedByPolicy
            Keys were not agreed for this call, or served before.
        """
        assert isinstance(keys, MaskingKeys)
        streams = keys.masks(call)
        grids = plan_grids(type(release), len(call.peers), call.noise)
        counted = call.mask is not None and call.mask.counted
        vector, layout = encode_release(release, grids, call.step.name, counted=counted)
        add_streams(vector, streams)
        return Masked(vector, layout, call.mark.transcript)
