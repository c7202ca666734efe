"""A call is read only when it names a step that the site offers and is as declared."""

import json
from dataclasses import replace

import numpy as np
import pytest

from multicentre.federation.engine import Call, Mask, Selection, decode_call, encode_call
from multicentre.federation.errors import ConfigurationError, MessageError
from multicentre.federation.noise import Noise
from toy_method import Guess, MeanSite

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
)


def offers(method):
    if method != MeanSite.method:
        raise ConfigurationError("the method is not installed at this site", where=method)
    return MeanSite


@pytest.mark.parametrize("bare", [{"mask": None}, {"noise": None}, {"mask": None, "noise": None, "selection": None}])
def test_a_call_without_mask_noise_or_selection_survives_the_wire(bare):
    back = decode_call(encode_call(replace(CALL, **bare)), offers)
    assert replace(back, ask=CALL.ask) == replace(CALL, **bare)


def test_a_call_survives_the_wire():
    back = decode_call(encode_call(CALL), offers)
    assert replace(back, ask=CALL.ask) == CALL
    assert np.array_equal(back.ask.mean, CALL.ask.mean)


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
