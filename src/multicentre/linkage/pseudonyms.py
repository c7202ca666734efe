"""Keyed pseudonyms: the same person has the same token at every site, and only a site with the key can create tokens.

One site generates a new key for each study and sends it to the other sites by a secure channel (a courier, a sealed
letter, the hospitals' encrypted mail). **The coordinator never has it.** A plain or salted hash is not sufficient: a
century has 36,525 birth dates and a national number has a known format, so that anyone with the salt can hash all of
them and revert every token. With a secret key, only the sites that hold it can do so.
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

from multicentre.federation.errors import ConfigurationError
from multicentre.privacy.normalisation import NORMALISATION, DateOrder, Kind, normalise
from multicentre.privacy.secrets import SECRET_BYTES, Secret, read_secret, write_secret

# Length of a digest of HMAC-SHA-256.
TOKEN_BYTES = 32


class PseudonymKey:
    """The secret of one study's pseudonyms, held by its sites and never by the coordinator.

    Parameters
    ----------
    secret : Secret
        32 random bytes; `generate` draws them, `read` takes them from the file that another site handed over.

    Notes
    -----
    It does not print, cannot be pickled, and is compared in constant time, see `Secret`.

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
        """Return a key that follows from a study's name: no secret, for records that one process holds anyway."""
        return cls(Secret(hashlib.sha256(f"simulated/{study}".encode()).digest()))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a key from a secret file; raises what `read_secret` raises."""
        return cls(Secret(read_secret(path)))

    def write(self, path: str | Path) -> None:
        """Write the key to a new secret file; raises what `write_secret` raises."""
        write_secret(path, self._secret.reveal())

    def fingerprint(self, study: str) -> str:
        """Return eight hex digits by which sites see that they hold the same key for `study`.

        They may be compared by telephone: 32 bits of a keyed hash reveal nothing useful about the key, and are not
        computed from patients.
        """
        return self.hash_for(f"fingerprint/v1/{study}").hexdigest()[:8]

    def hash_for(self, purpose: str) -> hmac.HMAC:
        """Return HMAC-SHA256 under this key, begun with the purpose's length (2 bytes, big endian) and the purpose.

        Raises
        ------
        ConfigurationError
            The purpose is longer than 65,535 bytes.
        """
        label = purpose.encode(errors="surrogatepass")
        if len(label) > 0xFFFF:
            raise ConfigurationError("a purpose has at most 65,535 bytes", where="purpose")
        return hmac.new(self._secret.reveal(), len(label).to_bytes(2, "big") + label, "sha256")

    def __repr__(self) -> str:
        return "PseudonymKey(…)"

    def __eq__(self, other: object) -> bool:
        return self._secret == other._secret if isinstance(other, PseudonymKey) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class Pseudonyms:
    """One pseudonym a record, with missing ones kept apart. They print as counts.

    Parameters
    ----------
    tokens : array of uint8, shape (n, 32)
        HMAC-SHA256 of each record's value; zeros where it is missing.
    present : array of bool, shape (n,)
        Where there is a value.

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
        """Records without a value."""
        return int(np.count_nonzero(~self.present))

    @property
    def n_duplicates(self) -> int:
        """Records whose token another record before them has: present records less distinct tokens."""
        sizes = self._group_sizes()
        return int(sizes.sum()) - len(sizes)

    @property
    def largest_group(self) -> int:
        """Records that share the commonest token; many more than one patient has point to an unknown placeholder."""
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
            0 to B - 1, or -1 where the value is missing.

        Raises
        ------
        ConfigurationError
            B is out of range.
        """
        if not 1 <= n_buckets <= 2**32:
            raise ConfigurationError("the number of buckets is from 1 to 2**32", where="n_buckets")
        first = self._words(self.tokens)[:, 0]
        count, half = np.uint64(n_buckets), np.uint64(32)
        high, low = first >> half, first & np.uint64(0xFFFFFFFF)
        bucket = (high * count + ((low * count) >> half)) >> half
        return np.where(self.present, bucket.astype(np.int64), -1)

    def order(self) -> NDArray[np.int64]:
        """Return the positions of the present records in the order of their tokens, shape (n - n_missing,).

        The order is the same at every site that has the same records, whatever the order of its rows; records with
        one token stand in the order of the rows.
        """
        positions = np.flatnonzero(self.present)
        return positions[np.lexsort(self._words(self.tokens[positions]).T[::-1])].astype(np.int64)

    def hex(self) -> list[str | None]:
        """Return each token as 64 hex digits, None where the value is missing."""
        return [bytes(token).hex() if there else None for token, there in zip(self.tokens, self.present, strict=True)]

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
    """Return keyed pseudonyms of one column, to be called at the site that holds the column and the key.

    A token is HMAC-SHA256(key, len16(label) || label || value), with the normalised value in UTF-8 and the label
    ``<purpose>/<kind>-<NORMALISATION>``: what was made for one purpose, kind of value or version of the rules shares
    no token with any other.

    Parameters
    ----------
    values : iterable
        One value a record, as the site recorded it. Apply this before the site's own pseudonyms or date shifts:
        two sites' shifted dates have nothing in common.
    key : PseudonymKey
        The study's key.
    purpose : str
        What the tokens are for, with its version and the study: ``fold/v1/<study>/rep0``.
    kind : {"identifier", "name", "date", "nhs-number", "nir", "combined"}, default "identifier"
        How values are normalised, see `normalise`; "combined" takes what `combine` returned.
    date_order : {"iso", "ymd", "dmy", "mdy"}, default "iso"
        How this site writes dates as text.

    Raises
    ------
    ConfigurationError
        The purpose is empty or too long, or kind or order is unknown.
    DataError
        The values are not a column, or one was refused (a number, a date whose year has two digits).

    Examples
    --------
    >>> key = PseudonymKey.generate()
    >>> lyon = pseudonymise(["31/01/1950"], key, purpose="duplicates/v1/hips", kind="date", date_order="dmy")
    >>> oslo = pseudonymise(["1950-01-31"], key, purpose="duplicates/v1/hips", kind="date")
    >>> lyon.hex() == oslo.hex()
    True
    """
    if not purpose:
        raise ConfigurationError("a purpose is needed", where="purpose", hint="For example fold/v1/<study>/rep0.")
    texts = normalise(values, kind, date_order=date_order)
    begun = key.hash_for(f"{purpose}/{kind}-{NORMALISATION}")
    tokens = b"".join(bytes(TOKEN_BYTES) if text is None else _token(begun, text) for text in texts)
    present = np.array([text is not None for text in texts], dtype=np.bool_)
    return Pseudonyms(np.frombuffer(tokens, dtype=np.uint8).reshape(-1, TOKEN_BYTES), present)


def _token(begun: hmac.HMAC, text: str) -> bytes:
    keyed = begun.copy()
    keyed.update(text.encode())
    return keyed.digest()
