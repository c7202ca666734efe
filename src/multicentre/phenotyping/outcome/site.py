"""The model of an outcome beside the patients: all that a coordinator can ask of a site, and all that it answers.

A site refits its patients' memberships to public factors and keeps them. What leaves are sums over its patients, as
terms of sums over sites; only :meth:`OutcomeSite.rank_own` answers for the site alone, and only on request.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.events.tensor import EventTensor
from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.federation.messages import Length, Lengths, Message
from multicentre.federation.steps import Acknowledgement, SitePart, step
from multicentre.federation.wire import encode
from multicentre.phenotyping.kernels.behind import effective_numbers, fewest_behind, fewest_in_gram
from multicentre.phenotyping.outcome import messages as sent
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

MOST_BINS = 2**14  # 256 kB of counts; half the default's resolution is .0001 of an area

STEEPEST = 1e3

FINEST_SPREAD = 1e-3


def check_bins(n_bins: int) -> None:
    """Raise ConfigurationError unless scores are counted in 2 to 16,384 bins.

    Examples
    --------
    >>> check_bins(4096)
    """
    if not 2 <= n_bins <= MOST_BINS:
        raise ConfigurationError(f"{n_bins} is not from 2 to {MOST_BINS}", where="n_bins", hint="Give 4096, say.")


def check_share(test_size: float) -> None:
    """Raise ConfigurationError unless a share, rounded to tenths, is from 0 to 0.9.

    Examples
    --------
    >>> check_share(0.4)
    """
    if not 0 <= round(10 * test_size) <= 9:
        raise ConfigurationError(f"{test_size:g} is not from 0 to 0.9", where="test_size", hint="Give 0.4, say.")


def check_coefficients(coefficients: Floats) -> None:
    """Raise ConfigurationError where a coefficient is so large that chances step from 0 to 1 between two patients.

    Examples
    --------
    >>> check_coefficients(np.array([-2.0, 1.0]))
    """
    if np.abs(coefficients).max() > STEEPEST:
        raise ConfigurationError(
            f"a coefficient is above {STEEPEST:g}", where="coefficients", hint="Fit with a larger alpha."
        )


def check_spread(spread: Floats, memberships: Floats) -> None:
    """Raise ConfigurationError where deviations are far below the memberships that they are to bring to one scale.

    Parameters
    ----------
    spread : array of shape (r,)
    memberships : array of shape (n, r)
        The site's own; a deviation is at least a thousandth of their root mean square.

    Examples
    --------
    >>> check_spread(np.array([0.5]), np.array([[1.0], [2.0]]))
    """
    size = np.sqrt((memberships**2).mean(axis=0))
    if (spread <= 0).any() or (spread < FINEST_SPREAD * size).any():
        raise ConfigurationError(
            "a deviation of memberships is far below the site's own memberships",
            where="spread",
            hint="Give the deviations over all patients; leave out a phenotype that all have alike.",
        )


def check_unchanged(known: Floats | None, given: Floats, where: str) -> None:
    """Raise ConfigurationError where a site was given something else before.

    Examples
    --------
    >>> check_unchanged(None, np.ones(2), "spread")
    """
    if known is not None and not np.array_equal(known, given):
        raise ConfigurationError("the site was given another before", where=where, hint="Begin a new fit.")


Flags = NDArray[np.bool_]

ROUNDING = 1e-6


class OutcomeSite(SitePart):
    """The site part of the model of an outcome."""

    method: ClassVar[str] = "phenotype-outcome"
    holds: ClassVar[type] = EventTensor
    remembers: ClassVar[type[Message]] = sent.SiteMemory
    lengths: ClassVar[Lengths] = {
        "r": "phenotypes",
        "p": "coefficients: the phenotypes and the intercept",
        "b": Length("bins of the score", "n_bins"),
    }
    data: EventTensor
    state: sent.SiteMemory | None = None

    def n_parameters(self, ask: Message) -> int:
        """Return the number of coefficients: the intercept, and one per phenotype."""
        return 0 if self.state is None else 1 + self.state.memberships.shape[1]

    @step(releases=Acknowledgement, when="once")
    def prepare(self, ask: sent.Prepare) -> Acknowledgement:
        """Refit the patients' memberships and draw who is held out, once; nothing leaves."""
        asked = hashlib.sha256(encode(ask)).hexdigest()
        if self.state is not None:
            if self.state.asked != asked:
                raise ConfigurationError("it was prepared otherwise", where="prepare", hint="Begin a new fit.")
            return Acknowledgement()
        check_bins(ask.n_bins)
        held_out = self._split(ask)
        if not self.data.align(ask.codes).nnz:
            raise DataError(
                "no patient has a code of the phenotypes",
                where="codes",
                hint="Compare the site's code systems and spelling with the phenotypes', or leave the site out.",
            )
        # All may be 0: where noise left little of the phenotypes, nobody at the site may have one.
        memberships = refit_memberships(self.data, ask.codes, ask.factors, nonnegative=ask.nonnegative)
        self.state = sent.SiteMemory(memberships, held_out, ask.n_bins, asked)
        return Acknowledgement()

    @step(releases=sent.Moments, when="once", summed=True)
    def sum_moments(self, ask: sent.Among) -> sent.Moments:
        """Count patients and outcomes, and sum memberships and their products, for means and deviations."""
        rows = self._rows(ask)
        own = self.memory.memberships[rows]
        return sent.Moments(
            n_patients=float(rows.sum()),
            n_outcomes=float(self._outcomes[rows].sum()),
            total=own.sum(axis=0),
            products=own.T @ own,
            patients=self._behind(rows),
        )

    @step(releases=sent.Sums, when="every round", summed=True)
    def sum_derivatives(self, ask: sent.Model) -> sent.Sums:
        """Sum the log-likelihood of the outcomes under the model, and its derivatives."""
        rows = self._rows(ask)
        standardised = self._standardise(ask)
        found = derive(standardised[rows], self._outcomes[rows].astype(np.float64), ask.coefficients)
        parts = _parts(self.memory.held_out) if ask.everyone else [rows]
        unsure = [int(effective_number(standardised[part], ask.coefficients) + ROUNDING) for part in parts]
        if not self.masked:
            unsure += [self._fewest_in_derivatives(standardised, part, ask.coefficients) for part in parts]
        return sent.Sums(
            float(rows.sum()),
            found.log_likelihood,
            found.gradient,
            found.information,
            patients=min(self._behind(rows), *unsure),
        )

    @step(releases=sent.ScoreCounts, when="at the end", summed=True)
    def count_scores(self, ask: sent.Model) -> sent.ScoreCounts:
        """Count held-out patients by score and outcome."""
        scores, outcomes = self._score_held_out(ask)
        n_bins = self.memory.n_bins
        bins = np.searchsorted(score_edges(ask.coefficients, n_bins), scores, side="right")
        counts = [np.bincount(bins[of], minlength=n_bins).astype(np.float64) for of in (outcomes, ~outcomes)]
        behind = len(scores) if self.masked else fewest_behind(np.concatenate(counts), len(scores))
        return sent.ScoreCounts(*counts, patients=behind)

    @step(releases=sent.OwnArea, when="on request", refusable=True)
    def rank_own(self, ask: sent.Model) -> sent.OwnArea:
        """Tell how well the model ranks the site's own held-out patients.

        A sum over sites cannot answer for one of them, so this is the site's own answer, one number. It is asked for
        when an analyst wants to know where a model serves worse.
        """
        scores, outcomes = self._score_held_out(ask)
        fewer = min(int(outcomes.sum()), int((~outcomes).sum()))
        if not fewer:
            return sent.OwnArea(patients=0)
        return sent.OwnArea(area_under_curve(scores, outcomes), patients=fewer)

    @property
    def memory(self) -> sent.SiteMemory:
        """Memberships and the split.

        Raises
        ------
        ConfigurationError
            The site was not prepared.
        """
        if self.state is None:
            raise ConfigurationError("the site was not prepared", where=self.method, hint="Begin the fit anew.")
        return self.state

    @property
    def _outcomes(self) -> NDArray[np.int8]:
        if self.data.outcomes is None:
            raise DataError(
                "the patients have no outcomes",
                where="outcomes",
                hint="Give every patient 0 or 1, as EventTensor(..., outcomes=...), or leave the site out.",
            )
        return self.data.outcomes

    def _rows(self, ask: sent.Among) -> Flags:
        return np.ones(len(self.data), dtype=np.bool_) if ask.everyone else ~self.memory.held_out

    def _split(self, ask: sent.Prepare) -> Flags:
        """Draw who is held out by the seed, the share and the site's own data, which no coordinator knows."""
        check_share(ask.test_size)
        own = int(self.data.digest()[:16], 16)
        return split_by_outcome(self._outcomes, ask.test_size, self.generator(ask.seed, round(10 * ask.test_size), own))

    def _standardise(self, ask: sent.Model) -> Floats:
        """Return every patient's row of the design, by a scale that stays what it was when first given."""
        check_coefficients(ask.coefficients)
        check_spread(ask.spread, self.memory.memberships)
        scale = np.stack([ask.centre, ask.spread])
        check_unchanged(self.memory.whole_scale if ask.everyone else self.memory.training_scale, scale, "spread")
        kept = replace(self.memory, whole_scale=scale) if ask.everyone else replace(self.memory, training_scale=scale)
        self.state = kept
        return design(self.memory.memberships, ask.centre, ask.spread)

    def _score_held_out(self, ask: sent.Model) -> tuple[Floats, Flags]:
        """Return scores and outcomes of those held out, by the one model of the training patients."""
        scores = self._standardise(replace(ask, everyone=False)) @ ask.coefficients
        check_unchanged(self.memory.scored, ask.coefficients, "coefficients")
        self.state = replace(self.memory, scored=ask.coefficients)
        held_out = self.memory.held_out
        return scores[held_out], self._outcomes[held_out] == 1

    def _behind(self, rows: Flags) -> int:
        """Return how many patients stand behind a sum over some rows: all of these under a mask.

        Unmasked they are the fewest with one outcome, or with one phenotype, among those held out or those not: a sum
        over everyone less the sum over the training patients is one over those held out, whichever is asked first.
        """
        if self.masked:
            return int(rows.sum())
        return min(self._fewest_in(part) for part in _parts(self.memory.held_out))

    def _fewest_in(self, part: Flags) -> int:
        """Return the fewest patients of a part with an outcome, or behind a cell of products of memberships."""
        with_outcome, own = int(self._outcomes[part].sum()), self.memory.memberships[part]
        return fewest_behind([with_outcome, int(part.sum()) - with_outcome, fewest_in_gram(own)], len(self.data))

    def _fewest_in_derivatives(self, standardised: Floats, part: Flags, coefficients: Floats) -> int:
        """Return the fewest patients behind a cell of the derivatives over a part, in effect."""
        weights = patient_weights(standardised[part], self._outcomes[part].astype(np.float64), coefficients)
        sums = effective_numbers(np.column_stack([weights.log_likelihood, weights.gradient]))
        return min(fewest_behind(sums, len(self.data)), fewest_in_gram(weights.root_information))


def _parts(held_out: Flags) -> list[Flags]:
    """Return the training patients, and those held out where there are any."""
    return [~held_out, held_out] if held_out.any() else [~held_out]
