"""Opening of a run: its first request to every site, and the analyst's signature over it, which every site checks.

The signature covers the study's name and terms, the sites, masking, the run, its attempt and the time. The name of a
run is random, so that it also serves as the nonce: a signature opens one attempt of one run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from multicentre.core.links import MAX_CLOCK_DIFFERENCE_S, SET_CLOCK
from multicentre.core.storage import check_site_name
from multicentre.engines.remote.packing import Request, read_json
from multicentre.errors import ConfigurationError, MessageError, RefusedByPolicy
from multicentre.privacy.secure_sum.identity import Identity, verify

# A site that restarts opens the run again with the same signature, and a run may take days.
LIFETIME_S = 7 * 86_400
LONGEST_NAME = 100  # the name is part of every ledger entry
_GROUPS = 10  # 40 hexadecimal digits: 160 bits, short enough to be read out by telephone
_PUBLIC = re.compile(r"[0-9a-f]{64}")
_SIGNATURE = re.compile(r"[0-9a-f]{128}")
_KINDS = {"analyst": str, "public_key": str, "time": int, "signature": str}
_OPENING = {"study": str, "terms": str, "sites": list, "secure_sum": bool, "protocol": dict}
_AGAIN = "The analyst signs again: multicentre run --resume RUN --coordinator SOCKET."


@dataclass(frozen=True)
class AnalystRequest:
    """An analyst's signature over the opening of a run.

    Parameters
    ----------
    analyst : str
        The analyst's name.
    public_key : str
        Ed25519, 64 hexadecimal digits.
    time : int
        Seconds since 1970 (UTC).
    signature : str
        128 hexadecimal digits, over :meth:`Opening.statement`.

    Raises
    ------
    MessageError
        A field has the wrong type or format.
    """

    analyst: str
    public_key: str
    time: int
    signature: str

    def __post_init__(self) -> None:
        plain = is_analyst_name(self.analyst) and _PUBLIC.fullmatch(self.public_key) and self.time >= 0
        if not plain or not _SIGNATURE.fullmatch(self.signature):
            raise MessageError(
                "the analyst's request must have the fields and types of the protocol; got others", where="request"
            )

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the analyst: a hash of name and key."""
        return analyst_fingerprint(self.analyst, self.public_key)

    def to_dict(self) -> dict[str, Any]:
        """Return the request as JSON-compatible values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read a request.

        Raises
        ------
        MessageError
            A field is missing, unknown, or has the wrong type or format.
        """
        if {name: type(value) for name, value in content.items()} != _KINDS:
            raise MessageError(
                "the analyst's request must have the fields and types of the protocol; got others", where="request"
            )
        return cls(**content)


@dataclass(frozen=True)
class Opening:
    """Opening of a run: the first request to every site.

    Parameters
    ----------
    run : str
    attempt : int
    study : str
        Name of the study.
    terms : str
        Hash of the terms that all sites agreed to; empty in tests without terms.
    sites : tuple of str
        Names of all sites of the study.
    secure_sum : bool
        True if sums are masked.
    request : AnalystRequest, optional
        The signature of the analyst who asks for the run.
    protocol : mapping of str to str
        Number of the wire protocol and digest of each method; the terms contain them too, and these name differences.
    """

    run: str
    attempt: int
    study: str
    terms: str
    sites: tuple[str, ...]
    secure_sum: bool
    request: AnalystRequest | None = None
    protocol: Mapping[str, str] = field(default_factory=dict)

    def pack(self) -> bytes:
        """Return the body of the request."""
        content = {name: getattr(self, name) for name in _OPENING}
        signature_fields = {} if self.request is None else {"request": self.request.to_dict()}
        return json.dumps({**content, **signature_fields}).encode()

    @property
    def digest(self) -> str:
        """Hash of the opening with its run, its attempt and the signature of the analyst."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def statement(self, analyst: str, public_key: str, time: int) -> bytes:
        """Return the bytes that an analyst signs: the opening, the signer and the time."""
        content = {**asdict(self), "request": [analyst, public_key, time]}
        return b"multicentre request v1\0" + json.dumps(content, sort_keys=True).encode()

    @classmethod
    def of(cls, request: Request) -> Self:
        """Read the body of a request.

        Raises
        ------
        MessageError
            A field is missing, unknown, or has the wrong type.
        """
        content = read_json(request.body)
        signature_fields = content.pop("request", None)
        if {name: type(value) for name, value in content.items()} != _OPENING or not isinstance(
            signature_fields, dict | None
        ):
            raise MessageError(
                "the opening must have the fields and types of the protocol; got others", where="request"
            )
        if not all(isinstance(one, str) for one in (*content["sites"], *content["protocol"].values())):
            raise MessageError(
                "the opening must have the fields and types of the protocol; got others", where="request"
            )
        signature = None if signature_fields is None else AnalystRequest.from_dict(signature_fields)
        return cls(
            run=request.run, attempt=request.attempt, request=signature, **{**content, "sites": tuple(content["sites"])}
        )


Sign = Callable[[Opening], AnalystRequest]
"""Return the signed request for an opening."""


def is_analyst_name(name: object) -> bool:
    """Return True if an analyst can have this name: printable, and short enough for every ledger entry."""
    try:
        check_site_name(name)
    except ConfigurationError:
        return False
    return isinstance(name, str) and len(name) <= LONGEST_NAME


def analyst_fingerprint(name: str, public_key: str) -> str:
    """Return the fingerprint of an analyst's name and public key, to be compared by telephone."""
    content = "\0".join(["multicentre analyst card v1", name, public_key])
    digits = hashlib.sha256(content.encode()).hexdigest()
    return "-".join(digits[4 * i : 4 * i + 4] for i in range(_GROUPS))


def sign_opening(opening: Opening, identity: Identity, name: str, now: datetime | None = None) -> AnalystRequest:
    """Return the request of an analyst for one attempt of one run."""
    time = int((now or datetime.now(UTC)).timestamp())
    public_key = identity.public.hex()
    signature = identity.sign(opening.statement(name, public_key, time))
    return AnalystRequest(name, public_key, time, signature.hex())


def check_request(opening: Opening, now: datetime | None = None) -> None:
    """Check that the analyst named by an opening signed this opening recently.

    Raises
    ------
    RefusedByPolicy
        The signature does not belong to this opening, or the request is too old or from the future.
    """
    request = opening.request
    if request is None:
        return
    statement = opening.statement(request.analyst, request.public_key, request.time)
    if not verify(bytes.fromhex(request.public_key), bytes.fromhex(request.signature), statement):
        raise RefusedByPolicy(
            f"the signature of {request.analyst} must be over this study, these sites and this run; it is over another "
            "request",
            where="analyst",
            hint=f"A signature opens one attempt of one run. {_AGAIN}",
        )
    age_s = int((now or datetime.now(UTC)).timestamp()) - request.time
    if age_s < -MAX_CLOCK_DIFFERENCE_S:
        raise RefusedByPolicy(
            f"the clocks of site and analyst must be within {MAX_CLOCK_DIFFERENCE_S:g} s; the site's is at least "
            f"{-age_s:,} s behind",
            where="analyst",
            hint=f"{SET_CLOCK} {_AGAIN}",
        )
    if age_s > LIFETIME_S:
        raise RefusedByPolicy(
            f"the request of {request.analyst} must be at most {LIFETIME_S // 86_400} days old; got an age of "
            f"{age_s:,} s",
            where="analyst",
            hint=_AGAIN,
        )
