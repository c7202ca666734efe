"""Payloads as Flower records: one buffer, whatever its size.

Every object of a Flower message costs a request of its own, so a payload is one `bytes` value while it is small and one
array above, which Flower cuts into chunks. Nothing is read inside a payload here.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from multicentre.engines.remote.socket import MAX_MESSAGE_BYTES, Reason, Unreachable
from multicentre.federation.errors import MessageError
from multicentre.federation.storage import write_atomically

MESSAGE_TYPE = "query"

REQUEST_LIFETIME_S = 4 * 3600.0

_ONE_VALUE_BYTES = 2 * 10**6

_PAYLOAD, _FAILURE, _BODY, _REASON = "payload", "failure", "body", "reason"

_RAW = "bytes"


def pack_payload(payload: bytes) -> RecordDict:
    """Return the records that carry `payload`."""
    _check_size(len(payload))
    if len(payload) < _ONE_VALUE_BYTES:
        return RecordDict({_PAYLOAD: ConfigRecord({_BODY: payload})})
    whole = Array(dtype="uint8", shape=(len(payload),), stype=_RAW, data=payload)
    return RecordDict({_PAYLOAD: ArrayRecord({_BODY: whole})})


def unpack_payload(records: RecordDict) -> bytes:
    """Return the payload that `records` carry.

    Raises
    ------
    MessageError
        Where they hold anything else than one payload.
    """
    record = _only_record(records, _PAYLOAD)
    payload = _array_bytes(record) if isinstance(record, ArrayRecord) else _value_bytes(record)
    _check_size(len(payload))
    return payload


def pack_failure(failure: Unreachable) -> RecordDict:
    """Return the records that tell why there is no reply: a word of a fixed list, never a text."""
    return RecordDict({_FAILURE: ConfigRecord({_REASON: failure.reason})})


def unpack_reply(records: RecordDict) -> bytes | Unreachable:
    """Return the reply, or the failure, that `records` carry."""
    if _FAILURE not in records:
        return unpack_payload(records)
    record = _only_record(records, _FAILURE)
    reason = record.get(_REASON) if isinstance(record, ConfigRecord) and len(record) == 1 else None
    if reason not in get_args(Reason):
        raise _malformed("a failure without a known reason")
    return Unreachable(cast(Reason, reason))


def _only_record(records: RecordDict, name: str) -> object:
    if list(records) != [name]:
        raise _malformed("not exactly one record of the expected name")
    return records[name]


def _value_bytes(record: object) -> bytes:
    if not isinstance(record, ConfigRecord) or list(record) != [_BODY]:
        raise _malformed("a record that holds no payload")
    body = record[_BODY]
    if not isinstance(body, bytes):
        raise _malformed("a payload that is not bytes")
    return body


def _array_bytes(record: ArrayRecord) -> bytes:
    if list(record) != [_BODY]:
        raise _malformed("an array record that holds no payload")
    whole = record[_BODY]
    declared = (whole.dtype, whole.stype, tuple(whole.shape))
    if declared != ("uint8", _RAW, (len(whole.data),)):
        raise _malformed("an array that is not what it declares")
    return bytes(whole.data)


def _check_size(size: int) -> None:
    if not 0 < size <= MAX_MESSAGE_BYTES:
        raise MessageError(
            f"a payload of {size} bytes cannot be carried",
            hint=f"Payloads hold between 1 and {MAX_MESSAGE_BYTES} bytes: send less per step.",
        )


def _malformed(what: str) -> MessageError:
    return MessageError(f"a Flower message holds {what}", hint="Run the same version of multicentre at every site.")


@dataclass
class Memory:
    """A small file that outlives the process, not the machine: nothing breaks where it is lost.

    Parameters
    ----------
    path : Path, optional
        The file; without one nothing is remembered.

    Attributes
    ----------
    node_id : int or None
        The number that the coordinator knows the site by.
    under_way : bytes or None
        The message that was taken and not answered yet, without its content.

    Examples
    --------
    >>> memory = Memory(None)
    >>> memory.keep(node_id=7)
    >>> memory.node_id
    7
    """

    path: Path | None
    node_id: int | None = None
    under_way: bytes | None = None

    @classmethod
    def open(cls, path: Path | None) -> Memory:
        """Return what `path` holds; an unreadable file is an empty one."""
        try:
            kept = json.loads(path.read_bytes()) if path else {}
            under_way = base64.b64decode(kept["under_way"], validate=True) if kept.get("under_way") else None
            node_id = kept.get("node_id")
            return cls(path, node_id if isinstance(node_id, int) else None, under_way)
        except (OSError, ValueError, TypeError, AttributeError):
            return cls(path)

    def keep(self, *, node_id: int | None) -> None:
        """Remember the site's number, or forget it."""
        self.node_id = node_id
        self._write()

    def begin(self, message: bytes) -> None:
        """Remember that this message was taken."""
        self.under_way = message
        self._write()

    def end(self) -> None:
        """Forget the message that was taken: it is answered."""
        self.under_way = None
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        under_way = base64.b64encode(self.under_way).decode() if self.under_way else None
        content = json.dumps({"node_id": self.node_id, "under_way": under_way}).encode()
        # Not durable: twice a message would be slow, and what a power cut takes away only costs half a minute.
        write_atomically(self.path, content, mode=0o600, durable=False)
