import pytest

pytest.importorskip("flwr")

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from multicentre.engines.flower.records import pack_failure, pack_letter, unpack_letter, unpack_reply
from multicentre.engines.remote.socket import LETTER_BYTES, Unreachable
from multicentre.federation.errors import MessageError
from support.local_grid import through_bytes

SMALL = b"a letter"
LARGE = bytes(range(256)) * 12_000


@pytest.mark.parametrize("letter", [SMALL, b"\x00", LARGE, bytes(2 * 10**6)])
def test_letter_survives_the_records(letter):
    assert unpack_letter(through_bytes(pack_letter(letter))) == letter


def test_small_letter_is_one_object_and_large_one_is_one_array():
    assert isinstance(pack_letter(SMALL)["letter"], ConfigRecord)
    assert list(pack_letter(LARGE)["letter"]) == ["body"]
    assert isinstance(pack_letter(LARGE)["letter"], ArrayRecord)


def test_failure_survives_the_records_and_carries_one_word():
    records = through_bytes(pack_failure(Unreachable("stopped")))
    assert unpack_reply(records) == Unreachable("stopped")
    assert dict(records["failure"]) == {"reason": "stopped"}


def test_reply_may_be_a_letter():
    assert unpack_reply(pack_letter(SMALL)) == SMALL


def raw(**changed):
    fields = {"dtype": "uint8", "shape": (3,), "stype": "bytes", "data": b"abc"}
    return Array(**(fields | changed))


@pytest.mark.parametrize(
    "records",
    [
        {},
        {"other": ConfigRecord({"body": b"x"})},
        {"letter": ConfigRecord({"body": b"x"}), "more": ConfigRecord({})},
        {"letter": ConfigRecord({})},
        {"letter": ConfigRecord({"body": "text"})},
        {"letter": ConfigRecord({"body": b""})},
        {"letter": ConfigRecord({"body": b"x", "code": "y"})},
        {"letter": ArrayRecord({})},
        {"letter": ArrayRecord({"body": raw(), "more": raw()})},
        {"letter": ArrayRecord({"body": raw(shape=(4,))})},
        {"letter": ArrayRecord({"body": raw(dtype="float64")})},
        {"letter": ArrayRecord({"body": raw(stype="numpy.ndarray")})},
        {"letter": ArrayRecord({"body": Array(np.arange(3, dtype=np.uint8))})},
        {"failure": ConfigRecord({"reason": "patient 12345 has a bad value"})},
        {"failure": ConfigRecord({"reason": "stopped", "text": "patient 12345"})},
        {"failure": ConfigRecord({"reason": "stopped"}), "letter": ConfigRecord({"body": b"x"})},
        {"failure": ArrayRecord({})},
    ],
)
def test_anything_but_one_letter_or_failure_is_refused(records):
    with pytest.raises(MessageError):
        unpack_reply(RecordDict(records))


class Long(bytes):
    def __len__(self):
        return LETTER_BYTES + 1


@pytest.mark.parametrize("letter", [b"", Long()])
def test_letters_have_a_size(letter):
    with pytest.raises(MessageError, match="bytes cannot be carried"):
        pack_letter(letter)
