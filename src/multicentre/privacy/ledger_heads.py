"""Signed ends of ledgers, and the statements in which a coordinator distributes them.

A site signs the end of its ledger (its head) with every entry. The signature proves later how many entries the ledger
had, and with which hash it ended. A ledger that is shorter, or has a different entry at that place, was changed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from multicentre.core.storage import read_regular
from multicentre.errors import IntegrityError
from multicentre.privacy.secure_sum.identity import Identity, bytes_of_hex, verify

GENESIS = "0" * 64
_ENTRY, _STATEMENT = "multicentre ledger entry v1", "multicentre ledger heads v1"
# Limits of content from another party: integers that are exact in JSON, the length of a name, and 16 MiB for a list.
_MAX_ENTRIES, _LONGEST_NAME, _LARGEST = 2**53, 1000, 2**24
_DIGITS = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Head:
    """End of a ledger.

    Parameters
    ----------
    entries : int
        Number of entries.
    hash : str
        Hash of the last entry.
    study : str
        Study whose releases the ledger records.
    key : str
        Public key of the site that signed the last entry, 64 hexadecimal digits; empty if it is not signed.
    signature : str
        Signature of the last entry, 128 hexadecimal digits.
    """

    entries: int
    hash: str
    study: str = ""
    key: str = ""
    signature: str = ""

    @property
    def is_signed(self) -> bool:
        """True if the signature is valid under the named key."""
        return _head_is_signed(self.key, self.signature, self.study, self.entries, self.hash)

    def to_dict(self) -> dict[str, Any]:
        """Return the head as a mapping, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: object) -> Self:
        """Read a head from a mapping; its signature is not checked.

        Raises
        ------
        IntegrityError
            The mapping does not contain a head.
        """
        kinds = {"entries": int, "hash": str, "study": str, "key": str, "signature": str}
        if not isinstance(content, Mapping) or {name: type(value) for name, value in content.items()} != kinds:
            raise IntegrityError(
                f"the end of a ledger must have the keys {', '.join(kinds)} with values of their types; got others",
                where="head",
            )
        head = cls(**content)
        lengths = {head.hash: 64, head.key: 64, head.signature: 128}
        fits = all(len(text) == length and set(text) <= _DIGITS for text, length in lengths.items())
        if not fits or not 0 <= head.entries < _MAX_ENTRIES or len(head.study) > _LONGEST_NAME:
            raise IntegrityError(
                "the end of a ledger must have a valid number, hash, study, key and signature; got an invalid one",
                where="head",
            )
        return head


@dataclass(frozen=True)
class Statement:
    """Ends of the sites' ledgers at one time, signed by the coordinator.

    Parameters
    ----------
    heads : mapping of str to Head
        End of the ledger, by site.
    key : str
        Public key of the coordinator.
    signature : str
    """

    heads: Mapping[str, Head]
    key: str = ""
    signature: str = ""

    @classmethod
    def signed(cls, heads: Mapping[str, Head], signer: Identity) -> Self:
        """Return a statement signed by a coordinator."""
        return cls(dict(heads), signer.public.hex(), signer.sign(_text_of(heads)).hex())

    @property
    def is_signed(self) -> bool:
        """True if the signature is valid under the named key."""
        return is_signed(self.key, self.signature, _text_of(self.heads))

    @functools.cached_property
    def packed(self) -> bytes:
        """Statement as bytes."""
        heads = {site: head.to_dict() for site, head in sorted(self.heads.items())}
        return _json({"heads": heads, "key": self.key, "signature": self.signature})

    @classmethod
    def unpack(cls, packed: bytes, where: str = "heads") -> Self:
        """Read a statement; signatures are not checked.

        Raises
        ------
        IntegrityError
            The bytes do not contain a statement.
        """
        try:
            if len(packed) > _LARGEST:
                raise ValueError
            content = json.loads(packed.decode())
            kinds = {name: type(value) for name, value in content.items()}
        except (ValueError, AttributeError, RecursionError):
            kinds, content = {}, {}
        if kinds != {"heads": dict, "key": str, "signature": str}:
            raise IntegrityError(
                "a statement of the ends of ledgers must have heads, a key and a signature; got others", where=where
            )
        heads = {str(site): Head.from_dict(head) for site, head in content["heads"].items()}
        return cls(heads, content["key"], content["signature"])


def read_statement(path: Path) -> Statement:
    """Read the ends of ledgers from a file of a coordinator or a site.

    Raises
    ------
    IntegrityError
        The file cannot be read or is a link, or it names a coordinator that did not sign it.
    """
    try:
        statement = Statement.unpack(read_regular(path, "list of ledger ends"), str(path))
    except OSError as error:
        raise IntegrityError(
            f"the ends of ledgers cannot be read ({error.strerror})",
            where=str(path),
            hint="Check the path and the rights of the file.",
        ) from None
    if statement.key and not statement.is_signed:
        raise IntegrityError(
            "the ends of ledgers must have a valid signature of the coordinator that they name; they were changed",
            where=str(path),
            hint="Compare them with the ends at the sites.",
        )
    return statement


def signed_text(study: str, entries: int, digest: str) -> bytes:
    """Return the bytes that a site signs with an entry: its study, its number and its hash."""
    return _json([_ENTRY, study, entries, digest])


def check_head(head: Head, entries: Sequence[Mapping[str, Any]], where: str, witness: str) -> None:
    """Raise IntegrityError unless a ledger's entries continue from an end that another party recorded.

    Parameters
    ----------
    head : Head
        Recorded end.
    entries : sequence of mapping
        Entries of the ledger, the oldest first.
    where : str
        Path of the ledger.
    witness : str
        Name of the party that recorded it.
    """
    if head.entries > len(entries):
        raise IntegrityError(
            f"the ledger must reach entry {head.entries}, as recorded by {witness}; it ends at entry {len(entries)}",
            where=where,
            hint="Entries were removed from the end. Restore it from a copy, and inform the study's other parties.",
        )
    if head.entries and entries[head.entries - 1].get("hash") != head.hash:
        raise IntegrityError(
            f"entry {head.entries} must have the hash recorded by {witness}; it has a different one",
            where=where,
            hint="The ledger was rewritten. Restore it from a copy, and inform the study's other parties.",
        )


def _text_of(heads: Mapping[str, Head]) -> bytes:
    return _json([_STATEMENT, {site: head.to_dict() for site, head in sorted(heads.items())}])


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


# The sites of one process receive the same heads; each signature is checked once instead of once per site. A thousand
# sites are the largest simulation, and each entry takes a kilobyte of memory, also in a process that needs none.
@functools.lru_cache(maxsize=1024)
def _head_is_signed(key: str, signature: str, study: str, entries: int, digest: str) -> bool:
    return is_signed(key, signature, signed_text(study, entries, digest))


def is_signed(key: str, signature: str, text: bytes) -> bool:
    """Return whether a signature of a text is valid under a key; both in lower-case hexadecimal digits."""
    try:
        return verify(bytes_of_hex(key), bytes_of_hex(signature), text)
    except ValueError:
        return False
