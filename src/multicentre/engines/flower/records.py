"""Letters as Flower records: one buffer, whatever its size.

Every object of a Flower message costs a request of its own, so a letter is one `bytes` value while it is small and one
array above, which Flower cuts into chunks. Nothing is read inside a letter here.
"""

from __future__ import annotations

from typing import cast, get_args

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from multicentre.engines.remote.carrier import Reason, Unreachable
from multicentre.engines.remote.socket import LETTER_BYTES
from multicentre.federation.errors import MessageError

MESSAGE_TYPE = "query"
LETTER_LIFE_S = 4 * 3600.0
_ONE_VALUE_BYTES = 2 * 10**6
_LETTER, _FAILURE, _BODY, _REASON = "letter", "failure", "body", "reason"
_RAW = "bytes"


def pack_letter(letter: bytes) -> RecordDict:
    """Return the records that carry `letter`."""
    _check_size(len(letter))
    if len(letter) < _ONE_VALUE_BYTES:
        return RecordDict({_LETTER: ConfigRecord({_BODY: letter})})
    whole = Array(dtype="uint8", shape=(len(letter),), stype=_RAW, data=letter)
    return RecordDict({_LETTER: ArrayRecord({_BODY: whole})})


def unpack_letter(records: RecordDict) -> bytes:
    """Return the letter that `records` carry.

    Raises
    ------
    MessageError
        Where they hold anything else than one letter.
    """
    record = _only_record(records, _LETTER)
    letter = _array_bytes(record) if isinstance(record, ArrayRecord) else _value_bytes(record)
    _check_size(len(letter))
    return letter


def pack_failure(failure: Unreachable) -> RecordDict:
    """Return the records that tell why there is no reply: a word of a fixed list, never a text."""
    return RecordDict({_FAILURE: ConfigRecord({_REASON: failure.reason})})


def unpack_reply(records: RecordDict) -> bytes | Unreachable:
    """Return the reply, or the failure, that `records` carry."""
    if _FAILURE not in records:
        return unpack_letter(records)
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
        raise _malformed("a record that holds no letter")
    body = record[_BODY]
    if not isinstance(body, bytes):
        raise _malformed("a letter that is not bytes")
    return body


def _array_bytes(record: ArrayRecord) -> bytes:
    if list(record) != [_BODY]:
        raise _malformed("an array record that holds no letter")
    whole = record[_BODY]
    declared = (whole.dtype, whole.stype, tuple(whole.shape))
    if declared != ("uint8", _RAW, (len(whole.data),)):
        raise _malformed("an array that is not what it declares")
    return bytes(whole.data)


def _check_size(size: int) -> None:
    if not 0 < size <= LETTER_BYTES:
        raise MessageError(
            f"a letter of {size} bytes cannot be carried",
            mend=f"Letters hold between 1 and {LETTER_BYTES} bytes: send less per step.",
        )


def _malformed(what: str) -> MessageError:
    return MessageError(f"a Flower message holds {what}", mend="Run the same version of multicentre at every site.")
