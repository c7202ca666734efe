"""Layers, starts and predictions of auto-encoders, without torch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre_papers.baselines.vae.maths import (
    FIRST_LOG_VARIANCE,
    Architecture,
    decode_mean,
    draw_start,
    encode_mean,
)

widths = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)
hidden_widths = st.lists(st.integers(1, 4), max_size=2).map(tuple)


def test_layers_of_a_two_channel_network_with_one_hidden_layer():
    layers = Architecture((4, 3), 2, (6,)).layers
    assert [tuple(layer) for layer in layers[:5]] == [
        ("encoder-1/hidden-1", 4, 6),
        ("encoder-1/mean", 6, 2),
        ("encoder-1/log-variance", 6, 2),
        ("decoder-1/hidden-1", 2, 6),
        ("decoder-1/mean", 6, 4),
    ]
    assert [layer.name for layer in layers[5:]] == [layer.name.replace("-1/", "-2/") for layer in layers[:5]]


@given(widths, st.integers(1, 4), hidden_widths, st.integers(0, 99))
def test_start_has_every_layer_within_its_bound(channels, q, hidden, seed):
    architecture = Architecture(channels, q, hidden)
    start = draw_start(architecture, np.random.default_rng(seed))
    assert set(start.matrices) == {layer.name for layer in architecture.layers}
    for name, n_in, n_out in architecture.layers:
        assert start.matrices[name].shape == (n_out, n_in)
        assert start.vectors[name].shape == (n_out,)
        assert max(np.abs(start.matrices[name]).max(), np.abs(start.vectors[name]).max()) <= n_in**-0.5
    noise = [start.vectors[f"decoder-{k + 1}/noise"] for k in range(len(channels))]
    assert np.array_equal(np.concatenate(noise), np.full(sum(channels), FIRST_LOG_VARIANCE))


@given(widths, st.integers(1, 4), hidden_widths, st.integers(0, 99))
def test_predictions_are_those_of_rows_taken_one_by_one(channels, q, hidden, seed):
    architecture = Architecture(channels, q, hidden)
    random = np.random.default_rng(seed)
    model = draw_start(architecture, random)
    rows = random.standard_normal((3, sum(channels)))
    latent = encode_mean(model, architecture, rows)
    assert latent.shape == (3, q)
    assert decode_mean(model, architecture, latent).shape == rows.shape
    singly = np.vstack([encode_mean(model, architecture, row[None]) for row in rows])
    np.testing.assert_allclose(latent, singly, atol=1e-12)


def test_linear_maps_are_affine():
    architecture = Architecture((3,), 2)
    model = draw_start(architecture, np.random.default_rng(0))
    rows = np.random.default_rng(1).standard_normal((4, 3))
    expected = rows @ model.matrices["encoder-1/mean"].T + model.vectors["encoder-1/mean"]
    np.testing.assert_allclose(encode_mean(model, architecture, rows), expected)


def test_latent_position_is_the_mean_over_the_channels_that_a_row_has_in_full():
    architecture = Architecture((2, 3), 2)
    model = draw_start(architecture, np.random.default_rng(0))
    rows = np.random.default_rng(1).standard_normal((3, 5))
    parts = [
        rows[:, block] @ model.matrices[f"encoder-{k}/mean"].T + model.vectors[f"encoder-{k}/mean"]
        for k, block in ((1, slice(0, 2)), (2, slice(2, 5)))
    ]
    rows[1, :2] = np.nan
    rows[2, 4] = np.nan
    latent = encode_mean(model, architecture, rows)
    np.testing.assert_allclose(latent[0], (parts[0][0] + parts[1][0]) / 2)
    np.testing.assert_allclose(latent[1], parts[1][1])
    np.testing.assert_allclose(latent[2], parts[0][2])


@pytest.mark.slow
def test_non_linear_maps_agree_with_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed (extra: deep)")
    architecture = Architecture((4,), 2, (5, 3))
    model = draw_start(architecture, np.random.default_rng(0))
    rows = np.random.default_rng(1).standard_normal((6, 4))
    modules = []
    for layer in architecture.encoder(0):
        linear = torch.nn.Linear(layer.n_in, layer.n_out, dtype=torch.float64)
        linear.load_state_dict(
            {
                "weight": torch.from_numpy(model.matrices[layer.name]),
                "bias": torch.from_numpy(model.vectors[layer.name]),
            }
        )
        modules += [linear, torch.nn.Tanh()]
    expected = torch.nn.Sequential(*modules[:-1])(torch.from_numpy(rows)).detach().numpy()
    np.testing.assert_allclose(encode_mean(model, architecture, rows), expected, atol=1e-12)
