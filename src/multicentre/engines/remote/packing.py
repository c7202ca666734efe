"""Requests to sites and their replies, as bytes: a JSON line that says what it is about, then a body."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from multicentre.engines.remote.analyst_request import AnalystRequest
from multicentre.federation import errors
from multicentre.federation.engine import Call, Outcome, Refused, Upkeep, decode_selection, encode_selection
from multicentre.federation.errors import IntegrityError, MessageError, MulticentreError, SiteFailed
from multicentre.federation.messages import Message
from multicentre.federation.steps import SitePart
from multicentre.federation.wire import decode, encode
from multicentre.privacy.ledger_heads import Head
from multicentre.privacy.secure_sum.messages import Masked

FORMAT = 3  # raised with every change of names or fields, so that other versions are refused by name
MOST_TEXT = 2000
_LARGEST_HEAD = 8 * 2**20
_PATH = re.compile(r"(?<![^\s'\"(=])(?:/|[A-Za-z]:\\)(?=\S)[^,;'\")]*")
Kind = Literal["open", "call", "restore", "close"]
ReplyKind = Literal["opened", "answer", "refused", "done", "closed"]


@dataclass(frozen=True)
class Request:
    """What a coordinator writes to a site.

    Parameters
    ----------
    kind : {"open", "call", "restore", "close"}
    run : str
        The run that it belongs to, the same when the run is taken up again.
    attempt : int
        How often the run was taken up.
    number : int
        Rises from request to request of an attempt; the same request sent again has the same number.
    commands : tuple of Upkeep
        What the site keeps or forgets before it reads the body.
    body : bytes
    heads : str
        Ends of all sites' ledgers, which the site keeps; empty where nothing is new.
    """

    kind: Kind
    run: str
    attempt: int
    number: int
    commands: tuple[Mapping[str, Any], ...] = ()
    body: bytes = b""
    heads: str = ""

    def pack(self) -> bytes:
        """Return the request as bytes."""
        head = {
            "kind": self.kind,
            "run": self.run,
            "attempt": self.attempt,
            "number": self.number,
            "commands": list(self.commands),
            "heads": self.heads,
            "format": FORMAT,
        }
        return json.dumps(head).encode() + b"\n" + self.body

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Read a request.

        Raises
        ------
        MessageError
            It is none, or one of another version of the package's format.
        """
        head, body = _split(packed)
        if head.pop("format", None) != FORMAT:
            raise MessageError(
                "the request is of another format", where="request", hint="Install the same version of multicentre."
            )
        if {name: type(value) for name, value in head.items()} != _REQUEST or head["kind"] not in _KINDS:
            raise MessageError("the request is not as declared", where="request")
        if not _is_token(head["run"]) or min(head["attempt"], head["number"]) < 0:
            raise MessageError("the request is not as declared", where="request")
        return cls(commands=tuple(head.pop("commands")), body=body, **head)


@dataclass(frozen=True)
class Opening:
    """What a coordinator tells a site when it opens a run.

    Parameters
    ----------
    run : str
    attempt : int
    study : str
        Name of the study.
    terms : str
        Hash of what all sites agreed to; empty where nothing was written down, as in tests.
    sites : tuple of str
        Names of all sites of the study.
    secure_sum : bool
        Whether sums are masked.
    request : AnalystRequest, optional
        The signature of the analyst who asks for the run.
    """

    run: str
    attempt: int
    study: str
    terms: str
    sites: tuple[str, ...]
    secure_sum: bool
    request: AnalystRequest | None = None

    def pack(self) -> bytes:
        """Return the body of the request."""
        told = {"study": self.study, "terms": self.terms, "sites": list(self.sites), "secure_sum": self.secure_sum}
        signed = {} if self.request is None else {"request": self.request.to_dict()}
        return json.dumps({**told, **signed}).encode()

    def statement(self, analyst: str, public_key: str, time: int) -> bytes:
        """Return what an analyst signs: everything that the opening says, who signs it, and when."""
        content = {**asdict(self), "request": [analyst, public_key, time]}
        return b"multicentre request v1\0" + json.dumps(content, sort_keys=True).encode()

    @classmethod
    def of(cls, request: Request) -> Self:
        """Read the body of a request.

        Raises
        ------
        MessageError
            It is not as declared.
        """
        told = _json(request.body)
        signed = told.pop("request", None)
        if {name: type(value) for name, value in told.items()} != _OPENING or not isinstance(signed, dict | None):
            raise MessageError("the opening is not as declared", where="request")
        if not all(isinstance(site, str) for site in told["sites"]):
            raise MessageError("the opening is not as declared", where="request")
        signature = None if signed is None else AnalystRequest.from_dict(signed)
        return cls(
            run=request.run, attempt=request.attempt, request=signature, **{**told, "sites": tuple(told["sites"])}
        )


@dataclass(frozen=True)
class Reply:
    """What a site writes back: the number of the request, what the reply is, a body, and where its ledger ends."""

    number: int
    kind: ReplyKind
    body: bytes = b""
    ledger: Head | None = None

    def pack(self) -> bytes:
        """Return the reply as bytes."""
        ledger = None if self.ledger is None else self.ledger.to_dict()
        head = {"format": FORMAT, "number": self.number, "kind": self.kind, "ledger": ledger}
        return json.dumps(head).encode() + b"\n" + self.body

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Read a reply.

        Raises
        ------
        MessageError
            It is none.
        IntegrityError
            The end of the site's ledger does not carry the signature of the key that it names.
        """
        head, body = _split(packed)
        ledger = head.pop("ledger", None)
        if {name: type(value) for name, value in head.items()} != {"format": int, "number": int, "kind": str}:
            raise MessageError("the reply is not as declared", where="reply")
        if head["format"] != FORMAT or head["kind"] not in _REPLIES:
            raise MessageError("the reply is of another format", where="reply")
        return cls(head["number"], head["kind"], body, None if ledger is None else _head(ledger))

    @property
    def facts(self) -> dict[str, Any]:
        """The body of a reply that says something about the site."""
        return {_printable(name): _cleaned(value) for name, value in _json(self.body).items()}


def pack_outcome(number: int, outcome: Outcome) -> Reply:
    """Return what a call came to as a reply."""
    if isinstance(outcome, Message):
        return Reply(number, "answer", encode(outcome))
    return pack_error(number, outcome.error)


def pack_error(number: int, error: MulticentreError) -> Reply:
    """Return an error of the package as a reply; errors of the package never hold a patient's value.

    Where files lie at the site is left out.
    """
    told = {"error": type(error).__name__, "what": error.what, "where": error.where, "hint": error.hint}
    shortened = {name: _PATH.sub("a file of the site", text[:MOST_TEXT]) for name, text in told.items()}
    return Reply(number, "refused", json.dumps(shortened).encode())


def unpack_outcome(reply: Reply, call: Call) -> Outcome:
    """Return what a call came to.

    Raises
    ------
    MessageError
        The reply is neither the release that the step declares nor an error.
    """
    if reply.kind == "refused":
        return Refused(unpack_error(reply))
    if reply.kind != "answer":
        raise MessageError("the reply does not answer the call", where="reply")
    kind: type[Message] = call.step.releases if call.mask is None else Masked
    return decode(kind, reply.body)


def unpack_error(reply: Reply) -> MulticentreError:
    """Return the error that a site answered with; one that this version does not know is a SiteFailed."""
    told = _json(reply.body)
    if {name: type(value) for name, value in told.items()} != dict.fromkeys(("error", "what", "where", "hint"), str):
        raise MessageError("the site's error is not as declared", where="reply")
    kind = getattr(errors, told["error"], None)
    known = isinstance(kind, type) and issubclass(kind, MulticentreError)
    chosen: type[MulticentreError] = kind if known and kind is not None else SiteFailed
    where, what, hint = (_printable(told[name]) for name in ("where", "what", "hint"))
    return chosen(what, where=where, hint=hint)


def pack_command(command: Upkeep) -> dict[str, Any]:
    """Return a command as plain values."""
    return {
        "action": command.action,
        "session": command.session,
        "method": command.part.method,
        "name": command.name,
        "number": command.number,
        "selection": None if command.selection is None else encode_selection(command.selection),
    }


def unpack_command(told: Mapping[str, Any], offers: Callable[[str], type[SitePart]]) -> Upkeep:
    """Read a command, looking its part up among those that the site offers.

    Raises
    ------
    MessageError
        It is not as declared.
    """
    try:
        selection = None if told["selection"] is None else decode_selection(told["selection"])
        kinds = {name: type(told[name]) for name in _COMMAND}
        if kinds != _COMMAND or len(told) != len(_COMMAND) + 1 or told["action"] not in _ACTIONS:
            raise TypeError
        if told["number"] < 0:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise MessageError("the command is not as declared", where="request") from None
    part = offers(told["method"])
    return Upkeep(told["action"], told["session"], part, told["name"], told["number"], selection)


def _head(told: Any) -> Head:
    head = Head.from_dict(told)
    if not head.is_signed:
        raise IntegrityError("the end of the site's ledger must carry the site's signature", where="reply")
    return head


def _split(packed: bytes) -> tuple[dict[str, Any], bytes]:
    head, _, body = packed.partition(b"\n")
    return _json(head), body


def _json(text: bytes) -> dict[str, Any]:
    if len(text) > _LARGEST_HEAD:  # what is read from it takes far more memory than the text
        raise MessageError("the bytes cannot be read", where="request")
    try:
        told = json.loads(text.decode())
    except (ValueError, RecursionError):
        raise MessageError("the bytes cannot be read", where="request") from None
    if not isinstance(told, dict):
        raise MessageError("the bytes cannot be read", where="request")
    return told


def _printable(text: str) -> str:
    """Return a text of another machine without what could move a terminal's cursor."""
    return "".join(character if character.isprintable() else " " for character in text)


def _cleaned(value: Any) -> Any:
    """Return plain values of another machine, their texts printable."""
    if isinstance(value, str):
        return _printable(value)
    if isinstance(value, list):
        return [_cleaned(one) for one in value]
    return {_printable(name): _cleaned(one) for name, one in value.items()} if isinstance(value, dict) else value


def _is_token(run: str) -> bool:
    return 0 < len(run) <= 64 and run.isalnum() and run.isascii()


_KINDS = ("open", "call", "restore", "close")
_ACTIONS = ("keep", "restore", "reset", "forget")
_REPLIES = ("opened", "answer", "refused", "done", "closed")
_REQUEST = {"kind": str, "run": str, "attempt": int, "number": int, "commands": list, "heads": str}
_OPENING = {"study": str, "terms": str, "sites": list, "secure_sum": bool}
_COMMAND = {"action": str, "session": str, "method": str, "name": str, "number": int}
