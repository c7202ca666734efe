"""A Flower Grid without services: ClientApps run in this process, and every message becomes bytes on its way."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from multicentre_sites.flower.carrier import GridCarrier
from multicentre_sites.flower.handshake import Handle, make_client_app

T = TypeVar("T")
NODE_UNAVAILABLE = 5


def through_bytes(thing: T) -> T:
    """Return what the far end makes of the bytes of a message and of everything in it."""
    children = {name: through_bytes(child) for name, child in (thing.children or {}).items()}
    return type(thing).inflate(thing.deflate(), children or None)


class LocalGrid(Grid):
    """Nodes in threads, one message at a time each.

    `sites` maps names to what answers their letters, or to a whole ClientApp. A site in `offline` is not listed; one in
    `errors` answers with that error code, as Flower does where a site cannot answer.
    """

    def __init__(self, sites: Mapping[str, Handle | ClientApp], node_config: Mapping[str, Any] | None = None) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self.offline: set[str] = set()
        self.errors: dict[str, int] = {}
        self.pushed: list[Message] = []
        self.keys, self._pems = {}, {}
        self._config = dict(node_config or {})
        self._names = dict(enumerate(sites, start=1001))
        self._apps = {name: _app(answer) for name, answer in sites.items()}
        self._threads = {name: ThreadPoolExecutor(1, thread_name_prefix=name) for name in sites}
        self._replies: dict[str, Future[Message]] = {}
        self._lock = threading.Lock()
        for name in sites:
            key = ec.generate_private_key(ec.SECP384R1()).public_key()
            self.keys[name] = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() + f" {name}"
            self._pems[name] = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def set_run(self, run: object) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return [node.node_id for node in self.get_nodes()]

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [
            NodeInfo(node_id=number, public_key=self._pems[name])
            for number, name in self._names.items()
            if name not in self.offline
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = []
        for message in messages:
            name = self._names[message.metadata.dst_node_id]
            number = message.object_id
            message.metadata.__dict__["_message_id"] = number
            self.pushed.append(message)
            delivered = through_bytes(message)
            delivered.metadata.__dict__["_message_id"] = number
            with self._lock:
                self._replies[number] = self._threads[name].submit(self._answer, name, delivered)
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        with self._lock:
            done = [number for number in message_ids if number in self._replies and self._replies[number].done()]
            return [self._replies.pop(number).result() for number in done]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError("the stock loop sleeps three seconds")

    def close(self) -> None:
        """Wait until every message pushed was answered."""
        for threads in self._threads.values():
            threads.shutdown()

    def _answer(self, name: str, message: Message) -> Message:
        if name in self.offline:
            return through_bytes(Message(Error(NODE_UNAVAILABLE, "Node Unavailable"), reply_to=message))
        if name in self.errors:
            return through_bytes(Message(Error(self.errors[name], "patient 12345"), reply_to=message))
        context = Context(1, message.metadata.dst_node_id, self._config, RecordDict(), {})
        try:
            reply = self._apps[name](message, context)
        except Exception as error:  # as Flower does, text and all
            reply = Message(Error(2, repr(error)), reply_to=message)
        return through_bytes(reply)


def local_carrier(sites: Mapping[str, Handle | ClientApp]) -> GridCarrier:
    """Return a carrier to sites that answer letters in this process, over messages that are bytes."""
    grid = LocalGrid(sites)
    return GridCarrier(grid, grid.keys)


def _app(answer: Handle | ClientApp) -> ClientApp:
    return answer if isinstance(answer, ClientApp) else make_client_app(answer)
