"""Proportional hazards with a small network in place of the linear predictor: its layers are numbers, not code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import array, count
from multicentre.survival.models.base import LATEST, SurvivalModel

Floats = NDArray[np.float64]
LARGEST_RATIO = 500.0
LARGEST_HAZARD = 1e9
LARGEST_WEIGHT = 1e6
FARTHEST = 1e6
SMALLEST_SPREAD = 1e-100
MOST_LAYERS = 4
WIDEST = 1024
SMALLEST_VARIANCE = 1e-5


class Layer(NamedTuple):
    """Parameters of one hidden layer, arrays or tensors.

    Parameters
    ----------
    matrix : array of shape (n_out, n_in)
    offset : array of shape (n_out,)
    gain, shift : array of shape (n_out,)
        Of the normalisation; empty where there is none.
    """

    matrix: Any
    offset: Any
    gain: Any
    shift: Any


def split_parameters(flat: Any, n_columns: int, hidden: Sequence[int], normalised: bool) -> tuple[list[Layer], Any]:
    """Return the hidden layers and the output's weights as views of one flat array or tensor of all parameters.

    Layer by layer come the matrix (row by row), the offset and, with a normalisation, gain and shift; the output's
    weights, shape (n_last,), come last. The output has no offset: the baseline hazard holds it.

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
    """Return how many numbers a network of these widths has.

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

    Each hidden layer is an affine map, layer normalisation (Ba, Kiros and Hinton, 2016) where there is one, and
    ``max(0, .)``.

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
    return np.asarray(np.clip(values @ out, -LARGEST_RATIO, LARGEST_RATIO), dtype=np.float64)


def _normalised(values: Floats) -> Floats:
    centred = values - values.mean(axis=1, keepdims=True)
    deviation = np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + SMALLEST_VARIANCE)
    return np.asarray(centred / deviation, dtype=np.float64)


@dataclass(frozen=True)
class Network(SurvivalModel):
    """S(t | x) = exp(-H0(t) exp(f((x - centre) / spread))), f a network of at most four hidden layers.

    A network that was trained with batch normalisation comes without: at prediction it is a fixed affine map, which
    the layer before it takes up.

    Parameters
    ----------
    times : array of shape (K,)
    centre, spread : array of shape (d,)
        Standardise the columns; a value farther than a million spreads from the centre counts as that far.
    hidden : array of shape (l,)
        Widths of the hidden layers, from 1 to 1024 each; none make the model linear.
    layer_norm : int
        1 with a layer normalisation in every hidden layer, else 0.
    parameters : array of shape (p,)
        Of all layers, in the order of :func:`split_parameters`.
    baseline : array of shape (K,)
        Cumulative hazard H0 where f is 0.

    Examples
    --------
    >>> network = Network(np.array([1.0]), np.zeros(2), np.ones(2), np.array([1], dtype=np.int32), 0,
    ...                   np.array([1.0, -1.0, 0.5, 2.0]), np.array([0.1]))
    >>> network.valid(2).survival(np.array([[0.0, 1.0]])).round(4).tolist()
    [[0.9048]]
    """

    times: Floats = array("times of the grid", ("K",), bound=LATEST)
    centre: Floats = array("values of the columns that become 0", ("d",), bound=LATEST)
    spread: Floats = array("by which the columns are divided", ("d",), bound=LATEST)
    hidden: NDArray[np.int32] = array("widths of the hidden layers", ("l",), dtype="i4", bound=WIDEST)
    layer_norm: int = count("1 with layer normalisation, else 0", bound=1)
    parameters: Floats = array("numbers of all layers", ("p",), bound=LARGEST_WEIGHT)
    baseline: Floats = array("cumulative hazard of the baseline on the grid", ("K",), bound=LARGEST_HAZARD)

    def log_hazard_ratio(self, X: Floats) -> Floats:
        """Return the network's output, shape (n,), at most 500 in magnitude."""
        rows = np.clip((X - self.centre) / self.spread, -FARTHEST, FARTHEST)
        return log_hazard_ratio(self.parameters, rows, self.hidden.tolist(), bool(self.layer_norm))

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        return np.exp(-np.exp(self.log_hazard_ratio(X))[:, None] * self.baseline)

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless widths and parameters fit the columns, and the baseline rises from 0 or above."""
        self._check_architecture(n_columns)
        if np.abs(self.parameters).max(initial=0.0) > LARGEST_WEIGHT:
            raise MessageError("a weight is too large", where="Network.parameters")
        if len(self.centre) != n_columns or (self.spread < SMALLEST_SPREAD).any():
            raise MessageError("the columns cannot be standardised", where="Network.spread")
        if self.baseline[0] < 0 or (np.diff(self.baseline) < 0).any() or self.baseline[-1] > LARGEST_HAZARD:
            raise MessageError("the baseline falls, or is too large", where="Network.baseline")

    def _check_architecture(self, n_columns: int) -> None:
        widths = self.hidden.tolist()
        if len(widths) > MOST_LAYERS or not all(1 <= width <= WIDEST for width in widths):
            raise MessageError("there are too many layers, or too wide ones", where="Network.hidden")
        if self.layer_norm not in (0, 1):
            raise MessageError("the normalisation is unknown", where="Network.layer_norm")
        if len(self.parameters) != count_parameters(n_columns, widths, bool(self.layer_norm)):
            raise MessageError("the parameters do not fit the layers", where="Network.parameters")
