"""Linear and non-linear auto-encoders as arrays: layers, initial parameters and predictions.

An auto-encoder is a set of channels, each with an encoder and a decoder. The VAE (Kingma and Welling, ICLR 2014) has
one channel that combines all views. The mc-VAE (Antelmi et al., ICML 2019) has one channel per view, and every decoder
uses the latent positions of every encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# As in the published mc-VAE code (noise_init_logvar=-3): a variance of 0.05, small against 1 of scaled columns.
FIRST_LOG_VARIANCE = -3.0


class Layer(NamedTuple):
    """Affine map from `n_in` to `n_out` numbers; `name` is the key of its weights and offsets."""

    name: str
    n_in: int
    n_out: int


class Model(NamedTuple):
    """Values of all parameters.

    Parameters
    ----------
    matrices : mapping of str to array, shape (n_out, n_in)
        Weights of every layer.
    vectors : mapping of str to array, shape (n_out,)
        Offsets of every layer, and the log noise variances of every channel's columns (``decoder-1/noise``).
    """

    matrices: Mapping[str, Any]
    vectors: Mapping[str, Any]


@dataclass(frozen=True)
class Architecture:
    """Layers of an auto-encoder.

    Parameters
    ----------
    channels : tuple of int
        Number of columns of every channel.
    n_components : int
        Latent dimensions q.
    hidden : tuple of int
        Widths of an encoder's hidden layers, from the data inwards; a decoder has them in reverse order. Empty for
        linear maps.

    Examples
    --------
    >>> [layer.name for layer in Architecture((3, 2), 1).layers][:3]
    ['encoder-1/mean', 'encoder-1/log-variance', 'decoder-1/mean']
    """

    channels: tuple[int, ...]
    n_components: int
    hidden: tuple[int, ...] = ()

    @property
    def blocks(self) -> list[slice]:
        """Columns of every channel in the stacked rows."""
        ends = np.cumsum(self.channels)
        return [slice(int(end) - d, int(end)) for end, d in zip(ends, self.channels, strict=True)]

    @property
    def layers(self) -> list[Layer]:
        """All layers, channel by channel; encoder before decoder."""
        layers = []
        for k, d in enumerate(self.channels):
            *inwards, last = self.encoder(k)
            layers += [*inwards, last, last._replace(name=f"encoder-{k + 1}/log-variance")]
            layers += _chain(f"decoder-{k + 1}", (self.n_components, *reversed(self.hidden), d))
        return layers

    def encoder(self, k: int) -> list[Layer]:
        """Return the layers from channel k to its latent mean; the log variance replaces the last layer."""
        return _chain(f"encoder-{k + 1}", (self.channels[k], *self.hidden, self.n_components))

    def decoder(self, k: int) -> list[Layer]:
        """Return the layers from a latent position to the mean of channel k."""
        return _chain(f"decoder-{k + 1}", (self.n_components, *reversed(self.hidden), self.channels[k]))


def _chain(stem: str, widths: Sequence[int]) -> list[Layer]:
    names = [f"{stem}/hidden-{j}" for j in range(1, len(widths) - 1)] + [f"{stem}/mean"]
    return [Layer(*entry) for entry in zip(names, widths[:-1], widths[1:], strict=True)]


def noise_of(k: int) -> str:
    """Return the key of the log noise variances of channel k."""
    return f"decoder-{k + 1}/noise"


def draw_start(architecture: Architecture, random: np.random.Generator) -> Model:
    """Draw weights and offsets uniformly within 1/sqrt(n_in) of zero; noise variances start at exp(-3)."""
    matrices, vectors = {}, {}
    for name, n_in, n_out in architecture.layers:
        bound = n_in**-0.5
        matrices[name] = random.uniform(-bound, bound, (n_out, n_in))
        vectors[name] = random.uniform(-bound, bound, n_out)
    for k, d in enumerate(architecture.channels):
        vectors[noise_of(k)] = np.full(d, FIRST_LOG_VARIANCE)
    return Model(matrices, vectors)


def run_layers(model: Model, layers: Sequence[Layer], values: Any, tanh: Callable[[Any], Any]) -> Any:
    """Apply layers to values of shape (n, n_in), with a hyperbolic tangent between consecutive layers."""
    for layer in layers[:-1]:
        values = tanh(apply_layer(model, layer.name, values))
    return apply_layer(model, layers[-1].name, values)


def apply_layer(model: Model, name: str, values: Any) -> Any:
    """Apply one affine map to an array or a tensor."""
    return values @ model.matrices[name].T + model.vectors[name]


def encode_mean(model: Model, architecture: Architecture, rows: Floats) -> Floats:
    """Return the latent position of every row, shape (n, q).

    The position is the mean of q(z | channel), averaged over the complete channels of the row. For the VAE this is the
    posterior mean; for the mc-VAE it summarises several posteriors.

    Parameters
    ----------
    model : Model
    architecture : Architecture
    rows : array of shape (n, d)
        Scaled rows; NaN where missing. Every row has at least one complete channel.
    """
    total = np.zeros((len(rows), architecture.n_components))
    n_channels = np.zeros((len(rows), 1))
    for k, block in enumerate(architecture.blocks):
        complete = ~np.isnan(rows[:, block]).any(axis=1)
        total[complete] += run_layers(model, architecture.encoder(k), rows[complete, block], np.tanh)
        n_channels[complete] += 1
    return total / n_channels


def decode_mean(model: Model, architecture: Architecture, latent: Floats) -> Floats:
    """Return the mean of p(rows | latent), shape (n, d)."""
    parts = [run_layers(model, architecture.decoder(k), latent, np.tanh) for k in range(len(architecture.channels))]
    return np.hstack(parts)
