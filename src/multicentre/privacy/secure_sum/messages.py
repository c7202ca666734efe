"""What travels for a masked sum besides the masked values: nothing here says anything about patients."""

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

    @property
    def recovers(self) -> bool:
        """Whether sums outlive the loss of a site."""
        return self.threshold < len(self.sites)

    def label(self, number: int, step: str) -> tuple[str | int, ...]:
        """Return what tells the masks of one sum from all others."""
        return (self.study, self.session, self.agreement, number, step)

    def signed_by(self, site: str, channel: bytes, keys: bytes, checks: bytes) -> bytes:
        """Return the bytes that `site` signs with its keys."""
        terms = [self.study, self.session, self.agreement, list(self.sites), self.threshold, self.n_sums, site]
        return b"\n".join([b"multicentre secure sum, keys", json.dumps(terms).encode(), channel + keys + checks])


@dataclass(frozen=True)
class Advertisement(Release):
    """A site's public keys of one agreement."""

    concerns_patients: ClassVar[bool] = False
    channel: Bytes = array("public key for shares on their way (X25519)", (32,), dtype="u1")
    keys: Bytes = array("public key of each sum (X25519)", ("b", 32), dtype="u1")
    checks: Bytes = array("hash of the seed of the site's own mask of each sum", ("b", 16), dtype="u1")
    signature: Bytes = array("the site's signature of terms and keys (Ed25519)", (64,), dtype="u1")


@dataclass(frozen=True)
class Advertisements(Message):
    """The public keys of all sites of an agreement, in its order of sites."""

    agreement: str = text("name of the agreement")
    channels: Bytes = array("public keys for shares on their way", ("n", 32), dtype="u1")
    keys: Bytes = array("public keys of each sum", ("n", "b", 32), dtype="u1")
    checks: Bytes = array("hashes of the seeds of own masks", ("n", "b", 16), dtype="u1")
    signatures: Bytes = array("signatures", ("n", 64), dtype="u1")


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
class Unmasking(Message):
    """Whose summands are in a sum."""

    agreement: str = text("name of the agreement")
    number: int = count("number of the sum")
    survivors: tuple[str, ...] = texts("sites whose masked values arrived")


@dataclass(frozen=True)
class Unmasked(Release):
    """For each site one share: of the seed of its own mask if its values arrived, of its key of this sum if not."""

    concerns_patients: ClassVar[bool] = False
    shares: Bytes = array("shares, sites in order", ("n", 16), dtype="u1")


@dataclass(frozen=True)
class Masked(Release):
    """A summand that says nothing by itself."""

    concerns_patients: ClassVar[bool] = False
    vector: NDArray[np.uint64] = array("masked values, fixed point modulo 2**64", ("m",), dtype="u8")
    layout: str = text("lengths and names by which the values are put back")
