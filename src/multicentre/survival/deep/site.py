"""Site part of FedDeepSurv: every step that a coordinator can ask of a site.

A site trains the network that it is sent on its own patients, and judges it on some whom it holds out. What leaves are
terms of sums over sites: the trained network, times the site's share of the patients; the partial likelihood of its
held-out patients; and, at the end, events and hazard ratios by bin of the grid. They are the same whether they are
masked or not. Unmasked, an answer states on how many patients it rests in effect, since a coordinator could send a
network that makes one patient's hazard ratio outweigh the others'.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.minimum_counts import BEHIND_AN_UPDATE
from multicentre.federation.errors import ConfigurationError, NotConverged
from multicentre.federation.lengths import Lengths
from multicentre.federation.messages import Message
from multicentre.federation.steps import Acknowledgement, step
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.deep import messages as sent
from multicentre.survival.deep.maths import effective_by_bin, fewest_in_effect, sum_at_risk
from multicentre.survival.learners.cohort import Cohort
from multicentre.survival.learners.networks import NetworkSettings, Training, one_thread, require_torch
from multicentre.survival.models.network import count_parameters, log_hazard_ratio

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
MOST_EPOCHS = 100
MOST_HELD_OUT = 0.5


class DeepSite(SurvivalPart):
    """The site part of FedDeepSurv."""

    method: ClassVar[str] = "fed-deep-surv"
    remembers: ClassVar[type[Message]] = sent.Memory
    lengths: ClassVar[Lengths] = {"K": "bins of the grid of times", "p": "parameters of all layers"}
    state: sent.Memory | None = None

    def first_memory(self, agreed: Agreed) -> sent.Memory:
        """Return the agreement; the split comes later."""
        known: dict[str, Any] = {field.name: getattr(agreed, field.name) for field in fields(agreed)}
        return sent.Memory(**known, held_out=np.zeros(0, dtype=np.uint8), asked="")

    @step(releases=Acknowledgement, when="once")
    def split(self, ask: sent.Parts) -> Acknowledgement:
        """Draw who is held out, once, by the site's own data; nothing leaves."""
        require_torch()
        if not 0 <= ask.validation <= MOST_HELD_OUT:
            raise ConfigurationError(
                f"{ask.validation} is not from 0 to {MOST_HELD_OUT}", where="validation", mend="Use 0.15."
            )
        memory, asked = self._memory, f"{ask.validation!r} {ask.seed}"
        if memory.asked and memory.asked != asked:
            raise ConfigurationError("the site has split its patients", where="split", mend="Begin a new fit.")
        if not memory.asked:
            held_out = self._generator(ask.seed, 0).permutation(len(self.data)) < round(ask.validation * len(self.data))
            self.state = replace(memory, held_out=held_out.astype(np.uint8), asked=asked)
        return Acknowledgement()

    @step(releases=sent.Trained, when="every round", summed=True)
    def train(self, ask: sent.Task) -> sent.Trained:
        """Judge the network that was sent on the held-out patients, and train it on the others."""
        settings = self._settings(ask)
        held_out = self._held_out
        training, validation = self._cohort(~held_out), self._cohort(held_out)
        sent_risk = log_hazard_ratio(ask.parameters, validation.rows, settings.hidden, settings.norm == "layer")
        share = len(training) / self.agreed.n_patients if training.n_events else 0.0
        in_effect = fewest_in_effect(sent_risk)
        cells = np.array([len(training), len(validation), validation.n_events, in_effect, BEHIND_AN_UPDATE])
        return sent.Trained(
            parameters=share * (self._trained(ask, settings, training) if share else np.zeros_like(ask.parameters)),
            share=share,
            log_likelihood=validation.log_likelihood(sent_risk) / self.agreed.n_events,
            n_events=float(validation.n_events),
            patients=self.behind(cells),
        )

    @step(releases=sent.RiskSums, when="at the end", summed=True)
    def sum_risks(self, ask: sent.Proposal) -> sent.RiskSums:
        """Count events, and sum hazard ratios of those at risk, by bin, for one network."""
        self._check(ask)
        self.ask_only_once("sum_risks", ask)
        patients, n_times = self.patients, len(self.agreed.times)
        found = log_hazard_ratio(ask.parameters, patients.standardised, ask.hidden.tolist(), ask.norm == "layer")
        ratios = np.exp(np.clip(found, -sent.LARGEST_RATIO, sent.LARGEST_RATIO))
        events = np.bincount(patients.bins[patients.happened], minlength=n_times)[:n_times].astype(float)
        at_risk = sum_at_risk(patients.bins, ratios, n_times) / self.agreed.n_patients
        leaving = effective_by_bin(patients.bins, ratios)
        return sent.RiskSums(events, at_risk, patients=self.behind(np.concatenate([events, leaving])))

    def _trained(self, ask: sent.Task, settings: NetworkSettings, cohort: Cohort) -> Floats:
        seed = int(self._generator(ask.seed, 1, ask.round_number).integers(2**62))
        with one_thread():
            training = Training(ask.parameters, cohort.rows.shape[1], settings, seed, proximal=ask.proximal)
            for _ in range(ask.n_epochs):
                training.pass_over(cohort)
        found = training.parameters()
        if not np.abs(found).max() <= sent.LARGEST_WEIGHT:
            raise NotConverged("training diverged", where=f"site {self.site}", mend="Lower the learning rate.")
        return found

    def _cohort(self, part: Flags) -> Cohort:
        patients = self.patients
        return Cohort.of(
            patients.standardised[part], patients.time[part], patients.happened[part], np.ones(int(part.sum()))
        )

    def _settings(self, ask: sent.Task) -> NetworkSettings:
        self._check(ask)
        if not 1 <= ask.n_epochs <= MOST_EPOCHS or not 0 <= ask.proximal <= 1e6:
            raise ConfigurationError("the task is out of range", where="n_epochs, proximal", mend="Use 1 and 0.")
        return NetworkSettings(
            tuple(ask.hidden.tolist()),
            "layer" if ask.norm == "layer" else "none",
            ask.dropout,
            ask.learning_rate,
            ask.weight_decay,
            ask.batch_size,
        )

    def _check(self, ask: sent.Proposal) -> None:
        if ask.norm not in ("none", "layer"):
            raise ConfigurationError("there is no such normalisation", where="norm", mend="Use 'layer' or 'none'.")
        hidden = NetworkSettings(tuple(ask.hidden.tolist())).hidden
        n_parameters = count_parameters(len(self.agreed.columns), hidden, ask.norm == "layer")
        if len(ask.parameters) != n_parameters or not np.abs(ask.parameters).max() <= sent.LARGEST_WEIGHT:
            raise ConfigurationError("the parameters do not fit the layers", where="parameters")

    def _generator(self, seed: int, *purpose: int) -> np.random.Generator:
        return self.generator(seed, *purpose, int(self.data.digest()[:16], 16))

    @property
    def _memory(self) -> sent.Memory:
        memory = self.agreed
        if not isinstance(memory, sent.Memory):
            raise ConfigurationError("the site remembers something else", where=self.method, mend="Begin a new fit.")
        return memory

    @property
    def _held_out(self) -> Flags:
        if not self._memory.asked:
            raise ConfigurationError("the site has not split its patients", where=self.method, mend="Begin a new fit.")
        return self._memory.held_out.astype(np.bool_)
