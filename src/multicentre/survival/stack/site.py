"""Site part of FedStack: the steps that a coordinator can request.

Steps also inherited: ``describe``, ``sum_sizes``, ``sum_squares``, ``count_times``, ``count_columns``,
``compare_units``, ``tell_times`` and ``agree`` from survival/agreement/site.py; ``count_gaps``, ``handle_gaps``,
``add_indicators`` and ``report_gaps`` from data/missing/values.py. Of these, ``tell_times`` (event times, only with
``exact_times``) and ``report_gaps`` return values of a single site.

The site applies the received models to its patients, and sums the products that give the integrated Brier score of any
mixture of them: one number per pair of models, independent of the number of patients. It answers for one set of models
per fit. Unmasked, the number of patients behind both steps is that of the smallest bin, because a coordinator could
forge weights for single times.
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
from multicentre.errors import ConfigurationError, MessageError
from multicentre.survival.agreement.messages import PATIENTS, Agreed
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.fitted_models import KINDS
from multicentre.survival.fitted_models.base import split

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

Flags = NDArray[np.bool_]

# Largest inverse probability of censoring: probabilities below 0.1 count as 0.1.
LARGEST_WEIGHT = 10.0

# Relative ridge that makes the minimum unique if two models are equal.
RIDGE = 1e-10


def chance_of_staying(events: Floats, censored: Floats, n_patients: float) -> Floats:
    """Return the reverse Kaplan-Meier curve on the grid, shape (K,); events of a bin come before its censorings.

    Parameters
    ----------
    events, censored : array of shape (K,)
        Patients by bin of the end of their follow-up.
        n_patients : float
            Number of all patients, including those followed beyond the grid.

    Examples
    --------
    >>> chance_of_staying(np.array([1.0, 0.0]), np.array([1.0, 1.0]), 4.0).tolist()
    [0.6666666666666667, 0.33333333333333337]
    """
    at_risk = n_patients - np.concatenate([[0.0], np.cumsum(events + censored)[:-1]]) - events
    share = np.divide(censored, at_risk, out=np.zeros_like(censored), where=at_risk > 0)
    return np.asarray(np.cumprod(1.0 - np.clip(share, 0.0, 1.0)), dtype=np.float64)


def error_weights(bins: Integers, happened: Flags, staying: Floats, grid: Floats) -> Floats:
    """Return the weight of every patient's squared error at every time, shape (n, K) (Graf et al., 1999).

    The weight is the bin's share of the horizon divided by the probability of not being censored. For patients followed
    beyond the time, it is the probability up to this time; for patients with an event, the probability up to just
    before the event. Censored patients have weight 0. A probability below 0.1 counts as 0.1. Without that cap the
    weights at each time sum to the number of patients.

    Parameters
    ----------
    bins : array of shape (n,)
    happened : array of shape (n,)
    staying : array of shape (K,)
        Result of :func:`chance_of_staying`.
    grid : array of shape (K,)

    Examples
    --------
    >>> bins, happened = np.array([0, 0, 1, 2]), np.array([True, False, False, False])
    >>> staying = chance_of_staying(np.array([1.0, 0.0]), np.array([1.0, 1.0]), 4.0)
    >>> error_weights(bins, happened, staying, np.array([0.5, 1.0])).sum(axis=0).round(12).tolist()
    [2.0, 2.0]
    """
    inverse = np.minimum(1.0 / np.maximum(staying, 1e-300), LARGEST_WEIGHT)
    before = np.concatenate([[1.0], inverse])[bins]
    beyond = bins[:, None] > np.arange(len(grid))
    weights = np.where(beyond, inverse, np.where(happened, before, 0.0)[:, None])
    return np.asarray(weights * np.diff(grid, prepend=0.0) / grid[-1], dtype=np.float64)


def sum_products(curves: Floats, outcomes: Floats, weights: Floats) -> tuple[Floats, Floats, float]:
    """Return Q (m, m), c (m,) and k with ``sum of weights * (shares @ curves - outcomes)**2 = w'Qw - 2c'w + k``.

    Parameters
    ----------
    curves : array of shape (m, n, K)
        Survival curves of n patients under m models.
    outcomes, weights : array of shape (n, K)
        1 while the patient is free of the event, and weight of the error.

    Examples
    --------
    >>> sum_products(np.array([[[0.5]], [[1.0]]]), np.ones((1, 1)), np.full((1, 1), 2.0))
    (array([[0.5, 1. ], [1. , 2. ]]), array([1., 2.]), 2.0)
    """
    flat = curves.reshape(len(curves), -1)
    scaled = flat * weights.ravel()
    return scaled @ flat.T, scaled @ outcomes.ravel(), float((weights * outcomes**2).sum())


def integrated_brier(products: Floats, targets: Floats, constant: float, shares: Floats) -> float:
    """Return the integrated Brier score of a mixture, ``w'Qw - 2c'w + k``."""
    return float(shares @ products @ shares - 2.0 * targets @ shares + constant)


def minimise_on_simplex(products: Floats, targets: Floats) -> Floats:
    """Return the non-negative shares with sum 1 that minimise ``w'Qw - 2c'w``, by an active-set method.

    If several are optimal (two models are equal), the most even shares are returned.

    Parameters
    ----------
    products : array of shape (m, m)
        Q, positive semi-definite.
    targets : array of shape (m,)
        c.

    Examples
    --------
    >>> minimise_on_simplex(np.eye(3), np.array([1.0, 0.5, -4.0])).round(9).tolist()
    [0.75, 0.25, 0.0]
    >>> minimise_on_simplex(np.ones((2, 2)), np.ones(2)).round(6).tolist()
    [0.5, 0.5]
    """
    n = len(targets)
    curvature = products + RIDGE * max(float(np.trace(products)) / n, 1e-300) * np.eye(n)
    shares = np.eye(n)[int(np.argmin(np.diag(curvature) - 2.0 * targets))]
    active = shares > 0
    for _ in range(20 * n + 20):
        target, level = _stationary(curvature, targets, active)
        shares, active = _towards(shares, target, active)
        if (target < 0).any():
            continue
        slopes = curvature @ shares - targets
        slopes[active] = level
        steepest = int(np.argmin(slopes))
        if slopes[steepest] >= level - 1e-13 * (1.0 + abs(level)):
            break
        active[steepest] = True
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def _stationary(curvature: Floats, targets: Floats, active: Flags) -> tuple[Floats, float]:
    """Return the minimum with sum 1 and zeros at inactive places, and the common slope of the active ones."""
    places = np.flatnonzero(active)
    bordered = np.ones((len(places) + 1, len(places) + 1))
    bordered[:-1, :-1], bordered[-1, -1] = curvature[np.ix_(places, places)], 0.0
    solved = np.linalg.solve(bordered, np.append(targets[places], 1.0))
    target = np.zeros(len(targets))
    target[places] = solved[:-1]
    return target, -float(solved[-1])


def _towards(shares: Floats, target: Floats, active: Flags) -> tuple[Floats, Flags]:
    """Move to the target as far as shares remain non-negative; shares that reach 0 become inactive."""
    falling = target < 0
    if not falling.any():
        return target, active
    fractions = shares[falling] / (shares[falling] - target[falling])
    moved = shares + float(fractions.min()) * (target - shares)
    at_zero = falling & (moved <= 1e-15)
    if not at_zero.any():
        at_zero[np.flatnonzero(falling)[int(np.argmin(fractions))]] = True
    return np.where(at_zero, 0.0, np.maximum(moved, 0.0)), active & ~at_zero


# Largest magnitude of a site's mean products, for masking: they are at most LARGEST_WEIGHT.
LARGEST_ERROR = 16.0


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

    products: Floats = array("weighted mean product of two models' curves", ("m", "m"), bound=LARGEST_ERROR)
    targets: Floats = array("weighted mean product of a model's curves and the outcomes", ("m",), bound=LARGEST_ERROR)
    constant: float = number("weighted mean square of the outcomes", bound=LARGEST_ERROR)


@dataclass(frozen=True)
class Memory(Agreed):
    """State of a site: the agreement, and the models that it answered for."""

    models_digest: str = text("digest of the models; empty before the first request")


# Largest number of models of a mixture.
MOST_MODELS = 32

# Patients per block, which limits memory.
N_ROWS = 2048


class StackSite(SurvivalPart):
    """Site part of FedStack."""

    method: ClassVar[str] = "fed-stack"
    remembers: ClassVar[type[Message]] = Memory
    lengths: ClassVar[Lengths] = {"K": "bins of time", "m": "models that are stacked"}
    state: Memory | None = None

    def first_memory(self, agreed: Agreed) -> Memory:
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
        return Errors(products, targets, constant, patients=self.behind(np.concatenate(self._ends)))

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
    if not 1 <= len(request.lengths) <= MOST_MODELS:
        raise ConfigurationError(
            f"there must be 1 to {MOST_MODELS} models; got {len(request.lengths)} models",
            where="models",
            hint="Stack fewer models.",
        )
    staying = request.staying
    falls = len(staying) == n_times and (np.diff(staying) <= 0).all() and staying.min() >= 0 and staying.max() <= 1
    if not falls or not request.n_patients >= n_patients - 0.5:
        raise MessageError(
            f"staying must hold {n_times} decreasing probabilities, and n_patients be at least {n_patients}; got "
            "others",
            where="models",
        )
