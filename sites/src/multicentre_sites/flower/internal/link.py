"""Connection of a site to the Fleet API of a SuperLink."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Error, Message
from flwr.common.serde import message_from_proto
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest, PushObjectRequest
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from multicentre.core.links import PART_WITHIN_S, too_slow
from multicentre_sites.flower.connection import (
    AuthenticationError,
    Lost,
    RunEnded,
    Unfit,
    do_for_each,
    read_failure,
    read_key,
    read_refusal,
    trust,
)
from multicentre_sites.flower.internal.objects import (
    announce,
    announcement_of,
    assemble,
    disassemble,
    offer_to_read_whole,
)
from multicentre_sites.flower.records import NOT_APPROVED, STOPPED, pack_payload, unpack_payload

if TYPE_CHECKING:
    from flwr.supercore.inflatable.inflatable_object import InflatableObject

BEAT_S = 15  # the SuperLink considers a site offline after twice this time without a heartbeat
_ANSWER_WITHIN_S = 30.0  # the SuperLink answers at once, unless its machine is very busy
_TRIES = 3  # an object is rejected only if the SuperLink restarted in between
_MAX_PART = 5 * 2**20  # bytes into which Flower cuts an array
_MIN_SLOW = 2**18  # bytes that every link carries in time; their failure is one of the coordinator
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.02, 0.5  # about one round trip at first; later, few requests while a sender is slow

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True)
class Delivery:
    """A message for this site.

    Parameters
    ----------
    message : Message
        Message with its sender and its run, and with its content if that is short.
    tree : ObjectTree
        Tree of the objects of its content, if the message comes without it.
    """

    message: Message
    tree: ObjectTree

    @property
    def run_id(self) -> int:
        """Run of the message."""
        return self.message.metadata.run_id

    @property
    def is_whole(self) -> bool:
        """True if the message came with its content."""
        return self.message.has_content() and bool(self.message.content)

    @property
    def is_short(self) -> bool:
        """True if the payload is small enough for one object."""
        return all(not record.children for content in self.tree.children for record in content.children)

    def to_bytes(self) -> bytes:
        """Return the bytes that :meth:`from_bytes` needs to answer the message after a restart: not its content."""
        return bytes(announcement_of(self.message).SerializeToString())

    @classmethod
    def from_bytes(cls, data: bytes) -> Delivery:
        """Return the delivery that :meth:`to_bytes` wrote."""
        message = message_from_proto(ProtoMessage.FromString(data))
        return cls(message, ObjectTree(object_id=message.metadata.message_id))


class _Versioned:
    """Sends the version of flwr. Flower's interceptor would end the process if the SuperLink rejected the version.

    A large part has more time for its answer: the system accepts its last megabytes long before a slow link has carried
    them.
    """

    def __init__(self) -> None:
        self._headers = dict(RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata())

    def intercept(self, context: Any, call_next: Callable[[Any], httpx.Response]) -> httpx.Response:
        context.request.headers.update(self._headers)
        share = min(len(context.request.content) / _MAX_PART, 1.0)
        context.request.extensions["timeout"]["read"] += share * (PART_WITHIN_S - _ANSWER_WITHIN_S)
        return call_next(context)


class FleetLink:
    """One site's connection to a coordinator: TLS, every request signed with the site's key.

    Parameters
    ----------
    address : str
        ``host:port`` of the coordinator.
    root_certificates : Path
        Certificate of the authority that must have issued the coordinator's certificate, PEM.
    private_key : Path
        The site's key, OpenSSH, on a NIST curve.
    stop : threading.Event
        Ends waits for objects that have not arrived.

    Raises
    ------
    ConfigurationError
        A file cannot be used; or, from any request, the coordinator's certificate is not trusted.
    """

    def __init__(self, address: str, *, root_certificates: Path, private_key: Path, stop: threading.Event) -> None:
        key = read_key(private_key)
        self._address = address
        self._stop = stop
        self._public_key = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        self._client = FleetHttpClient(
            f"https://{address}",
            interceptors=[_Versioned(), NodeAuthHttpInterceptor(key, key.public_key())],
            verify=trust(root_certificates),
            timeout=_ANSWER_WITHIN_S,
        )
        self._client._client.follow_redirects = False  # a redirect could lead to an address without TLS
        self._node = Node()

    def activate(self) -> int:
        """Register this site as online and return its node number."""
        request = ActivateNodeRequest(public_key=self._public_key, heartbeat_interval=BEAT_S)
        self._node = Node(node_id=self._ask(self._client.ActivateNode, request).node_id)
        return self._node.node_id

    def resume(self, node_id: int) -> None:
        """Continue under an earlier node number, which is accepted at once."""
        self._node = Node(node_id=node_id)
        self.beat()

    def beat(self) -> None:
        """Send a heartbeat."""
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=BEAT_S)
        if not self._ask(self._client.SendNodeHeartbeat, request).success:
            raise AuthenticationError

    def deactivate(self) -> None:
        """Register this site as offline; messages to it are returned as undelivered."""
        self._ask(self._client.DeactivateNode, DeactivateNodeRequest(node_id=self._node.node_id))

    def pull(self) -> Delivery | None:
        """Return the next message; the SuperLink delivers it once."""
        answer = self._ask(self._client.PullMessages, PullMessagesRequest(node=self._node))
        if not answer.messages_list:
            return None
        return Delivery(message_from_proto(answer.messages_list[0]), answer.message_object_trees[0])

    def bundle_hash(self, run_id: int) -> str:
        """Return the SHA-256 of a run's bundle, computed from its bytes; the bundle is neither unpacked nor stored."""
        bundle_hash = self._ask(self._client.GetRun, GetRunRequest(node=self._node, run_id=run_id)).run.fab_hash
        request = GetFabRequest(node=self._node, hash_str=bundle_hash, run_id=run_id)
        return hashlib.sha256(self._ask(self._client.GetFab, request).fab.content).hexdigest()

    def fetch(self, delivery: Delivery) -> bytes:
        """Return the payload of a message.

        Raises
        ------
        MessageError
            The message has no payload.
        """
        if delivery.is_whole:
            return unpack_payload(delivery.message.content)

        def fetch(names: Sequence[str]) -> dict[str, bytes]:
            parts: dict[str, bytes] = {}
            do_for_each(lambda name: parts.update({name: self._fetch_part(delivery.run_id, name)}), names)
            return parts

        return unpack_payload(assemble(delivery.tree, fetch))

    def push(self, reply: Message) -> bool:
        """Send a reply; it may be repeated.

        Returns
        -------
        bool
            True if the coordinator accepted it. It accepts one reply per message, and none after the message expired.
        """
        offer_to_read_whole(reply)
        tree, parts = disassemble(reply)
        announced, whole = announce(reply, len(parts))
        to_come = ObjectTree(object_id=tree.object_id) if whole else tree
        request = PushMessagesRequest(node=self._node, messages_list=[announced], message_object_trees=[to_come])
        for _ in range(_TRIES):
            answer = self._ask(self._client.PushMessages, request)
            wanted = set(answer.objects_to_push)
            to_send = {} if whole else {name: parts[name] for name in parts if name in wanted}
            if self._push_parts(reply, answer.session_id, to_send):
                return bool(wanted)
        raise Lost("part of a reply was rejected", unsaid=True)

    def confirm(self, delivery: Delivery) -> None:
        """Confirm a message, so that the coordinator deletes its content."""
        name = delivery.message.metadata.message_id
        request = ConfirmMessageReceivedRequest(node=self._node, run_id=delivery.run_id, message_object_id=name)
        self._ask(self._client.ConfirmMessageReceived, request)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _push_parts(self, reply: Message, session: str, parts: dict[str, InflatableObject]) -> bool:
        """Return True if all were accepted; none is if the reply was received and deleted before."""
        accepted: list[bool] = []
        alone = threading.Lock()
        unfit: list[Unfit] = []

        def put(name: str) -> None:
            part = PushObjectRequest(
                node=self._node,
                run_id=reply.metadata.run_id,
                object_id=name,
                object_content=parts[name].deflate(),
                session_id=session,
            )
            if self._put(part, accepted):
                return
            with alone:  # the whole link is for this part
                if unfit or not self._put(part, accepted):
                    unfit.append(Unfit(too_slow(len(part.object_content), self._address)))
                    raise unfit[0]

        do_for_each(put, list(parts))
        return all(accepted)

    def _put(self, part: PushObjectRequest, accepted: list[bool]) -> bool:
        """Send a part and note whether it was accepted; return False if the link is too slow for it."""
        start_time = monotonic()
        try:
            accepted.append(self._ask(self._client.PushObject, part).stored)
        except (Lost, AuthenticationError) as failure:  # an old signature is refused
            slow = failure.slow if isinstance(failure, Lost) else monotonic() - start_time > PART_WITHIN_S
            if not slow or len(part.object_content) < _MIN_SLOW:
                raise
            self.beat()  # raises if the coordinator itself does not answer
            return False
        return True

    def _fetch_part(self, run_id: int, name: str) -> bytes:
        wait_s = _FIRST_WAIT_S
        request = PullObjectRequest(node=self._node, run_id=run_id, object_id=name)
        while True:
            answer = self._ask(self._client.PullObject, request)
            if answer.object_available:
                return answer.object_content
            if not answer.object_found or self._stop.wait(wait_s):
                raise RunEnded
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _ask(self, call: Callable[[RequestT], ResponseT], request: RequestT) -> ResponseT:
        try:
            return call(request)
        except httpx.HTTPStatusError as error:
            raise read_refusal(error.response, self._address) from None
        except httpx.HTTPError as error:
            raise read_failure(error, self._address) from None
        except ValueError:
            raise Lost("the answer is not one of Flower", unsaid=True) from None


def reply_with(payload: bytes, delivery: Delivery) -> Message:
    """Return the reply that carries `payload`."""
    return Message(pack_payload(payload), reply_to=delivery.message)


def refuse_unverified(delivery: Delivery) -> Message:
    """Return the reply of a site that does not accept the bundle of the run."""
    return Message(Error(NOT_APPROVED, "The bundle is not approved at this site."), reply_to=delivery.message)


def refuse_stopped(delivery: Delivery) -> Message:
    """Return the reply of a site whose process ended while working, without a reason."""
    return Message(Error(STOPPED, "The site's process stopped."), reply_to=delivery.message)
