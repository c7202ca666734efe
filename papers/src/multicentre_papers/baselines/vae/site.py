"""What runs beside the patients: some steps of Adam on the site's own rows, and the error of the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.blocks import place
from multicentre.data.minimum_counts import BEHIND_AN_UPDATE
from multicentre.federation.errors import DataError, NotConverged
from multicentre.federation.messages import Lengths, array, arrays, count, flag, number
from multicentre.federation.steps import Release, step
from multicentre.multiview.agreement import Centred, Floats, MultiViewPart
from multicentre_papers.baselines.vae.maths import Architecture, Model, decode_mean, encode_mean
from multicentre_papers.baselines.vae.networks import train_locally

SUM = 2.0**36


@dataclass(frozen=True)
class Task(Centred):
    """A model, what it takes to read it, and how to train it for one round."""

    spread: Floats = array("by which each column is divided", ("d",), unit="column's")
    deviation: Floats = array("standard deviation of each column", ("d",), unit="column's")
    channel_a_view: bool = flag("each view has an encoder and a decoder of its own")
    n_components: int = count("latent dimensions")
    hidden: NDArray[np.int64] = array("widths of hidden layers", ("l",), dtype="i8")
    matrices: dict[str, Floats] = arrays("weights of each layer", ("out", "in"))
    vectors: dict[str, Floats] = arrays("offsets of each layer, log noise variances of each decoder", ("out",))
    n_steps: int = count("steps of Adam")
    learning_rate: float = number("step length of Adam")
    proximal: float = number("weight of the distance to the model that was sent")
    seed: int = count("seed of the study")
    round_number: int = count("number of the round")

    @property
    def model(self) -> Model:
        """The parameters, for the mathematics."""
        return Model(self.matrices, self.vectors)

    @property
    def architecture(self) -> Architecture:
        """Which layers the model has."""
        sizes = tuple(int(self.sizes[view]) for view in self.views)
        channels = sizes if self.channel_a_view else (sum(sizes),)
        return Architecture(channels, self.n_components, tuple(int(width) for width in self.hidden))


@dataclass(frozen=True)
class TrainedModel(Release):
    """A site's trained parameters, weighted with its patients."""

    matrices: dict[str, Floats] = arrays("weights of each layer, times patients", ("out", "in"), bound=SUM)
    vectors: dict[str, Floats] = arrays("offsets and log noise variances, times patients", ("out",), bound=SUM)
    bound: float = number("lower bound of the log-likelihood before training, times patients", unit="nats", bound=SUM)
    n_patients: int = count("patients", unit="patients")


@dataclass(frozen=True)
class Errors(Release):
    """How far reconstructions are from the entries."""

    absolute: float = number("sum of |entry - reconstruction|", unit="standard deviations", bound=SUM)
    entries: int = count("entries", unit="entries")


class LocalTraining(MultiViewPart):
    """The site part of the federated VAE and mc-VAE."""

    method: ClassVar[str] = "fed-vae"
    lengths: ClassVar[Lengths] = {"out": "outputs of a layer", "in": "inputs of a layer"}

    @step(releases=TrainedModel, when="every round", summed=True)
    def train(self, ask: Task) -> TrainedModel:
        """Train the model that was sent on this site's rows for some steps."""
        rows, architecture, n = self._scaled(ask), ask.architecture, len(self.data)
        random = self.generator(ask.seed, ask.round_number)
        noise = random.standard_normal((ask.n_steps, len(architecture.channels) * n, ask.n_components))
        trained = train_locally(ask.model, architecture, rows, noise, ask.learning_rate, ask.proximal)
        return TrainedModel(
            matrices={name: n * _finite(values) for name, values in trained.model.matrices.items()},
            vectors={name: n * _finite(values) for name, values in trained.model.vectors.items()},
            bound=n * trained.bound,
            n_patients=n,
            patients=n if self.masked or self.noised else min(n, BEHIND_AN_UPDATE),
        )

    @step(releases=Errors, when="at the end", summed=True)
    def evaluate(self, ask: Task) -> Errors:
        """Sum the absolute errors with which the final model reconstructs this site's rows."""
        rows, architecture = self._scaled(ask), ask.architecture
        rebuilt = decode_mean(ask.model, architecture, encode_mean(ask.model, architecture, rows))
        errors = np.abs(rows - rebuilt) * (ask.spread / ask.deviation)
        return Errors(float(errors.sum()), errors.size, patients=len(self.data))

    def _scaled(self, ask: Task) -> Floats:
        for view in ask.views:
            absent = view not in self.data.views
            if absent or np.isnan(self.data.array(view)).any():
                lack = "is absent" if absent else "has missing entries"
                raise DataError(
                    f"the view {lack}, and neither VAE nor mc-VAE is trained on incomplete views",
                    where=place(view, *(() if absent else self.data.partial_columns(view))),
                    hint="Use FedMvPPCA, which takes missing views and entries, or leave the view out at every site.",
                )
        return (self.rows(ask) - ask.centre) / ask.spread


def _finite(values: Floats) -> Floats:
    if not np.isfinite(values).all():
        raise NotConverged("training diverged", where="train", hint="Lower the learning rate.")
    return values
