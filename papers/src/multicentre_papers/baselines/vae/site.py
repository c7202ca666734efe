"""Site part of the auto-encoders: local Adam steps and the reconstruction error.

Steps inherited from multiview/agreement.py of ``multicentre``: ``describe``, ``column_orders``, ``column_totals`` and
``column_squares``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, array, arrays, count, flag, number
from multicentre.core.steps import Release, step
from multicentre.data.blocks import place
from multicentre.data.records import BEHIND_AN_UPDATE
from multicentre.errors import DataError, NotConverged
from multicentre.multiview.agreement import Centred, Floats, MultiViewPart
from multicentre_papers.baselines.vae.maths import Architecture, Model, decode_mean, encode_mean
from multicentre_papers.baselines.vae.networks import train_locally

SUM = 2.0**36  # bound of every released sum


@dataclass(frozen=True)
class Task(Centred):
    """Model with its architecture, its units and the training settings of one round."""

    spread: Floats = array("divisor of each column", ("d",), unit="column's")
    deviation: Floats = array("standard deviation of each column", ("d",), unit="column's")
    channel_per_view: bool = flag("each view has a separate encoder and decoder")
    n_components: int = count("latent dimensions")
    hidden: NDArray[np.int64] = array("widths of hidden layers", ("l",), dtype="i8")
    matrices: dict[str, Floats] = arrays("weights of each layer", ("out", "in"))
    vectors: dict[str, Floats] = arrays("offsets of each layer, log noise variances of each decoder", ("out",))
    n_steps: int = count("Adam steps")
    learning_rate: float = number("step length of Adam")
    proximal: float = number("weight of the squared distance to the model of the round")
    seed: int = count("seed of the study")
    round_number: int = count("number of the round")

    @property
    def model(self) -> Model:
        """Parameters of the model."""
        return Model(self.matrices, self.vectors)

    @property
    def architecture(self) -> Architecture:
        """Layers of the model."""
        sizes = tuple(int(self.sizes[view]) for view in self.views)
        channels = sizes if self.channel_per_view else (sum(sizes),)
        return Architecture(channels, self.n_components, tuple(int(width) for width in self.hidden))


@dataclass(frozen=True)
class TrainedModel(Release):
    """Trained parameters of a site, weighted by its patients."""

    matrices: dict[str, Floats] = arrays("weights of each layer, times patients", ("out", "in"), bound=SUM)
    vectors: dict[str, Floats] = arrays("offsets and log noise variances, times patients", ("out",), bound=SUM)
    bound: float = number("lower bound of the log-likelihood before training, times patients", bound=SUM)
    n_patients: int = count("patients", unit="patients")


@dataclass(frozen=True)
class Errors(Release):
    """Absolute reconstruction errors of a site."""

    absolute: float = number("sum of |entry - reconstruction|", unit="standard deviations", bound=SUM)
    entries: int = count("entries", unit="entries")


class LocalTraining(MultiViewPart):
    """Site part of the federated VAE and mc-VAE."""

    method: ClassVar[str] = "fed-vae"
    lengths: ClassVar[Lengths] = {"out": "outputs of a layer", "in": "inputs of a layer"}

    @step(releases=TrainedModel, when="every round", summed=True)
    def train(self, request: Task) -> TrainedModel:
        """Train the received model on this site's rows."""
        rows, architecture, n = self._scaled(request), request.architecture, len(self.data)
        random = self.generator(request.seed, request.round_number)
        noise = random.standard_normal((request.n_steps, len(architecture.channels) * n, request.n_components))
        trained = train_locally(request.model, architecture, rows, noise, request.learning_rate, request.proximal)
        return TrainedModel(
            matrices={name: n * _finite(values) for name, values in trained.model.matrices.items()},
            vectors={name: n * _finite(values) for name, values in trained.model.vectors.items()},
            bound=n * trained.bound,
            n_patients=n,
            patients=n if self.masked or self.noised else min(n, BEHIND_AN_UPDATE),
        )

    @step(releases=Errors, when="at the end", summed=True)
    def evaluate(self, request: Task) -> Errors:
        """Sum the absolute reconstruction errors of the final model over this site's rows."""
        rows, architecture = self._scaled(request), request.architecture
        rebuilt = decode_mean(request.model, architecture, encode_mean(request.model, architecture, rows))
        errors = np.abs(rows - rebuilt) * (request.spread / request.deviation)
        return Errors(float(errors.sum()), errors.size, patients=len(self.data))

    def _scaled(self, request: Task) -> Floats:
        for view in request.views:
            absent = view not in self.data.views
            if absent or np.isnan(self.data.array(view)).any():
                raise DataError(
                    f"views must be complete for training; got {'an absent view' if absent else 'missing entries'}",
                    where=place(view, *(() if absent else self.data.partial_columns(view))),
                    hint="Use FedMvPPCA, which accepts missing views and entries, or leave the view out at every site.",
                )
        return (self.rows(request) - request.centre) / request.spread


def _finite(values: Floats) -> Floats:
    if not np.isfinite(values).all():
        raise NotConverged(
            "training diverged; parameters must stay finite", where="train", hint="Lower the learning rate."
        )
    return values
