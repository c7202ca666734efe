"""Messages of masked sums.

Apart from masked values, the only content about patients is the list of columns in which a site has too few entries.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, count, text, texts
from multicentre.core.rosters import roster_of
from multicentre.core.steps import Release
from multicentre.privacy.secure_sum.mask_graph import n_picks

Bytes = NDArray[np.uint8]
Picks = NDArray[np.int32]


@dataclass(frozen=True)
class Invitation(Message):
    """Terms of a key agreement; every site signs them with its keys, so that all sites have the same terms."""

    study: str = text("name of the study")
    session: str = text("fit to which the sums belong")
    agreement: str = text("name of the agreement")
    sites: tuple[str, ...] = texts("participating sites, in order")
    threshold: int = count("number of sites needed to read a sum")
    n_sums: int = count("number of sums of the keys")
    n_colluding: int = count("number of sites that may collude with the coordinator")

    @property
    def recovers(self) -> bool:
        """True if sums can be read after the loss of a site."""
        return self.threshold < len(self.sites)

    @property
    def n_keys(self) -> int:
        """Number of public keys per site, without that of the channel: one per sum with tolerated losses, else none."""
        return self.n_sums if self.recovers else 0

    @property
    def n_picks(self) -> int:
        """Number of sites that each site picks to mask against; 0 if every site masks against every other."""
        return 0 if self.recovers else n_picks(len(self.sites), self.n_colluding)

    def label_of_keys(self) -> tuple[str | int, ...]:
        """Return the label that distinguishes the keys of this agreement from all others."""
        return (self.study, self.session, self.agreement)

    def label(self, number: int, step: str, transcript: str) -> tuple[str | int, ...]:
        """Return the label that distinguishes the masks of one sum from all others.

        The transcript is the hash of all requests that a site received in the session, including this sum. Masks of
        sites that received different requests do not cancel, and the sum cannot be read.
        """
        return (self.study, self.session, self.agreement, number, step, transcript)

    def signed_by(
        self, site: str, run: str, channel: bytes, keys: bytes, checks: bytes, fields: str, picks: Picks | None = None
    ) -> bytes:
        """Return the bytes that `site` signs: the run, terms, keys, its fields and its picks, if any."""
        terms = [
            run,
            self.study,
            self.session,
            self.agreement,
            roster_of(self.sites).digest,
            self.threshold,
            self.n_sums,
        ]
        terms += [self.n_colluding, site, fields, *([] if picks is None else [picks.tolist()])]
        return b"\n".join([b"multicentre secure sum, keys", json.dumps(terms).encode(), channel + keys + checks])

    def list_content(self, number: int, survivors: tuple[str, ...], keys_digest: bytes) -> bytes:
        """Return the bytes that stand for the list of sites in a sum; `keys_digest` is the hash of all keys."""
        list_terms = [self.study, self.session, self.agreement, number, list(survivors)]
        return b"\n".join([b"multicentre secure sum, survivors", json.dumps(list_terms).encode(), keys_digest])


@dataclass(frozen=True)
class Advertisement(Release):
    """Public keys of one site in one agreement."""

    concerns_patients: ClassVar[bool] = False
    channel: Bytes = array("public key of the site in this agreement (X25519)", (32,), dtype="u1")
    keys: Bytes = array("public key of each sum (X25519), if losses are tolerated", ("b", 32), dtype="u1")
    checks: Bytes = array("hash of the seed of the site's self-mask of each sum", ("b", 16), dtype="u1")
    signature: Bytes = array("the site's signature of terms, keys and fields (Ed25519)", (64,), dtype="u1")
    fields: str = text("views of the site, and columns in which it has too few entries")
    picks: Picks | None = array(
        "positions of the sites that the site masks against, if there are many sites", ("p",), dtype="i4", optional=True
    )


@dataclass(frozen=True)
class Advertisements(Message):
    """Public keys of all sites of an agreement, in its order of sites."""

    agreement: str = text("name of the agreement")
    channels: Bytes = array("public keys of the sites", ("n", 32), dtype="u1")
    keys: Bytes = array("public keys of each sum", ("n", "b", 32), dtype="u1")
    checks: Bytes = array("hashes of the seeds of self-masks", ("n", "b", 16), dtype="u1")
    signatures: Bytes = array("signatures", ("n", 64), dtype="u1")
    fields: tuple[str, ...] = texts("views of each site, and columns in which it has too few entries")
    picks: Picks | None = array(
        "positions of the sites that each site masks against, if there are many sites",
        ("n", "p"),
        dtype="i4",
        optional=True,
    )


@dataclass(frozen=True)
class Boxes(Release):
    """Shares of a site's seeds, encrypted for each peer (ChaCha20-Poly1305)."""

    concerns_patients: ClassVar[bool] = False
    boxes: Bytes = array("for each site in order, its shares; zeros for the site itself", ("n", "m"), dtype="u1")


@dataclass(frozen=True)
class BoxesFor(Message):
    """Encrypted shares of the seeds of all sites for one site."""

    agreement: str = text("name of the agreement")
    boxes: Bytes = array("from each site in order", ("n", "m"), dtype="u1")


@dataclass(frozen=True)
class Unmasking(Message):
    """List of the sites whose summands are in a sum."""

    agreement: str = text("name of the agreement")
    number: int = count("number of the sum")
    survivors: tuple[str, ...] = texts("sites whose masked values arrived, in order")


@dataclass(frozen=True)
class Unmasked(Release):
    """Seed of a site's self-mask of a sum, and its shares of the keys of lost sites, encrypted.

    They can be decrypted only if `threshold` sites received the same list of survivors.
    """

    concerns_patients: ClassVar[bool] = False
    sealed: Bytes = array(
        "encrypted: seed of the site's self-mask of this sum, and for each site not on the list a share of its key",
        ("m",),
        dtype="u1",
    )
    shares: Bytes = array("for each site, a share of the key of this answer, hidden by a pad", ("n", 16), dtype="u1")
    pads: Bytes = array("for each site, the pad that hides the share for this site", ("n", 16), dtype="u1")


@dataclass(frozen=True)
class Recovering(Message):
    """Sites that were lost after their masked values had arrived."""

    agreement: str = text("name of the agreement")
    number: int = count("number of the sum")
    lost: tuple[str, ...] = texts("sites on the list of survivors whose self-masks are still in the sum")


@dataclass(frozen=True)
class Recovered(Release):
    """Shares of the seeds of the self-masks of lost sites."""

    concerns_patients: ClassVar[bool] = False
    shares: Bytes = array("for each lost site, a share of the seed of its self-masks", ("m", 16), dtype="u1")


@dataclass(frozen=True)
class Masked(Release):
    """Masked summand; meaningful only in the sum."""

    concerns_patients: ClassVar[bool] = False
    vector: NDArray[np.uint64] = array("masked values, fixed point modulo 2**64", ("m",), dtype="u8")
    layout: str = text("lengths and names for decoding the values")
    transcript: str = text("hash of all requests to the site in the session, including this sum")
