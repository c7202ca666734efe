"""DeepSurv (network for the log hazard ratio), trained on the weighted patients of one site; requires torch."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import MissingExtra
from multicentre.estimator.parameters import OneOf, ParameterRanges, Real, Where, check_parameters
from multicentre.survival.agreement.messages import Patients
from multicentre.survival.fitted_models.network import (
    MAX_HAZARD,
    MAX_LAYERS,
    MAX_RATIO,
    MAX_WEIGHT,
    SMALLEST_VARIANCE,
    WIDEST,
    Layer,
    Network,
    log_hazard_ratio,
    split_parameters,
)
from multicentre.survival.learners.cohort import Cohort, at_shown_times

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float64]
Norm = Literal["none", "layer", "batch"]
# Smallest number of events for training and for validation.
MIN_EVENTS = 3
# Weight of a batch in the running statistics of batch normalisation, the default of torch.
_MOMENTUM = 0.1


def require_torch() -> None:
    """Check that torch is installed.

    Raises
    ------
    MissingExtra
        torch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(
            "torch must be installed to train networks; it is missing",
            where="multicentre.survival",
            hint="Run: pip install 'multicentre[deep]'.",
        )


def _are_widths(value: Any) -> bool:
    """Return whether a value is a sequence of widths of hidden layers."""
    return np.ndim(value) == 1 and len(value) <= MAX_LAYERS and all(1 <= width <= WIDEST for width in value)


# Valid values of the settings of networks, for all methods that train them. Sites receive the numbers as floats.
NETWORK_RANGES: ParameterRanges = {
    "hidden_layer_sizes": Where(f"at most {MAX_LAYERS} widths from 1 to {WIDEST}", _are_widths),
    "norm": OneOf("none", "layer", "batch"),
    "dropout": Real(0, 0.9),
    "learning_rate": Real(1e-9, 1),
    "weight_decay": Real(0, 1),
    "batch_size": Real(2),
    "max_epochs": Real(1),
    "n_iter_no_change": Real(1),
    "validation_fraction": Real(0, 0.5),
}


@dataclass(frozen=True)
class NetworkSettings:
    """Layers of a network, and settings of its training.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default (32, 32)
        Widths of the hidden layers: at most four, from 1 to 1024 each.
    norm : {"batch", "layer", "none"}, default "batch"
        Normalisation between a layer's affine map and ``max(0, .)``.
    dropout : float, default 0.1
        Share of a hidden layer's values dropped in training, from 0 to 0.9.
    learning_rate : float, default 0.003
        Step length of AdamW, from 1e-9 to 1.
    weight_decay : float, default 0.0001
        Weight decay of AdamW, from 0 to 1.
    batch_size : int, default 256
        Largest number of patients per batch, from 2; risk sets are those of the batch.
    max_epochs : int, default 100
        Maximum number of passes over the patients.
    n_iter_no_change : int, default 8
        Number of passes without a better validation loss after which training stops.
    validation_fraction : float, default 0.2
        Share of patients held out for validation, from 0 to 0.5. If fewer than three of them have an event, all passes
        are made.

    Raises
    ------
    ConfigurationError
        A setting is out of range.

    Examples
    --------
    >>> NetworkSettings(hidden_layer_sizes=(16,), norm="layer").learning_rate
    0.003
    """

    hidden_layer_sizes: Sequence[int] = (32, 32)
    norm: Norm = "batch"
    dropout: float = 0.1
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    batch_size: int = 256
    max_epochs: int = 100
    n_iter_no_change: int = 8
    validation_fraction: float = 0.2

    def __post_init__(self) -> None:
        check_parameters(vars(self), NETWORK_RANGES)


def fit_network(patients: Patients, weights: Floats, settings: NetworkSettings, seed: int) -> Network:
    """Train DeepSurv (Katzman et al., 2018) on weighted patients, with early stopping on held-out patients.

    Parameters
    ----------
    patients : Patients
    weights : array of shape (n,)
        Non-negative weight of every patient, on any scale. Patients of weight 0 are not used.
    settings : NetworkSettings
    seed : int
        Seed of the initial parameters, the held-out patients, the batches and the dropout. The same seed gives the same
        network.

    Returns
    -------
    Network
        Network with the smallest validation loss, and the weighted Breslow estimate of the baseline hazard. It is empty
        if fewer than three training patients have an event, or training diverges.

    Raises
    ------
    MissingExtra
        torch is not installed.

    References
    ----------
    Katzman, Shaham, Cloninger, Bates, Jiang and Kluger, DeepSurv, BMC Medical Research Methodology 2018.
    """
    require_torch()
    used = np.flatnonzero(weights > 0)
    rng = np.random.default_rng(seed)
    held_out = rng.random(len(used)) < settings.validation_fraction
    if int(patients.happened[used[~held_out]].sum()) < MIN_EVENTS:
        return Network.empty()
    training, validation, everyone = (
        Cohort.of(patients.standardised[rows], patients.time[rows], patients.happened[rows], weights[rows])
        for rows in (used[~held_out], used[held_out], used)
    )
    n_columns = training.rows.shape[1]
    start = draw_parameters(n_columns, settings, rng)
    with one_thread():
        parameters = _train_until_worse(Training(start, n_columns, settings, seed), training, validation, settings)
    return _network(parameters, patients, settings, everyone)


def draw_parameters(n_columns: int, settings: NetworkSettings, rng: np.random.Generator) -> Floats:
    """Draw initial parameters: weights and offsets uniform within 1/sqrt(n_in) of 0, gains 1 and shifts 0.

    Examples
    --------
    >>> start = draw_parameters(4, NetworkSettings(hidden_layer_sizes=(3,), norm="none"), np.random.default_rng(0))
    >>> start.shape, bool(np.abs(start[:15]).max() <= 0.5)
    ((18,), True)
    """
    pieces = []
    for n_in, n_out in pairwise([n_columns, *settings.hidden_layer_sizes]):
        pieces.append(rng.uniform(-1.0, 1.0, n_in * n_out + n_out) / math.sqrt(n_in))
        if settings.norm != "none":
            pieces += [np.ones(n_out), np.zeros(n_out)]
    n_last = [n_columns, *settings.hidden_layer_sizes][-1]
    return np.concatenate([*pieces, rng.uniform(-1.0, 1.0, n_last) / math.sqrt(n_last)])


class Training:
    """Training of a network on the negative log partial likelihood, by AdamW (Loshchilov and Hutter, ICLR 2019).

    Parameters
    ----------
    start : array of shape (p,)
        Parameters, in the order of :func:`multicentre.survival.fitted_models.network.split_parameters`.
    settings : NetworkSettings
    n_columns : int
    settings : NetworkSettings
    seed : int
        Seed of batches and dropout.
    proximal : float, default 0.0
        Weight mu of FedProx's ``mu / 2 * ||parameters - start||^2`` in the loss (Li et al., MLSys 2020).
    """

    def __init__(
        self, start: Floats, n_columns: int, settings: NetworkSettings, seed: int, *, proximal: float = 0.0
    ) -> None:
        import torch

        self._n_columns = n_columns
        self._settings = settings
        self._proximal = proximal
        self._start = torch.tensor(start)
        self._flat = self._start.clone().requires_grad_()
        self._random = torch.Generator().manual_seed(seed)
        self._statistics = [(torch.zeros(n).double(), torch.ones(n).double()) for n in settings.hidden_layer_sizes]
        self._optimiser = torch.optim.AdamW(
            [self._flat], lr=settings.learning_rate, weight_decay=settings.weight_decay, foreach=False
        )

    def pass_over(self, cohort: Cohort) -> None:
        """Take one step per batch of patients; batches without an event are skipped."""
        import torch

        order = torch.randperm(len(cohort), generator=self._random).numpy()
        for chunk in np.array_split(order, math.ceil(len(cohort) / self._settings.batch_size)):
            batch = cohort.take(np.sort(chunk))
            if len(batch) < 2 or not batch.n_events:
                continue
            self._optimiser.zero_grad()
            loss = negative_log_likelihood(self._output(batch.rows, training=True), batch)
            if self._proximal:
                loss = loss + 0.5 * self._proximal * (self._flat - self._start).square().sum()
            loss.backward()
            self._optimiser.step()

    def loss(self, cohort: Cohort) -> float:
        """Return the negative log partial likelihood per event, without dropout."""
        import torch

        with torch.no_grad():
            return float(negative_log_likelihood(self._output(cohort.rows, training=False), cohort))

    def parameters(self) -> Floats:
        """Return the parameters, shape (p,); batch normalisation is folded into the affine maps."""
        flat: Floats = self._flat.detach().numpy().copy()
        if self._settings.norm != "batch":
            return flat
        layers, out = split_parameters(flat, self._n_columns, self._settings.hidden_layer_sizes, True)
        pieces = []
        for layer, (mean, variance) in zip(layers, self._statistics, strict=True):
            scale = layer.gain / np.sqrt(variance.numpy() + SMALLEST_VARIANCE)
            pieces += [(layer.matrix * scale[:, None]).ravel(), (layer.offset - mean.numpy()) * scale + layer.shift]
        return np.concatenate([*pieces, out])

    def _output(self, rows: Floats, *, training: bool) -> torch.Tensor:
        import torch

        normalised = self._settings.norm != "none"
        layers, out = split_parameters(self._flat, self._n_columns, self._settings.hidden_layer_sizes, normalised)
        values = torch.from_numpy(rows)
        for layer, statistics in zip(layers, self._statistics, strict=True):
            values = torch.addmm(layer.offset, values, layer.matrix.T)
            values = torch.relu(self._normalised(values, layer, statistics, training=training))
            if training and self._settings.dropout:
                drawn = torch.rand(values.shape, generator=self._random, dtype=values.dtype)
                values = values * (drawn >= self._settings.dropout) / (1.0 - self._settings.dropout)
        return torch.clamp(values @ out, -MAX_RATIO, MAX_RATIO)

    def _normalised(
        self, values: torch.Tensor, layer: Layer, statistics: tuple[torch.Tensor, torch.Tensor], *, training: bool
    ) -> torch.Tensor:
        from torch.nn.functional import batch_norm, layer_norm

        if self._settings.norm == "layer":
            return layer_norm(values, values.shape[1:], layer.gain, layer.shift, SMALLEST_VARIANCE)
        if self._settings.norm == "batch":
            return batch_norm(values, *statistics, layer.gain, layer.shift, training, _MOMENTUM, SMALLEST_VARIANCE)
        return values


def negative_log_likelihood(log_risk: torch.Tensor, cohort: Cohort) -> torch.Tensor:
    """Return the negative weighted log partial likelihood (Breslow) per weight of an event, as a torch tensor."""
    import torch

    at_risk = torch.logcumsumexp(log_risk + torch.from_numpy(np.log(cohort.weights)), 0)
    mass = torch.from_numpy(np.where(cohort.happened, cohort.weights, 0.0))
    return (mass * (at_risk[torch.from_numpy(cohort.last)] - log_risk)).sum() / mass.sum()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread: batches are small, and the order of additions is fixed."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train_until_worse(training: Training, cohort: Cohort, validation: Cohort, settings: NetworkSettings) -> Floats:
    best, least, best_epoch = training.parameters(), math.inf, 0
    for epoch in range(1, settings.max_epochs + 1):
        training.pass_over(cohort)
        if validation.n_events < MIN_EVENTS:
            continue
        loss = training.loss(validation)
        if loss < least:
            best, least, best_epoch = training.parameters(), loss, epoch
        if not math.isfinite(loss) or epoch - best_epoch >= settings.n_iter_no_change:
            break
    return best if math.isfinite(least) else training.parameters()


def _network(parameters: Floats, patients: Patients, settings: NetworkSettings, cohort: Cohort) -> Network:
    """Return the network with its baseline, or an empty one if a number is out of bounds."""
    agreed, has_layer_norm = patients.agreed, settings.norm == "layer"
    if not np.abs(parameters).max() <= MAX_WEIGHT:
        return Network.empty()
    log_risk = log_hazard_ratio(parameters, cohort.rows, settings.hidden_layer_sizes, has_layer_norm)
    baseline = at_shown_times(cohort.baseline(log_risk, patients.times), patients, 0.0)
    if not baseline[-1] <= MAX_HAZARD:
        return Network.empty()
    return Network(
        agreed.times,
        agreed.centre,
        agreed.spread,
        np.array(settings.hidden_layer_sizes, dtype=np.int32),
        int(has_layer_norm),
        parameters,
        baseline,
        patients=len(patients),
    )
