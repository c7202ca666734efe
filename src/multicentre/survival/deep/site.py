"""Site part of FedDeepSurv: every step that a coordinator can ask of a site.

A site trains the network that it is sent on its own patients, and judges it on some whom it holds out. What leaves are
terms of sums over sites: the trained network, times the site's share of the patients; the partial likelihood of its
held-out patients; and, at the end, events and hazard ratios by bin of the grid. They are the same whether they are
masked or not. Unmasked, an answer states on how many patients it rests in effect, since a coordinator could send a
network that makes one patient's hazard ratio outweigh the others'.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.minimum_counts import BEHIND_AN_UPDATE
from multicentre.federation.errors import ConfigurationError, NotConverged
from multicentre.federation.messages import Lengths, Message, array, count, number, text
from multicentre.federation.steps import Acknowledgement, Release, step
from multicentre.survival.agreement.messages import PATIENTS, Agreed
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.kernels.cox import effective_number
from multicentre.survival.learners.cohort import Cohort
from multicentre.survival.learners.networks import NetworkSettings, Training, one_thread, require_torch
from multicentre.survival.models.network import count_parameters, log_hazard_ratio

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

ROUNDING = 1e-6


def baseline_hazard(events: Floats, at_risk: Floats) -> Floats:
    """Return Breslow's cumulative baseline hazard on the grid, shape (K,): the running sum of D_k / R_k.

    Parameters
    ----------
    events : array of shape (K,)
        Events by bin, D_k.
    at_risk : array of shape (K,)
        Sum of hazard ratios over patients of this bin or a later one, R_k.

    Examples
    --------
    >>> baseline_hazard(np.array([1.0, 1.0, 0.0]), np.array([4.0, 2.0, 0.0])).tolist()
    [0.25, 0.75, 0.75]
    """
    return np.cumsum(np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 0))


def sum_at_risk(bins: Integers, ratios: Floats, n_times: int) -> Floats:
    """Return R_k, the sum of hazard ratios over patients whose bin is k or later, shape (K,).

    Examples
    --------
    >>> sum_at_risk(np.array([0, 1, 2]), np.array([1.0, 2.0, 4.0]), 2).tolist()
    [7.0, 6.0]
    """
    leaving = np.bincount(bins, weights=ratios, minlength=n_times + 1)
    return np.asarray(np.cumsum(leaving[::-1])[::-1][:n_times], dtype=np.float64)


def effective_by_bin(bins: Integers, ratios: Floats) -> Floats:
    """Return how many patients of each bin its sum of hazard ratios rests on in effect, rounded down.

    They are (sum r)^2 / sum r^2 (Kish, 1965): as many as there are where hazard ratios are equal, 1 where one outweighs
    all; 0 without any.

    Examples
    --------
    >>> effective_by_bin(np.array([0, 0, 2, 2]), np.array([1.0, 1.0, 9.0, 0.0])).tolist()
    [2.0, 0.0, 1.0]
    """
    total, squares = (np.bincount(bins, weights=ratios**power) for power in (1, 2))
    return np.floor(np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0) + ROUNDING)


def fewest_in_effect(log_risk: Floats) -> float:
    """Return how many patients a partial likelihood rests on in effect, rounded down; 0 without any.

    It rests on a few where some hazard ratios, or the inverses of some, outweigh the others'.

    Examples
    --------
    >>> fewest_in_effect(np.zeros(9)), fewest_in_effect(np.array([0.0, 0.1, 50.0]))
    (9.0, 1.0)
    """
    if not len(log_risk):
        return 0.0
    weights = [np.exp(each - each.max()) for each in (log_risk, -log_risk)]
    return float(np.floor(min(effective_number(each) for each in weights) + ROUNDING))


LARGEST_WEIGHT = 2.0**12

LARGEST_LIKELIHOOD = 2.0**12

LARGEST_RATIO = 20.0

LARGEST_RISK = 2.0**30


@dataclass(frozen=True)
class Parts(Message):
    """How a site splits its patients."""

    validation_fraction: float = number("share of the patients on whom networks are judged and not trained")
    seed: int = count("seed of the study")


@dataclass(frozen=True)
class Proposal(Message):
    """A network on standardised columns."""

    hidden: NDArray[np.int64] = array("widths of the hidden layers", ("l",), dtype="i8")
    norm: str = text("normalisation: none or layer")
    parameters: Floats = array("numbers of all layers", ("p",))


@dataclass(frozen=True)
class Task(Proposal):
    """A network, and how it is trained for one round."""

    dropout: float = number("share of values that are left out in training")
    learning_rate: float = number("step length of AdamW")
    weight_decay: float = number("weight decay of AdamW")
    batch_size: int = count("patients of a batch, at most")
    n_epochs: int = count("passes over the patients")
    proximal: float = number("weight of the squared distance to the network that was sent")
    seed: int = count("seed of the study")
    round_number: int = count("number of the round")


@dataclass(frozen=True)
class Trained(Release):
    """A site's trained network, weighted with its patients, and how well the one that was sent did before."""

    parameters: Floats = array("numbers of all layers, times the share", ("p",), bound=LARGEST_WEIGHT)
    share: float = number("patients of the training, over all patients of all sites", bound=1.0)
    log_likelihood: float = number(
        "log partial likelihood of the network that was sent, over events of all sites", bound=LARGEST_LIKELIHOOD
    )
    n_events: float = number("events that it was summed over", unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class RiskSums(Release):
    """What a site adds to the baseline hazard."""

    events: Floats = array("patients with an event, by bin of the grid", ("K",), unit="patients", bound=PATIENTS)
    at_risk: Floats = array(
        "sum of hazard ratios of those at risk, over patients of all sites", ("K",), bound=LARGEST_RISK
    )


@dataclass(frozen=True)
class Memory(Agreed):
    """What a site remembers: the agreement, and who is held out."""

    held_out: NDArray[np.uint8] = array("whether a patient is held out; nobody before the split", ("n",), dtype="u1")
    asked: str = text("the share and seed of the split; empty before it")


@dataclass(frozen=True)
class Progress(Message):
    """What the coordinator carries from round to round."""

    parameters: Floats = array("the average after the round", ("p",))
    best: Floats = array("the network that did best on the held-out patients", ("p",))
    score: float = number("its log partial likelihood per event; minus infinity before the first", finite=False)
    best_round: int = count("round before which it was judged")


Flags = NDArray[np.bool_]

MOST_EPOCHS = 100

MOST_HELD_OUT = 0.5


class DeepSite(SurvivalPart):
    """The site part of FedDeepSurv."""

    method: ClassVar[str] = "fed-deep-surv"
    remembers: ClassVar[type[Message]] = Memory
    lengths: ClassVar[Lengths] = {"K": "bins of the grid of times", "p": "parameters of all layers"}
    state: Memory | None = None

    def first_memory(self, agreed: Agreed) -> Memory:
        """Return the agreement; the split comes later."""
        known: dict[str, Any] = {field.name: getattr(agreed, field.name) for field in fields(agreed)}
        return Memory(**known, held_out=np.zeros(0, dtype=np.uint8), asked="")

    @step(releases=Acknowledgement, when="once")
    def split(self, ask: Parts) -> Acknowledgement:
        """Draw who is held out, once, by the site's own data; nothing leaves."""
        require_torch()
        if not 0 <= ask.validation_fraction <= MOST_HELD_OUT:
            raise ConfigurationError(
                f"{ask.validation_fraction} is not from 0 to {MOST_HELD_OUT}",
                where="validation_fraction",
                hint="Use 0.15.",
            )
        memory, asked = self._memory, f"{ask.validation_fraction!r} {ask.seed}"
        if memory.asked and memory.asked != asked:
            raise ConfigurationError("the site has split its patients", where="split", hint="Begin a new fit.")
        if not memory.asked:
            held_out = self._generator(ask.seed, 0).permutation(len(self.data)) < round(
                ask.validation_fraction * len(self.data)
            )
            self.state = replace(memory, held_out=held_out.astype(np.uint8), asked=asked)
        return Acknowledgement()

    @step(releases=Trained, when="every round", summed=True)
    def train(self, ask: Task) -> Trained:
        """Judge the network that was sent on the held-out patients, and train it on the others."""
        settings = self._settings(ask)
        held_out = self._held_out
        training, validation = self._cohort(~held_out), self._cohort(held_out)
        sent_risk = log_hazard_ratio(ask.parameters, validation.rows, settings.hidden, settings.norm == "layer")
        share = len(training) / self.agreed.n_patients if training.n_events else 0.0
        in_effect = fewest_in_effect(sent_risk)
        cells = np.array([len(training), len(validation), validation.n_events, in_effect, BEHIND_AN_UPDATE])
        return Trained(
            parameters=share * (self._trained(ask, settings, training) if share else np.zeros_like(ask.parameters)),
            share=share,
            log_likelihood=validation.log_likelihood(sent_risk) / self.agreed.n_events,
            n_events=float(validation.n_events),
            patients=self.behind(cells),
        )

    @step(releases=RiskSums, when="at the end", summed=True)
    def sum_risks(self, ask: Proposal) -> RiskSums:
        """Count events, and sum hazard ratios of those at risk, by bin, for one network."""
        self._check(ask)
        self.ask_only_once("sum_risks", ask)
        patients, n_times = self.patients, len(self.agreed.times)
        found = log_hazard_ratio(ask.parameters, patients.standardised, ask.hidden.tolist(), ask.norm == "layer")
        ratios = np.exp(np.clip(found, -LARGEST_RATIO, LARGEST_RATIO))
        events = np.bincount(patients.bins[patients.happened], minlength=n_times)[:n_times].astype(float)
        at_risk = sum_at_risk(patients.bins, ratios, n_times) / self.agreed.n_patients
        leaving = effective_by_bin(patients.bins, ratios)
        return RiskSums(events, at_risk, patients=self.behind(np.concatenate([events, leaving])))

    def _trained(self, ask: Task, settings: NetworkSettings, cohort: Cohort) -> Floats:
        seed = int(self._generator(ask.seed, 1, ask.round_number).integers(2**62))
        with one_thread():
            training = Training(ask.parameters, cohort.rows.shape[1], settings, seed, proximal=ask.proximal)
            for _ in range(ask.n_epochs):
                training.pass_over(cohort)
        found = training.parameters()
        if not np.abs(found).max() <= LARGEST_WEIGHT:
            raise NotConverged("training diverged", where=f"site {self.site}", hint="Lower the learning rate.")
        return found

    def _cohort(self, part: Flags) -> Cohort:
        patients = self.patients
        return Cohort.of(
            patients.standardised[part], patients.time[part], patients.happened[part], np.ones(int(part.sum()))
        )

    def _settings(self, ask: Task) -> NetworkSettings:
        self._check(ask)
        if not 1 <= ask.n_epochs <= MOST_EPOCHS or not 0 <= ask.proximal <= 1e6:
            raise ConfigurationError("the task is out of range", where="n_epochs, proximal", hint="Use 1 and 0.")
        return NetworkSettings(
            tuple(ask.hidden.tolist()),
            "layer" if ask.norm == "layer" else "none",
            ask.dropout,
            ask.learning_rate,
            ask.weight_decay,
            ask.batch_size,
        )

    def _check(self, ask: Proposal) -> None:
        if ask.norm not in ("none", "layer"):
            raise ConfigurationError("there is no such normalisation", where="norm", hint="Use 'layer' or 'none'.")
        hidden = NetworkSettings(tuple(ask.hidden.tolist())).hidden
        n_parameters = count_parameters(len(self.agreed.columns), hidden, ask.norm == "layer")
        if len(ask.parameters) != n_parameters or not np.abs(ask.parameters).max() <= LARGEST_WEIGHT:
            raise ConfigurationError("the parameters do not fit the layers", where="parameters")

    def _generator(self, seed: int, *purpose: int) -> np.random.Generator:
        return self.generator(seed, *purpose, int(self.data.digest()[:16], 16))

    @property
    def _memory(self) -> Memory:
        memory = self.agreed
        if not isinstance(memory, Memory):
            raise ConfigurationError("the site remembers something else", where=self.method, hint="Begin a new fit.")
        return memory

    @property
    def _held_out(self) -> Flags:
        if not self._memory.asked:
            raise ConfigurationError("the site has not split its patients", where=self.method, hint="Begin a new fit.")
        return self._memory.held_out.astype(np.bool_)
