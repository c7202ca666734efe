"""Encoding of requests to sites and of their replies: a JSON line of metadata, then a body."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from multicentre import errors
from multicentre.core.calls import Call, Outcome, Refused, StateCommand, decode_selection, encode_selection
from multicentre.core.messages import Message
from multicentre.core.protocol import WIRE_PROTOCOL
from multicentre.core.steps import SitePart
from multicentre.core.wire import decode, encode
from multicentre.errors import IntegrityError, MessageError, MulticentreError, SiteFailed
from multicentre.privacy.ledger_heads import Head
from multicentre.privacy.secure_sum.messages import Masked

MAX_TEXT = 2000  # characters; the longest messages of the package have some hundreds
_MAX_HEAD = 8 * 2**20  # room for the ledger heads of thousands of sites; parsing needs many times this memory
_PATH = re.compile(r"(?<![^\s'\"(=])(?:/|[A-Za-z]:\\)(?=\S)[^,;'\")]*")
Kind = Literal["open", "call", "calls", "restore", "close"]
ReplyKind = Literal["opened", "answer", "answers", "refused", "done", "closed"]


@dataclass(frozen=True)
class Request:
    """Request from the coordinator to a site.

    Parameters
    ----------
    kind : {"open", "call", "calls", "restore", "close"}
    run : str
        Name of the run; the same after a resume.
    attempt : int
        Number of times that the run was resumed.
    number : int
        Increases with each request of an attempt; a repeated request has the same number.
    commands : tuple of mapping
        State commands (store, restore, reset, forget), and the random numbers of the sites of the run, which the site
        runs and takes before it reads the body.
    body : bytes
    heads : str
        Ledger heads of all sites, which the site stores; empty if unchanged.
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
            "format": WIRE_PROTOCOL,
        }
        return json.dumps(head).encode() + b"\n" + self.body

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Read a request.

        Raises
        ------
        MessageError
            The bytes are not a request, or are of another wire protocol.
        """
        head, body = _split(packed)
        if (number := head.pop("format", None)) != WIRE_PROTOCOL:
            raise MessageError(
                f"the request must have format {WIRE_PROTOCOL}; got {number!s:.20}",
                where="request",
                hint="Install releases with the same wire protocol; the release notes state its number.",
            )
        if {name: type(value) for name, value in head.items()} != _REQUEST or head["kind"] not in _KINDS:
            raise MessageError(
                "the request must have the fields and types of the protocol; got others", where="request"
            )
        if not _is_token(head["run"]) or min(head["attempt"], head["number"]) < 0:
            raise MessageError(
                "the request must have the fields and types of the protocol; got others", where="request"
            )
        return cls(commands=tuple(head.pop("commands")), body=body, **head)


@dataclass(frozen=True)
class Reply:
    """Reply of a site: number of the request, kind, body and ledger head."""

    number: int
    kind: ReplyKind
    body: bytes = b""
    ledger: Head | None = None

    def pack(self) -> bytes:
        """Return the reply as bytes."""
        ledger = None if self.ledger is None else self.ledger.to_dict()
        head = {"format": WIRE_PROTOCOL, "number": self.number, "kind": self.kind, "ledger": ledger}
        return json.dumps(head).encode() + b"\n" + self.body

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Read a reply.

        Raises
        ------
        MessageError
            The bytes are not a reply.
        IntegrityError
            The ledger head is not signed with the key that it names.
        """
        head, body = _split(packed)
        ledger = head.pop("ledger", None)
        if {name: type(value) for name, value in head.items()} != {"format": int, "number": int, "kind": str}:
            raise MessageError("the reply must have the fields and types of the protocol; got others", where="reply")
        if head["format"] != WIRE_PROTOCOL or head["kind"] not in _REPLIES:
            raise MessageError(
                f"the reply must have format {WIRE_PROTOCOL} and a kind of the protocol; got another", where="reply"
            )
        return cls(head["number"], head["kind"], body, None if ledger is None else _head(ledger))

    @property
    def facts(self) -> dict[str, Any]:
        """Facts about the site, from the body of the reply to an opening."""
        return {_printable(name): _cleaned(value) for name, value in read_json(self.body).items()}


def pack_outcome(number: int, outcome: Outcome) -> Reply:
    """Return the outcome of a call as a reply."""
    if isinstance(outcome, Message):
        return Reply(number, "answer", encode(outcome))
    return pack_error(number, outcome.error)


def pack_error(number: int, error: MulticentreError) -> Reply:
    """Return an error of a site as a reply, without paths of files at the site."""
    return Reply(number, "refused", _error_body(error, lambda text: _PATH.sub("a file of the site", text)))


def pack_own_error(error: MulticentreError) -> bytes:
    """Return an error of the coordinator for its analyst; its paths name what to repair at the coordinator."""
    return _error_body(error, lambda text: text)


def _error_body(error: MulticentreError, write: Callable[[str], str]) -> bytes:
    """Return an error of the package as JSON. Errors of the package never contain a patient's value."""
    kind = next(one for one in type(error).__mro__ if one.__module__ == errors.__name__)  # the receiver has it
    content = {"error": kind.__name__, "what": error.what, "where": error.where, "hint": error.hint}
    return json.dumps({name: write(text[:MAX_TEXT]) for name, text in content.items()}).encode()


def unpack_outcome(reply: Reply, call: Call) -> Outcome:
    """Return the outcome of a call.

    Raises
    ------
    MessageError
        The reply is neither the declared release of the step nor an error.
    """
    if reply.kind == "refused":
        return Refused(unpack_error(reply))
    if reply.kind != "answer":
        raise MessageError(f"the reply to a call must be an answer or an error; got {reply.kind}", where="reply")
    kind: type[Message] = call.step.releases if call.mask is None else Masked
    return decode(kind, reply.body)


def unpack_error(reply: Reply) -> MulticentreError:
    """Return the error of a site's reply; SiteFailed if this version has no error of that name."""
    content = read_json(reply.body)
    if {name: type(value) for name, value in content.items()} != dict.fromkeys(("error", "what", "where", "hint"), str):
        raise MessageError("the site's error must have the fields and types of the protocol; got others", where="reply")
    kind = getattr(errors, content["error"], None)
    is_known = isinstance(kind, type) and issubclass(kind, MulticentreError)
    chosen: type[MulticentreError] = kind if is_known and kind is not None else SiteFailed
    where, what, hint = (_printable(content[name]) for name in ("where", "what", "hint"))
    return chosen(what, where=where, hint=hint)


def pack_command(command: StateCommand) -> dict[str, Any]:
    """Return a state command as JSON-compatible values."""
    return {
        "action": command.action,
        "session": command.session,
        "method": command.part.method,
        "name": command.name,
        "number": command.number,
        "selection": None if command.selection is None else encode_selection(command.selection),
    }


def pack_nonces(nonces: Mapping[str, str]) -> dict[str, Any]:
    """Return the random numbers of all sites of a run as a command, which tells them apart from other runs."""
    return {"action": "join", "nonces": dict(nonces)}


def unpack_nonces(content: Mapping[str, Any]) -> dict[str, str] | None:
    """Read the random numbers of all sites of a run; None for a state command.

    Raises
    ------
    MessageError
        The numbers are not texts by site.
    """
    if content.get("action") != "join":
        return None
    nonces = content.get("nonces")
    if not isinstance(nonces, dict) or not all(isinstance(nonce, str) for nonce in nonces.values()):
        raise MessageError("the random numbers of a run must be texts by site; got others", where="request")
    return nonces


def unpack_command(content: Mapping[str, Any], offers: Callable[[str], type[SitePart]]) -> StateCommand:
    """Read a state command; `offers` returns the site part of a method.

    Raises
    ------
    MessageError
        A field is missing, unknown, or has the wrong type.
    """
    try:
        selection = None if content["selection"] is None else decode_selection(content["selection"])
        kinds = {name: type(content[name]) for name in _COMMAND}
        if kinds != _COMMAND or len(content) != len(_COMMAND) + 1 or content["action"] not in _ACTIONS:
            raise TypeError
        if content["number"] < 0:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise MessageError(
            "the command must have the fields and types of the protocol; got others", where="request"
        ) from None
    part = offers(content["method"])
    return StateCommand(content["action"], content["session"], part, content["name"], content["number"], selection)


def read_json(text: bytes) -> dict[str, Any]:
    """Read a JSON object from another machine.

    Raises
    ------
    MessageError
        The bytes are too long, or are not a JSON object.
    """
    if len(text) > _MAX_HEAD:  # the parsed values need far more memory than the text
        raise MessageError("the metadata must be a JSON object; got other bytes", where="request")
    try:
        content = json.loads(text.decode())
    except (ValueError, RecursionError):
        raise MessageError("the metadata must be a JSON object; got other bytes", where="request") from None
    if not isinstance(content, dict):
        raise MessageError("the metadata must be a JSON object; got other bytes", where="request")
    return content


def _head(content: Any) -> Head:
    head = Head.from_dict(content)
    if not head.is_signed:
        raise IntegrityError("the ledger head must be signed by the site; got no valid signature", where="reply")
    return head


def _split(packed: bytes) -> tuple[dict[str, Any], bytes]:
    head, _, body = packed.partition(b"\n")
    return read_json(head), body


def _printable(text: str) -> str:
    """Replace control characters, which could move the cursor of a terminal, in a text from another machine."""
    return "".join(character if character.isprintable() else " " for character in text)


def _cleaned(value: Any) -> Any:
    """Replace control characters in all texts of JSON values from another machine."""
    if isinstance(value, str):
        return _printable(value)
    if isinstance(value, list):
        return [_cleaned(one) for one in value]
    return {_printable(name): _cleaned(one) for name, one in value.items()} if isinstance(value, dict) else value


def _is_token(run: str) -> bool:
    return 0 < len(run) <= 64 and run.isalnum() and run.isascii()


_KINDS = ("open", "call", "calls", "restore", "close")
_ACTIONS = ("keep", "restore", "reset", "forget")
_REPLIES = ("opened", "answer", "answers", "refused", "done", "closed")
_REQUEST = {"kind": str, "run": str, "attempt": int, "number": int, "commands": list, "heads": str}
_COMMAND = {"action": str, "session": str, "method": str, "name": str, "number": int}
