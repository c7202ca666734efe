"""The network as a checked message: what it computes, and what it refuses."""

import dataclasses

import numpy as np
import pytest

from multicentre.core.wire import decode, encode
from multicentre.errors import MessageError
from multicentre.survival.fitted_models import KINDS, Network
from multicentre.survival.fitted_models.base import pack, unpack
from multicentre.survival.fitted_models.network import count_parameters, split_parameters


def draw(n_columns=3, hidden=(4, 2), layer_norm=1, seed=0):
    rng = np.random.default_rng(seed)
    n = count_parameters(n_columns, hidden, bool(layer_norm))
    return Network(
        np.array([1.0, 2.0, 4.0]),
        rng.normal(size=n_columns),
        rng.uniform(0.5, 2.0, n_columns),
        np.array(hidden, dtype=np.int32),
        layer_norm,
        rng.normal(size=n),
        np.array([0.1, 0.1, 0.4]),
    )


def by_hand(network, x):
    """One patient, one unit at a time."""
    flat, values = network.parameters.tolist(), ((x - network.centre) / network.spread).tolist()
    for width in network.hidden.tolist():
        matrix = [[flat.pop(0) for _ in values] for _ in range(width)]
        offset = [flat.pop(0) for _ in range(width)]
        values = [
            sum(m * v for m, v in zip(row, values, strict=True)) + b for row, b in zip(matrix, offset, strict=True)
        ]
        if network.layer_norm:
            gain, shift = ([flat.pop(0) for _ in range(width)] for _ in range(2))
            mean = sum(values) / width
            deviation = (sum((v - mean) ** 2 for v in values) / width + 1e-5) ** 0.5
            values = [(v - mean) / deviation * g + s for v, g, s in zip(values, gain, shift, strict=True)]
        values = [max(v, 0.0) for v in values]
    assert len(flat) == len(values)
    return sum(w * v for w, v in zip(flat, values, strict=True))


@pytest.mark.parametrize("hidden", [(), (1,), (4, 2), (3, 3, 3, 3)])
@pytest.mark.parametrize("layer_norm", [0, 1])
def test_the_forward_pass_is_the_one_by_hand(hidden, layer_norm):
    network = draw(hidden=hidden, layer_norm=layer_norm).valid(3)
    X = np.random.default_rng(1).normal(size=(6, 3))
    expected = np.array([by_hand(network, x) for x in X])
    np.testing.assert_allclose(network.log_hazard_ratio(X), expected, atol=1e-12)
    np.testing.assert_allclose(network.survival(X), np.exp(-np.outer(np.exp(expected), network.baseline)), atol=1e-12)


def test_the_wire_and_the_packing_keep_every_bit():
    network = draw()
    X = np.random.default_rng(1).normal(size=(6, 3))
    for again in (decode(Network, encode(network)), unpack(pack(network), KINDS, 3)):
        assert again.survival(X).tobytes() == network.survival(X).tobytes()


def test_far_values_and_large_weights_give_curves_between_0_and_1():
    network = draw(hidden=(8, 8, 8, 8))
    wild = dataclasses.replace(network, parameters=np.full(len(network.parameters), 1e6)).valid(3)
    with np.errstate(all="raise", under="ignore"):
        curves = wild.survival(np.array([[1e12, -1e12, 0.0], [0.0, 0.0, 0.0]]))
    assert ((curves >= 0) & (curves <= 1)).all()
    assert (np.diff(curves, axis=1) <= 0).all()


def test_the_empty_one_stands_for_none():
    assert Network.empty().is_empty
    assert decode(Network, encode(Network.empty())).is_empty


WRONG = {
    "a parameter too few": lambda n: {"parameters": n.parameters[1:]},
    "a parameter that is no number": lambda n: {"parameters": np.where(n.parameters == n.parameters[0], np.nan, 1.0)},
    "a parameter too large": lambda n: {"parameters": n.parameters * 1e9},
    "a width of 0": lambda n: {"hidden": np.array([4, 0], dtype=np.int32)},
    "a negative width": lambda n: {"hidden": np.array([-4, 2], dtype=np.int32)},
    "a width too large": lambda n: {"hidden": np.array([1025], dtype=np.int32)},
    "five layers": lambda n: {"hidden": np.array([1, 1, 1, 1, 1], dtype=np.int32)},
    "another normalisation": lambda n: {"layer_norm": 2},
    "no normalisation": lambda n: {"layer_norm": 0},
    "a spread of 0": lambda n: {"spread": np.array([1.0, 0.0, 1.0])},
    "a baseline that falls": lambda n: {"baseline": np.array([0.2, 0.1, 0.3])},
    "a baseline below 0": lambda n: {"baseline": np.array([-0.1, 0.1, 0.3])},
    "a baseline too large": lambda n: {"baseline": np.array([0.1, 0.1, 1e10])},
    "times that fall": lambda n: {"times": np.array([1.0, 4.0, 2.0])},
    "a column too few": lambda n: {"centre": n.centre[1:], "spread": n.spread[1:]},
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_network_is_refused(what):
    network = draw()
    network.valid(3)
    with pytest.raises(MessageError):
        dataclasses.replace(network, **WRONG[what](network)).valid(3)


def test_a_network_of_other_columns_is_refused():
    with pytest.raises(MessageError):
        draw().valid(4)


def test_the_layers_take_every_parameter_once():
    n = count_parameters(5, (4, 3), True)
    layers, out = split_parameters(np.arange(n), 5, (4, 3), True)
    taken = np.concatenate([piece.ravel() for layer in layers for piece in layer] + [out])
    np.testing.assert_array_equal(taken, np.arange(n))
