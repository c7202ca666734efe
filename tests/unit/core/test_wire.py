"""Messages survive the wire unchanged, and nothing but a declared message comes off it."""

import json
import struct
from dataclasses import dataclass, fields

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from multicentre.core.messages import DTYPES, Message, array, arrays, count, flag, number, text, texts
from multicentre.core.wire import MAGIC, decode, encode, size
from multicentre.errors import MessageError
from support.examples import examples


@dataclass(frozen=True)
class Full(Message):
    """One field of every kind."""

    f8: np.ndarray = array("x", ("n", "d"))
    f4: np.ndarray = array("x", ("n",), dtype="f4")
    i8: np.ndarray = array("x", (), dtype="i8")
    i4: np.ndarray = array("x", ("d",), dtype="i4")
    u8: np.ndarray = array("x", ("a", 2, "b"), dtype="u8")
    u1: np.ndarray = array("x", ("c",), dtype="u1")
    b1: np.ndarray = array("x", ("e",), dtype="b1")
    views: dict = arrays("x", ("p", "q"))
    amount: float = number("x")
    loose: float = number("x", finite=False)
    whole: int = count("x")
    counts: dict = count("x", keyed=True)
    yes: bool = flag("x")
    word: str = text("x")
    words: tuple = texts("x")
    names: dict = texts("x", keyed=True)
    perhaps: np.ndarray | None = array("x", ("z",), optional=True)
    perhaps_number: float | None = number("x", optional=True)


_text = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
_name = _text.filter(bool)
_finite = st.floats(allow_nan=False, allow_infinity=False)
_side = st.integers(0, 3)


def _array(draw, dtype, shape, **elements):
    values = draw(npst.arrays(np.dtype(dtype), shape, elements=npst.from_dtype(np.dtype(dtype), **elements)))
    return np.asfortranarray(values) if draw(st.booleans()) and shape else values


@st.composite
def messages(draw):
    n, d = draw(_side), draw(_side)
    real = {"allow_nan": False, "allow_infinity": False}
    return Full(
        f8=_array(draw, "f8", (n, d), **real),
        f4=_array(draw, "f4", (n,), **real),
        i8=_array(draw, "i8", ()),
        i4=_array(draw, "i4", (d,)),
        u8=_array(draw, "u8", (draw(_side), 2, draw(_side))),
        u1=_array(draw, "u1", (draw(_side),)),
        b1=_array(draw, "b1", (draw(_side),)),
        views={name: _array(draw, "f8", (draw(_side), 2), **real) for name in draw(st.sets(_name, max_size=2))},
        amount=draw(_finite),
        loose=draw(st.floats()),
        whole=draw(st.integers(-(2**63), 2**63 - 1)),
        counts=draw(st.dictionaries(_name, st.integers(0, 9), max_size=2)),
        yes=draw(st.booleans()),
        word=draw(_text),
        words=tuple(draw(st.lists(_text, max_size=2))),
        names=draw(st.dictionaries(_name, st.lists(_text, max_size=2).map(tuple), max_size=2)),
        perhaps=draw(st.none() | npst.arrays(np.float64, 2, elements=_finite)),
        perhaps_number=draw(st.none() | _finite),
    )


def same(one, other):
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return repr(one) == repr(other)


def plain(**changes):
    """Return a message of every kind with some fields changed."""
    values = {
        "f8": np.ones((2, 3)),
        "f4": np.ones(2, "f4"),
        "i8": np.array(3),
        "i4": np.ones(3, "i4"),
        "u8": np.ones((1, 2, 1), "u8"),
        "u1": np.ones(4, "u1"),
        "b1": np.array([True, False]),
        "views": {"imaging": np.ones((1, 2)), "cliniqué": np.zeros((0, 2))},
        "amount": 1.5,
        "loose": float("nan"),
        "whole": 3,
        "counts": {"a": 1},
        "yes": True,
        "word": "é",
        "words": ("a", "b"),
        "names": {"v": ("x",)},
    }
    return Full(**values | changes)


@pytest.mark.slow
@given(messages())
@examples(80)
def test_a_message_survives_the_wire(message):
    blob = encode(message)
    back = decode(Full, blob)
    assert all(same(getattr(message, field.name), getattr(back, field.name)) for field in fields(Full))
    assert encode(back) == blob
    assert len(blob) % 8 == 0


@dataclass(frozen=True)
class Golden(Message):
    """A message whose bytes are written out below."""

    values: np.ndarray = array("x", ("n",), dtype="i4")
    views: dict = arrays("x", ("p",))
    n: int = count("x")
    words: dict = texts("x", keyed=True)


def test_the_format_is_as_the_module_describes():
    """Sites and coordinators of different versions read each other's messages."""
    header = (
        b'{"type": "Golden", "values": {"n": 7, "words": {"v": ["a"], "w": []}}, '
        b'"arrays": [["values", "", "i4", [3]], ["views", "v", "f8", [1]]]}'
    )
    start = b"MC1\n" + len(header).to_bytes(4, "little") + header
    start += bytes(-len(start) % 8)
    ints = b"".join(value.to_bytes(4, "little", signed=True) for value in (1, -2, 3))
    expected = start + ints + bytes(4) + struct.pack("<d", 0.5)
    message = Golden(np.array([1, -2, 3], "i4"), {"v": np.array([0.5])}, 7, {"v": ("a",), "w": ()})
    assert encode(message) == expected
    back = decode(Golden, expected)
    assert (back.values.tolist(), back.views["v"].tolist(), back.n, back.words) == ([1, -2, 3], [0.5], 7, message.words)


def test_a_message_that_is_not_as_declared_is_not_sent():
    with pytest.raises(MessageError, match=r"^Full\.f8: "):
        encode(plain(f8=np.ones((2, 3), "f4")))


@dataclass(frozen=True)
class Wide(Message):
    """One array and nothing else."""

    rows: np.ndarray = array("x", ("n", "d"), dtype="u1")


def _wide(shape, n_bytes=0):
    header = json.dumps({"type": "Wide", "values": {}, "arrays": [["rows", "", "u1", shape]]}).encode()
    start = MAGIC + struct.pack("<I", len(header)) + header
    return start + bytes(-len(start) % 8) + bytes(n_bytes)


@pytest.mark.parametrize("shape", [[0, 2**40 - 1], [2**20, 0], [0, 0]])
def test_an_empty_array_may_have_a_long_side(shape):
    assert decode(Wide, _wide(shape)).rows.shape == tuple(shape)


@pytest.mark.parametrize("shape", [[0, 2**40], [2**20, 2**20], [2**39, 2]])
def test_a_shape_that_no_memory_holds_is_refused_before_its_bytes_are_looked_for(shape):
    with pytest.raises(MessageError, match="array table must list"):
        decode(Wide, _wide(shape))


def test_the_bytes_of_an_array_must_all_be_there():
    assert decode(Wide, _wide([2, 4], 8)).rows.shape == (2, 4)
    with pytest.raises(MessageError, match=r"^Wide\.rows: the message must be complete"):
        decode(Wide, _wide([2, 4], 7))
    header = b'{"type": "Wide", "values": {}, "arrays": []}'
    with pytest.raises(MessageError, match=r"^Wide: .*the field 'rows' is missing"):
        decode(Wide, MAGIC + struct.pack("<I", len(header)) + header + bytes(-(8 + len(header)) % 8))
    for n_bytes in (16, 9):
        with pytest.raises(MessageError, match="left over"):
            decode(Wide, _wide([2, 4], n_bytes))


@pytest.mark.parametrize(
    ("forgery", "said"),
    [
        ("another type", "wire: the message must be of type Full"),
        ("scalar missing", "Full: all declared fields must be sent; the field 'whole' is missing"),
        ("undeclared value", "Full: only declared fields may be sent"),
        ("undeclared array", "Full: only declared fields may be sent"),
        ("array of another length twice", "Full.u8: an array must be sent once"),
        ("same name twice", "Full.views[imaging]: an array must be sent once"),
        ("another dtype", "Full.f8: an array must have the declared dtype"),
        ("key for a field without names", "Full.f8[key]: an array must have the declared dtype"),
        ("array as a value", "Full.f8: an array must be in the array table"),
        ("counts without names", "Full.counts: the field must be a mapping from names"),
        ("header is not text", "wire: the header must be a JSON object"),
        ("header repeats a key", "wire: the header must be a JSON object"),
        ("value repeats a key", "wire: the header must be a JSON object"),
        ("header is a list", "wire: the header must hold type, values and arrays"),
        ("values missing", "wire: the header must hold type, values and arrays"),
        ("entry too short", "wire: the array table must list"),
        ("entry is no list", "wire: the array table must list"),
        ("negative side", "wire: the array table must list"),
        ("key is a number", "wire: the array table must list"),
    ],
)
def test_the_error_says_what_was_forged_and_where(forgery, said):
    with pytest.raises(MessageError) as caught:
        decode(Full, forged(FORGERIES[forgery]))
    assert caught.value.placed.startswith(said)


def test_bytes_of_another_format_are_told_from_truncated_ones():
    for blob in (b"", b"MC1", b"MC2\n" + bytes(4), encode(plain())[1:]):
        with pytest.raises(MessageError, match="not a message of this format"):
            decode(Full, blob)
    for blob in (MAGIC + struct.pack("<I", 1), encode(plain())[:40]):
        with pytest.raises(MessageError, match="the message must be complete"):
            decode(Full, blob)


def test_every_dtype_is_covered():
    assert {declared.dtype for declared in Full.declarations().values()} == set(DTYPES)


def test_size_counts_values_only():
    @dataclass(frozen=True)
    class Small(Message):
        values: np.ndarray = array("x", ("n",), dtype="f4")
        n: int = count("x")

    assert size(Small(np.zeros(5, "f4"), 2)) == 5 * 4 + 8
    assert size(Small(np.zeros((0,), "f4"), 2)) == 8


def _attempt(blob):
    try:
        message = decode(Full, blob)
    except MessageError:
        return None
    return message.checked()


def test_truncated_bytes_are_refused_everywhere():
    blob = encode(plain())
    assert all(_attempt(blob[:length]) is None for length in range(len(blob)))


def test_thousands_of_mutations_neither_crash_nor_load_something_undeclared():
    blob, rng = encode(plain()), np.random.default_rng(0)
    for _ in range(4000):
        mutated = bytearray(blob)
        for _ in range(rng.integers(1, 4)):
            place = rng.integers(len(mutated))
            action = rng.integers(3)
            if action == 0:
                mutated[place] = rng.integers(256)
            elif action == 1:
                del mutated[place : place + rng.integers(1, 9)]
            else:
                mutated[place:place] = bytes(rng.integers(0, 256, rng.integers(1, 9), dtype=np.uint8))
        _attempt(bytes(mutated))


@given(st.binary(max_size=200))
@example(b"")
@example(MAGIC)
@examples(200)
def test_any_bytes_at_all_are_refused(blob):
    assert _attempt(blob) is None
    assert _attempt(MAGIC + struct.pack("<I", len(blob)) + blob) is None


def forged(change, tail=b""):
    """Return the bytes of a message whose header was rewritten."""
    blob = encode(plain())
    length = struct.unpack_from("<I", blob, 4)[0]
    header = json.loads(blob[8 : 8 + length])
    changed = change(header)
    raw = changed if isinstance(changed, bytes) else json.dumps(header).encode()
    start = MAGIC + struct.pack("<I", len(raw)) + raw
    return start + b"\0" * (-len(start) % 8) + blob[-(-(8 + length) // 8) * 8 :] + tail


def _entry(header, name):
    return next(entry for entry in header["arrays"] if entry[0] == name)


def _set(name, position, value):
    return lambda header: _entry(header, name).__setitem__(position, value)


def _value(name, value):
    return lambda header: header["values"].__setitem__(name, value)


FORGERIES = {
    "huge side": _set("f8", 3, [2**62, 2**62]),
    "huge side behind a zero": _set("f8", 3, [0, 2**62]),
    "hundreds of sides": _set("f8", 3, [0] * 500),
    "too few sides": _set("f8", 3, [6]),
    "negative side": _set("f8", 3, [-2, -3]),
    "side is a flag": _set("u1", 3, [True]),
    "side is a float": _set("u1", 3, [4.0]),
    "shape is text": _set("u1", 3, "4"),
    "another dtype": _set("f8", 2, "i8"),
    "object dtype": _set("f8", 2, "O"),
    "dtype is a list": _set("f8", 2, ["f8"]),
    "dtype is a mapping": _set("f8", 2, {}),
    "key for a field without names": _set("f8", 1, "key"),
    "no key for a field with names": _set("views", 1, ""),
    "key is a number": _set("views", 1, 3),
    "undeclared array": _set("f8", 0, "rows"),
    "array for a scalar": _set("i8", 0, "whole"),
    "array twice": lambda header: header["arrays"].append(_entry(header, "u8")),
    "array of another length twice": lambda header: header["arrays"].append(["u8", "", "u8", [0, 2, 0]]),
    "same name twice": lambda header: header["arrays"].append(["views", "imaging", "f8", [0, 0]]),
    "entry too short": lambda header: header["arrays"].append(["f8"]),
    "entry is no list": lambda header: header["arrays"].append("f8"),
    "array missing": lambda header: header["arrays"].pop(0),
    "undeclared value": _value("rows", 1),
    "scalar missing": lambda header: header["values"].pop("whole"),
    "array as a value": _value("f8", [[1.0]]),
    "array by name as values": _value("views", {"imaging": 1.0}),
    "number is text": _value("amount", "1"),
    "number is a flag": _value("amount", True),
    "number is not a number": _value("amount", float("nan")),
    "number is infinite": _value("amount", float("inf")),
    "number is a huge integer": _value("amount", 10**400),
    "loose number is a huge integer": _value("loose", 10**400),
    "count beyond 64 bits": _value("whole", 2**63),
    "count far beyond 64 bits": _value("whole", -(10**300)),
    "count is a float": _value("whole", 3.0),
    "count is infinite": _value("whole", float("inf")),
    "counts without names": _value("counts", 3),
    "counts with an empty name": _value("counts", {"": 3}),
    "flag is a number": _value("yes", 1),
    "text is a number": _value("word", 1),
    "text is empty of type": _value("word", None),
    "text is a lone surrogate": _value("word", "\ud800"),
    "texts are numbers": _value("words", [1, 2]),
    "texts is a string": _value("words", "ab"),
    "texts within texts": _value("words", [["a"]]),
    "texts with a surrogate": _value("words", ["\udfff"]),
    "names are a list": _value("names", ["a"]),
    "name is a surrogate": _value("counts", {"\ud800": 3}),
    "another type": lambda header: header.__setitem__("type", "Other"),
    "type is a number": lambda header: header.__setitem__("type", 1),
    "undeclared part of the header": lambda header: header.__setitem__("code", "import os"),
    "values are a list": lambda header: header.__setitem__("values", []),
    "arrays are a mapping": lambda header: header.__setitem__("arrays", {}),
    "values missing": lambda header: header.pop("values"),
    "header is a list": lambda _: b"[]",
    "header is null": lambda _: b"null",
    "header is deep": lambda _: b"[" * 200_000,
    "header is deep within": lambda _: b'{"type":"Full","arrays":[],"values":{"word":' + b"[" * 90_000,
    "header is not text": lambda _: b"\xff\xfe{}",
    "header is UTF-16": lambda header: json.dumps(header).encode("utf-16"),
    "header repeats a key": lambda header: json.dumps(header).encode()[:-1] + b',"type":"Full"}',
    "value repeats a key": lambda header: json.dumps(header).encode().replace(b'{"amount"', b'{"amount":7,"amount"'),
    "integer of thousands of digits": lambda header: json.dumps(header).encode().replace(b"1.5", b"9" * 10_000),
}


def test_the_forger_can_also_write_a_good_message():
    assert same(decode(Full, forged(lambda header: None)).f8, plain().f8)


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES)
def test_forged_headers_are_refused(change):
    blob = forged(change)
    assert blob != encode(plain())
    with pytest.raises(MessageError):
        decode(Full, blob)


def test_a_flag_that_is_neither_true_nor_false_is_refused():
    @dataclass(frozen=True)
    class Flags(Message):
        flags: np.ndarray = array("x", ("n",), dtype="b1")

    blob = bytearray(encode(Flags(np.array([True]))))
    blob[-8] = 2
    with pytest.raises(MessageError, match="a flag must be 0 or 1"):
        decode(Flags, bytes(blob))


def test_bytes_left_over_are_refused():
    with pytest.raises(MessageError, match="left over"):
        decode(Full, encode(plain()) + bytes(8))


def test_numpy_scalars_travel_as_plain_ones():
    back = decode(Full, encode(plain(amount=np.float32(0.5), whole=np.int32(4), yes=np.bool_(True))))
    assert (back.amount, back.whole, back.yes) == (0.5, 4, True)
    assert decode(Full, encode(plain(amount=np.longdouble(0.25)))).amount == 0.25
