"""What travels for a masked sum besides the masked values.

Nothing here says anything about patients but, with the keys, in which columns a site has too few entries.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, count, text, texts
from multicentre.federation.steps import Release

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Invitation(Message):
    """The terms of a key agreement; every site signs them with its keys, so that all agree on the same ones."""

    study: str = text("name of the study")
    session: str = text("the fit that the sums belong to")
    agreement: str = text("name of the agreement")
    sites: tuple[str, ...] = texts("sites that take part, in order")
    threshold: int = count("sites without which no sum is read")
    n_sums: int = count("sums that the keys are for")
    n_colluding: int = count("sites that may work together with the coordinator")

    @property
    def recovers(self) -> bool:
        """Whether sums outlive the loss of a site."""
        return self.threshold < len(self.sites)

    @property
    def n_keys(self) -> int:
        """Public keys per site besides that of the channel: one per sum where sums outlive losses, none otherwise."""
        return self.n_sums if self.recovers else 0

    def label_of_keys(self) -> tuple[str | int, ...]:
        """Return what distinguishes the keys of this agreement from those of all others."""
        return (self.study, self.session, self.agreement)

    def label(self, number: int, step: str, transcript: str) -> tuple[str | int, ...]:
        """Return what distinguishes the masks of one sum from all others.

        The transcript is the hash of all that a site was asked in the session, this sum included: masks of sites that
        were asked different things do not cancel, and the sum cannot be read.
        """
        return (self.study, self.session, self.agreement, number, step, transcript)

    def signed_by(self, site: str, channel: bytes, keys: bytes, checks: bytes, held: str) -> bytes:
        """Return the bytes that `site` signs with its keys and the fields that it has."""
        terms = [self.study, self.session, self.agreement, list(self.sites), self.threshold, self.n_sums]
        terms += [self.n_colluding, site, held]
        return b"\n".join([b"multicentre secure sum, keys", json.dumps(terms).encode(), channel + keys + checks])

    def signed_list(self, site: str, number: int, survivors: tuple[str, ...], keys_digest: bytes) -> bytes:
        """Return the bytes by which `site` signs whose summands are in a sum; `keys_digest` is the hash of all keys."""
        told = [self.study, self.session, self.agreement, number, list(survivors), site]
        return b"\n".join([b"multicentre secure sum, survivors", json.dumps(told).encode(), keys_digest])


@dataclass(frozen=True)
class Advertisement(Release):
    """A site's public keys of one agreement."""

    concerns_patients: ClassVar[bool] = False
    channel: Bytes = array("public key of the site in this agreement (X25519)", (32,), dtype="u1")
    keys: Bytes = array("public key of each sum (X25519), where losses are tolerated", ("b", 32), dtype="u1")
    checks: Bytes = array("hash of the seed of the site's own mask of each sum", ("b", 16), dtype="u1")
    signature: Bytes = array("the site's signature of terms, keys and fields (Ed25519)", (64,), dtype="u1")
    held: str = text("views that the site has, and columns in which it has too few entries")


@dataclass(frozen=True)
class Advertisements(Message):
    """The public keys of all sites of an agreement, in its order of sites."""

    agreement: str = text("name of the agreement")
    channels: Bytes = array("public keys of the sites", ("n", 32), dtype="u1")
    keys: Bytes = array("public keys of each sum", ("n", "b", 32), dtype="u1")
    checks: Bytes = array("hashes of the seeds of own masks", ("n", "b", 16), dtype="u1")
    signatures: Bytes = array("signatures", ("n", 64), dtype="u1")
    held: tuple[str, ...] = texts("views that each site has, and columns in which it has too few entries")


@dataclass(frozen=True)
class Boxes(Release):
    """Shares of a site's seeds, encrypted for each peer (ChaCha20-Poly1305)."""

    concerns_patients: ClassVar[bool] = False
    boxes: Bytes = array("for each site in order, its shares; zeros for the site itself", ("n", "m"), dtype="u1")


@dataclass(frozen=True)
class BoxesFor(Message):
    """The encrypted shares that one site holds for the others."""

    agreement: str = text("name of the agreement")
    boxes: Bytes = array("from each site in order", ("n", "m"), dtype="u1")


@dataclass(frozen=True)
class Confirming(Message):
    """Whose summands are in a sum."""

    agreement: str = text("name of the agreement")
    number: int = count("number of the sum")
    survivors: tuple[str, ...] = texts("sites whose masked values arrived, in order")


@dataclass(frozen=True)
class Confirmed(Release):
    """A site's word that it knows this list of survivors, and will know no other, for this sum."""

    concerns_patients: ClassVar[bool] = False
    signature: Bytes = array("the site's signature of the list (Ed25519)", (64,), dtype="u1")


@dataclass(frozen=True)
class Unmasking(Message):
    """Who signed the list of survivors of a sum."""

    agreement: str = text("name of the agreement")
    number: int = count("number of the sum")
    signatures: Bytes = array("signatures, sites in order; zeros where there is none", ("n", 64), dtype="u1")


@dataclass(frozen=True)
class Unmasked(Release):
    """What takes a site's own mask off a sum, and its shares of what takes off the masks of sites that were lost."""

    concerns_patients: ClassVar[bool] = False
    seed: Bytes = array("seed of the site's own mask of this sum", (16,), dtype="u1")
    shares: Bytes = array("for each site not on the list, a share of its key of this sum", ("m", 16), dtype="u1")


@dataclass(frozen=True)
class Recovering(Message):
    """Sites that were lost after their masked values had arrived."""

    agreement: str = text("name of the agreement")
    number: int = count("number of the sum")
    lost: tuple[str, ...] = texts("sites on the list of survivors whose own masks are still in the sum")


@dataclass(frozen=True)
class Recovered(Release):
    """Shares of what takes the own masks of lost sites off a sum."""

    concerns_patients: ClassVar[bool] = False
    shares: Bytes = array("for each site named, a share of the seed of its own masks", ("m", 16), dtype="u1")


@dataclass(frozen=True)
class Masked(Release):
    """A summand that says nothing by itself."""

    concerns_patients: ClassVar[bool] = False
    vector: NDArray[np.uint64] = array("masked values, fixed point modulo 2**64", ("m",), dtype="u8")
    layout: str = text("lengths and names by which the values are put back")
    transcript: str = text("hash of all that the site was asked in the session, this sum included")
