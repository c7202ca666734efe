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
from multicentre.federation.messages import Message
from multicentre.federation.steps import Acknowledgement, SitePart, step
from multicentre.federation.wire import encode
from multicentre.phenotyping.kernels.memberships import common_columns
from multicentre.phenotyping.prediction import limits
from multicentre.phenotyping.prediction import messages as sent
from multicentre.phenotyping.prediction.maths.logistic import derive, design, effective_number
from multicentre.phenotyping.prediction.maths.ranking import (
    area_under_curve,
    count_in_groups,
    score_edges,
    split_by_outcome,
)
from multicentre.phenotyping.prediction.phenotypes import refit_memberships

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
ROUNDING = 1e-6


class OutcomeSite(SitePart):
    """The site part of the model of an outcome."""

    method: ClassVar[str] = "phenotype-outcome"
    holds: ClassVar[type] = EventTensor
    remembers: ClassVar[type[Message]] = sent.SiteMemory
    data: EventTensor
    state: sent.SiteMemory | None = None

    @step(releases=Acknowledgement, when="once")
    def prepare(self, ask: sent.Prepare) -> Acknowledgement:
        """Refit the patients' memberships and draw who is held out, once; nothing leaves."""
        asked = hashlib.sha256(encode(ask)).hexdigest()
        if self.state is not None:
            if self.state.asked != asked:
                raise ConfigurationError("it was prepared otherwise", where="prepare", mend="Begin a new fit.")
            return Acknowledgement()
        limits.check_bins(ask.n_bins)
        held_out = self._split(ask)
        memberships = refit_memberships(self.data, ask.codes, ask.factors, nonnegative=ask.nonnegative)
        if not memberships.any():
            raise DataError(
                "no patient has a code of the phenotypes",
                where="codes",
                mend="Compare the site's code systems and spelling with the phenotypes', or leave the site out.",
            )
        for part in _parts(held_out):
            kept, _ = common_columns(memberships[part], ask.fewest)
            memberships = memberships * kept.any(axis=0)
            self._check_outcomes(part, ask.fewest)
        self.state = sent.SiteMemory(memberships, held_out, ask.fewest, ask.n_bins, asked)
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
            patients=self._behind(),
        )

    @step(releases=sent.Sums, when="every round", summed=True)
    def sum_derivatives(self, ask: sent.Model) -> sent.Sums:
        """Sum the log-likelihood of the outcomes under the model, and its derivatives."""
        rows = self._rows(ask)
        standardised = self._standardise(ask)
        found = derive(standardised[rows], self._outcomes[rows].astype(np.float64), ask.coefficients)
        parts = _parts(self.memory.held_out) if ask.everyone else [rows]
        unsure = [int(effective_number(standardised[part], ask.coefficients) + ROUNDING) for part in parts]
        return sent.Sums(
            float(rows.sum()),
            found.log_likelihood,
            found.gradient,
            found.information,
            patients=min(self._behind(), *unsure),
        )

    @step(releases=sent.ScoreCounts, when="at the end", summed=True)
    def count_scores(self, ask: sent.Model) -> sent.ScoreCounts:
        """Count held-out patients by score and outcome; small counts are joined, and left out where all are few."""
        scores, outcomes = self._score_held_out(ask)
        edges = score_edges(ask.coefficients, self.memory.n_bins)
        counts = [count_in_groups(scores[of], edges, self.memory.fewest) for of in (outcomes, ~outcomes)]
        groups = np.concatenate([places[0][places[0] > 0] for places in counts])
        return sent.ScoreCounts(*counts, patients=int(groups.min()) if len(groups) else 0)

    @step(releases=sent.OwnArea, when="on request")
    def rank_own(self, ask: sent.Model) -> sent.OwnArea:
        """Tell how well the model ranks the site's own held-out patients.

        A sum over sites cannot answer for one of them, so this is the site's own answer, one number. It is asked for
        when an analyst wants to know where a model serves worse.
        """
        scores, outcomes = self._score_held_out(ask)
        fewer = min(int(outcomes.sum()), int((~outcomes).sum()))
        if fewer < max(self.memory.fewest, 1):
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
            raise ConfigurationError("the site was not prepared", where=self.method, mend="Begin the fit anew.")
        return self.state

    @property
    def _outcomes(self) -> NDArray[np.int8]:
        if self.data.outcomes is None:
            raise DataError(
                "the patients have no outcomes",
                where="outcomes",
                mend="Give every patient 0 or 1, as EventTensor(..., outcomes=...), or leave the site out.",
            )
        return self.data.outcomes

    def _rows(self, ask: sent.Among) -> Flags:
        return np.ones(len(self.data), dtype=np.bool_) if ask.everyone else ~self.memory.held_out

    def _split(self, ask: sent.Prepare) -> Flags:
        """Draw who is held out by the seed, the share and the site's own data, which no coordinator knows."""
        limits.check_share(ask.holdout)
        own = int(self.data.digest()[:16], 16)
        return split_by_outcome(self._outcomes, ask.holdout, self.generator(ask.seed, round(10 * ask.holdout), own))

    def _standardise(self, ask: sent.Model) -> Floats:
        """Return every patient's row of the design, by a scale that stays what it was when first given."""
        limits.check_coefficients(ask.coefficients)
        limits.check_spread(ask.spread, self.memory.memberships)
        scale = np.stack([ask.centre, ask.spread])
        limits.check_unchanged(self.memory.whole_scale if ask.everyone else self.memory.training_scale, scale, "spread")
        kept = replace(self.memory, whole_scale=scale) if ask.everyone else replace(self.memory, training_scale=scale)
        self.state = kept
        return design(self.memory.memberships, ask.centre, ask.spread)

    def _score_held_out(self, ask: sent.Model) -> tuple[Floats, Flags]:
        """Return scores and outcomes of those held out, by the one model of the training patients."""
        scores = self._standardise(replace(ask, everyone=False)) @ ask.coefficients
        limits.check_unchanged(self.memory.scored, ask.coefficients, "coefficients")
        self.state = replace(self.memory, scored=ask.coefficients)
        held_out = self.memory.held_out
        return scores[held_out], self._outcomes[held_out] == 1

    def _behind(self) -> int:
        """Return the fewest patients with one outcome, or with one phenotype, among those held out or those not.

        A sum over everyone tells, less the sum over the training patients, of those held out, whichever is asked first.
        """
        return min(self._fewest_in(part) for part in _parts(self.memory.held_out))

    def _check_outcomes(self, part: Flags, fewest: int) -> None:
        with_outcome = int(self._outcomes[part].sum())
        if 0 < with_outcome < fewest or 0 < int(part.sum()) - with_outcome < fewest:
            raise DataError(
                f"fewer than {fewest} training or held-out patients share an outcome",
                where="outcomes",
                mend="Use holdout=0.5 or holdout=0.0, or leave the site out.",
            )

    def _fewest_in(self, part: Flags) -> int:
        with_outcome = int(self._outcomes[part].sum())
        _, members = common_columns(self.memory.memberships[part], 0)
        counts = np.array([with_outcome, int(part.sum()) - with_outcome, members])
        return int(counts[counts > 0].min(initial=len(self.data)))


def _parts(held_out: Flags) -> list[Flags]:
    """Return the training patients, and those held out where there are any."""
    return [~held_out, held_out] if held_out.any() else [~held_out]
