"""The coordinator's quicker Grid, over a SuperLink that was made up: replies whose parts do not come hold nobody up."""

from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from flwr.app import Message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata, ObjectTree
from flwr.proto.recorddict_pb2 import RecordDict as NoContent
from flwr.supercore.task_identity import TaskIdentity

from multicentre_sites.flower.internal import grid as module
from multicentre_sites.flower.internal.grid import _QuickGrid
from multicentre_sites.flower.internal.link import Delivery, refuse_stopped, reply_with
from multicentre_sites.flower.internal.objects import announce, disassemble, offer_to_read_whole
from multicentre_sites.flower.records import pack_payload, unpack_payload

NODE = {"lyon": 2, "porto": 3}
NUMBER = {"lyon": "a" * 64, "porto": "b" * 64}


class SuperLink:
    """Replies in parts, some of which have not come."""

    def __init__(self, replies):
        self.trees, self.parts, self.missing, self.confirmed, self.known = {}, {}, set(), [], set(NODE.values())
        self.waiting, self.on_backoff, self.whole, self.announced = dict(replies), None, set(), []
        for site, reply in replies.items():
            self.trees[site], parts = disassemble(reply)
            self.parts |= {name: part.deflate() for name, part in parts.items()}

    def PullMessages(self, request):  # noqa: N802
        came = [site for site, number in NUMBER.items() if number in request.message_ids and site in self.waiting]
        replies = {site: self.waiting.pop(site) for site in came}
        bare = [message_to_proto(reply) for reply in replies.values()]
        for site, one in zip(came, bare, strict=True):
            if not one.HasField("error") and site not in self.whole:
                one.content.CopyFrom(NoContent())
        return SimpleNamespace(messages_list=bare, message_object_trees=[self.trees[site] for site in came])

    def PushMessages(self, request):  # noqa: N802
        self.announced += request.messages_list
        return SimpleNamespace(message_ids=[one.metadata.message_id for one in request.messages_list])

    def PullObject(self, request):  # noqa: N802
        there = request.object_id not in self.missing
        content = self.parts[request.object_id] if there else b""
        return SimpleNamespace(object_found=True, object_available=there, object_content=content)

    def ConfirmMessageReceived(self, request):  # noqa: N802
        self.confirmed.append(request.message_object_id)


def delivery(site):
    origin = Metadata(
        run_id=5, message_id=NUMBER[site], src_node_id=1, dst_node_id=NODE[site], ttl=60.0, message_type="query"
    )
    message = message_from_proto(ProtoMessage(metadata=origin, content=NoContent()))
    return Delivery(message, ObjectTree(object_id=NUMBER[site]))


def quick(link):
    plain = SimpleNamespace(_runtime_client=link, node=None, run=SimpleNamespace(run_id=5))
    plain.get_node_ids = lambda: link.known
    plain._retry_invoker = link
    return _QuickGrid(plain)


@pytest.fixture
def link(monkeypatch):
    monkeypatch.setattr(module, "_STAY_S", 0.05)
    link = SuperLink({site: reply_with(site.encode(), delivery(site)) for site in NODE})
    link.missing = {part.object_id for part in _below(link.trees["porto"])}
    return link


def _below(tree):
    yield tree
    for child in tree.children:
        yield from _below(child)


def letters(messages):
    return {message.metadata.src_node_id: unpack_payload(message.content) for message in messages}


def test_a_reply_that_is_not_whole_holds_up_no_other_and_comes_later(link):
    grid = quick(link)
    assert letters(grid.pull_messages(NUMBER.values())) == {NODE["lyon"]: b"lyon"}
    assert letters(grid.pull_messages([NUMBER["porto"]])) == {}
    link.missing.clear()
    assert letters(grid.pull_messages([NUMBER["porto"]])) == {NODE["porto"]: b"porto"}
    assert letters(grid.pull_messages([NUMBER["porto"]])) == {}


@pytest.mark.parametrize("why", ["gone", "silent"])
def test_a_reply_that_its_sender_will_not_finish_has_no_content(link, why, monkeypatch):
    monkeypatch.setattr(module, "_CHECK_AFTER_S", 0.1)
    grid = quick(link)
    grid.pull_messages(NUMBER.values())
    assert list(grid.pull_messages([NUMBER["porto"]])) == []
    if why == "gone":
        link.known.remove(NODE["porto"])
    else:
        monkeypatch.setattr(module, "_SILENT_S", 0.1)
    came = []
    while not came:
        came = list(grid.pull_messages([NUMBER["porto"]]))
    assert [dict(message.content) for message in came] == [{}]


def test_a_reply_that_is_no_longer_waited_for_is_forgotten(link):
    grid = quick(link)
    grid.pull_messages(NUMBER.values())
    grid.pull_messages([])
    assert list(grid.pull_messages([NUMBER["porto"]])) == []


def test_a_reply_that_comes_whole_needs_no_parts(link):
    link.whole.add("porto")
    assert letters(quick(link).pull_messages(NUMBER.values())) == {NODE["lyon"]: b"lyon", NODE["porto"]: b"porto"}


def test_letters_ask_for_replies_that_come_whole(link):
    grid, pushed = quick(link), []
    grid._grid.push_messages = lambda messages: pushed.extend(messages) or ["a"]
    grid.push_messages(iter([delivery("lyon").message]))
    assert announce(Message(pack_payload(b"reply"), reply_to=pushed[0]), 3)[1]


def test_where_the_superlink_drops_what_came_whole_parts_are_asked_for_from_then_on(link):
    link.trees["porto"] = ObjectTree(object_id=link.trees["porto"].object_id)
    grid, pushed = quick(link), []
    grid._grid.push_messages = lambda messages: pushed.extend(messages) or ["a"]
    came = {message.metadata.reply_to_message_id: message for message in grid.pull_messages(NUMBER.values())}
    assert came[NUMBER["porto"]].error.code == 3
    assert not came[NUMBER["lyon"]].has_error()
    grid.push_messages([delivery("lyon").message])
    assert not announce(Message(pack_payload(b"reply"), reply_to=pushed[0]), 3)[1]


@pytest.fixture
def after_whole_replies(link):
    """Return a grid whose sites replied whole, and the numbers of requests that were pushed in parts since."""
    for site in NODE:
        reply = _whole_reply(site, NUMBER[site])
        link.waiting[site], link.trees[site] = reply, disassemble(reply)[0]
    link.whole |= set(NODE)
    grid, in_parts = quick(link), []
    grid._grid.push_messages = lambda messages: [in_parts.append(one) or "parts" for one in messages]
    assert letters(grid.pull_messages(NUMBER.values())) == {node: site.encode() for site, node in NODE.items()}
    return grid, in_parts


def _whole_reply(site, number):
    request = delivery(site).message
    request.metadata.group_id = "whole"
    request.metadata.__dict__["_message_id"] = number
    reply = reply_with(site.encode(), Delivery(request, ObjectTree(object_id=number)))
    offer_to_read_whole(reply)
    return reply


def request(site, size=5):
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 5, 1
    return Message(pack_payload(bytes(size)), NODE[site], "query")


def test_short_requests_travel_within_their_announcement_to_sites_that_say_that_they_read_it(link, after_whole_replies):
    grid, in_parts = after_whole_replies
    sent = [request("lyon"), request("lyon", 300_000), request("porto")]
    numbers = grid.push_messages(sent)
    assert numbers == [sent[0].metadata.message_id, "parts", sent[2].metadata.message_id]
    assert in_parts == [sent[1]]
    arrived = [message_from_proto(one) for one in link.announced]
    assert [(one.metadata.dst_node_id, unpack_payload(one.content)) for one in arrived] == [
        (NODE["lyon"], bytes(5)),
        (NODE["porto"], bytes(5)),
    ]


def test_sites_that_never_said_that_they_read_it_get_parts(link):
    grid, in_parts = quick(link), []
    grid._grid.push_messages = lambda messages: [in_parts.append(one) or "parts" for one in messages]
    grid.pull_messages(NUMBER.values())
    assert grid.push_messages([request("lyon")]) == ["parts"]
    assert not link.announced


@pytest.mark.parametrize("after", ["an error", "no answer"])
def test_after_a_failure_requests_are_sent_in_parts(link, after_whole_replies, after):
    grid, _ = after_whole_replies
    (number,) = grid.push_messages([request("porto")])
    if after == "an error":
        error = refuse_stopped(Delivery(_numbered(request("porto"), number), ObjectTree(object_id=number)))
        link.PullMessages = lambda _: SimpleNamespace(
            messages_list=[message_to_proto(error)], message_object_trees=[ObjectTree(object_id="c" * 64)]
        )
        assert [one.has_error() for one in grid.pull_messages([number])] == [True]
    assert grid.push_messages([request("porto")]) == ["parts"]
    assert grid.push_messages([request("lyon")]) != ["parts"]


def _numbered(message, number):
    message.metadata.__dict__["_message_id"] = number
    return message


def test_requests_within_announcements_are_pushed_a_few_at_a_time(link, after_whole_replies, monkeypatch):
    monkeypatch.setattr(module, "_WHOLE_AT_ONCE", 1)
    numbers = after_whole_replies[0].push_messages([request("lyon"), request("porto")])
    assert numbers == [one.metadata.message_id for one in link.announced]
    assert len(set(numbers)) == 2


def test_an_error_comes_at_once(link):
    link.waiting["porto"] = refuse_stopped(delivery("porto"))
    link.trees["porto"], _ = disassemble(link.waiting["porto"])
    came = {message.metadata.src_node_id: message.has_error() for message in quick(link).pull_messages(NUMBER.values())}
    assert came == {NODE["lyon"]: False, NODE["porto"]: True}


def test_what_is_not_there_after_trouble_with_the_connection_counts_as_lost(link):
    grid = quick(link)
    del link.waiting["porto"]
    link.on_backoff(SimpleNamespace())
    came = {
        message.metadata.reply_to_message_id: message.error.code if message.has_error() else 0
        for message in grid.pull_messages(NUMBER.values())
    }
    assert came == {NUMBER["lyon"]: 0, NUMBER["porto"]: 3}
    assert list(grid.pull_messages([NUMBER["porto"]])) == []
