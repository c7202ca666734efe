"""Payloads (requests and replies) as Flower records: one buffer of any size.

Every object of a Flower message costs a separate HTTP request. A small payload is therefore one `bytes` value, and a
larger one an array, which Flower cuts into chunks. Payloads are not decoded here.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from multicentre.core.storage import write_atomically
from multicentre.engines.remote.socket import MAX_MESSAGE_BYTES, Reason, Unreachable
from multicentre.errors import MessageError

MESSAGE_TYPE = "query"

LOST, NOT_APPROVED, STOPPED = 3, 7, 8  # error codes of Flower, stable numbers of its wire format

REQUEST_LIFETIME_S = 4 * 3600.0  # longer than any step; Flower deletes messages after this time

_ONE_VALUE_BYTES = 2 * 10**6  # Flower sends larger objects in chunks, and only arrays can be cut

_PAYLOAD, _FAILURE, _BODY, _REASON = "payload", "failure", "body", "reason"

_RAW = "bytes"


def pack_payload(payload: bytes) -> RecordDict:
    """Return the records that hold `payload`."""
    _check_size(len(payload))
    if len(payload) < _ONE_VALUE_BYTES:
        return RecordDict({_PAYLOAD: ConfigRecord({_BODY: payload})})
    array = Array(dtype="uint8", shape=(len(payload),), stype=_RAW, data=payload)
    return RecordDict({_PAYLOAD: ArrayRecord({_BODY: array})})


def unpack_payload(records: RecordDict) -> bytes:
    """Return the payload that `records` hold.

    Raises
    ------
    MessageError
        The records hold anything else than one payload.
    """
    record = _only_record(records, _PAYLOAD)
    payload = _array_bytes(record) if isinstance(record, ArrayRecord) else _value_bytes(record)
    _check_size(len(payload))
    return payload


def pack_failure(failure: Unreachable) -> RecordDict:
    """Return the records that state why there is no reply: a word from a fixed list, never free text."""
    return RecordDict({_FAILURE: ConfigRecord({_REASON: failure.reason})})


def unpack_reply(records: RecordDict) -> bytes | Unreachable:
    """Return the reply or the failure that `records` hold."""
    if _FAILURE not in records:
        return unpack_payload(records)
    record = _only_record(records, _FAILURE)
    reason = record.get(_REASON) if isinstance(record, ConfigRecord) and len(record) == 1 else None
    if reason not in get_args(Reason):
        raise _malformed("a failure whose reason is unknown")
    return Unreachable(cast(Reason, reason))


def _only_record(records: RecordDict, name: str) -> object:
    if list(records) != [name]:
        raise _malformed("other records than the expected one")
    return records[name]


def _value_bytes(record: object) -> bytes:
    if not isinstance(record, ConfigRecord) or list(record) != [_BODY]:
        raise _malformed("a record without a payload")
    body = record[_BODY]
    if not isinstance(body, bytes):
        raise _malformed("a payload of another type than bytes")
    return body


def _array_bytes(record: ArrayRecord) -> bytes:
    if list(record) != [_BODY]:
        raise _malformed("an array record without a payload")
    array = record[_BODY]
    declared = (array.dtype, array.stype, tuple(array.shape))
    if declared != ("uint8", _RAW, (len(array.data),)):
        raise _malformed("an array that differs from its declaration")
    return bytes(array.data)


def _check_size(size: int) -> None:
    if not 0 < size <= MAX_MESSAGE_BYTES:
        raise MessageError(
            f"a message must have between 1 and {MAX_MESSAGE_BYTES} bytes; got {size}",
            hint="Send less per step.",
        )


def _malformed(what: str) -> MessageError:
    return MessageError(f"a Flower message holds {what}", hint="Run the same version of multicentre at every site.")


@dataclass
class Memory:
    """Small file of an agent's state that survives the process. Losing it only costs time.

    Parameters
    ----------
    path : Path, optional
        The file; without it, nothing is stored.

    Attributes
    ----------
    node_id : int or None
        The site's node number at the coordinator.
    under_way : bytes or None
        The message that is received and not yet answered, without its content.

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
        """Read the file; treat an unreadable file as empty."""
        try:
            content = json.loads(path.read_bytes()) if path else {}
            under_way = base64.b64decode(content["under_way"], validate=True) if content.get("under_way") else None
            node_id = content.get("node_id")
            return cls(path, node_id if isinstance(node_id, int) else None, under_way)
        except (OSError, ValueError, TypeError, AttributeError):
            return cls(path)

    def keep(self, *, node_id: int | None) -> None:
        """Store the site's node number, or delete it."""
        self.node_id = node_id
        self._write()

    def begin(self, message: bytes) -> None:
        """Store the message that was received."""
        self.under_way = message
        self._write()

    def end(self) -> None:
        """Delete the message, which is answered."""
        self.under_way = None
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        under_way = base64.b64encode(self.under_way).decode() if self.under_way else None
        content = json.dumps({"node_id": self.node_id, "under_way": under_way}).encode()
        # Not durable: syncing twice per message would be slow, and a loss at a power failure costs half a minute.
        with suppress(OSError):  # on a full disk, the reply to the request says so
            write_atomically(self.path, content, mode=0o600, durable=False)
