"""Scores of auto-encoders on held-out records: the message to the sites and the site part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array, arrays, count, flag
from multicentre.errors import ConfigurationError, DataError, MessageError
from multicentre.validation.scoring.views import MAE, MAX_COMPONENTS, RowModel, RowPart, RowScores, schema_fields
from multicentre_papers.baselines.vae.maths import Architecture, Model, decode_mean, encode_mean, noise_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RowEncoder(RowModel):
    """Auto-encoder as a message for scoring."""

    centre: Floats = array("centre of each column", ("d",))
    spread: Floats = array("divisor of each column", ("d",))
    channel_per_view: bool = flag("each view has a separate encoder and decoder")
    n_components: int = count("latent dimensions")
    hidden: NDArray[np.int64] = array("widths of hidden layers", ("l",), dtype="i8")
    matrices: dict[str, Floats] = arrays("weights of each layer", ("out", "in"))
    vectors: dict[str, Floats] = arrays("offsets of each layer, log noise variances of each decoder", ("out",))

    @property
    def architecture(self) -> Architecture:
        """Layers of the model."""
        channels = self.layout.sizes if self.channel_per_view else (self.layout.n_features,)
        return Architecture(channels, self.n_components, tuple(self.hidden.tolist()))

    def check_arrays(self) -> None:
        """Raise MessageError unless the weights have the shapes of the layers."""
        if not all(1 <= width <= MAX_COMPONENTS for width in (self.n_components, *self.hidden.tolist())):
            raise MessageError(
                f"widths of layers must lie in [1, {MAX_COMPONENTS}]; got other widths", where="RowEncoder.hidden"
            )
        layers, channels = self.architecture.layers, self.architecture.channels
        matrices = {name: (n_out, n_in) for name, n_in, n_out in layers}
        vectors = {name: (n_out,) for name, _, n_out in layers} | {noise_of(k): (d,) for k, d in enumerate(channels)}
        if _shapes(self.matrices) != matrices or _shapes(self.vectors) != vectors or (self.spread <= 0).any():
            raise MessageError(
                "weights must have the shapes of the layers, and spreads must be positive; got other values",
                where="RowEncoder",
            )

    def rebuild(self, X: Floats) -> Floats:
        """Return the reconstruction of every row, shape (n, d).

        Raises
        ------
        DataError
            A row has no complete channel.
        """
        rows = (X - self.centre) / self.spread
        complete = [~np.isnan(rows[:, block]).any(axis=1) for block in self.architecture.blocks]
        if not np.any(complete, axis=0).all():
            raise DataError(
                "every row must have at least one complete channel; got rows with missing entries in all channels",
                where="data",
                hint="Leave them out, or use FedMvPPCA.",
            )
        model = Model(self.matrices, self.vectors)
        latent = encode_mean(model, self.architecture, rows)
        return np.asarray(decode_mean(model, self.architecture, latent) * self.spread + self.centre)

    def log_likelihoods(self, X: Floats) -> Floats:
        """Raise ConfigurationError: auto-encoders have no density of rows."""
        raise ConfigurationError(
            "log_likelihood must be requested of a model with a density of rows; got an auto-encoder",
            where="log_likelihood",
        )


def _shapes(arrays_by_name: Mapping[str, Floats]) -> dict[str, tuple[int, ...]]:
    return {name: values.shape for name, values in arrays_by_name.items()}


class EncodedRowPart(RowPart):
    """Site part that scores auto-encoders."""

    method: ClassVar[str] = "score-encoders"
    revision: ClassVar[int] = 2
    kinds: ClassVar[Mapping[str, type[Any]]] = {"RowEncoder": RowEncoder}


def row_encoder(model: Any) -> RowEncoder:
    """Return a trained auto-encoder as a message to the sites."""
    return RowEncoder(
        **schema_fields(model.schema_),
        deviation=model._deviation,
        centre=model._centre,
        spread=model._spread,
        channel_per_view=bool(model.channel_per_view),
        n_components=int(model.architecture.n_components),
        hidden=np.array(model.architecture.hidden, dtype=np.int64),
        matrices=dict(model.model_.matrices),
        vectors=dict(model.model_.vectors),
    )


ENCODERS = RowScores(row_encoder, (MAE,), (MAE,), EncodedRowPart)
