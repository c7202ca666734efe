"""Entries of a ledger: what is written about a call and a value, and which values of other writers are refused."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from multicentre.core.calls import Call, Mark, Mask, Selection
from multicentre.core.messages import Nothing
from multicentre.core.requester import Requester, answering
from multicentre.privacy.ledger_entries import call_metadata, field_metadata, wrong_value
from support.toy_method import MeanSite

PEERS = ("lyon", "oslo", "roma")
PLAIN = {
    "study": "bones",
    "session": "0.1",
    "call": 4,
    "method": "toy-mean",
    "step": "residuals",
    "protection": "unmasked",
    "sites": 3,
    "peers": PEERS,
}


def call(**changes):
    values = {"study": "bones", "session": "0.1", "sequence": 4, "step": MeanSite.residuals, "request": Nothing()}
    return Call(**{**values, "peers": PEERS, "mask": None, **changes})


def test_a_call_is_named_with_its_sites():
    assert call_metadata(call()) == PLAIN


def test_what_applies_to_few_calls_is_added_where_it_applies():
    each = SimpleNamespace(method="toy-mean", name="residuals", addressed="each")
    selection = Selection("0.1", (1, 2))
    mark = Mark("ab" * 32, "cd" * 32, "ef" * 32)
    assert call_metadata(call(step=each)) == {**PLAIN, "addressed": "each"}
    assert call_metadata(call(selection=selection)) == {**PLAIN, "records": str(selection)}
    assert call_metadata(call(mark=mark)) == {
        **PLAIN,
        "request": "ab" * 32,
        "transcript": "cd" * 32,
        "run": "ef" * 32,
    }
    masked = {**PLAIN, "protection": "masked"}
    assert call_metadata(call(mask=Mask("first", 1, 2))) == masked
    assert call_metadata(call(mask=Mask("first", 1, 2, counted=True))) == {**masked, "counted": True}
    with answering(Requester("ada", "0f1e")):
        assert call_metadata(call()) == {**PLAIN, "requested_by": {"name": "ada", "fingerprint": "0f1e"}}


COUNTS = SimpleNamespace(records=31, patients=30)
ARRAY = np.asfortranarray(np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    ("value", "shape", "n_bytes", "raw"),
    [
        (ARRAY, [2, 3], 48, np.arange(6.0).tobytes()),
        (np.zeros(0, np.int32), [0], 0, b""),
        (np.array([True, False]), [2], 2, b"\x01\x00"),
        (2.5, [], 8, b"2.5"),
        (7, [], 8, b"7"),
        (np.float64(0.5), [], 8, repr(np.float64(0.5)).encode()),
        ("größe", [], 9, "'größe'".encode()),
        (("a", "b"), [], 10, b"('a', 'b')"),
    ],
)
def test_a_value_is_described_by_size_and_hash(value, shape, n_bytes, raw):
    assert field_metadata("Sums.total", value, COUNTS, "unmasked") == {
        "field": "Sums.total",
        "shape": shape,
        "bytes": n_bytes,
        "records": 31,
        "patients": 30,
        "sha256": hashlib.sha256(raw).hexdigest(),
    }


def test_the_hash_of_a_masked_value_is_not_written():
    """Guesses of the value could be compared with it."""
    described = field_metadata("Sums.total", ARRAY, SimpleNamespace(records=3, patients=None), "masked")
    assert (described["sha256"], described["records"], described["patients"]) == (None, 3, None)


# Values of other writers


TEXTS = "event study session method step protection addressed records run request transcript reason unit neighbours"
TEXTS += " previous key hash signature"
COUNT_VALUES = ([0, 1, 2**53 - 1], [-1, 2**53, 1.0, True, "1", None])
AMOUNTS = ([0, 0.5, 3, 1e300, None], [-1, -0.5, True, "1", float("nan")])
ENDS = ([{}, {"lyon": [3, "ab"]}], [None, [], {"lyon": 3}, {"lyon": [3]}, {"lyon": ["3", "ab"]}, {"lyon": [3, 4]}])
CASES = {
    **{name: (["", "text"], [None, 3, ["text"]]) for name in TEXTS.split()},
    **dict.fromkeys(("entry", "call", "sites"), COUNT_VALUES),
    **dict.fromkeys(("epsilon", "delta", "rho"), AMOUNTS),
    "time": (
        ["2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05.678-05:00"],
        ["2026-01-02T03:04:05", "2026-01-02", "yesterday", 3, None],
    ),
    "counted": ([True, False], [1, 0, None, "true"]),
    "peers": ([[], ["lyon"]], [None, "lyon", ("lyon",), ["lyon", 3], {"lyon": 1}]),
    "fields": (
        [
            [],
            [{}],
            [{"shape": [], "bytes": 8, "records": None, "patients": 3, "field": "x", "sha256": None}],
            [{"shape": [2, 0], "sha256": "ab", "more": NotImplemented}],
        ],
        [
            None,
            {},
            [3],
            [[]],
            [{"shape": None}],
            [{"shape": 3}],
            [{"shape": [-1]}],
            [{"shape": [2.0]}],
            [{"bytes": -1}],
            [{"records": "3"}],
            [{"patients": 1.5}],
            [{"field": None}],
            [{"field": 5}],
            [{"sha256": 5}],
            [{}, {"shape": "x"}],
        ],
    ),
    "noise": (
        [
            {"mechanism": "gaussian", "total": 2.0},
            {"mechanism": "laplace", "a": 1, "b": 0.5},
            {"mechanism": "gaussian"},
        ],
        [
            None,
            [],
            {},
            {"total": 2.0},
            {"mechanism": "uniform", "total": 2.0},
            {"mechanism": "gaussian", "total": 0},
            {"mechanism": "gaussian", "total": -1.0},
            {"mechanism": "gaussian", "total": "2"},
            {"mechanism": "gaussian", "total": 2.0, "other": None},
            {"mechanism": "gaussian", "total": float("nan")},
        ],
    ),
    "requested_by": (
        [{"name": "ada", "fingerprint": "0f1e"}, {"name": "ada", "fingerprint": None}, {"name": "ada"}],
        [None, "ada", {}, {"name": None}, {"name": 3, "fingerprint": "x"}, {"name": "ada", "fingerprint": 3}],
    ),
    "witnessed": ENDS,
    "shorter": ENDS,
    "recorded": ([[3, "ab"], [0, ""]], [None, [], [3], [3, 4], ["3", "ab"], [3, "ab", 1], (3, "ab")]),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, (good, _) in CASES.items() for value in good], ids=repr
)
def test_values_of_the_right_type_are_accepted(name, value):
    assert wrong_value({"event": "release", name: value}) == ""


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, (_, bad) in CASES.items() for value in bad], ids=repr
)
def test_values_of_another_type_are_named(name, value):
    assert wrong_value({name: value}).startswith(f"{name} must be ")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("study", "a text"),
        ("call", "a count"),
        ("rho", "a number of at least 0 or null"),
        ("time", "a time with its zone, in ISO 8601"),
        ("counted", "true or false"),
        ("peers", "a list of names"),
        ("fields", "a list of fields with shape and counts"),
        ("noise", "a mechanism and its multipliers above 0"),
        ("requested_by", "a name and a fingerprint"),
        ("witnessed", "ends of ledgers by site"),
        ("recorded", "the end of a ledger"),
    ],
)
def test_the_expected_type_is_named(name, kind):
    assert wrong_value({name: object()}) == f"{name} must be {kind}"


def test_one_wrong_value_is_named_and_other_names_are_free():
    assert wrong_value({"anything": object()}) == ""
    assert wrong_value({"call": "3", "study": 3, "noise": 1}) in ("call must be a count", "study must be a text")
