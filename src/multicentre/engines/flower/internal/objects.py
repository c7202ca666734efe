"""Conversion of messages to the objects that Flower sends, and back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata, ObjectTree
from flwr.proto.recorddict_pb2 import RecordDict as NoContent
from flwr.supercore.inflatable.inflatable_object import (
    InflatableObject,
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from multicentre.engines.flower.internal.link import Delivery, reply_with
from multicentre.engines.flower.records import pack_payload, unpack_payload
from multicentre.federation.errors import MessageError

_OBJECTS = ("PullObject", "ConfirmMessageReceived", "PullMessages")
_CALLS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (FleetHttpClient, (*_OBJECTS, "ActivateNode", "SendNodeHeartbeat", "DeactivateNode")),
    (FleetHttpClient, ("GetRun", "GetFab", "PushMessages", "PushObject")),
    (RuntimeHttpClient, _OBJECTS),
    (HttpGrid, ("_runtime_client", "run")),
)
_SHORT, _LONG = b"there and back", bytes(3 * 10**6)  # one value, and an array in several chunks
_NUMBER = "0" * 64  # as long as the SHA-256 by which Flower names objects


def find_changes() -> str | None:
    """Return the first difference from the expected internals; None without one."""
    expected_parameters: tuple[tuple[Callable[..., object], set[str]], ...] = (
        (FleetHttpClient.__init__, {"base_url", "interceptors", "verify", "timeout"}),
        (NodeAuthHttpInterceptor.__init__, {"private_key", "public_key"}),
        (inflate_object_from_contents, {"object_id", "object_contents"}),
    )
    for function, expected in expected_parameters:
        if missing := expected - set(inspect.signature(function).parameters):
            return f"{function.__qualname__} does not take {', '.join(sorted(missing))}"
    for kind, calls in _CALLS:
        if missing_calls := [call for call in calls if not hasattr(kind, call)]:
            return f"{kind.__name__} has no {', '.join(missing_calls)}"
    if not hasattr(HttpGrid("localhost:1", insecure=True, token="none")._retry_invoker, "on_backoff"):
        return "the retries of its requests"
    with FleetHttpClient("https://localhost") as client:
        if not isinstance(client._client, httpx.Client):
            return "its connection must be an httpx client"
    if (ErrorCode.INVALID_FAB, ErrorCode.CLIENT_APP_CRASHED) != (7, 8):
        return "its error codes"
    return None if _is_returned(_SHORT) and _is_returned(_LONG) else "a message is not returned as it was sent"


def _is_returned(payload: bytes) -> bool:
    origin = Metadata(run_id=1, message_id=_NUMBER, src_node_id=1, dst_node_id=2, ttl=60.0, message_type="query")
    message = message_from_proto(ProtoMessage(metadata=origin, content=NoContent()))
    reply = reply_with(payload, Delivery(message, ObjectTree(object_id=_NUMBER)))
    tree, parts = disassemble(reply)
    content = assemble(tree, lambda names: {name: parts[name].deflate() for name in names})
    return reply.metadata.reply_to_message_id == _NUMBER and unpack_payload(content) == payload


WHOLE = "whole"
_WHOLE_BYTES = 2**18  # the database of the SuperLink stores the announcement in one row
_SHORT_PARTS = 3  # message, content and one record

Fetch = Callable[[Sequence[str]], dict[str, bytes]]
_NAME = next(iter(pack_payload(b"any")))


def disassemble(message: Message) -> tuple[ObjectTree, dict[str, InflatableObject]]:
    """Assign the message number; return the tree of the message's objects, and the objects by number, leaves first."""
    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        return get_object_tree(message), get_all_nested_objects(message)


def ask_for_whole(message: Message) -> None:
    """Mark `message` so that a short reply is sent within its announcement, if its sender can."""
    message.metadata.group_id = WHOLE


def announce(reply: Message, n_parts: int) -> tuple[ProtoMessage, bool]:
    """Return the announcement of a reply of `n_parts` objects, and True if it contains the whole reply.

    Every object costs a request, and for a SuperLink a request costs more than its content.
    """
    if reply.metadata.group_id == WHOLE and n_parts <= _SHORT_PARTS:
        whole = message_to_proto(reply)
        if whole.ByteSize() <= _WHOLE_BYTES:
            return whole, True
    return message_to_proto(remove_content_from_message(reply)), False


def assemble(tree: ObjectTree, fetch: Fetch) -> RecordDict:
    """Return the content of a message; `fetch` returns its objects by name.

    A short payload is one object inside two that contain only hashes. These are computed, not fetched.

    Raises
    ------
    MessageError
        The objects do not form a message with content.
    """
    short = _fetch_short(tree, fetch)
    if short is not None:
        return short
    parts = fetch(tuple(dict.fromkeys(part.object_id for part in iterate_object_tree(tree))))
    try:
        message = inflate_object_from_contents(tree.object_id, parts)
    except (KeyError, ValueError, TypeError):
        message = None
    if not isinstance(message, Message) or not message.has_content():
        raise MessageError("the objects of a Flower message must form the declared message; got others")
    return message.content


def _fetch_short(tree: ObjectTree, fetch: Fetch) -> RecordDict | None:
    if len(tree.children) != 1 or len(tree.children[0].children) != 1:
        return None
    content, record = tree.children[0], tree.children[0].children[0]
    if record.children:
        return None
    parts = fetch((record.object_id,))
    try:
        payload = unpack_payload(RecordDict({_NAME: ConfigRecord.inflate(parts[record.object_id])}))
        packed = pack_payload(payload)
    except (MessageError, ValueError, TypeError):
        return None
    return packed if packed.object_id == content.object_id else None
