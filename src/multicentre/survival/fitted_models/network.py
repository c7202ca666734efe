"""Proportional hazards model with a small network instead of the linear predictor, stored as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array, count
from multicentre.errors import MessageError
from multicentre.survival.fitted_models.base import MAX_TIME, MAX_VALUE, SurvivalModel

Floats = NDArray[np.float64]
# Largest magnitude of a log hazard ratio, so that exp does not overflow.
MAX_RATIO = 500.0
# Largest magnitudes of the cumulative hazard, of parameters and of standardised columns.
MAX_HAZARD = 1e9
# MAX_WEIGHT and FARTHEST: five layers of 1024 columns stay below (1e6 * 1025)^5 * 1e6, about 1e51, in a double.
MAX_WEIGHT = 1e6
FARTHEST = 1e6
# Smallest divisor of a column.
SMALLEST_SPREAD = 1e-100
# Largest number of hidden layers, and largest width of a layer.
MAX_LAYERS = 4
# Three matrices between four layers of this width hold 3 * 2^20 doubles, 24 MiB.
WIDEST = 1024
# Added to variances in normalisations, the default of torch.
SMALLEST_VARIANCE = 1e-5


class Layer(NamedTuple):
    """Parameters of one hidden layer, arrays or tensors.

    Parameters
    ----------
    matrix : array of shape (n_out, n_in)
    offset : array of shape (n_out,)
    gain, shift : array of shape (n_out,)
        Gain and shift of the normalisation; empty without normalisation.
    """

    matrix: Any
    offset: Any
    gain: Any
    shift: Any


def split_parameters(flat: Any, n_columns: int, hidden: Sequence[int], normalised: bool) -> tuple[list[Layer], Any]:
    """Return the hidden layers and the output's weights as views of one flat array or tensor of all parameters.

    The order is, per layer: matrix (row by row), offset and, with a normalisation, gain and shift; then the output's
    weights, shape (n_last,). The output has no offset, because the baseline hazard contains it.

    Examples
    --------
    >>> layers, out = split_parameters(np.arange(10.0), 3, (2,), False)
    >>> layers[0].matrix.tolist(), layers[0].offset.tolist(), out.tolist()
    ([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [6.0, 7.0], [8.0, 9.0])
    """
    ends = list(accumulate(_lengths(n_columns, hidden, normalised)))
    pieces = iter([flat[start:end] for start, end in zip([0, *ends], ends, strict=False)])
    layers = [
        Layer(next(pieces).reshape(n_out, n_in), next(pieces), next(pieces), next(pieces))
        for n_in, n_out in pairwise([n_columns, *hidden])
    ]
    return layers, next(pieces)


def count_parameters(n_columns: int, hidden: Sequence[int], normalised: bool) -> int:
    """Return the number of parameters of a network of these widths.

    Examples
    --------
    >>> count_parameters(3, (2,), False), count_parameters(3, (2,), True), count_parameters(3, (), False)
    (10, 14, 3)
    """
    return sum(_lengths(n_columns, hidden, normalised))


def _lengths(n_columns: int, hidden: Sequence[int], normalised: bool) -> list[int]:
    widths = [n_columns, *hidden]
    lengths = []
    for n_in, n_out in pairwise(widths):
        lengths += [n_in * n_out, n_out, n_out * normalised, n_out * normalised]
    return [*lengths, widths[-1]]


def log_hazard_ratio(flat: Floats, rows: Floats, hidden: Sequence[int], normalised: bool) -> Floats:
    """Return the network's output for standardised rows, shape (n,), at most 500 in magnitude.

    Each hidden layer is an affine map, an optional layer normalisation (Ba, Kiros and Hinton, 2016), and ``max(0, .)``.

    Examples
    --------
    >>> log_hazard_ratio(np.array([1.0, -1.0, 0.5, 2.0]), np.array([[3.0, 1.0], [0.0, 1.0]]), (1,), False).tolist()
    [5.0, 0.0]
    """
    layers, out = split_parameters(flat, rows.shape[1], hidden, normalised)
    values = rows
    for layer in layers:
        values = values @ layer.matrix.T + layer.offset
        if normalised:
            values = _normalised(values) * layer.gain + layer.shift
        values = np.maximum(values, 0.0)
    return np.asarray(np.clip(values @ out, -MAX_RATIO, MAX_RATIO), dtype=np.float64)


def _normalised(values: Floats) -> Floats:
    centred = values - values.mean(axis=1, keepdims=True)
    deviation = np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + SMALLEST_VARIANCE)
    return np.asarray(centred / deviation, dtype=np.float64)


@dataclass(frozen=True)
class Network(SurvivalModel):
    """S(t | x) = exp(-H0(t) exp(f((x - centre) / spread))), with a network f of at most four hidden layers.

    Batch normalisation of the training is folded into the affine map of its layer.

    Parameters
    ----------
    times : array of shape (K,)
    centre, spread : array of shape (d,)
        Location and scale of the columns; standardised values are cut at a million.
    hidden : array of shape (l,)
        Widths of the hidden layers, from 1 to 1024 each; without hidden layers the model is linear.
    layer_norm : int
        1 with a layer normalisation in every hidden layer, else 0.
    parameters : array of shape (p,)
        Parameters of all layers, in the order of :func:`split_parameters`.
    baseline : array of shape (K,)
        Cumulative hazard H0 at f = 0.

    Examples
    --------
    >>> network = Network(np.array([1.0]), np.zeros(2), np.ones(2), np.array([1], dtype=np.int32), 0,
    ...                   np.array([1.0, -1.0, 0.5, 2.0]), np.array([0.1]))
    >>> network.valid(2).survival(np.array([[0.0, 1.0]])).round(4).tolist()
    [[0.9048]]
    """

    times: Floats = array("times of the grid", ("K",), bound=MAX_TIME)
    centre: Floats = array("values of the columns that are standardised to 0", ("d",), bound=MAX_VALUE)
    spread: Floats = array("divisors of the columns", ("d",), bound=MAX_VALUE)
    hidden: NDArray[np.int32] = array("widths of the hidden layers", ("l",), dtype="i4", bound=WIDEST)
    layer_norm: int = count("1 with layer normalisation, else 0", bound=1)
    parameters: Floats = array("parameters of all layers", ("p",), bound=MAX_WEIGHT)
    baseline: Floats = array("cumulative hazard of the baseline on the grid", ("K",), bound=MAX_HAZARD)

    def log_hazard_ratio(self, X: Floats) -> Floats:
        """Return the network's output, shape (n,), at most 500 in magnitude."""
        rows = np.clip((X - self.centre) / self.spread, -FARTHEST, FARTHEST)
        return log_hazard_ratio(self.parameters, rows, self.hidden.tolist(), bool(self.layer_norm))

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        return np.exp(-np.exp(self.log_hazard_ratio(X))[:, None] * self.baseline)

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless widths and parameters match the columns, and the baseline does not decrease."""
        self._check_architecture(n_columns)
        if np.abs(self.parameters).max(initial=0.0) > MAX_WEIGHT:
            raise MessageError(
                f"parameters must be at most {MAX_WEIGHT:g} in magnitude; got larger ones",
                where="Network.parameters",
            )
        if len(self.centre) != n_columns or (self.spread < SMALLEST_SPREAD).any():
            raise MessageError(
                f"the model must have {n_columns} columns of positive spread; got {len(self.centre)}, or a smaller "
                "spread",
                where="Network.spread",
            )
        if self.baseline[0] < 0 or (np.diff(self.baseline) < 0).any() or self.baseline[-1] > MAX_HAZARD:
            raise MessageError(
                f"baseline must lie between 0 and {MAX_HAZARD:g} and not decrease; got another",
                where="Network.baseline",
            )

    def _check_architecture(self, n_columns: int) -> None:
        widths = self.hidden.tolist()
        if len(widths) > MAX_LAYERS or not all(1 <= width <= WIDEST for width in widths):
            raise MessageError(
                f"hidden must hold at most {MAX_LAYERS} widths from 1 to {WIDEST}; got {widths[:10]}",
                where="Network.hidden",
            )
        if self.layer_norm not in (0, 1):
            raise MessageError(f"layer_norm must be 0 or 1; got {self.layer_norm}", where="Network.layer_norm")
        if len(self.parameters) != count_parameters(n_columns, widths, bool(self.layer_norm)):
            raise MessageError(
                f"the number of parameters must match the layers; got {len(self.parameters)}",
                where="Network.parameters",
            )
