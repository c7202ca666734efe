"""A call is read only when it names a step that the site offers and is as declared."""

import json
from dataclasses import replace

import numpy as np
import pytest

from multicentre.core.calls import (
    Call,
    Entry,
    Mask,
    Place,
    Selection,
    decode_call,
    decode_selection,
    encode_call,
    encode_place,
    encode_selection,
)
from multicentre.core.noise_plan import Noise
from multicentre.core.wire import encode
from multicentre.errors import ConfigurationError, MessageError
from support.toy_method import Guess, MeanSite

MAX_LINE = 2**20

CALL = Call(
    "étude",
    "0.1",
    3,
    MeanSite.residuals,
    Guess(np.zeros(3), 1),
    ("a", "b"),
    Mask("first", 2, 2),
    Noise("gaussian", {"total": 2.5}),
    Selection("0.2.1", (1,), Selection("0.1", (0, 3))),
    Place(1, (Entry(0, 2, MeanSite.size, ("a", "b", "c"), "0e" * 32, "1f" * 32),), (("a", "2d" * 32),)),
)
PLACE = encode_place(CALL.place)
ENTRY = PLACE["missed"][0]


def offers(method):
    if method != MeanSite.method:
        raise ConfigurationError("the method is not installed at this site", where=method)
    return MeanSite


@pytest.mark.parametrize("bare", [{"mask": None}, {"noise": None}, {"mask": None, "noise": None, "selection": None}])
def test_a_call_without_mask_noise_or_selection_survives_the_wire(bare):
    back = decode_call(encode_call(replace(CALL, **bare)), offers)
    assert replace(back, request=CALL.request) == replace(CALL, **bare)


def test_a_call_survives_the_wire():
    back = decode_call(encode_call(CALL), offers)
    assert replace(back, request=CALL.request) == CALL
    assert np.array_equal(back.request.mean, CALL.request.mean)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", "generator"),
        ("step", "__init__"),
        ("step", ["residuals"]),
        ("method", 3),
        ("sequence", float("inf")),
        ("sequence", "3"),
        ("sequence", True),
        ("mask", "none"),
        ("mask", {}),
        ("mask", {"agreement": "first", "number": True, "threshold": 2}),
        ("mask", {"agreement": "first", "number": "2", "threshold": 2}),
        ("mask", {"agreement": "first", "number": 2, "threshold": 2, "code": 1}),
        ("mask", {"agreement": "first", "number": 2**31, "threshold": 2}),
        ("mask", {"agreement": "first", "number": 2, "threshold": 2**31}),
        ("mask", {"agreement": "first", "number": 2, "threshold": 2, "colluding": 2**31}),
        ("mask", {"agreement": "first", "number": 2, "threshold": 2, "colluding": 0.5}),
        ("mask", {"agreement": 1, "number": 2, "threshold": 2}),
        ("mask", {"agreement": "first", "number": 2, "threshold": 2, "counted": 1}),
        ("session", "0.1\n"),
        ("session", "x" * 257),
        ("selection", [["0.1\n", [0]]]),
        ("selection", [["x" * 257, [0]]]),
        ("selection", [["0.1", [0]], ["0.1", [True]]]),
        ("peers", ["a", 1]),
        ("noise", []),
        ("noise", {"mechanism": "gaussian"}),
        ("noise", {"mechanism": "none", "multipliers": {"total": 2.5}}),
        ("noise", {"mechanism": "gaussian", "multipliers": {"total": 0.0}}),
        ("noise", {"mechanism": "gaussian", "multipliers": {"total": float("nan")}}),
        ("noise", {"mechanism": "gaussian", "multipliers": {"total": "2.5"}}),
        ("noise", {"mechanism": "gaussian", "multipliers": 2.5}),
        ("selection", {}),
        ("selection", [["0.1"]]),
        ("selection", [["0.1", [0.5]]]),
        ("selection", [["0.1", 3]]),
        ("selection", [[1, [0]]]),
        ("selection", [["0.1", [0]]] * 9),
        ("peers", "ab"),
        ("peers", [1]),
        ("peers", [["a"]]),
        ("place", []),
        ("place", {}),
        ("place", PLACE | {"number": -1}),
        ("place", PLACE | {"number": True}),
        ("place", PLACE | {"code": 1}),
        ("place", PLACE | {"requests": [["a"]]}),
        ("place", PLACE | {"requests": [["a", "2d"]]}),
        ("place", PLACE | {"requests": [["a", "2D" * 32]]}),
        ("place", PLACE | {"requests": [[1, "2d" * 32]]}),
        ("place", PLACE | {"missed": [ENTRY[:6]]}),
        ("place", PLACE | {"missed": [[0.0, *ENTRY[1:]]]}),
        ("place", PLACE | {"missed": [[*ENTRY[:3], "none", *ENTRY[4:]]]}),
        ("place", PLACE | {"missed": [[*ENTRY[:4], ["a", 1], *ENTRY[5:]]]}),
        ("place", PLACE | {"missed": [[*ENTRY[:5], "1f", ENTRY[6]]]}),
        ("place", PLACE | {"missed": [[*ENTRY[:6], None]]}),
        ("study", None),
        ("code", "import os"),
    ],
)
def test_a_forged_call_is_refused(key, value):
    head, _, body = encode_call(CALL).partition(b"\n")
    line = json.loads(head)
    line[key] = value
    with pytest.raises(MessageError):
        decode_call(json.dumps(line).encode() + b"\n" + body, offers)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mask", {"agreement": "", "number": 2**31 - 1, "threshold": 2**31 - 1, "colluding": 2**31 - 1}),
        ("mask", {"agreement": "first", "number": 0, "threshold": 2}),
        ("mask", {"agreement": "first", "number": 0, "threshold": 2, "counted": True}),
        ("session", "x" * 256),
        ("selection", [["0.1", [0]]] * 8),
        ("selection", [["x" * 256, []]]),
        ("noise", {"mechanism": "laplace", "multipliers": {}}),
        ("peers", []),
    ],
)
def test_a_call_at_the_limits_is_read(key, value):
    head, _, body = encode_call(CALL).partition(b"\n")
    line = json.loads(head)
    line[key] = value
    call = decode_call(json.dumps(line).encode() + b"\n" + body, offers)
    assert json.loads(encode_call(call).partition(b"\n")[0]) == line | {
        "mask": {"colluding": 0, "counted": False} | line["mask"] if line["mask"] else None
    }


@pytest.mark.parametrize(("excess", "fits"), [(0, True), (1, False)])
def test_the_line_of_a_call_has_a_largest_size(excess, fits):
    """A site reads no more than a mebibyte before it has checked anything."""
    head, _, _ = encode_call(replace(CALL, study="")).partition(b"\n")
    study = "x" * (MAX_LINE - len(head) + excess)
    blob = encode_call(replace(CALL, study=study))
    assert blob.index(b"\n") == MAX_LINE + excess
    if fits:
        assert decode_call(blob, offers).study == study
    else:
        with pytest.raises(MessageError, match="must be readable and name a step"):
            decode_call(blob, offers)


def test_a_call_is_one_line_then_the_ask():
    head, _, body = encode_call(CALL).partition(b"\n")
    assert json.loads(head) == {
        "study": "étude",
        "session": "0.1",
        "sequence": 3,
        "method": "toy-mean",
        "step": "residuals",
        "peers": ["a", "b"],
        "mask": {"agreement": "first", "number": 2, "threshold": 2, "colluding": 0, "counted": False},
        "noise": {"mechanism": "gaussian", "multipliers": {"total": 2.5}},
        "selection": [["0.1", [0, 3]], ["0.2.1", [1]]],
        "place": {
            "number": 1,
            "missed": [[0, 2, "toy-mean", "size", ["a", "b", "c"], "0e" * 32, "1f" * 32]],
            "requests": [["a", "2d" * 32]],
        },
    }
    assert body == encode(CALL.request)


def test_a_selection_reads_from_the_inside_out_and_back():
    assert str(CALL.selection) == "folds 1 of 0.2.1, within folds 0, 3 of 0.1"
    assert decode_selection(encode_selection(CALL.selection)) == CALL.selection
    assert decode_selection([]) is None


@pytest.mark.parametrize("head", [b"", b"[]", b"null", b"3", b"[" * 200_000, b"\xff", b'{"study":1}'])
def test_what_is_no_call_is_refused(head):
    with pytest.raises(MessageError):
        decode_call(head + b"\n", offers)


def test_a_method_that_is_not_installed_is_named():
    blob = encode_call(CALL).replace(b"toy-mean", b"evil-one")
    with pytest.raises(ConfigurationError, match=r"^evil-one: the method is not installed"):
        decode_call(blob, offers)


def test_mutated_calls_do_not_crash():
    blob, rng = encode_call(CALL), np.random.default_rng(1)
    for _ in range(2000):
        mutated = bytearray(blob)
        mutated[rng.integers(len(blob))] = rng.integers(256)
        try:
            call = decode_call(bytes(mutated[: rng.integers(len(blob) // 2, 2 * len(blob))]), offers)
        except (MessageError, ConfigurationError):
            continue
        assert call.step is MeanSite.steps()[call.step.name]
