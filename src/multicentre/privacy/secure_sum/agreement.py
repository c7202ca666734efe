"""Secrets of one site in one key agreement, for a batch of sums. They are never written to disk.

There are two kinds of agreement:

- :class:`ChainedAgreement`, if sums need every site: one key exchange per pair of sites serves all sums. A chain of
  keys ensures that later secrets do not reveal earlier sums.
- :class:`~multicentre.privacy.secure_sum.recoverable.RecoverableAgreement`, if losses are tolerated: each sum has
  separate keys, because a recovered key must reveal only one sum.

In a chain of keys, both sites of a pair have the same link. For each sum, they derive the key of their stream from the
link and the label of the sum, and replace the link by its successor. Both are computed by keyed BLAKE2b (RFC 7693),
which cannot be inverted. The link of a site after a sum therefore reveals neither the stream of this sum nor an earlier
one. The successor does not depend on the request, so a site that refused a sum still agrees with its peers on the next
one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from hashlib import blake2b

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from multicentre.core.latest import Latest
from multicentre.errors import ConfigurationError, IntegrityError, MessageError, RefusedByPolicy
from multicentre.privacy.secure_sum.identity import Identity, verify
from multicentre.privacy.secure_sum.mask import Label, Sign, derive, exchange, sign_of, text_of
from multicentre.privacy.secure_sum.mask_graph import draw_picks, neighbours
from multicentre.privacy.secure_sum.messages import Advertisement, Advertisements, Bytes, Invitation, Picks
from multicentre.privacy.sites_per_field import SiteFields

HINT = "Nothing was disclosed. Start the run again. If the error persists, ask the operator of the coordinator."


class Chains:
    """Hash chains of one site, one per peer.

    Parameters
    ----------
    site : str
        Name of the site.
    secrets : mapping of str to bytes
        Result of the key exchange with each peer.
    label : tuple
        Identifies the agreement.

    Examples
    --------
    >>> lyon = Chains("lyon", {"nice": bytes(32)}, ("study", "first agreement"))
    >>> nice = Chains("nice", {"lyon": bytes(32)}, ("study", "first agreement"))
    >>> lyon.streams(0, ("age",))[0][0] == nice.streams(0, ("age",))[0][0]
    True
    """

    def __init__(self, site: str, secrets: Mapping[str, bytes], label: Label) -> None:
        self._next = 0
        self._signs = [sign_of(site, peer) for peer in secrets]
        self._links = [derive(secret, "pair chain", *label, *sorted((site, peer))) for peer, secret in secrets.items()]

    def streams(self, number: int, label: Label) -> list[tuple[bytes, Sign]]:
        """Return key and sign of every stream of one sum, and replace the links by those of the next sum.

        Parameters
        ----------
        number : int
            Number of the sum, at least that of the next sum. The keys of skipped sums are lost.
        label : tuple
            Label of the sum. Sites with different labels derive different keys.
        """
        for _ in range(number - self._next):
            self._advance()
        content = b"stream\n" + text_of(label)
        keys = [_derive(link, content) for link in self._links]
        self._advance()
        return list(zip(keys, self._signs, strict=True))

    def _advance(self) -> None:
        self._links = [_derive(link, b"next") for link in self._links]
        self._next += 1


def _derive(link: bytes, content: bytes) -> bytes:
    return blake2b(content, key=link, digest_size=32).digest()


class Agreement(ABC):
    """Secrets of one site under one agreement.

    Parameters
    ----------
    terms : Invitation
        Terms that all sites sign.
    site : str
        Name of the site.
    run : str
        Hash of the run, which every site signs with its keys.

    Attributes
    ----------
    is_ready : bool
        True if all keys and shares for masked sums have arrived.
    next_sum : int
        Number of the first sum that can still be masked. Sums are masked in ascending order, each once.
    fields_by_site : mapping of str to SiteFields
        Signed fields of each site.
    """

    def __init__(self, terms: Invitation, site: str, run: str) -> None:
        self.terms = terms
        self.site = site
        self.run = run
        self.is_ready = False
        self.next_sum = 0
        self.fields_by_site: Mapping[str, SiteFields] = {}
        self._signed_fields = ""
        self._signed_picks: Picks | None = None
        self._position = terms.sites.index(site)
        self._channel: X25519PrivateKey | None = X25519PrivateKey.generate()
        self._public: Advertisements | None = None

    def advertise(self, identity: Identity, fields: SiteFields) -> Advertisement:
        """Return the public keys, the fields and the picks of the site, signed together with the terms."""
        channel = self._channel_key().public_key().public_bytes_raw()
        keys, checks = self._public_of_sums()
        self._signed_fields = fields.to_text()
        if n_picks := self.terms.n_picks:
            self._signed_picks = draw_picks(len(self.terms.sites), self._position, n_picks)
        signed = self.terms.signed_by(
            self.site, self.run, channel, keys, checks, self._signed_fields, self._signed_picks
        )
        columns = (to_bytes(channel), to_bytes(keys).reshape(-1, 32), to_bytes(checks).reshape(-1, 16))
        return Advertisement(*columns, to_bytes(identity.sign(signed)), self._signed_fields, self._signed_picks)

    def take_keys(self, public: Advertisements, identities: Mapping[str, bytes]) -> None:
        """Check and store the public keys and the fields of all sites.

        Raises
        ------
        IntegrityError
            A peer did not sign its keys and these terms for this run, the keys or picks listed for this site are not
            those that it sent, or a key is invalid.
        MessageError
            The number of keys or picks differs from the number of sites and sums.
        ConfigurationError
            Keys were stored before.
        """
        n_sites, shape = len(self.terms.sites), public.keys.shape[:2]
        if (*shape, len(public.fields)) != (n_sites, self.terms.n_keys, n_sites):
            raise MessageError(
                f"there must be {self.terms.n_keys} keys and one list of fields for each of {n_sites} sites; got shape "
                f"{shape} and {len(public.fields)} lists",
                where=type(public).__name__,
            )
        n_picks = 0 if public.picks is None else public.picks.shape[1]
        if n_picks != self.terms.n_picks or (public.picks is not None and len(public.picks) != n_sites):
            raise MessageError(
                f"there must be {self.terms.n_picks} picks for each of {n_sites} sites; got others",
                where=type(public).__name__,
            )
        if self._public is not None:
            raise ConfigurationError(
                "keys must be agreed once per agreement; they were agreed before", where=self.terms.agreement
            )
        listed = public.channels[self._position].tobytes(), public.fields[self._position]
        sent = self._channel_key().public_key().public_bytes_raw(), self._signed_fields
        if listed != sent or not _are_same(picks_of(public, self._position), self._signed_picks):
            raise IntegrityError(
                "the keys and fields listed for this site must be those that it sent; got others",
                where=self.site,
                hint=HINT,
            )
        signed, fields_by_site = _listed_in(self.terms, self.run, public)
        for peer, j in self._peers():
            if not verify(identities[peer], public.signatures[j].tobytes(), signed[j]):
                raise IntegrityError(
                    "the keys must have a valid signature of this site for this run; they do not", where=peer, hint=HINT
                )
        self.fields_by_site = fields_by_site
        self._public = public
        self._keys_taken()

    def check_unused(self, number: int, step: str) -> None:
        """Raise RefusedByPolicy if the masks of a sum were used before, or never agreed."""
        if not self.is_ready or not self.next_sum <= number < self.terms.n_sums:
            raise RefusedByPolicy(
                "masks must be agreed and used once; those of this sum were used before or not agreed",
                where=step,
                hint=HINT,
            )

    def masks(self, number: int, step: str, transcript: str) -> list[tuple[bytes, Sign]]:
        """Return key and sign of every stream of one sum, and erase the secrets that they were derived from.

        The masks of earlier sums without this site are erased as well.

        Raises
        ------
        RefusedByPolicy
            The masks of this sum were used before, or never agreed.
        """
        self.check_unused(number, step)
        self.next_sum = number + 1
        return self._streams(number, self.terms.label(number, step, transcript))

    @abstractmethod
    def _public_of_sums(self) -> tuple[bytes, bytes]:
        """Return the public keys of the sums and the commitments of the site, if any."""

    @abstractmethod
    def _keys_taken(self) -> None:
        """Use the public keys of all sites, which have been checked."""

    @abstractmethod
    def _streams(self, number: int, label: tuple[str | int, ...]) -> list[tuple[bytes, Sign]]:
        """Return key and sign of every stream of one sum, and erase the secrets that they were derived from."""

    def _peers(self) -> list[tuple[str, int]]:
        return [(site, j) for j, site in enumerate(self.terms.sites) if j != self._position]

    def _keys_of_all(self) -> Advertisements:
        if self._public is None:
            raise ConfigurationError(
                "keys must be agreed before they are used; they were not", where=self.terms.agreement
            )
        return self._public

    def _channel_key(self) -> X25519PrivateKey:
        if self._channel is None:
            raise ConfigurationError(
                "keys must be agreed once per agreement; they were agreed before", where=self.terms.agreement
            )
        return self._channel


class ChainedAgreement(Agreement):
    """Agreement whose sums need every site: one key exchange per pair of sites, then a chain of keys.

    Among many sites, pairs are those of a random graph (:mod:`multicentre.privacy.secure_sum.mask_graph`).
    The private key is erased as soon as the chains exist. After a sum, the masks of this sum and of earlier sums cannot
    be computed from the secrets of a site.
    """

    def _public_of_sums(self) -> tuple[bytes, bytes]:
        return b"", b""

    def _keys_taken(self) -> None:
        private, public = self._channel_key(), self._keys_of_all()
        channels, peers = public.channels, self._peers()
        if public.picks is not None:
            peers = [(self.terms.sites[j], j) for j in neighbours(public.picks, self._position)]
        secrets = {peer: exchange(private, channels[j].tobytes(), peer) for peer, j in peers}
        self._chains = Chains(self.site, secrets, self.terms.label_of_keys())
        self._channel = None
        self.is_ready = True

    def _streams(self, number: int, label: tuple[str | int, ...]) -> list[tuple[bytes, Sign]]:
        return self._chains.streams(number, label)


def picks_of(public: Advertisements, position: int) -> Picks | None:
    """Return the picks of one site; None if every site masks against every other."""
    return None if public.picks is None else public.picks[position]


def _are_same(one: Picks | None, other: Picks | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)


def _read(terms: Invitation, run: str, public: Advertisements) -> tuple[list[bytes], dict[str, SiteFields]]:
    """Return the bytes that each site signed, if the message lists what it sent, and the fields of each site."""
    signed = [
        terms.signed_by(
            site,
            run,
            public.channels[j].tobytes(),
            public.keys[j].tobytes(),
            public.checks[j].tobytes(),
            public.fields[j],
            picks_of(public, j),
        )
        for j, site in enumerate(terms.sites)
    ]
    return signed, {site: SiteFields.from_text(public.fields[j], site) for j, site in enumerate(terms.sites)}


_listed_in = Latest(_read)


def to_bytes(content: bytes) -> Bytes:
    """Return bytes as an array."""
    return np.frombuffer(content, dtype=np.uint8)
