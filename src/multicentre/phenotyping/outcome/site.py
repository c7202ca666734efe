"""Site part of the outcome model: the steps that a coordinator can request and their answers.

No step is inherited. Releases are declared in phenotyping/outcome/messages.py. All are terms of sums over sites, except
the answer of ``compute_site_auc``, which is about one site.

A site refits its patients' memberships to public factors and keeps them.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Length, Lengths, Message
from multicentre.core.steps import Acknowledgement, SitePart, step
from multicentre.core.wire import encode
from multicentre.data.events.tensor import EventTensor
from multicentre.errors import ConfigurationError, DataError
from multicentre.phenotyping.kernels.effective_counts import effective_numbers, fewest_in_gram, fewest_patients
from multicentre.phenotyping.outcome import messages
from multicentre.phenotyping.outcome.maths import (
    area_under_curve,
    derive,
    design,
    effective_number,
    patient_weights,
    score_edges,
    split_by_outcome,
)
from multicentre.phenotyping.outcome.phenotypes import refit_memberships

Floats = NDArray[np.float64]

# 256 kB of counts per site.
MAX_BINS = 2**14

# Log odds per standard deviation. Larger coefficients turn the model into a step between two patients, so that its
# derivatives depend on these two.
STEEPEST = 1e3

# Relative to the root mean square of the memberships. Smaller deviations would magnify differences between single
# patients.
FINEST_SPREAD = 1e-3


def check_bins(n_bins: int) -> None:
    """Raise ConfigurationError unless scores are counted in 2 to 16,384 bins.

    Examples
    --------
    >>> check_bins(4096)
    """
    if not 2 <= n_bins <= MAX_BINS:
        raise ConfigurationError(
            f"n_bins must be from 2 to {MAX_BINS}; got {n_bins}", where="n_bins", hint="Set n_bins=4096."
        )


def check_share(test_size: float) -> None:
    """Raise ConfigurationError unless a share, rounded to tenths, is from 0 to 0.9.

    Examples
    --------
    >>> check_share(0.4)
    """
    if not 0 <= round(10 * test_size) <= 9:
        raise ConfigurationError(
            f"test_size must be from 0 to 0.9; got {test_size:g}", where="test_size", hint="Set test_size=0.4."
        )


def check_coefficients(coefficients: Floats) -> None:
    """Raise ConfigurationError if a coefficient is so large that probabilities step from 0 to 1 between two patients.

    Examples
    --------
    >>> check_coefficients(np.array([-2.0, 1.0]))
    """
    if np.abs(coefficients).max() > STEEPEST:
        raise ConfigurationError(
            f"coefficients must be at most {STEEPEST:g} in size; got {np.abs(coefficients).max():g}",
            where="coefficients",
            hint="Fit with a larger alpha.",
        )


def check_spread(spread: Floats, memberships: Floats) -> None:
    """Raise ConfigurationError if deviations are far below the memberships that they standardise.

    Parameters
    ----------
    spread : array of shape (r,)
    memberships : array of shape (n, r)
        Memberships of the site's patients; a deviation is at least a thousandth of their root mean square.

    Examples
    --------
    >>> check_spread(np.array([0.5]), np.array([[1.0], [2.0]]))
    """
    size = np.sqrt((memberships**2).mean(axis=0))
    if (spread <= 0).any() or (spread < FINEST_SPREAD * size).any():
        raise ConfigurationError(
            f"deviations must be at least {FINEST_SPREAD:g} of the memberships' root mean square; got a smaller one",
            where="spread",
            hint="Send the deviations over all patients; leave out a phenotype whose memberships are all equal.",
        )


def check_unchanged(previous: Floats | None, current: Floats, where: str) -> None:
    """Raise ConfigurationError if a request differs from the previous one.

    Examples
    --------
    >>> check_unchanged(None, np.ones(2), "spread")
    """
    if previous is not None and not np.array_equal(previous, current):
        raise ConfigurationError(
            f"{where} must be the same in every request of a fit; got different values",
            where=where,
            hint="Begin a new fit.",
        )


Flags = NDArray[np.bool_]

# Rounding error of effective numbers; 10 equal patients must not count as 9.
ROUNDING = 1e-6


class OutcomeSite(SitePart):
    """Site part of the model of an outcome."""

    method: ClassVar[str] = "phenotype-outcome"
    revision: ClassVar[int] = 2
    holds: ClassVar[type] = EventTensor
    remembers: ClassVar[type[Message]] = messages.SiteMemory
    lengths: ClassVar[Lengths] = {
        "r": "phenotypes",
        "p": "coefficients: the phenotypes and the intercept",
        "b": Length("bins of the score", "n_bins"),
    }
    data: EventTensor
    state: messages.SiteMemory | None = None

    def n_parameters(self, request: Message) -> int:
        """Return the number of coefficients: the intercept, and one per phenotype."""
        return 0 if self.state is None else 1 + self.state.memberships.shape[1]

    @step(releases=Acknowledgement, when="once")
    def prepare(self, request: messages.Prepare) -> Acknowledgement:
        """Refit the patients' memberships and draw the held-out patients, once; nothing leaves the site."""
        ask_digest = hashlib.sha256(encode(request)).hexdigest()
        if self.state is not None:
            if self.state.ask_digest != ask_digest:
                raise ConfigurationError(
                    "the preparation must be the same in every request of a fit; got a different one",
                    where="prepare",
                    hint="Begin a new fit.",
                )
            return Acknowledgement()
        check_bins(request.n_bins)
        held_out = self._split(request)
        if not self.data.align(request.codes).nnz:
            raise DataError(
                "at least one patient must have a code of the phenotypes; got none",
                where="codes",
                hint="Compare the site's code systems and spelling with the phenotypes', or leave the site out.",
            )
        # All may be 0: where noise left little of the phenotypes, nobody at the site may have one.
        memberships = refit_memberships(self.data, request.codes, request.factors, nonnegative=request.nonnegative)
        self.state = messages.SiteMemory(memberships, held_out, request.n_bins, ask_digest)
        return Acknowledgement()

    @step(releases=messages.Moments, when="once", summed=True)
    def sum_moments(self, request: messages.PatientSubset) -> messages.Moments:
        """Count patients and outcomes, and sum memberships and their products, for means and deviations."""
        rows = self._rows(request)
        memberships = self.memory.memberships[rows]
        return messages.Moments(
            n_patients=float(rows.sum()),
            n_outcomes=float(self._outcomes[rows].sum()),
            total=memberships.sum(axis=0),
            products=memberships.T @ memberships,
            patients=self._behind(rows),
        )

    @step(releases=messages.Sums, when="every round", summed=True)
    def sum_derivatives(self, request: messages.Model) -> messages.Sums:
        """Sum the log-likelihood of the outcomes under the model, and its derivatives."""
        rows = self._rows(request)
        standardised = self._standardise(request)
        derivatives = derive(standardised[rows], self._outcomes[rows].astype(np.float64), request.coefficients)
        parts = _parts(self.memory.held_out) if request.everyone else [rows]
        unsure = [int(effective_number(standardised[part], request.coefficients) + ROUNDING) for part in parts]
        if not self.masked:
            unsure += [self._fewest_in_derivatives(standardised, part, request.coefficients) for part in parts]
        return messages.Sums(
            float(rows.sum()),
            derivatives.log_likelihood,
            derivatives.gradient,
            derivatives.information,
            patients=min(self._behind(rows), *unsure),
        )

    @step(releases=messages.ScoreCounts, when="at the end", summed=True)
    def count_scores(self, request: messages.Model) -> messages.ScoreCounts:
        """Count held-out patients by score and outcome."""
        scores, outcomes = self._score_held_out(request)
        n_bins = self.memory.n_bins
        bins = np.searchsorted(score_edges(request.coefficients, n_bins), scores, side="right")
        counts = [np.bincount(bins[of], minlength=n_bins).astype(np.float64) for of in (outcomes, ~outcomes)]
        behind = len(scores) if self.masked else fewest_patients(np.concatenate(counts), len(scores))
        return messages.ScoreCounts(*counts, patients=behind)

    @step(releases=messages.SiteArea, when="on request", refusable=True)
    def compute_site_auc(self, request: messages.Model) -> messages.SiteArea:
        """Return the area under the curve for the site's held-out patients.

        This is one number per site, outside any sum. An analyst requests it to compare the model's performance
        between sites.
        """
        scores, outcomes = self._score_held_out(request)
        fewer = min(int(outcomes.sum()), int((~outcomes).sum()))
        if not fewer:
            return messages.SiteArea(patients=0)
        return messages.SiteArea(area_under_curve(scores, outcomes), patients=fewer)

    @property
    def memory(self) -> messages.SiteMemory:
        """Memberships and the split.

        Raises
        ------
        ConfigurationError
            The site was not prepared.
        """
        if self.state is None:
            raise ConfigurationError(
                "the site must be prepared before this step; got no preparation",
                where=self.method,
                hint="Begin the fit again.",
            )
        return self.state

    @property
    def _outcomes(self) -> NDArray[np.int8]:
        if self.data.outcomes is None:
            raise DataError(
                "the patients must have outcomes; got none",
                where="outcomes",
                hint="Set 0 or 1 for every patient, as EventTensor(..., outcomes=...), or leave the site out.",
            )
        return self.data.outcomes

    def _rows(self, request: messages.PatientSubset) -> Flags:
        return np.ones(len(self.data), dtype=np.bool_) if request.everyone else ~self.memory.held_out

    def _split(self, request: messages.Prepare) -> Flags:
        """Draw the held-out patients by the seed, the share and the site's data, which no coordinator receives."""
        check_share(request.test_size)
        data_digest = int(self.data.digest()[:16], 16)
        return split_by_outcome(
            self._outcomes, request.test_size, self.generator(request.seed, round(10 * request.test_size), data_digest)
        )

    def _standardise(self, request: messages.Model) -> Floats:
        """Return every patient's row of the design, by the scale of the first request."""
        check_coefficients(request.coefficients)
        check_spread(request.spread, self.memory.memberships)
        scale = np.stack([request.centre, request.spread])
        check_unchanged(self.memory.whole_scale if request.everyone else self.memory.training_scale, scale, "spread")
        memory = (
            replace(self.memory, whole_scale=scale) if request.everyone else replace(self.memory, training_scale=scale)
        )
        self.state = memory
        return design(self.memory.memberships, request.centre, request.spread)

    def _score_held_out(self, request: messages.Model) -> tuple[Floats, Flags]:
        """Return scores and outcomes of the held-out patients, by the model of the training patients."""
        scores = self._standardise(replace(request, everyone=False)) @ request.coefficients
        check_unchanged(self.memory.scored, request.coefficients, "coefficients")
        self.state = replace(self.memory, scored=request.coefficients)
        held_out = self.memory.held_out
        return scores[held_out], self._outcomes[held_out] == 1

    def _behind(self, rows: Flags) -> int:
        """Return the number of patients in a sum over some rows: all of these under a mask.

        Unmasked it is the fewest with one outcome, or with one phenotype, among the held-out or the training patients:
        the difference of a sum over everyone and a sum over the training patients is one over the held-out patients.
        """
        if self.masked:
            return int(rows.sum())
        return min(self._fewest_in(part) for part in _parts(self.memory.held_out))

    def _fewest_in(self, part: Flags) -> int:
        """Return the fewest patients of a part with an outcome, or behind a cell of products of memberships."""
        with_outcome, memberships = int(self._outcomes[part].sum()), self.memory.memberships[part]
        return fewest_patients(
            [with_outcome, int(part.sum()) - with_outcome, fewest_in_gram(memberships)], len(self.data)
        )

    def _fewest_in_derivatives(self, standardised: Floats, part: Flags, coefficients: Floats) -> int:
        """Return the fewest patients behind a cell of the derivatives over a part, in effect."""
        weights = patient_weights(standardised[part], self._outcomes[part].astype(np.float64), coefficients)
        sums = effective_numbers(np.column_stack([weights.log_likelihood, weights.gradient]))
        return min(fewest_patients(sums, len(self.data)), fewest_in_gram(weights.root_information))


def _parts(held_out: Flags) -> list[Flags]:
    """Return the training patients, and those held out where there are any."""
    return [~held_out, held_out] if held_out.any() else [~held_out]
