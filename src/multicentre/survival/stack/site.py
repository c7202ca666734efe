"""Site part of FedStack: every step that a coordinator can ask of a site.

The site applies models that it is sent to its patients, and adds up what the integrated Brier score of any mixture of
them needs: as many numbers as there are pairs of models, whatever the number of patients. It does so for one set of
models per fit. Unmasked, both steps rest on the patients of the bin with the fewest: a coordinator could make up
weights for single times.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, MessageError
from multicentre.federation.lengths import Lengths
from multicentre.federation.messages import Message, Nothing
from multicentre.federation.steps import step
from multicentre.federation.wire import encode
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.models import KINDS
from multicentre.survival.models.packing import split
from multicentre.survival.stack import messages as sent
from multicentre.survival.stack.maths import error_weights, sum_products

Floats = NDArray[np.float64]
MOST_MODELS = 32
N_ROWS = 2048


class StackSite(SurvivalPart):
    """The site part of FedStack."""

    method: ClassVar[str] = "fed-stack"
    remembers: ClassVar[type[Message]] = sent.Memory
    lengths: ClassVar[Lengths] = {"K": "bins of time", "m": "models that are stacked"}
    state: sent.Memory | None = None

    def first_memory(self, agreed: Agreed) -> sent.Memory:
        """Return the agreement; no models have come yet."""
        known: dict[str, Any] = {field.name: getattr(agreed, field.name) for field in fields(agreed)}
        return sent.Memory(**known, asked="")

    @step(releases=sent.Ends, when="once", summed=True)
    def count_ends(self, ask: Nothing) -> sent.Ends:
        """Count patients by bin of the end of their follow-up."""
        events, censored = self._ends
        behind = self.behind(np.concatenate([events, censored]))
        return sent.Ends(events[:-1], censored[:-1], float(len(self.data)), patients=behind)

    @step(releases=sent.Errors, when="once", summed=True)
    def sum_errors(self, ask: sent.Candidates) -> sent.Errors:
        """Sum products of the models' curves and of these with the outcomes, weighted for censoring."""
        self._remember(ask)
        n_models, n_columns = len(ask.lengths), len(self.agreed.columns)
        models = split(ask.packed, ask.lengths, KINDS, n_columns)
        if not all(np.array_equal(model.times, self.agreed.times) for model in models):
            raise MessageError("a model is on another grid", where="models")
        products, targets, constant = np.zeros((n_models, n_models)), np.zeros(n_models), 0.0
        for start in range(0, len(self.data), N_ROWS):
            chosen = slice(start, start + N_ROWS)
            bins, happened = self.patients.bins[chosen], self.patients.happened[chosen]
            weights = error_weights(bins, happened, ask.staying, self.agreed.times) / ask.n_patients
            outcomes = (bins[:, None] > np.arange(len(self.agreed.times))).astype(float)
            curves = np.array([model.survival(self.patients.rows[chosen]) for model in models])
            found = sum_products(curves, outcomes, weights)
            products, targets, constant = products + found[0], targets + found[1], constant + found[2]
        return sent.Errors(products, targets, constant, patients=self.behind(np.concatenate(self._ends)))

    @property
    def _ends(self) -> tuple[Floats, Floats]:
        """Numbers of patients with an event and without, by bin of the grid, each of shape (K + 1,)."""
        bins, happened, n_bins = self.patients.bins, self.patients.happened, len(self.agreed.times) + 1
        events, censored = (np.bincount(bins[of], minlength=n_bins).astype(float) for of in (happened, ~happened))
        return events, censored

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
