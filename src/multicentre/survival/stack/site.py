"""Site part of FedStack: the steps that a coordinator can request.

Steps also inherited: ``describe``, ``sum_sizes``, ``sum_squares``, ``count_times``, ``count_columns``,
``compare_units``, ``tell_times`` and ``agree`` from survival/agreement/site.py; ``count_gaps``, ``handle_gaps``,
``add_indicators`` and ``report_gaps`` from data/missing/values.py. Of these, ``tell_times`` (event times, only with
``exact_times``) and ``report_gaps`` return values of a single site.

The site applies the received models to its patients, and sums the products that give the integrated Brier score of any
mixture of them: one number per pair of models, independent of the number of patients. It answers for one set of models
per fit. Unmasked, the number of patients behind both steps is that of the smallest bin, because a coordinator could
forge weights for single times; under ``sum_errors`` it is also that of the patients whom a model tells from the rest.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, Nothing, array, number, text
from multicentre.core.steps import Release, step
from multicentre.core.wire import encode
from multicentre.data.records import fewest_told_apart
from multicentre.errors import ConfigurationError, MessageError
from multicentre.survival.agreement.messages import PATIENTS, Prepared
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.fitted_models import KINDS
from multicentre.survival.fitted_models.base import split
from multicentre.survival.stack.maths import error_weights, sum_products

Floats = NDArray[np.float64]

# Largest magnitude of a site's mean products, for masking: they are at most 10 (MAX_WEIGHT in maths.py).
MAX_ERROR = 16.0


@dataclass(frozen=True)
class Ends(Release):
    """Patients by bin of the end of their follow-up, for the probability of censoring."""

    events: Floats = array("patients with an event, by bin of its time", ("K",), unit="patients", bound=PATIENTS)
    censored: Floats = array(
        "patients without an event, by bin of their last time", ("K",), unit="patients", bound=PATIENTS
    )
    n_patients: float = number("patients", unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class Candidates(Message):
    """Models on one grid, and the probabilities that weight their squared errors."""

    packed: NDArray[np.uint8] = array("models as bytes", ("b",), dtype="u1")
    lengths: NDArray[np.int64] = array("bytes of each model", ("m",), dtype="i8")
    staying: Floats = array("probability of not being censored up to each time of the grid", ("K",))
    n_patients: float = number("patients of all sites")


@dataclass(frozen=True)
class Errors(Release):
    """Coefficients of the integrated Brier score of a mixture, a quadratic function of the weights."""

    products: Floats = array("weighted mean product of two models' curves", ("m", "m"), bound=MAX_ERROR)
    targets: Floats = array("weighted mean product of a model's curves and the outcomes", ("m",), bound=MAX_ERROR)
    constant: float = number("weighted mean square of the outcomes", bound=MAX_ERROR)


@dataclass(frozen=True)
class Memory(Prepared):
    """State of a site: the agreement, and the models that it answered for."""

    models_digest: str = text("digest of the models; empty before the first request")


# Largest number of models of a mixture.
MAX_MODELS = 32

# Patients per block, which limits memory.
N_ROWS = 2048


class StackSite(SurvivalPart):
    """Site part of FedStack."""

    method: ClassVar[str] = "fed-stack"
    revision: ClassVar[int] = 2
    remembers: ClassVar[type[Message]] = Memory
    lengths: ClassVar[Lengths] = {"K": "bins of time", "m": "models that are stacked"}
    state: Memory | None = None

    def first_memory(self, agreed: Prepared) -> Memory:
        """Return the initial state: the agreement, without models."""
        agreed_fields: dict[str, Any] = {field.name: getattr(agreed, field.name) for field in fields(agreed)}
        return Memory(**agreed_fields, models_digest="")

    @step(releases=Ends, when="once", summed=True)
    def count_ends(self, request: Nothing) -> Ends:
        """Count patients by bin of the end of their follow-up."""
        events, censored = self._ends
        behind = self.behind(np.concatenate([events, censored]))
        return Ends(events[:-1], censored[:-1], float(len(self.data)), patients=behind)

    @step(releases=Errors, when="once", summed=True)
    def sum_errors(self, request: Candidates) -> Errors:
        """Sum products of the models' curves and of these with the outcomes, weighted for censoring."""
        self._remember(request)
        n_models, n_columns = len(request.lengths), len(self.agreed.columns)
        models = split(request.packed, request.lengths, KINDS, n_columns)
        if not all(np.array_equal(model.times, self.agreed.times) for model in models):
            raise MessageError("models must be on the agreed grid; got another grid", where="models")
        products, targets, constant = np.zeros((n_models, n_models)), np.zeros(n_models), 0.0
        for start in range(0, len(self.data), N_ROWS):
            chosen = slice(start, start + N_ROWS)
            bins, happened = self.patients.bins[chosen], self.patients.happened[chosen]
            weights = error_weights(bins, happened, request.staying, self.agreed.times) / request.n_patients
            outcomes = (bins[:, None] > np.arange(len(self.agreed.times))).astype(float)
            curves = np.array([model.survival(self.patients.rows[chosen]) for model in models])
            sums = sum_products(curves, outcomes, weights)
            products, targets, constant = products + sums[0], targets + sums[1], constant + sums[2]
        behind = self.behind(np.concatenate(self._ends))
        if not self.masked:  # the models may be made up, and two of them may differ for one patient
            means = np.column_stack([model.restricted_mean(self.patients.rows) for model in models])
            curves = np.column_stack([model.survival(self.patients.rows) for model in models])
            behind = min(behind, fewest_told_apart(means, in_pairs=True), fewest_told_apart(curves))
        return Errors(products, targets, constant, patients=behind)

    @property
    def _ends(self) -> tuple[Floats, Floats]:
        """Numbers of patients with and without an event by bin of the grid, each of shape (K + 1,)."""
        bins, happened, n_bins = self.patients.bins, self.patients.happened, len(self.agreed.times) + 1
        events, censored = (np.bincount(bins[of], minlength=n_bins).astype(float) for of in (happened, ~happened))
        return events, censored

    def _remember(self, request: Candidates) -> None:
        memory = self.agreed
        digest = hashlib.sha256(encode(request)).hexdigest()
        if not isinstance(memory, Memory) or memory.models_digest not in ("", digest):
            raise ConfigurationError(
                "models must be the same throughout a fit; got other models", where="models", hint="Start a new fit."
            )
        _check(request, len(memory.times), len(self.data))
        self.state = replace(memory, models_digest=digest)


def _check(request: Candidates, n_times: int, n_patients: int) -> None:
    if not 1 <= len(request.lengths) <= MAX_MODELS:
        raise ConfigurationError(
            f"there must be 1 to {MAX_MODELS} models; got {len(request.lengths)} models",
            where="models",
            hint="Stack fewer models.",
        )
    staying = request.staying
    falls = len(staying) == n_times and (np.diff(staying) <= 0).all() and staying.min() >= 0 and staying.max() <= 1
    if not falls or not request.n_patients >= n_patients - 0.5:
        raise MessageError(
            f"staying must hold {n_times} decreasing probabilities, and n_patients be that of all sites; got others",
            where="models",
        )
