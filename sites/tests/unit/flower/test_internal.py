"""What is used of flwr beyond its public interface: known by its version, tried before it is relied on."""

import ast
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import importlib.metadata
from types import SimpleNamespace

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata, ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.proto.recorddict_pb2 import RecordDict as NoContent
from flwr.supernode.fleet_http_client import FleetHttpClient

from multicentre.core.links import PART_WITHIN_S
from multicentre.errors import MessageError
from multicentre_sites import flower
from multicentre_sites.flower.connection import Lost, Unfit
from multicentre_sites.flower.internal import self_test
from multicentre_sites.flower.internal.grid import hasten
from multicentre_sites.flower.internal.link import (
    Delivery,
    FleetLink,
    refuse_stopped,
    refuse_unverified,
    reply_with,
)
from multicentre_sites.flower.internal.objects import (
    announce,
    ask_for_whole,
    assemble,
    disassemble,
    offer_to_read_whole,
)
from multicentre_sites.flower.records import pack_payload, unpack_payload
from support.local_grid import LocalGrid

_NUMBER = "0" * 64


@pytest.fixture
def delivery():
    origin = Metadata(run_id=5, message_id=_NUMBER, src_node_id=1, dst_node_id=2, ttl=60.0, message_type="query")
    message = message_from_proto(ProtoMessage(metadata=origin, content=NoContent()))
    return Delivery(message, ObjectTree(object_id=_NUMBER))


class Store:
    """Parts of a message, and which of them were asked for."""

    def __init__(self, message: Message) -> None:
        self.tree, parts = disassemble(message)
        self.parts = {name: part.deflate() for name, part in parts.items()}
        self.asked: list[str] = []

    def fetch(self, names):
        self.asked.extend(names)
        return {name: self.parts[name] for name in names}


def test_installed_flwr_can_be_used() -> None:
    assert self_test() is None


@pytest.mark.parametrize(("version", "tried"), [("1.40.2", False), ("1.42.7", True), ("1.43.0", False), ("2.0", False)])
def test_versions_that_were_never_tried_are_not_used(version: str, tried: bool, monkeypatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    reason = self_test()
    assert reason is None if tried else reason == f"flwr must be >=1.41 and <1.43 for the fast mode; got {version}"


def test_absent_flwr_is_said(monkeypatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", absent)
    assert "multicentre-sites" in (self_test() or "")


def test_module_that_has_gone_is_said(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "multicentre_sites.flower.internal.checks", None)
    assert "cannot be imported" in (self_test() or "")


def test_call_that_has_gone_is_said(monkeypatch) -> None:
    monkeypatch.delattr(FleetHttpClient, "PullObject")
    assert "FleetHttpClient has no PullObject" in (self_test() or "")


def test_changed_argument_is_said(monkeypatch) -> None:
    monkeypatch.setattr(FleetHttpClient, "__init__", _without_timeout)
    assert "does not take timeout" in (self_test() or "")


def _without_timeout(self, base_url, *, interceptors, verify) -> None:
    raise AssertionError


def test_changed_connection_is_said(monkeypatch) -> None:
    monkeypatch.setattr(httpx, "Client", type("Client", (httpx.Client,), {"__init__": _refuse}))
    assert "unexpected behaviour (RuntimeError)" in (self_test() or "")


def _refuse(self, **options) -> None:
    raise RuntimeError("a text that is not told")


def test_short_letter_is_one_part(delivery) -> None:
    store = Store(reply_with(b"short", delivery))
    assert unpack_payload(assemble(store.tree, store.fetch)) == b"short"
    assert len(store.parts) == 3
    assert len(store.asked) == 1


def test_long_letter_comes_back(delivery) -> None:
    letter = bytes(range(256)) * 50_000
    store = Store(reply_with(letter, delivery))
    assert unpack_payload(assemble(store.tree, store.fetch)) == letter


@pytest.mark.parametrize(("asked", "size", "whole"), [(True, 200_000, True), (True, 300_000, False), (False, 5, False)])
def test_reply_travels_whole_where_that_is_asked_for_and_it_is_short(delivery, asked, size, whole) -> None:
    if asked:
        ask_for_whole(delivery.message)
    reply = reply_with(bytes(size), delivery)
    _, parts = disassemble(reply)
    announced, alone = announce(reply, len(parts))
    assert alone is whole
    assert announced.metadata == message_to_proto(reply).metadata
    if whole:
        assert unpack_payload(message_from_proto(announced).content) == bytes(size)
    else:
        assert not announced.content.items


def test_request_that_came_whole_is_read_without_a_fetch_and_its_content_is_not_stored(delivery) -> None:
    whole = message_from_proto(message_to_proto(delivery.message))
    whole.content = pack_payload(b"patient 12345")
    came = Delivery(whole, delivery.tree)
    assert came.is_whole
    assert FleetLink.fetch(object(), came) == b"patient 12345"  # no connection is used
    assert b"12345" not in came.to_bytes()
    assert Delivery.from_bytes(came.to_bytes()).message.metadata == delivery.message.metadata
    assert not delivery.is_whole


def test_reply_says_that_requests_may_come_whole_only_to_those_who_ask_for_whole_replies(delivery) -> None:
    plain = reply_with(b"short", delivery)
    offer_to_read_whole(plain)
    assert plain.metadata.group_id == ""
    ask_for_whole(delivery.message)
    reply = reply_with(b"short", delivery)
    for _ in range(2):  # a push is repeated with the same reply
        offer_to_read_whole(reply)
        assert reply.metadata.group_id == "reads whole"
        assert announce(reply, 3)[1]


def test_other_content_is_fetched_whole(delivery) -> None:
    content = RecordDict({"other": ConfigRecord({"number": 3})})
    store = Store(Message(content, reply_to=delivery.message))
    assert assemble(store.tree, store.fetch) == content


def test_letter_under_another_name_is_not_taken_for_one(delivery) -> None:
    inner = next(iter(reply_with(b"short", delivery).content.values()))
    store = Store(Message(RecordDict({"other": inner}), reply_to=delivery.message))
    assert list(assemble(store.tree, store.fetch)) == ["other"]


def test_message_without_content_holds_no_letter(delivery) -> None:
    store = Store(refuse_stopped(delivery))
    with pytest.raises(MessageError):
        assemble(store.tree, store.fetch)


def test_refusals_carry_codes_and_fixed_words(delivery) -> None:
    assert refuse_unverified(delivery).error.code == 7
    assert refuse_stopped(delivery).error.code == 8
    assert refuse_stopped(delivery).error.reason == "The site's process stopped."


def test_delivery_is_answered_from_its_bytes(delivery) -> None:
    kept = Delivery.from_bytes(delivery.to_bytes())
    assert kept.run_id == 5
    assert refuse_stopped(kept).metadata.reply_to_message_id == _NUMBER


def test_grid_of_another_kind_is_left_as_it_is() -> None:
    grid = object.__new__(LocalGrid)
    assert hasten(grid) is grid


def test_nothing_else_imports_what_is_internal_to_flwr() -> None:
    public = {"flwr.app", "flwr.serverapp", "flwr.clientapp"}
    found = set()
    for path in Path(flower.__file__).parent.glob("*.py"):
        for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").partition(".")[0] == "flwr":
                found.add(statement.module)
            elif isinstance(statement, ast.Import):
                found |= {name.name for name in statement.names if name.name.partition(".")[0] == "flwr"}
    assert found
    assert found <= public


def slow_link(failures, beats=True):
    """Return a link whose uploads fail as told while the coordinator answers, or does not, and the calls it makes."""
    calls = []

    def push(part):
        calls.append(len(part.object_content))
        if failures:
            raise failures.pop(0)("late")
        return SimpleNamespace(stored=True)

    def beat(request):
        if not beats:
            raise httpx.ReadTimeout("late")
        return SimpleNamespace(success=True)

    link = object.__new__(FleetLink)
    link._node, link._address = Node(), "host:443"
    link._client = SimpleNamespace(PushObject=push, SendNodeHeartbeat=beat)
    return link, calls


def push_parts(link, delivery, size):
    part = SimpleNamespace(deflate=lambda: bytes(size))
    return link._push_parts(reply_with(b"any", delivery), "session", {"part": part})


@pytest.mark.parametrize("late", [httpx.ReadTimeout, httpx.WriteTimeout])
def test_part_that_a_link_twice_does_not_carry_in_time_is_named_with_size_limit_and_remedy(delivery, late) -> None:
    link, calls = slow_link([late, late])
    with pytest.raises(Unfit) as raised:
        push_parts(link, delivery, 5 * 2**20)
    assert len(calls) == 2
    for text in ("5.0 MiB", f"within {PART_WITHIN_S:g} s", "at least 17 kB/s", "fewer columns", "host:443"):
        assert text in str(raised.value.error)


def test_part_that_a_link_carries_alone_is_accepted(delivery) -> None:
    link, calls = slow_link([httpx.ReadTimeout])
    assert push_parts(link, delivery, 5 * 2**20)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("failures", "beats", "size"),
    [
        ([httpx.ReadTimeout] * 9, False, 5 * 2**20),  # the coordinator itself is slow
        ([httpx.ReadTimeout] * 9, True, 1000),  # every link carries so little
        ([httpx.ConnectError] * 9, True, 5 * 2**20),
    ],
)
def test_failures_of_other_kinds_are_tried_again(delivery, failures, beats, size) -> None:
    link, _ = slow_link(failures, beats)
    with pytest.raises(Lost):
        push_parts(link, delivery, size)
