"""FedStack beside the patients: all that a coordinator can ask of a site, and all that it answers.

The site applies models that it is sent to its patients, and adds up what the integrated Brier score of any mixture of
them needs: as many numbers as there are pairs of models, whatever the number of patients. It does so for one set of
models a fit. In clear, patients of neighbouring times leave together, in both steps alike: weights that a coordinator
makes up for single times then tell of no fewer than the policy's.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, MessageError
from multicentre.federation.messages import Message, Nothing
from multicentre.federation.steps import step
from multicentre.federation.wire import encode
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.agreement.site import SurvivalPart, check_grid_is_coarse
from multicentre.survival.models import KINDS
from multicentre.survival.models.packing import split
from multicentre.survival.stack import messages as sent
from multicentre.survival.stack.maths import error_weights, sum_products
from multicentre.survival.times.joining import joined_bins

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]
MOST_MODELS = 32
N_ROWS = 2048


class StackSite(SurvivalPart):
    """The site part of FedStack."""

    method: ClassVar[str] = "fed-stack"
    remembers: ClassVar[type[Message]] = sent.Memory
    state: sent.Memory | None = None

    def first_memory(self, agreed: Agreed) -> sent.Memory:
        """Return the agreement; no models have come yet."""
        known: dict[str, Any] = {field.name: getattr(agreed, field.name) for field in fields(agreed)}
        return sent.Memory(**known, asked="")

    @step(releases=sent.Ends, when="once", summed=True)
    def count_ends(self, ask: Nothing) -> sent.Ends:
        """Count patients by bin of the end of their follow-up; in clear, bins of few patients are joined."""
        check_grid_is_coarse(self.agreed.times)
        (bins, happened), n_bins = self._followed(), len(self.agreed.times) + 1
        events, censored = (
            self.joined(np.bincount(bins[chosen], minlength=n_bins).astype(np.float64))
            for chosen in (happened, ~happened)
        )
        behind = self.behind(np.concatenate([events, censored]))
        return sent.Ends(events[:-1], censored[:-1], float(len(bins)), patients=behind)

    @step(releases=sent.Errors, when="once", summed=True)
    def sum_errors(self, ask: sent.Candidates) -> sent.Errors:
        """Sum products of the models' curves and of these with the outcomes, weighted for censoring."""
        check_grid_is_coarse(self.agreed.times)
        self._remember(ask)
        n_models, n_columns = len(ask.lengths), len(self.agreed.columns)
        models = split(ask.packed, ask.lengths, KINDS, n_columns)
        if not all(np.array_equal(model.times, self.agreed.times) for model in models):
            raise MessageError("a model is on another grid", where="models")
        products, targets, constant = np.zeros((n_models, n_models)), np.zeros(n_models), 0.0
        bins_of_all, happened = self._followed()
        for start in range(0, len(self.data), N_ROWS):
            chosen = slice(start, start + N_ROWS)
            bins = bins_of_all[chosen]
            weights = error_weights(bins, happened[chosen], ask.staying, self.agreed.times) / ask.n_patients
            outcomes = (bins[:, None] > np.arange(len(self.agreed.times))).astype(float)
            curves = np.array([model.survival(self.patients.rows[chosen]) for model in models])
            found = sum_products(curves, outcomes, weights)
            products, targets, constant = products + found[0], targets + found[1], constant + found[2]
        return sent.Errors(products, targets, constant, patients=self.behind())

    def _followed(self) -> tuple[Integers, Flags]:
        """Return the bin of every patient's time and whether the event happened; in clear, bins of few are joined."""
        patients, least = self.patients, 0 if self.masked else self.least_behind
        return joined_bins(patients.bins, patients.happened, len(self.agreed.times), least)

    def _remember(self, ask: sent.Candidates) -> None:
        memory = self.agreed
        asked = hashlib.sha256(encode(ask)).hexdigest()
        if not isinstance(memory, sent.Memory) or memory.asked not in ("", asked):
            raise ConfigurationError("the site was asked about other models", where="models", mend="Begin a new fit.")
        _check(ask, len(memory.times), len(self.data))
        self.state = replace(memory, asked=asked)


def _check(ask: sent.Candidates, n_times: int, n_patients: int) -> None:
    if not 1 <= len(ask.lengths) <= MOST_MODELS:
        raise ConfigurationError(f"{len(ask.lengths)} models", where="models", mend=f"Give 1 to {MOST_MODELS}.")
    staying = ask.staying
    falls = len(staying) == n_times and (np.diff(staying) <= 0).all() and staying.min() >= 0 and staying.max() <= 1
    if not falls or not ask.n_patients >= n_patients - 0.5:
        raise MessageError("the chances of staying, or the number of patients, cannot be", where="models")
