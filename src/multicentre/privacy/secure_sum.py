"""Sums that show the coordinator nothing but the sum.

Every pair of sites agrees on a key (X25519); for each sum both stretch it into a stream of 64-bit numbers (HKDF-SHA256
per call, ChaCha20), one adds the stream to its values and the other takes it away. In the sum over all sites every
stream cancels. Values are fixed-point numbers of the ring of integers modulo 2**64.

A site lost between key agreement and answer leaves its streams in the sum: the round ends with `QuorumLost`, nothing is
disclosed, and the run can be resumed.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from multicentre.federation.coordinator import Federation
from multicentre.federation.engine import Call, Mask, Protection
from multicentre.federation.errors import ConfigurationError, DisclosureRefused, QuorumLost
from multicentre.federation.messages import Message, Nothing, array, arrays, check_range, place, texts
from multicentre.federation.noise import Plan
from multicentre.federation.steps import Acknowledgement, R, Release, SitePart, Step, step

Ring = NDArray[np.uint64]
FRACTION_BITS = 24


@dataclass(frozen=True)
class PublicKey(Release):
    """One half of a key agreement."""

    concerns_patients: ClassVar[bool] = False
    key: NDArray[np.uint8] = array("public key of this session (X25519)", (32,), dtype="u1")


@dataclass(frozen=True)
class PublicKeys(Message):
    """The public keys of all sites of a session."""

    keys: dict[str, NDArray[np.uint8]] = arrays("public key of each site", (32,), dtype="u1")


@dataclass(frozen=True)
class Masked(Release):
    """A summand that says nothing by itself."""

    concerns_patients: ClassVar[bool] = False
    vector: Ring = array("masked values, fixed point modulo 2**64", ("m",), dtype="u8")
    layout: tuple[str, ...] = texts("field, name and shape of every value")


class MaskingKeys(SitePart):
    """Holds a site's keys of one session; they are made anew for each and never written down."""

    method: ClassVar[str] = "secure-sum"

    def __init__(self, site: str, data: Any) -> None:
        super().__init__(site, data)
        self._private = X25519PrivateKey.generate()
        self.shared: dict[str, bytes] = {}
        self.last_call = -1

    @step(releases=PublicKey, when="once")
    def advertise(self, ask: Nothing) -> PublicKey:
        """Publish the public half of the session's key."""
        return PublicKey(np.frombuffer(self._private.public_key().public_bytes_raw(), dtype=np.uint8))

    @step(releases=Acknowledgement, when="once")
    def agree(self, ask: PublicKeys) -> Acknowledgement:
        """Agree on a secret with every other site."""
        self.shared = {
            site: self._private.exchange(X25519PublicKey.from_public_bytes(key.tobytes()))
            for site, key in ask.keys.items()
            if site != self.site
        }
        return Acknowledgement()


class MaskingSeal:
    """Masks a site's answers with the keys of the session."""

    keys: type[SitePart] = MaskingKeys

    def new_keys(self, site: str) -> MaskingKeys:
        """Return new keys."""
        return MaskingKeys(site, None)

    def protect(self, call: Call, release: Release, keys: SitePart) -> Masked:
        """Return the masked fixed-point values of `release`.

        Raises
        ------
        ConfigurationError
            A peer is unknown: keys were not agreed with it. Or the call's number was used before, and its streams
            with it.
        DisclosureRefused
            A value is too large for the ring; nothing is cut off in silence.
        """
        assert isinstance(keys, MaskingKeys)
        if not keys.shared or sorted(call.peers) != sorted([keys.site, *keys.shared]):
            raise ConfigurationError("keys were not agreed with the sites of this sum", where=call.step.name)
        if call.sequence <= keys.last_call:
            raise ConfigurationError("the streams of this call were used before", where=call.step.name)
        keys.last_call = call.sequence
        values, layout = flatten(release)
        vector = to_ring(values, len(call.peers), place=call.step.name)
        for peer, secret in keys.shared.items():
            stream = mask_stream(secret, call, len(vector))
            vector = vector + stream if keys.site < peer else vector - stream
        return Masked(vector, layout)


class MaskedSummation:
    """The coordinator's side: it adds masked summands and reads the sum.

    Notes
    -----
    Keys are agreed at a session's first sum, and again when a site was lost in between; each sum stretches them anew
    under its own label.
    """

    protection: Protection = "masked"

    def __init__(self) -> None:
        self._agreed: dict[str, tuple[str, ...]] = {}

    def prepare(self, part: type[SitePart], n_sites: int, plan: Plan | None) -> None:
        """Check the ranges."""

    def total(self, federation: Federation, step: Step[Any, Any, R], ask: Message) -> R:
        """Return the sum over the sites' answers.

        Raises
        ------
        QuorumLost
            A site was lost after keys were agreed.
        """
        peers = self._agree(federation)
        answers = federation.collect(step, ask, mask=Mask(federation.session, 0, len(peers)))
        if tuple(answers) != peers:
            missing = sorted(set(peers) - set(answers))
            raise QuorumLost(
                "the sites were lost after keys were agreed; nothing of the sum can be read",
                where=", ".join(missing),
                mend="Resume the run when they are back.",
            )
        masked = [answer for answer in answers.values() if isinstance(answer, Masked)]
        layouts = {(answer.layout, len(answer.vector)) for answer in masked}
        if len(masked) != len(peers) or len(layouts) != 1:
            raise ConfigurationError("the sites answered with different shapes", where=step.name)
        total = np.add.reduce([answer.vector for answer in masked])
        return unflatten(step.releases, from_ring(total), masked[0].layout)

    def _agree(self, federation: Federation) -> tuple[str, ...]:
        if self._agreed.get(federation.session) != federation.sites:
            if len(federation.sites) < 2:
                raise ConfigurationError("a secure sum needs at least two sites", where="secure_sum")
            public = federation.ask(MaskingKeys.advertise, Nothing())
            federation.ask(MaskingKeys.agree, PublicKeys({site: answer.key for site, answer in public.items()}))
            if tuple(public) != federation.sites:
                raise QuorumLost(
                    "the sites were lost while keys were agreed; nothing was asked for yet",
                    where=", ".join(sorted(set(public) - set(federation.sites))),
                    mend="Resume the run when they are back.",
                )
            self._agreed[federation.session] = federation.sites
        return federation.sites


def mask_stream(secret: bytes, call: Call, length: int) -> Ring:
    """Return the stream of ring numbers that two sites share for one call."""
    label = f"multicentre secure sum|{call.study}|{call.session}|{call.sequence}|{call.step.name}".encode()
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=label).derive(secret)
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * length))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64)


def to_ring(values: NDArray[np.float64], n_sites: int, *, place: str = "") -> Ring:
    """Return values as fixed-point numbers with 24 binary places; the error of each is at most 2**-25."""
    limit = 2.0 ** (63 - FRACTION_BITS) / n_sites
    if not np.all(np.abs(values) < limit):
        raise DisclosureRefused(
            f"a value is beyond the {limit:.3g} that a sum of {n_sites} sites can hold",
            where=place,
            mend="Scale the columns, or sum in clear.",
        )
    return np.rint(values * 2.0**FRACTION_BITS).astype(np.int64).view(np.uint64)


def from_ring(vector: Ring) -> NDArray[np.float64]:
    """Return the real numbers that ring numbers stand for."""
    return vector.view(np.int64) / 2.0**FRACTION_BITS


def flatten(release: Release) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return all values of a release side by side, and what stands where."""
    parts, layout = [np.empty(0)], []
    for field, key, _, value in sorted(release.items(), key=lambda item: item[:2]):
        values = np.asarray(value, dtype=np.float64)
        parts.append(values.ravel())
        layout.append(json.dumps([field, key, *values.shape]))
    return np.concatenate(parts), tuple(layout)


def unflatten(kind: type[R], values: NDArray[np.float64], layout: tuple[str, ...]) -> R:
    """Put summed values back into a release."""
    fields: dict[str, Any] = {n: {} for n, declared in kind.declarations().items() if declared.keyed}
    start = 0
    for entry in layout:
        name, key, *shape = json.loads(entry)
        length = math.prod(shape)
        value = _restored(kind, name, values[start : start + length].reshape(shape))
        start += length
        if key:
            fields[name][key] = value
        else:
            fields[name] = value
    return kind(**fields).checked()


def _restored(kind: type[Release], name: str, value: NDArray[np.float64]) -> Any:
    declaration = kind.declarations()[name]
    if declaration.kind == "array":
        dtype = np.dtype(declaration.dtype)
        if dtype.kind in "iu":
            check_range(value, np.empty(0, dtype), place(kind, name))
        return value.astype(dtype)
    return int(value) if declaration.kind == "count" else float(value)
