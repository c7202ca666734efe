"""Grid of the coordinator's app with faster receipt of replies."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PushAppMessagesRequest
from flwr.serverapp import Grid
from flwr.superlink.grid.http_grid import HttpGrid

from multicentre.core.links import PART_WITHIN_S
from multicentre.errors import MessageError
from multicentre_sites.flower.connection import do_for_each
from multicentre_sites.flower.internal.objects import READS_WHOLE, announce, ask_for_whole, assemble, disassemble
from multicentre_sites.flower.records import LOST, MESSAGE_TYPE

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.retry.retry_invoker import RetryState
    from flwr.supercore.run import Run

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.02, 0.5  # about one round trip at first; later, few requests while a sender is slow
_STAY_S = 0.5  # time for the objects of a reply before other replies are received
_CHECK_AFTER_S = 1.0  # checks of the sender are requests, too
_SILENT_S = 2 * PART_WITHIN_S + 60.0  # a site on a slow link sends a part twice; one that ended is offline after 30 s
_CONFIRM_AFTER_S = 0.25  # longer than an object takes to arrive
_WHOLE_AT_ONCE = 16  # requests within one announcement: at most 4 MB


def hasten(grid: Grid) -> Grid:
    """Return a Grid that delivers the same replies sooner; `grid` itself if its type is not supported."""
    return _QuickGrid(grid) if type(grid) is HttpGrid else grid


class _NotYet(Exception):
    """Part of a reply has not arrived."""


@dataclass
class _PartialReply:
    """Reply with the objects that have arrived, and the time of the last one."""

    message: Message
    tree: ObjectTree
    parts: dict[str, bytes] = field(default_factory=dict)
    last_arrival: float = field(default_factory=monotonic)
    last_check: float = field(default_factory=monotonic)


class _Readers:
    """Sites that read requests within their announcement, and the requests sent to them so.

    The last reply of a site says that its agent can. A site may return with another program: after a failure, and while
    such a request is unanswered, its requests are sent in parts.
    """

    def __init__(self) -> None:
        self._nodes: set[int] = set()
        self._unanswered: dict[str, int] = {}

    def can_read(self, request: Message) -> bool:
        node = request.metadata.dst_node_id
        return node in self._nodes and node not in self._unanswered.values()

    def record_requests(self, requests: Mapping[str, Message]) -> None:
        self._unanswered |= {number: one.metadata.dst_node_id for number, one in requests.items() if number}

    def record_reply(self, reply: Message) -> None:
        node = self._unanswered.pop(reply.metadata.reply_to_message_id, reply.metadata.src_node_id)
        if reply.metadata.group_id == READS_WHOLE and not reply.has_error():
            self._nodes.add(node)
        else:
            self._nodes.discard(node)

    def forget_all_but(self, numbers: Iterable[str]) -> None:
        """Forget requests that are given up."""
        self._unanswered = {number: self._unanswered[number] for number in numbers if number in self._unanswered}


class _QuickGrid(Grid):
    """Grid that sends requests and receives replies without Flower's pauses.

    Flower's Grid waits a second for every reply whose objects have not all arrived, and long for one whose sender
    failed before it had sent all of them. Here such a reply delays no other, and counts as empty once its sender is
    offline or was silent for longer than a part may take. A SuperLink that is killed while it delivers a reply never
    delivers it again: after a failure of the connection, missing replies count as lost.
    """

    def __init__(self, grid: HttpGrid) -> None:
        self._grid = grid
        self._partial: dict[str, _PartialReply] = {}
        self._readers = _Readers()
        self._trouble = threading.Event()
        self._ask_for_whole = True
        _watch_retries(grid, self._trouble)

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
        """Push requests; short ones and short replies to them travel within their announcement, if the site can."""
        requests = list(messages)
        if not self._ask_for_whole:
            return self._grid.push_messages(requests)
        for request in requests:
            ask_for_whole(request)
        numbers = self._push_whole([request for request in requests if self._readers.can_read(request)])
        others = [request for request in requests if id(request) not in numbers]
        pushed = list(self._grid.push_messages(others)) if others else []
        numbers |= zip(map(id, others), pushed or [""] * len(others), strict=True)
        return [numbers[id(request)] for request in requests]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self._grid.send_and_receive(messages, timeout=timeout)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the complete replies; those that arrived in parts are confirmed in the background."""
        wanted = list(message_ids)
        self._partial = {number: self._partial[number] for number in wanted if number in self._partial}
        self._readers.forget_all_but(wanted)
        whole = self._receive_announced([number for number in wanted if number not in self._partial])
        end = monotonic() + _STAY_S
        contents: dict[str, RecordDict] = {}

        def read(number: str) -> None:
            with suppress(_NotYet):
                contents[number] = self._read(self._partial[number], end)

        do_for_each(read, list(self._partial))
        complete = {number: self._partial.pop(number).message for number in contents}
        for number, message in complete.items():
            message.content = contents[number]
        if complete:
            self._confirm([message.metadata.message_id for message in complete.values()])
        return [*whole, *complete.values()]

    def _push_whole(self, requests: Sequence[Message]) -> dict[int, str]:
        """Push the short ones of these requests without parts; return their numbers by identity."""
        announced = {id(request): announcement for request in requests if (announcement := _whole(request))}
        short = [request for request in requests if id(request) in announced]
        numbers: dict[int, str] = {}
        for start in range(0, len(short), _WHOLE_AT_ONCE):
            batch = short[start : start + _WHOLE_AT_ONCE]
            answer = self._grid._runtime_client.PushMessages(
                PushAppMessagesRequest(
                    messages_list=[announced[id(request)] for request in batch],
                    message_object_trees=[ObjectTree(object_id=request.metadata.message_id) for request in batch],
                )
            )
            self._readers.record_requests(dict(zip(answer.message_ids, batch, strict=True)))
            numbers |= zip(map(id, batch), answer.message_ids, strict=True)
        return numbers

    def _receive_announced(self, numbers: list[str]) -> list[Message]:
        """Store replies that have begun to arrive; return those that are complete or failed."""
        if not numbers:
            return []
        answer = self._grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=numbers))
        whole = []
        for message, tree in zip(
            map(message_from_proto, answer.messages_list), answer.message_object_trees, strict=True
        ):
            self._readers.record_reply(message)
            if message.has_error() or message.content:
                whole.append(message)
            elif not tree.children:  # the reply was within its announcement, and the SuperLink dropped it
                self._ask_for_whole = False
                whole.append(self._lost(message.metadata.reply_to_message_id))
            else:
                self._partial[message.metadata.reply_to_message_id] = _PartialReply(message, tree)
        if self._trouble.is_set():
            self._trouble.clear()
            answered = {message.metadata.reply_to_message_id for message in whole} | self._partial.keys()
            whole += [self._lost(number) for number in numbers if number not in answered]
        return whole

    def _lost(self, number: str) -> Message:
        lost = ProtoMessage()
        lost.metadata.run_id, lost.metadata.reply_to_message_id = self.run.run_id, number
        lost.metadata.message_type = MESSAGE_TYPE
        lost.error.code, lost.error.reason = LOST, "The connection broke."
        return message_from_proto(lost)

    def _read(self, partial: _PartialReply, end: float) -> RecordDict:
        """Return the content of a reply; empty if its sender will not complete it."""

        def fetch(names: Sequence[str]) -> dict[str, bytes]:
            do_for_each(lambda name: self._fetch_part(partial, name, end), names)
            return {name: partial.parts[name] for name in names}

        try:
            return assemble(partial.tree, fetch)
        except MessageError:
            return RecordDict()
        except _NotYet:
            if self._is_given_up(partial):
                return RecordDict()
            raise

    def _fetch_part(self, partial: _PartialReply, name: str, end: float) -> None:
        request = PullObjectRequest(node=self._grid.node, run_id=self.run.run_id, object_id=name)
        wait_s = _FIRST_WAIT_S
        while name not in partial.parts:
            answer = self._grid._runtime_client.PullObject(request)
            if answer.object_available:
                partial.parts[name], partial.last_arrival = answer.object_content, monotonic()
            elif not answer.object_found:
                raise MessageError("part of a reply never arrived")
            elif monotonic() > end:
                raise _NotYet
            else:
                sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _is_given_up(self, partial: _PartialReply) -> bool:
        """Return True if the sender of a reply is offline or was silent for too long: it may have restarted."""
        now = monotonic()
        if now - max(partial.last_arrival, partial.last_check) > _CHECK_AFTER_S:
            partial.last_check = now
            return (
                now - partial.last_arrival > _SILENT_S
                or partial.message.metadata.src_node_id not in self.get_node_ids()
            )
        return False

    def _confirm(self, numbers: list[str]) -> None:
        """Confirm replies in the background, so that the SuperLink deletes them and nothing waits."""
        client, node, run_id = self._grid._runtime_client, self._grid.node, self.run.run_id

        def confirm() -> None:
            sleep(_CONFIRM_AFTER_S)  # objects that were not fetched may still be arriving
            with suppress(Exception):  # unconfirmed replies are deleted with the run
                for number in numbers:
                    client.ConfirmMessageReceived(
                        ConfirmMessageReceivedRequest(node=node, run_id=run_id, message_object_id=number)
                    )

        threading.Thread(target=confirm, name="confirm").start()


def _whole(request: Message) -> ProtoMessage | None:
    """Assign the message number; return the announcement that contains the request, None if it is too long."""
    if not all(isinstance(record, ConfigRecord) for record in request.content.values()):
        return None
    announced, whole = announce(request, len(disassemble(request)[1]))
    return announced if whole else None


def _watch_retries(grid: HttpGrid, trouble: threading.Event) -> None:
    """Set `trouble` whenever a request of `grid` is repeated."""
    invoker = grid._retry_invoker
    before = invoker.on_backoff

    def note(state: RetryState) -> None:
        trouble.set()
        if before is not None:
            before(state)

    invoker.on_backoff = note
