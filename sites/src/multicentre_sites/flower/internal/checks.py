"""Checks that flwr's internals are those that this package expects."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import httpx
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from multicentre_sites.flower.internal.link import Delivery, reply_with
from multicentre_sites.flower.internal.objects import assemble, disassemble
from multicentre_sites.flower.records import unpack_payload

_OBJECTS = ("PullObject", "ConfirmMessageReceived", "PullMessages")
_CALLS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (FleetHttpClient, (*_OBJECTS, "ActivateNode", "SendNodeHeartbeat", "DeactivateNode")),
    (FleetHttpClient, ("GetRun", "GetFab", "PushMessages", "PushObject")),
    (RuntimeHttpClient, (*_OBJECTS, "PushMessages")),
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
    return None if _is_returned(_SHORT) and _is_returned(_LONG) else "a message is not returned as it was sent"


def _is_returned(payload: bytes) -> bool:
    request = ProtoMessage()
    origin = request.metadata
    origin.run_id, origin.message_id, origin.src_node_id, origin.dst_node_id = 1, _NUMBER, 1, 2
    origin.ttl, origin.message_type = 60.0, "query"
    request.content.SetInParent()  # present, though empty
    message = message_from_proto(request)
    reply = reply_with(payload, Delivery(message, ObjectTree(object_id=_NUMBER)))
    tree, parts = disassemble(reply)
    content = assemble(tree, lambda names: {name: parts[name].deflate() for name in names})
    return reply.metadata.reply_to_message_id == _NUMBER and unpack_payload(content) == payload
