"""Conversion of messages to the objects that Flower sends, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from multicentre.errors import MessageError
from multicentre_sites.flower.records import pack_payload, unpack_payload

if TYPE_CHECKING:
    from flwr.supercore.inflatable.inflatable_object import InflatableObject

# Groups of messages, which Flower passes on unread.
WHOLE = "whole"  # of a request: a short reply may be sent within its announcement
READS_WHOLE = "reads whole"  # of a reply: requests to its sender may be sent so, too
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


def offer_to_read_whole(reply: Message) -> None:
    """Mark the reply to a marked request so that short requests are sent within their announcement, too."""
    if reply.metadata.group_id == WHOLE:
        reply.metadata.group_id = READS_WHOLE


def announce(message: Message, n_parts: int) -> tuple[ProtoMessage, bool]:
    """Return the announcement of a message of `n_parts` objects, and True if it contains the whole message.

    Every object costs a request, and for a SuperLink a request costs more than its content.
    """
    if message.metadata.group_id in (WHOLE, READS_WHOLE) and n_parts <= _SHORT_PARTS:
        whole = message_to_proto(message)
        if whole.ByteSize() <= _WHOLE_BYTES:
            return whole, True
    return announcement_of(message), False


def announcement_of(message: Message) -> ProtoMessage:
    """Return a message without its content."""
    return message_to_proto(remove_content_from_message(message))


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
