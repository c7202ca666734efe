"""The coordinator's Grid with quicker receipt of replies."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, sleep

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto
from flwr.proto.error_pb2 import Error as ProtoError
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata as ProtoMetadata
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.retry.retry_invoker import RetryState
from flwr.supercore.run import Run
from flwr.superlink.grid.http_grid import HttpGrid

from multicentre.engines.flower.connection import do_for_each
from multicentre.engines.flower.internal.objects import ask_for_whole, put_together
from multicentre.engines.flower.records import MESSAGE_TYPE
from multicentre.federation.errors import MessageError

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.02, 0.5
_STAY_S = 0.5
_LOOK_AFTER_S, _PART_WITHIN_S = 1.0, 60.0
_CONFIRM_AFTER_S = 0.25


def hasten(grid: Grid) -> Grid:
    """Return a Grid that hands over the same replies sooner; `grid` itself where it is none that this is known for."""
    return _QuickGrid(grid) if type(grid) is HttpGrid else grid


class _NotYet(Exception):
    """Part of a reply is still on its way."""


@dataclass
class _Coming:
    """A reply, the parts of it that have come, and when the last of them came."""

    message: Message
    tree: ObjectTree
    parts: dict[str, bytes] = field(default_factory=dict)
    heard: float = field(default_factory=monotonic)
    looked: float = field(default_factory=monotonic)


class _QuickGrid(Grid):
    """Flower's own waits a second for every reply that it sees before all of its parts have come.

    It also waits long for one whose sender broke off before it had sent all parts; here such a reply holds up no other,
    and has no content once its sender is gone or was silent for a minute. A SuperLink that is killed while it hands a
    reply over never does so again: after trouble with the connection what is not there counts as lost.
    """

    def __init__(self, grid: HttpGrid) -> None:
        self._grid = grid
        self._coming: dict[str, _Coming] = {}
        self._trouble = threading.Event()
        self._ask_for_whole = True
        _notice(grid, self._trouble)

    def set_run(self, run: Run) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Push requests; a short reply to them may come whole, without parts to be fetched."""
        requests = list(messages)
        if self._ask_for_whole:
            for request in requests:
                ask_for_whole(request)
        return self._grid.push_messages(requests)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self._grid.send_and_receive(messages, timeout=timeout)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are all there; those that came in parts are confirmed beside what follows."""
        wanted = list(message_ids)
        self._coming = {number: self._coming[number] for number in wanted if number in self._coming}
        whole = self._look([number for number in wanted if number not in self._coming])
        end = monotonic() + _STAY_S
        contents: dict[str, RecordDict] = {}

        def read(number: str) -> None:
            with suppress(_NotYet):
                contents[number] = self._read(self._coming[number], end)

        do_for_each(read, list(self._coming))
        came = {number: self._coming.pop(number).message for number in contents}
        for number, message in came.items():
            message.content = contents[number]
        if came:
            self._confirm([message.metadata.message_id for message in came.values()])
        return [*whole, *came.values()]

    def _look(self, numbers: list[str]) -> list[Message]:
        """Note the replies that have begun to come; return those that came whole, or say why there is none."""
        if not numbers:
            return []
        answer = self._grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=numbers))
        whole = []
        for message, tree in zip(
            map(message_from_proto, answer.messages_list), answer.message_object_trees, strict=True
        ):
            if message.has_error() or message.content:
                whole.append(message)
            elif not tree.children:  # it was sent whole, and the SuperLink dropped what it held
                self._ask_for_whole = False
                whole.append(self._lost(message.metadata.reply_to_message_id))
            else:
                self._coming[message.metadata.reply_to_message_id] = _Coming(message, tree)
        if self._trouble.is_set():
            self._trouble.clear()
            told = {message.metadata.reply_to_message_id for message in whole} | self._coming.keys()
            whole += [self._lost(number) for number in numbers if number not in told]
        return whole

    def _lost(self, number: str) -> Message:
        about = ProtoMetadata(run_id=self.run.run_id, reply_to_message_id=number, message_type=MESSAGE_TYPE)
        error = ProtoError(code=ErrorCode.MESSAGE_UNAVAILABLE, reason="The connection broke.")
        return message_from_proto(ProtoMessage(metadata=about, error=error))

    def _read(self, coming: _Coming, end: float) -> RecordDict:
        """Return the content of a reply; nothing where its sender will not finish it."""

        def fetch(names: Sequence[str]) -> dict[str, bytes]:
            do_for_each(lambda name: self._fetch_part(coming, name, end), names)
            return {name: coming.parts[name] for name in names}

        try:
            return put_together(coming.tree, fetch)
        except MessageError:
            return RecordDict()
        except _NotYet:
            if self._is_given_up(coming):
                return RecordDict()
            raise

    def _fetch_part(self, coming: _Coming, name: str, end: float) -> None:
        request = PullObjectRequest(node=self._grid.node, run_id=self.run.run_id, object_id=name)
        wait_s = _FIRST_WAIT_S
        while name not in coming.parts:
            answer = self._grid._runtime_client.PullObject(request)
            if answer.object_available:
                coming.parts[name], coming.heard = answer.object_content, monotonic()
            elif not answer.object_found:
                raise MessageError("part of a reply never came")
            elif monotonic() > end:
                raise _NotYet
            else:
                sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _is_given_up(self, coming: _Coming) -> bool:
        """Tell whether the sender of a reply is gone, or was silent too long: its process may have begun anew."""
        now = monotonic()
        if now - max(coming.heard, coming.looked) > _LOOK_AFTER_S:
            coming.looked = now
            return now - coming.heard > _PART_WITHIN_S or coming.message.metadata.src_node_id not in self.get_node_ids()
        return False

    def _confirm(self, numbers: list[str]) -> None:
        """Let the SuperLink forget replies, beside what follows: neither other replies nor the next request wait."""
        client, node, run_id = self._grid._runtime_client, self._grid.node, self.run.run_id

        def confirm() -> None:
            sleep(_CONFIRM_AFTER_S)  # the parts that were not fetched may still be on their way
            with suppress(Exception):  # what is not confirmed goes with the run
                for number in numbers:
                    client.ConfirmMessageReceived(
                        ConfirmMessageReceivedRequest(node=node, run_id=run_id, message_object_id=number)
                    )

        threading.Thread(target=confirm, name="confirm").start()


def _notice(grid: HttpGrid, trouble: threading.Event) -> None:
    """Set `trouble` whenever a request of `grid` has to be made again."""
    invoker = grid._retry_invoker
    before = invoker.on_backoff

    def note(state: RetryState) -> None:
        trouble.set()
        if before is not None:
            before(state)

    invoker.on_backoff = note
