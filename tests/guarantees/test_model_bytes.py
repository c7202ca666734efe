"""Bytes that pretend to be a model neither crash a reader nor load; what loads is a model, whoever wrote it."""

import hashlib
from dataclasses import fields

import numpy as np
import pytest

from multicentre.core.messages import Message
from multicentre.core.wire import encode
from multicentre.errors import MessageError
from multicentre.survival.fitted_models import KINDS, CoxModel, HazardModel, Mixture, Network, Recalibrated, Regridded
from multicentre.survival.fitted_models.base import MAGIC, pack, unpack
from multicentre.survival.learners.tree import TreeSettings, fit_trees
from support.tree_patients import draw_data, lossless

N_COLUMNS = 5
N_MUTATIONS = 10_000
DIGEST = 32
ROUNDING = 1e-12
START = len(MAGIC) + DIGEST
PATIENTS = lossless(draw_data(), grid=np.array([5.0, 10.0, 20.0, 40.0]))
X = PATIENTS.rows[:30]
NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-300, -1e9, 1e12, 1.7e308, -1.7e308, 5e-324)


def forest():
    return fit_trees(PATIENTS, np.random.default_rng(0).random((3, 240)), TreeSettings(min_samples_leaf=20))


def cox():
    baseline = np.array([0.1, 0.2, 0.2, 0.9])
    return CoxModel(PATIENTS.agreed.times, np.array([0.5, 0.2, 0.0, -1.0, 0.1]), np.zeros(N_COLUMNS), baseline)


def hazard():
    nodes = [0, 5, 6], [0, 5, -1, -1, -1, -1, -1], [1, 3, -1, -1, -1, -1, -1], [2, 4, -1, -1, -1, -1, -1]
    roots, column, left, right = (np.array(values, dtype=np.int32) for values in nodes)
    cuts, leaves = np.array([0.5, 1.0, 0, 0, 0, 0, 0]), np.array([0, 0, 0.3, -0.2, 0.4, 0.1, -0.1])
    return HazardModel(PATIENTS.agreed.times, np.full(4, -2.0), roots, column, cuts, left, right, leaves)


def network():
    widths, baseline = np.array([3], dtype=np.int32), np.array([0.1, 0.2, 0.3, 0.4])
    parameters = np.random.default_rng(0).normal(size=N_COLUMNS * 3 + 3 + 6 + 3)
    return Network(PATIENTS.agreed.times, np.zeros(N_COLUMNS), np.ones(N_COLUMNS), widths, 1, parameters, baseline)


def mixture():
    return Mixture.of([cox(), forest().of_trees(np.array([0]), np.ones(1)), hazard()], np.ones(3), N_COLUMNS)


def recalibrated():
    return Recalibrated.of(mixture(), N_COLUMNS, 1.2, -0.5, 0.2, np.array([0.1, 0.2, 0.3, 0.4]))


def regridded():
    return Regridded.of(mixture(), np.array([1.0, 10.0, 12.0, 60.0]), N_COLUMNS)


MAKERS = (cox, forest, hazard, mixture, network, recalibrated, regridded)
SAMPLES = {type(make()).__name__: make for make in MAKERS}


def test_every_kind_of_model_is_among_those_whose_bytes_are_mutated():
    assert set(KINDS) == set(SAMPLES)
    for make in SAMPLES.values():
        check_curves(unpack(pack(make()), KINDS, N_COLUMNS))


def test_ten_thousand_mutated_byte_strings_do_not_load():
    rng = np.random.default_rng(1)
    blobs = [pack(make()) for make in SAMPLES.values()]
    n_refused = 0
    while n_refused < N_MUTATIONS:
        blob = blobs[n_refused % len(blobs)]
        changed = mutated(blob, rng)
        if changed not in blobs:
            with pytest.raises(MessageError):
                unpack(changed, KINDS, N_COLUMNS)
            n_refused += 1


@pytest.mark.parametrize("kind", sorted(SAMPLES))
def test_mutated_bytes_with_the_right_digest_make_a_model_or_do_not_load(kind):
    rng = np.random.default_rng(2)
    body = pack(SAMPLES[kind]())[START:]
    loaded = [survives(signed(mutated(body, rng))) for _ in range(1500)]
    assert not all(loaded)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(SAMPLES))
def test_mutated_numbers_with_the_right_digest_make_a_model_or_do_not_load(kind):
    rng = np.random.default_rng(3)
    model = SAMPLES[kind]()
    name = bytes([len(kind)]) + kind.encode()
    loaded = []
    for _ in range(1500):
        changed = with_other_number(model, rng)
        try:
            loaded.append(survives(signed(name + encode(changed))))
        except MessageError:
            loaded.append(False)
    assert any(loaded)
    assert not all(loaded)


@pytest.mark.parametrize("lengths", [[2**62] * 4 + [10], [-1, 11], [11], [5, 4]])
def test_lengths_that_do_not_fit_are_refused(lengths):
    from multicentre.survival.fitted_models.base import split

    with pytest.raises(MessageError):
        split(np.zeros(10, dtype=np.uint8), np.array(lengths, dtype=np.int64), KINDS, N_COLUMNS)


def test_a_mixture_within_a_mixture_is_refused():
    inner = pack(mixture())
    packed = np.frombuffer(inner, dtype=np.uint8)
    outer = Mixture(PATIENTS.agreed.times, N_COLUMNS, np.ones(1), packed, np.array([len(inner)]))
    with pytest.raises(MessageError, match="unknown kind"):
        unpack(pack(outer), KINDS, N_COLUMNS)


def test_models_within_models_without_end_are_refused():
    model = cox()
    for _ in range(400):
        model = Mixture.of([Regridded.of(model, model.times, N_COLUMNS)], np.ones(1), N_COLUMNS)
    with pytest.raises(MessageError):
        unpack(pack(model), KINDS, N_COLUMNS)


@pytest.mark.parametrize("beyond", [-(2**31), 2**31 - 1, -1])
@pytest.mark.parametrize("kind", ["Trees", "HazardModel"])
def test_a_root_beyond_the_nodes_is_refused_even_where_differences_overflow(kind, beyond):
    nodes = {name: np.full(2, -1, dtype=np.int32) for name in ("column", "left", "right")}
    nodes |= {"roots": np.array([0, 1, beyond], dtype=np.int32), "threshold": np.zeros(2)}
    leaves = {
        "Trees": {"shares": np.full(3, 1 / 3), "leaf": np.array([0, 1], dtype=np.int32), "curves": np.ones((2, 1))},
        "HazardModel": {"base": np.zeros(1), "value": np.zeros(2)},
    }
    with pytest.raises(MessageError):
        KINDS[kind](times=np.ones(1), **nodes, **leaves[kind]).valid(N_COLUMNS)


def mutated(blob, rng):
    """Return bytes with some changed, taken out, put in, moved, or cut off."""
    changed = bytearray(blob)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(changed))) if changed else 0
        length = int(rng.integers(1, 9))
        match rng.integers(6):
            case 0 if changed:
                changed[at] ^= 1 << int(rng.integers(8))
            case 1:
                changed[at : at + length] = rng.bytes(length)
            case 2:
                del changed[at : at + length]
            case 3:
                changed[at:at] = rng.bytes(length)
            case 4:
                del changed[at:]
            case _:
                other = int(rng.integers(len(changed) + 1))
                changed[at : at + length] = changed[other : other + length]
    return bytes(changed)


def with_other_number(model, rng):
    """Return the model with one to three numbers replaced by extreme or nearby ones."""
    values = {field.name: getattr(model, field.name) for field in fields(Message) + fields(type(model))}
    values = {name: value for name, value in values.items() if name != "patients"}
    for _ in range(rng.integers(1, 4)):
        name = rng.choice([name for name, value in values.items() if isinstance(value, float) or np.size(value)])
        values[name] = with_other_entry(values[name], rng)
    return type(model)(**values)


def with_other_entry(value, rng):
    if not isinstance(value, np.ndarray):
        return float(rng.choice(NUMBERS)) if isinstance(value, float) else int(value) + 1
    changed = value.copy()
    at = tuple(int(rng.integers(side)) for side in changed.shape)
    if changed.dtype.kind == "f":
        changed[at] = rng.choice([*NUMBERS, changed.flat[rng.integers(changed.size)]])
    else:
        limits, present = np.iinfo(changed.dtype), int(changed[at])
        near = [present - 1, present + 1, -1, 0, 1, 2, limits.min, limits.max, len(changed)]
        changed[at] = min(max(near[rng.integers(len(near))], limits.min), limits.max)
    return changed


def signed(body):
    return MAGIC + hashlib.sha256(body).digest() + body


def survives(blob):
    """Tell whether bytes load; what loads must behave as a model."""
    try:
        model = unpack(blob, KINDS, N_COLUMNS)
    except MessageError:
        return False
    check_curves(model)
    return True


def check_curves(model):
    curves = model.survival(X)
    assert curves.shape == (len(X), len(model.times))
    assert np.isfinite(curves).all()
    assert np.diff(curves, axis=1).max(initial=0.0) <= ROUNDING
    assert curves.min() >= 0.0
    assert curves.max() <= 1.0
    means = model.restricted_mean(X)
    assert np.isfinite(means).all()
    assert means.min() >= 0.0
    assert means.max() <= model.times[-1] * (1 + 1e-9)
