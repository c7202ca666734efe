"""Evidence lower bound and its ascent by Adam; torch is imported at the first training step."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from multicentre.errors import MissingExtra
from multicentre_papers.baselines.vae.maths import Architecture, Floats, Model, apply_layer, noise_of, run_layers

if TYPE_CHECKING:
    import torch

_DECAY = (0.9, 0.999)  # decay rates and step constant as in Kingma and Ba, ICLR 2015
# Epsilon of Kingma and Ba: keeps the division finite where all gradients were 0.
_SMALLEST_STEP = 1e-8
_LOG_TWO_PI = math.log(2 * math.pi)


def require_torch() -> None:
    """Raise MissingExtra unless torch is installed.

    Raises
    ------
    MissingExtra
        torch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(
            "torch must be installed to train auto-encoders; it was not found",
            where="multicentre_papers.baselines.vae",
            hint="Run: pip install 'multicentre[deep]'.",
        )


@dataclass(frozen=True)
class Trained:
    """Result of one round of local training.

    Parameters
    ----------
    model : Model
        The new parameters.
    bound : float
        Evidence lower bound of the initial parameters of the round, mean over rows (one draw per row).
    """

    model: Model
    bound: float


def train_locally(
    model: Model, architecture: Architecture, rows: Floats, noise: Floats, learning_rate: float, proximal: float
) -> Trained:
    """Maximise the lower bound by Adam (Kingma and Ba, ICLR 2015) on all rows at once.

    The Adam moments start at zero, because the parameters have just been replaced by an average.

    Parameters
    ----------
    model : Model
        Initial parameters and centre of the proximal term.
    architecture : Architecture
    rows : array of shape (n, d)
        Scaled rows without missing entries.
    noise : array of shape (n_steps, n_channels * n, q)
        Standard normal draws, one per step, channel and row.
    learning_rate : float
        Step length of Adam.
    proximal : float
        Weight mu of ``mu / 2 * ||parameters - start||^2``, which FedProx (Li et al., MLSys 2020) adds to the mean
        negative bound; 0 for FedAvg.
    """
    require_torch()
    import torch

    start = torch.from_numpy(_flat(model))
    data, draws = torch.from_numpy(rows), torch.from_numpy(noise)
    current = start.clone().requires_grad_()
    first, second = torch.zeros_like(start), torch.zeros_like(start)
    bound = math.nan
    for t in range(1, len(draws) + 1):
        loss = negative_bound(_split(current, model), architecture, data, draws[t - 1])
        bound = -loss.item() if t == 1 else bound
        (gradient,) = torch.autograd.grad(loss, current)
        with torch.no_grad():
            if proximal:
                gradient.add_(current - start, alpha=proximal)
            first.lerp_(gradient, 1 - _DECAY[0])
            second.mul_(_DECAY[1]).addcmul_(gradient, gradient, value=1 - _DECAY[1])
            size = (second / (1 - _DECAY[1] ** t)).sqrt_().add_(_SMALLEST_STEP)
            current.addcdiv_(first, size, value=-learning_rate / (1 - _DECAY[0] ** t))
    return Trained(_as_arrays(_split(current.detach(), model)), bound)


def negative_bound(model: Model, architecture: Architecture, rows: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return minus the evidence lower bound, mean over rows, with one latent draw per channel and row.

    For every encoding channel k the bound is ``E_q(z|x_k) sum_l log p(x_l | z) - KL(q(z|x_k) || N(0, I))``; it is
    averaged over k (Antelmi et al., ICML 2019, equation 5). With one channel it is the bound of the VAE.

    Parameters
    ----------
    model : Model
        Parameters as tensors.
    architecture : Architecture
    rows : tensor of shape (n, d)
    noise : tensor of shape (n_channels * n, q)
        Standard normal draws.
    """
    import torch

    mean, log_variance = _posteriors(model, architecture, rows)
    latent = mean + torch.exp(0.5 * log_variance) * noise
    n_channels = len(architecture.channels)
    misfit = torch.zeros((), dtype=rows.dtype)
    for k, block in enumerate(architecture.blocks):
        log_noise = model.vectors[noise_of(k)]
        predicted = run_layers(model, architecture.decoder(k), latent, torch.tanh)
        distance = rows[:, block] - predicted.view(n_channels, len(rows), -1)
        misfit = misfit + (distance.square().sum((0, 1)) * torch.exp(-log_noise)).sum() + len(latent) * log_noise.sum()
    divergence = (mean.square() + torch.exp(log_variance) - log_variance - 1.0).sum()
    return 0.5 * ((misfit + divergence) / len(latent) + rows.shape[1] * _LOG_TWO_PI)


def _posteriors(model: Model, architecture: Architecture, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    means, log_variances = [], []
    for k, block in enumerate(architecture.blocks):
        values = rows[:, block]
        *inwards, last = architecture.encoder(k)
        for layer in inwards:
            values = torch.tanh(apply_layer(model, layer.name, values))
        means.append(apply_layer(model, last.name, values))
        log_variances.append(apply_layer(model, f"encoder-{k + 1}/log-variance", values))
    return torch.cat(means), torch.cat(log_variances)


def _flat(model: Model) -> Floats:
    return np.concatenate([values.ravel() for group in model for values in group.values()])


def _split(flat: torch.Tensor, like: Model) -> Model:
    shapes = [values.shape for group in like for values in group.values()]
    pieces = iter(flat.split([math.prod(shape) for shape in shapes]))
    matrices = {name: next(pieces).view(values.shape) for name, values in like.matrices.items()}
    return Model(matrices, {name: next(pieces) for name in like.vectors})


def _as_arrays(model: Model) -> Model:
    groups = [{name: values.numpy().copy() for name, values in group.items()} for group in model]
    return Model(*groups)
