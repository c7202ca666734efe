import pytest

pytest.importorskip("flwr")

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from multicentre.engines.remote.socket import MAX_MESSAGE_BYTES, Unreachable
from multicentre.errors import MessageError
from multicentre_sites.flower.records import pack_failure, pack_payload, unpack_payload, unpack_reply
from support.local_grid import through_bytes

SMALL = b"a letter"
LARGE = bytes(range(256)) * 12_000


@pytest.mark.parametrize("letter", [SMALL, b"\x00", LARGE, bytes(2 * 10**6)])
def test_letter_survives_the_records(letter):
    assert unpack_payload(through_bytes(pack_payload(letter))) == letter


def test_small_letter_is_one_object_and_large_one_is_one_array():
    assert isinstance(pack_payload(SMALL)["payload"], ConfigRecord)
    assert list(pack_payload(LARGE)["payload"]) == ["body"]
    assert isinstance(pack_payload(LARGE)["payload"], ArrayRecord)


def test_failure_survives_the_records_and_carries_one_word():
    records = through_bytes(pack_failure(Unreachable("stopped")))
    assert unpack_reply(records) == Unreachable("stopped")
    assert dict(records["failure"]) == {"reason": "stopped"}


def test_reply_may_be_a_letter():
    assert unpack_reply(pack_payload(SMALL)) == SMALL


def raw(**changed):
    fields = {"dtype": "uint8", "shape": (3,), "stype": "bytes", "data": b"abc"}
    return Array(**(fields | changed))


@pytest.mark.parametrize(
    "records",
    [
        {},
        {"other": ConfigRecord({"body": b"x"})},
        {"payload": ConfigRecord({"body": b"x"}), "more": ConfigRecord({})},
        {"payload": ConfigRecord({})},
        {"payload": ConfigRecord({"body": "text"})},
        {"payload": ConfigRecord({"body": b""})},
        {"payload": ConfigRecord({"body": b"x", "code": "y"})},
        {"payload": ArrayRecord({})},
        {"payload": ArrayRecord({"body": raw(), "more": raw()})},
        {"payload": ArrayRecord({"body": raw(shape=(4,))})},
        {"payload": ArrayRecord({"body": raw(dtype="float64")})},
        {"payload": ArrayRecord({"body": raw(stype="numpy.ndarray")})},
        {"payload": ArrayRecord({"body": Array(np.arange(3, dtype=np.uint8))})},
        {"failure": ConfigRecord({"reason": "patient 12345 has a bad value"})},
        {"failure": ConfigRecord({"reason": "stopped", "text": "patient 12345"})},
        {"failure": ConfigRecord({"reason": "stopped"}), "payload": ConfigRecord({"body": b"x"})},
        {"failure": ArrayRecord({})},
    ],
)
def test_anything_but_one_letter_or_failure_is_refused(records):
    with pytest.raises(MessageError):
        unpack_reply(RecordDict(records))


class Long(bytes):
    def __len__(self):
        return MAX_MESSAGE_BYTES + 1


@pytest.mark.parametrize("letter", [b"", Long()])
def test_letters_have_a_size(letter):
    with pytest.raises(MessageError, match="a message must have between"):
        pack_payload(letter)
