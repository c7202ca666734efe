"""Several calls in one request, and their outcomes in one reply.

The body is a JSON line with the lengths of the pieces, then the pieces. A piece of a reply begins with its kind. A site
whose outcomes exceed a reply returns the first of them; the coordinator sends the other calls again, which the site has
not carried out. One outcome that was computed and did not fit is held until then.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from multicentre.core.calls import Call, Lost, Outcome, Refused
from multicentre.engines.remote.packing import Kind, Reply, ReplyKind, read_json, unpack_outcome
from multicentre.engines.remote.socket import MAX_MESSAGE_BYTES
from multicentre.errors import MessageError, MulticentreError

MAX_BATCH = MAX_MESSAGE_BYTES // 2  # leaves room for commands, ledger heads and a last call that is long
# Ten branches with ten calls each are common. A request of millions of empty calls would occupy a site for hours and
# fill its log.
MAX_CALLS = 1000
_KINDS = ("answer", "refused")


def pack_several(pieces: Sequence[bytes]) -> bytes:
    """Return several pieces as one body.

    Examples
    --------
    >>> unpack_several(pack_several([b"a", b"bc"]))
    [b'a', b'bc']
    """
    return b"".join([json.dumps({"lengths": [len(piece) for piece in pieces]}).encode(), b"\n", *pieces])


def unpack_several(body: bytes) -> list[bytes]:
    """Read several pieces.

    Raises
    ------
    MessageError
        The body does not have the form that :func:`pack_several` gives it.
    """
    head, _, rest = body.partition(b"\n")
    lengths = read_json(head).get("lengths")
    if (
        not isinstance(lengths, list)
        or not 1 <= len(lengths) <= MAX_CALLS
        or any(type(length) is not int or length < 0 for length in lengths)
        or sum(lengths) != len(rest)
    ):
        raise MessageError(
            f"a batch must state the lengths of its pieces, 1 to {MAX_CALLS}; got others", where="request"
        )
    pieces, start = [], 0
    for length in lengths:
        pieces.append(rest[start : start + length])
        start += length
    return pieces


def n_together(sizes: Sequence[int]) -> int:
    """Return how many of the first pieces travel together: at least one, at most 1,000.

    Examples
    --------
    >>> n_together([10, 20, 30]), n_together([MAX_BATCH, 1])
    (3, 1)
    """
    total = 0
    for number, size in enumerate(sizes):
        total += size
        if number == MAX_CALLS or (number and total > MAX_BATCH):
            return number
    return len(sizes)


def pack_outcomes(number: int, outcomes: Sequence[Reply]) -> Reply:
    """Return the replies to the first calls of a batch as one reply."""
    return Reply(number, "answers", pack_several([one.kind.encode() + b"\n" + one.body for one in outcomes]))


def unpack_outcomes(reply: Reply, n_calls: int) -> list[Reply]:
    """Return the replies to the first calls of a batch of `n_calls`, at least one.

    Raises
    ------
    MessageError
        The reply does not have the form that :func:`pack_outcomes` gives it, or holds more replies than calls.
    """
    if reply.kind != "answers":
        raise MessageError(f"the reply to several calls must be of kind answers; got {reply.kind}", where="reply")
    pieces = [piece.partition(b"\n") for piece in unpack_several(reply.body)]
    kinds = [kind.decode(errors="replace") for kind, _, _ in pieces]
    if len(pieces) > n_calls or not set(kinds) <= set(_KINDS):
        raise MessageError(
            f"the reply to {n_calls} calls must hold an answer or an error for each; got others", where="reply"
        )
    return [
        Reply(reply.number, cast("ReplyKind", kind), body) for kind, (_, _, body) in zip(kinds, pieces, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class WaitingCall:
    """Call of a batch without an outcome: its exchange, and the call encoded."""

    place: int
    call: Call
    body: bytes


def request_of(calls: Sequence[WaitingCall]) -> tuple[Kind, bytes]:
    """Return kind and body of the request for one or several calls."""
    bodies = [one.body for one in calls]
    return ("call", bodies[0]) if len(bodies) == 1 else ("calls", pack_several(bodies))


def outcomes_of(site: str, calls: Sequence[WaitingCall], reply: Reply | Lost | Refused) -> list[Outcome]:
    """Return the outcomes of the first calls of a request, at least one; a request without a reply is that for all."""
    if not isinstance(reply, Reply):
        return [reply] * len(calls)
    try:
        is_for_all = len(calls) == 1 or reply.kind == "refused"
        replies = [reply] * len(calls) if is_for_all else unpack_outcomes(reply, len(calls))
    except MulticentreError as error:
        return [Refused(error.at(site))] * len(calls)
    return [_outcome_of(site, one.call, each) for one, each in zip(calls, replies, strict=False)]


def _outcome_of(site: str, call: Call, reply: Reply) -> Outcome:
    try:
        outcome = unpack_outcome(reply, call)
    except MulticentreError as error:
        return Refused(error.at(site))
    return Refused(outcome.error.at(site)) if isinstance(outcome, Refused) else outcome
