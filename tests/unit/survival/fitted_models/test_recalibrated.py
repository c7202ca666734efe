"""Recalibrated curves: ranks are kept, bytes are checked, nothing nests."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from multicentre.errors import MessageError
from multicentre.survival.fitted_models import KINDS, CoxModel, Mixture
from multicentre.survival.fitted_models.base import pack, unpack
from multicentre.survival.fitted_models.derived import Recalibrated

TIMES = np.array([1.0, 2.0, 5.0])
INNER = CoxModel(TIMES, np.array([1.0, -0.5]), np.zeros(2), np.array([0.1, 0.2, 0.4]))
MODEL = Recalibrated.of(INNER, 2, 0.7, -0.8, 0.1, np.array([0.05, 0.3, 0.5]))
X = np.random.default_rng(0).normal(size=(20, 2))


def test_curves_are_proportional_hazards_on_the_risk_and_ranks_are_kept():
    risk = -INNER.restricted_mean(X) / 5.0
    wanted = np.exp(-MODEL.baseline * np.exp(0.7 * (risk + 0.8) / 0.1)[:, None])
    np.testing.assert_allclose(MODEL.survival(X), wanted, rtol=1e-12)
    assert np.array_equal(np.argsort(MODEL.restricted_mean(X)), np.argsort(INNER.restricted_mean(X)))


def test_a_packed_model_comes_back():
    again = unpack(pack(MODEL), KINDS, 2)
    assert np.array_equal(again.survival(X), MODEL.survival(X))


@pytest.mark.parametrize(
    "changes",
    [
        {"baseline": np.array([0.3, 0.2, 0.5])},
        {"baseline": np.array([-0.1, 0.2, 0.5])},
        {"spread": 0.0},
        {"n_columns": 3},
        {"times": np.array([1.0, 2.0, 6.0])},
        {"slope": float("nan")},
        {"packed": np.frombuffer(pack(MODEL), dtype=np.uint8)},
        {"packed": np.zeros(3, dtype=np.uint8)},
    ],
)
def test_what_makes_no_model_is_refused(changes):
    with pytest.raises(MessageError):
        replace(MODEL, **changes).valid(2)


def test_a_mixture_of_recalibrated_models_is_not_recalibrated_again():
    mixture = Mixture.of([MODEL, INNER], np.ones(2), 2)
    with pytest.raises(MessageError, match="recalibrated again"):
        Recalibrated.of(mixture, 2, 0.7, -0.8, 0.1, MODEL.baseline).valid(2)


@pytest.mark.slow
def test_models_nested_without_end_are_refused():
    nested = MODEL
    for _ in range(400):
        nested = Recalibrated.of(Mixture.of([nested, INNER], np.ones(2), 2), 2, 0.7, -0.8, 0.1, MODEL.baseline)
    for outer in (nested, Mixture.of([nested], np.ones(1), 2)):
        with pytest.raises(MessageError):
            unpack(pack(outer), KINDS, 2)


def test_a_thousand_mutated_byte_strings_neither_crash_nor_load():
    rng, blob = np.random.default_rng(0), pack(MODEL)
    for _ in range(1000):
        changed = bytearray(blob)
        for place in rng.integers(0, len(blob), rng.integers(1, 4)):
            changed[place] ^= int(rng.integers(1, 256))
        cut = bytes(changed[: int(rng.integers(1, len(blob) + 1))] if rng.random() < 0.2 else changed)
        with pytest.raises(MessageError):
            unpack(cut, KINDS, 2)


def test_mutated_bytes_with_a_right_digest_make_a_model_or_are_refused():
    rng, blob = np.random.default_rng(1), pack(MODEL)
    refused = 0
    for _ in range(1000):
        body = bytearray(blob[36:])
        body[int(rng.integers(len(body)))] ^= int(rng.integers(1, 256))
        try:
            curves = unpack(blob[:4] + hashlib.sha256(body).digest() + bytes(body), KINDS, 2).survival(X)
        except MessageError:
            refused += 1
        else:
            assert ((curves >= 0) & (curves <= 1)).all()
    assert refused > 500
