"""Site part of FedDeepSurv: the steps that a coordinator can request.

Steps also inherited: ``describe``, ``sum_sizes``, ``sum_squares``, ``count_times``, ``count_columns``,
``compare_units``, ``tell_times`` and ``agree`` from survival/agreement/site.py; ``count_gaps``, ``handle_gaps``,
``add_indicators`` and ``report_gaps`` from data/missing/values.py. Of these, ``tell_times`` (event times, only with
``exact_times``) and ``report_gaps`` return values of a single site.

A site trains the network that it receives on its patients, and evaluates it on held-out patients. The values that leave
are terms of sums over sites: the trained network, times the site's share of the patients; the partial likelihood of the
held-out patients; and, at the end, events and hazard ratios by bin of the grid. They are the same masked and unmasked.
An unmasked answer states its effective number of patients, because a coordinator could send a network under which the
hazard ratio of one patient dominates.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, array, count, number, text
from multicentre.core.steps import Acknowledgement, Release, step
from multicentre.data.records import BEHIND_AN_UPDATE, effective_number
from multicentre.errors import ConfigurationError, NotConverged
from multicentre.survival.agreement.messages import PATIENTS, Prepared
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.fitted_models.network import count_parameters, log_hazard_ratio
from multicentre.survival.learners.cohort import Cohort
from multicentre.survival.learners.networks import NetworkSettings, Training, one_thread, require_torch

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

# Tolerance for rounding errors before a number of patients is rounded down.
ROUNDING = 1e-6


def baseline_hazard(events: Floats, at_risk: Floats) -> Floats:
    """Return Breslow's cumulative baseline hazard on the grid, shape (K,): the cumulative sum of D_k / R_k.

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
    """Return the effective number of patients of each bin's sum of hazard ratios, rounded down.

    The effective number is (sum r)^2 / sum r^2 (Kish, 1965): the number of patients if hazard ratios are equal, 1 if
    one dominates, 0 without patients.

    Examples
    --------
    >>> effective_by_bin(np.array([0, 0, 2, 2]), np.array([1.0, 1.0, 9.0, 0.0])).tolist()
    [2.0, 0.0, 1.0]
    """
    total, squares = (np.bincount(bins, weights=ratios**power) for power in (1, 2))
    return np.floor(np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0) + ROUNDING)


def fewest_in_effect(log_risk: Floats) -> float:
    """Return the effective number of patients of a partial likelihood, rounded down; 0 without patients.

    The number is small if a few hazard ratios, or the inverses of a few, dominate.

    Examples
    --------
    >>> fewest_in_effect(np.zeros(9)), fewest_in_effect(np.array([0.0, 0.1, 50.0]))
    (9.0, 1.0)
    """
    if not len(log_risk):
        return 0.0
    weights = [np.exp(each - each.max()) for each in (log_risk, -log_risk)]
    return float(np.floor(min(effective_number(each) for each in weights) + ROUNDING))


# Largest magnitudes of a site's values, for masking: parameters, likelihoods per event, sums of hazard ratios.
MAX_WEIGHT = 2.0**12

# The logarithm of a risk set of 2^24 patients is 17 per event; the rest is room for large log hazard ratios.
MAX_LIKELIHOOD = 2.0**12

# Hazard ratios are clipped to exp(MAX_RATIO) = 2^28.9; their sum is divided by the patients of all sites.
MAX_RISK = 2.0**30

# Largest magnitude of a log hazard ratio in the sums: exp(20) is below MAX_RISK.
MAX_RATIO = 20.0


@dataclass(frozen=True)
class Parts(Message):
    """Split of a site's patients into training and validation."""

    validation_fraction: float = number("share of the patients held out for validation")
    seed: int = count("seed of the fit")


@dataclass(frozen=True)
class Proposal(Message):
    """Network on standardised columns."""

    hidden: NDArray[np.int64] = array("widths of the hidden layers", ("l",), dtype="i8")
    norm: str = text("normalisation: none or layer")
    parameters: Floats = array("parameters of all layers", ("p",))


@dataclass(frozen=True)
class Task(Proposal):
    """Network, and settings of its training in one round."""

    dropout: float = number("share of values dropped in training")
    learning_rate: float = number("step length of AdamW")
    weight_decay: float = number("weight decay of AdamW")
    batch_size: int = count("largest number of patients per batch")
    n_epochs: int = count("passes over the patients")
    proximal: float = number("weight of the squared distance to the received network")
    seed: int = count("seed of the fit")
    round_number: int = count("number of the round")


@dataclass(frozen=True)
class Trained(Release):
    """Trained network of a site, weighted by its patients, and validation of the received network."""

    parameters: Floats = array("parameters of all layers, times the share", ("p",), bound=MAX_WEIGHT)
    share: float = number("training patients, divided by the patients of all sites", bound=1.0)
    log_likelihood: float = number(
        "log partial likelihood of the received network, divided by the events of all sites", bound=MAX_LIKELIHOOD
    )
    n_events: float = number("events behind the log partial likelihood", unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class RiskSums(Release):
    """Sums of a site for the baseline hazard."""

    events: Floats = array("patients with an event, by bin of the grid", ("K",), unit="patients", bound=PATIENTS)
    at_risk: Floats = array(
        "sum of hazard ratios of those at risk, divided by the patients of all sites", ("K",), bound=MAX_RISK
    )


@dataclass(frozen=True)
class Memory(Prepared):
    """State of a site: the agreement, and the held-out patients."""

    held_out: NDArray[np.uint8] = array("1 for held-out patients; empty before the split", ("n",), dtype="u1")
    share_and_seed: str = text("share and seed of the split; empty before it")


@dataclass(frozen=True)
class Progress(Message):
    """State of the coordinator between rounds."""

    parameters: Floats = array("average of the sites' parameters after the round", ("p",))
    best: Floats = array("network with the best validation score", ("p",))
    score: float = number("best log partial likelihood per event; minus infinity before the first round", finite=False)
    best_round: int = count("round in which the best network was evaluated")


Flags = NDArray[np.bool_]

# Largest number of passes over the patients per round.
MAX_EPOCHS = 100

# Largest share of held-out patients.
MAX_HELD_OUT = 0.5


class DeepSite(SurvivalPart):
    """Site part of FedDeepSurv."""

    method: ClassVar[str] = "fed-deep-surv"
    revision: ClassVar[int] = 2
    remembers: ClassVar[type[Message]] = Memory
    lengths: ClassVar[Lengths] = {"K": "bins of the grid of times", "p": "parameters of all layers"}
    state: Memory | None = None

    def first_memory(self, agreed: Prepared) -> Memory:
        """Return the initial state: the agreement, without a split."""
        agreed_fields: dict[str, Any] = {field.name: getattr(agreed, field.name) for field in fields(agreed)}
        return Memory(**agreed_fields, held_out=np.zeros(0, dtype=np.uint8), share_and_seed="")

    @step(releases=Acknowledgement, when="once")
    def split(self, request: Parts) -> Acknowledgement:
        """Draw the held-out patients, once per fit; the seed includes the site's data."""
        require_torch()
        if not 0 <= request.validation_fraction <= MAX_HELD_OUT:
            raise ConfigurationError(
                f"validation_fraction must be from 0 to {MAX_HELD_OUT}; got {request.validation_fraction}",
                where="validation_fraction",
                hint="Use 0.15.",
            )
        memory, share_and_seed = self._memory, f"{request.validation_fraction!r} {request.seed}"
        if memory.share_and_seed and memory.share_and_seed != share_and_seed:
            raise ConfigurationError(
                "the split must be the same throughout a fit; got a different one",
                where="split",
                hint="Start a new fit.",
            )
        if not memory.share_and_seed:
            held_out = self._generator(request.seed, 0).permutation(len(self.data)) < round(
                request.validation_fraction * len(self.data)
            )
            self.state = replace(memory, held_out=held_out.astype(np.uint8), share_and_seed=share_and_seed)
        return Acknowledgement()

    @step(releases=Trained, when="every round", summed=True)
    def train(self, request: Task) -> Trained:
        """Evaluate the received network on the held-out patients, and train it on the others."""
        settings = self._settings(request)
        held_out = self._held_out
        training, validation = self._cohort(~held_out), self._cohort(held_out)
        sent_risk = log_hazard_ratio(
            request.parameters, validation.rows, settings.hidden_layer_sizes, settings.norm == "layer"
        )
        share = len(training) / self.agreed.n_patients if training.n_events else 0.0
        in_effect = fewest_in_effect(sent_risk)
        cells = np.array([len(training), len(validation), validation.n_events, in_effect, BEHIND_AN_UPDATE])
        return Trained(
            parameters=share
            * (self._trained(request, settings, training) if share else np.zeros_like(request.parameters)),
            share=share,
            log_likelihood=validation.log_likelihood(sent_risk) / self.agreed.n_events,
            n_events=float(validation.n_events),
            patients=self.behind(cells),
        )

    @step(releases=RiskSums, when="at the end", summed=True)
    def sum_risks(self, request: Proposal) -> RiskSums:
        """Count events and sum hazard ratios of those at risk by bin, for one network per fit."""
        self._check(request)
        self.ask_only_once("sum_risks", request)
        patients, n_times = self.patients, len(self.agreed.times)
        log_risk = log_hazard_ratio(
            request.parameters, patients.standardised, request.hidden.tolist(), request.norm == "layer"
        )
        ratios = np.exp(np.clip(log_risk, -MAX_RATIO, MAX_RATIO))
        events = np.bincount(patients.bins[patients.happened], minlength=n_times)[:n_times].astype(float)
        at_risk = sum_at_risk(patients.bins, ratios, n_times) / self.agreed.n_patients
        leaving = effective_by_bin(patients.bins, ratios)
        return RiskSums(events, at_risk, patients=self.behind(np.concatenate([events, leaving])))

    def _trained(self, request: Task, settings: NetworkSettings, cohort: Cohort) -> Floats:
        seed = int(self._generator(request.seed, 1, request.round_number).integers(2**62))
        with one_thread():
            training = Training(request.parameters, cohort.rows.shape[1], settings, seed, proximal=request.proximal)
            for _ in range(request.n_epochs):
                training.pass_over(cohort)
        parameters = training.parameters()
        if not np.abs(parameters).max() <= MAX_WEIGHT:
            raise NotConverged(
                f"parameters must stay below {MAX_WEIGHT:g} in training; it diverged",
                where=f"site {self.site}",
                hint="Lower the learning rate.",
            )
        return parameters

    def _cohort(self, part: Flags) -> Cohort:
        patients = self.patients
        return Cohort.of(
            patients.standardised[part], patients.time[part], patients.happened[part], np.ones(int(part.sum()))
        )

    def _settings(self, request: Task) -> NetworkSettings:
        self._check(request)
        if not 1 <= request.n_epochs <= MAX_EPOCHS or not 0 <= request.proximal <= 1e6:
            raise ConfigurationError(
                f"n_epochs must be from 1 to {MAX_EPOCHS}, and proximal from 0 to 1e6; got {request.n_epochs} and "
                f"{request.proximal}",
                where="n_epochs, proximal",
                hint="Use 1 and 0.",
            )
        return NetworkSettings(
            tuple(request.hidden.tolist()),
            "layer" if request.norm == "layer" else "none",
            request.dropout,
            request.learning_rate,
            request.weight_decay,
            request.batch_size,
        )

    def _check(self, request: Proposal) -> None:
        if request.norm not in ("none", "layer"):
            raise ConfigurationError(
                f"norm must be one of 'none', 'layer'; got {request.norm[:40]!r}",
                where="norm",
                hint="Use 'layer' or 'none'.",
            )
        hidden = NetworkSettings(tuple(request.hidden.tolist())).hidden_layer_sizes
        n_parameters = count_parameters(len(self.agreed.columns), hidden, request.norm == "layer")
        if len(request.parameters) != n_parameters or not np.abs(request.parameters).max() <= MAX_WEIGHT:
            raise ConfigurationError(
                f"parameters must be {n_parameters} numbers up to {MAX_WEIGHT:g}; got {len(request.parameters)}, "
                "or larger ones",
                where="parameters",
            )

    def _generator(self, seed: int, *purpose: int) -> np.random.Generator:
        return self.generator(seed, *purpose, int(self.data.digest()[:16], 16))

    @property
    def _memory(self) -> Memory:
        memory = self.agreed
        if not isinstance(memory, Memory):
            raise ConfigurationError(
                "the state of the site must be that of this method; got another",
                where=self.method,
                hint="Start a new fit.",
            )
        return memory

    @property
    def _held_out(self) -> Flags:
        if not self._memory.share_and_seed:
            raise ConfigurationError(
                "the site must have a split of its patients before this step; got none",
                where=self.method,
                hint="Start a new fit.",
            )
        return self._memory.held_out.astype(np.bool_)
