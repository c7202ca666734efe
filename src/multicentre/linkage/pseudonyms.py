"""Keyed pseudonyms: the same person has the same token at every site, and only a site with the key can create tokens.

One site generates a new key for each study and sends it to the other sites via a secure channel (a courier, a sealed
letter, the hospitals' encrypted mail). **The coordinator never has it.** A plain or salted hash is not sufficient. A
century has 36,525 birth dates, and a national number has a public format. Anyone with the salt can hash all of them and
invert every token. With a secret key, only the sites that have it can do so.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import ConfigurationError
from multicentre.privacy.identifier_normalisation import NORMALISATION, DateOrder, Kind, normalise
from multicentre.privacy.secret_files import SECRET_BYTES, Secret, read_secret, write_secret

# Length of a digest of HMAC-SHA-256.
TOKEN_BYTES = 32


class PseudonymKey:
    """Secret key of one study's pseudonyms. The study's sites have it, the coordinator does not.

    Parameters
    ----------
    secret : Secret
        32 random bytes. `generate` draws them; `read` reads them from the file of another site.

    Notes
    -----
    The key is not printed, cannot be pickled, and is compared in constant time; see `Secret`.

    Examples
    --------
    >>> key = PseudonymKey.generate()
    >>> key
    PseudonymKey(…)
    >>> key == PseudonymKey.generate()
    False
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: Secret) -> None:
        self._secret = secret

    @classmethod
    def generate(cls) -> Self:
        """Draw a new key from the operating system's cryptographic source."""
        return cls(Secret(token_bytes(SECRET_BYTES)))

    @classmethod
    def simulated(cls, study: str) -> Self:
        """Return a key derived from the study's name. It is not secret; use it only if one process has all records."""
        return cls(Secret(hashlib.sha256(f"simulated/{study}".encode()).digest()))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a key from a secret file; see :func:`multicentre.privacy.secret_files.read_secret`."""
        return cls(Secret(read_secret(path)))

    def write(self, path: str | Path) -> None:
        """Write the key to a new secret file; see :func:`multicentre.privacy.secret_files.write_secret`."""
        write_secret(path, self._secret.reveal())

    def fingerprint(self, study: str) -> str:
        """Return eight hex digits by which sites verify that they have the same key for `study`.

        They may be compared by telephone. 32 bits of a keyed hash reveal nothing useful about the key, and they are not
        computed from patients' data.
        """
        return self.hash_for(f"fingerprint/v1/{study}").hexdigest()[:8]

    def hash_for(self, purpose: str) -> hmac.HMAC:
        """Return an HMAC-SHA256 for a purpose; more bytes can be added to it.

        Its first bytes are the length of the purpose (2 bytes, big endian) and the purpose.

        Raises
        ------
        ConfigurationError
            The purpose is longer than 65,535 bytes.
        """
        label = purpose.encode(errors="surrogatepass")
        if len(label) > 0xFFFF:
            raise ConfigurationError(
                f"a purpose must have at most 65,535 bytes; got {len(label):,}",
                where="purpose",
                hint="Use a shorter name of the study.",
            )
        return hmac.new(self._secret.reveal(), len(label).to_bytes(2, "big") + label, "sha256")

    def __repr__(self) -> str:
        return "PseudonymKey(…)"

    def __eq__(self, other: object) -> bool:
        return self._secret == other._secret if isinstance(other, PseudonymKey) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class Pseudonyms:
    """One pseudonym per record, with flags of missing values. The representation contains only counts.

    Parameters
    ----------
    tokens : array of uint8, shape (n, 32)
        HMAC-SHA256 of each record's value; zeros if it is missing.
    present : array of bool, shape (n,)
        True for records with a value.

    Examples
    --------
    >>> pseudonymise(["A17", None, "a-17"], PseudonymKey.generate(), purpose="example")
    Pseudonyms(3 records, 1 missing, 1 duplicates)
    """

    tokens: NDArray[np.uint8]
    present: NDArray[np.bool_]

    def __post_init__(self) -> None:
        self.tokens.setflags(write=False)
        self.present.setflags(write=False)

    def __len__(self) -> int:
        return len(self.present)

    def __repr__(self) -> str:
        return f"Pseudonyms({len(self)} records, {self.n_missing} missing, {self.n_duplicates} duplicates)"

    @property
    def n_missing(self) -> int:
        """Number of records without a value."""
        return int(np.count_nonzero(~self.present))

    @property
    def n_duplicates(self) -> int:
        """Number of records with the token of an earlier record: present records minus distinct tokens."""
        sizes = self._group_sizes()
        return int(sizes.sum()) - len(sizes)

    @property
    def largest_group(self) -> int:
        """Number of records with the most common token; an unusually large number indicates a placeholder."""
        return int(self._group_sizes().max(initial=0))

    def buckets(self, n_buckets: int) -> NDArray[np.int64]:
        """Return each record's bucket, floor(u B / 2**64) with u the first 8 bytes of its token, big endian.

        Parameters
        ----------
        n_buckets : int
            B, from 1 to 2**32.

        Returns
        -------
        array of int64, shape (n,)
            0 to B - 1, or -1 if the value is missing.

        Raises
        ------
        ConfigurationError
            B is out of range.
        """
        if not 1 <= n_buckets <= 2**32:
            raise ConfigurationError(
                f"n_buckets must be an integer from 1 to 2**32; got {n_buckets}",
                where="n_buckets",
                hint="Example: 4096.",
            )
        first = self._words(self.tokens)[:, 0]
        count, half = np.uint64(n_buckets), np.uint64(32)
        high, low = first >> half, first & np.uint64(0xFFFFFFFF)
        bucket = (high * count + ((low * count) >> half)) >> half
        return np.where(self.present, bucket.astype(np.int64), -1)

    def order(self) -> NDArray[np.int64]:
        """Return the positions of the present records in the order of their tokens, shape (n - n_missing,).

        All sites with the same records have the same order, whatever the order of their rows. Records with equal tokens
        are in the order of the rows.
        """
        positions = np.flatnonzero(self.present)
        return positions[np.lexsort(self._words(self.tokens[positions]).T[::-1])].astype(np.int64)

    def hex(self) -> list[str | None]:
        """Return each token as 64 hex digits, or None if the value is missing."""
        pairs = zip(self.tokens, self.present, strict=True)
        return [bytes(token).hex() if is_present else None for token, is_present in pairs]

    def _group_sizes(self) -> NDArray[np.int64]:
        words = self._words(self.tokens[self.order()])
        begins = np.flatnonzero(np.r_[len(words) > 0, np.any(words[1:] != words[:-1], axis=1)])
        return np.diff(begins, append=len(words)).astype(np.int64)

    @staticmethod
    def _words(tokens: NDArray[np.uint8]) -> NDArray[np.uint64]:
        return np.ascontiguousarray(tokens).view(">u8").astype(np.uint64)


def pseudonymise(
    values: Iterable[Any], key: PseudonymKey, *, purpose: str, kind: Kind = "identifier", date_order: DateOrder = "iso"
) -> Pseudonyms:
    """Return keyed pseudonyms of one column. Call this at the site that has the column and the key.

    A token is HMAC-SHA256(key, len16(label) || label || value), with the normalised value in UTF-8 and the label
    ``<purpose>/<kind>-<NORMALISATION>``. Tokens of different purposes, kinds of value or versions of the rules
    therefore differ.

    Parameters
    ----------
    values : iterable
        One value per record, as recorded by the site. Apply this function before local pseudonyms or date shifts, which
        differ between sites.
    key : PseudonymKey
        The study's key.
    purpose : str
        Purpose of the tokens, with its version and the study: ``fold/v1/<study>/rep0``.
    kind : {"identifier", "name", "date", "nhs-number", "nir", "combined"}, default "identifier"
        Kind of value, which determines its normalisation; see `normalise`. "combined" accepts results of `combine`.
    date_order : {"iso", "ymd", "dmy", "mdy"}, default "iso"
        Order of day, month and year in dates of this site that are text.

    Raises
    ------
    ConfigurationError
        The purpose is empty or too long, or the kind or the order is unknown.
    DataError
        The values are not a column, or one is invalid (a number, or a date with a two-digit year).

    Examples
    --------
    >>> key = PseudonymKey.generate()
    >>> lyon = pseudonymise(["31/01/1950"], key, purpose="duplicates/v1/hips", kind="date", date_order="dmy")
    >>> oslo = pseudonymise(["1950-01-31"], key, purpose="duplicates/v1/hips", kind="date")
    >>> lyon.hex() == oslo.hex()
    True
    """
    if not purpose:
        raise ConfigurationError(
            "purpose must be a non-empty text; got ''", where="purpose", hint="Example: fold/v1/<study>/rep0."
        )
    texts = normalise(values, kind, date_order=date_order)
    labelled_hash = key.hash_for(f"{purpose}/{kind}-{NORMALISATION}")
    tokens = b"".join(bytes(TOKEN_BYTES) if text is None else _token(labelled_hash, text) for text in texts)
    present = np.array([text is not None for text in texts], dtype=np.bool_)
    return Pseudonyms(np.frombuffer(tokens, dtype=np.uint8).reshape(-1, TOKEN_BYTES), present)


def _token(labelled_hash: hmac.HMAC, text: str) -> bytes:
    token_hash = labelled_hash.copy()
    token_hash.update(text.encode())
    return token_hash.digest()
