"""Site part of an evaluation: the steps that a coordinator can request.

Steps also inherited: ``describe``, ``sum_sizes``, ``sum_squares``, ``count_times``, ``count_columns``,
``compare_units``, ``tell_times`` and ``agree`` from survival/agreement/site.py; ``count_gaps``, ``handle_gaps``,
``add_indicators`` and ``report_gaps`` from data/missing/values.py. Of these, ``tell_times`` (event times, only with
``exact_times``) and ``report_gaps`` return values of a single site.

A site computes and stores the model's predictions for its patients. Counts and sums leave the site, as terms of sums
over sites; only :meth:`EvaluationSite.score_own` returns values of a single site. Each step answers one request per
fit, because differences between bins of the same patients would disclose more. Every sum is exact. Unmasked, a sum with
weights by time rests on the patients of each single time, because a coordinator could forge weights for single times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, Nothing
from multicentre.core.steps import Acknowledgement, step
from multicentre.core.wire import encode
from multicentre.data.records import fewest_told_apart
from multicentre.errors import ConfigurationError, DisclosureRefused
from multicentre.statistics.line import MAX_LINES
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.agreement.site import SurvivalPart, check_grid_is_coarse
from multicentre.survival.agreement.sketch import public_times
from multicentre.survival.evaluation import messages
from multicentre.survival.evaluation import settings as limits
from multicentre.survival.evaluation.alone import ALONE_HINT, AloneScores, Followed, Terms, score_alone
from multicentre.survival.evaluation.maths import (
    count_cells,
    count_touched,
    inverse_of,
    mean_weights,
    restricted_mean_edges,
)
from multicentre.survival.fitted_models import EVALUATED_KINDS
from multicentre.survival.fitted_models.base import SurvivalModel, unpack
from multicentre.survival.scores.brier import brier_times, integrated_brier_score, squared_errors
from multicentre.survival.scores.calibration import calibrate_groups, spread_over_bins
from multicentre.survival.scores.concordance import concordance_with_error, sum_pairs
from multicentre.survival.scores.lines import MAX_SCORE, derive_hazard_line
from multicentre.survival.times import at_times, by_end, restricted_mean, to_bins

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# Times of the site at which models are compared.
MAX_SITE_TIMES = 256
# Survival at which the cumulative hazard, about 690, is still a number.
SMALLEST_SURVIVAL = 1e-300
# Patients per block, which limits memory.
BLOCK = 4096


class Predictions:
    """Predictions of a model for patients, computed on access.

    Parameters
    ----------
    model : SurvivalModel
    rows : array of shape (n, d)
        Columns without missing entries.

    Examples
    --------
    >>> from multicentre.survival.fitted_models import CoxModel
    >>> times = np.array([1.0, 3.0])
    >>> model = CoxModel(times, np.zeros(1), np.zeros(1), np.log([2.0, 4.0]), patients=0)
    >>> predictions = Predictions(model, np.zeros((1, 1)))
    >>> predictions.restricted_means.tolist(), predictions.risks(times).round(2).tolist()
    ([2.0], [[0.5, 0.75]])
    """

    def __init__(self, model: SurvivalModel, rows: Floats) -> None:
        self.model = model
        self.rows = rows

    def blocks(self, times: Floats) -> Iterator[tuple[slice, Floats]]:
        """Yield patients, and their survival at given times, shape (block, T)."""
        for start in range(0, len(self.rows), BLOCK):
            part = slice(start, start + BLOCK)
            yield part, at_times(self.model.survival(self.rows[part]), self.model.times, times)

    @cached_property
    def restricted_means(self) -> Floats:
        """Mean time survived up to the model's horizon, shape (n,); independent of the other patients of the site."""
        grid = self.model.times
        return np.concatenate([restricted_mean(curves, grid) for _, curves in self.blocks(grid)])

    def survival(self, times: Floats) -> Floats:
        """Return each patient's survival at given times, shape (n, T)."""
        return np.concatenate([curves for _, curves in self.blocks(times)])

    def risks(self, times: Floats) -> Floats:
        """Return each patient's probability of an event by given times, shape (n, H)."""
        return 1.0 - self.survival(times)

    def survival_at_event(self, time: Floats, event: Flags, horizon: float) -> tuple[Floats, Floats]:
        """Return bounds of survival at the patients' event times, low and high, shape (n,) each.

        An event lies on a step of the curve. If follow-up ended before an event, or at the horizon, survival lies
        between 0 and its linearly interpolated value at the end of follow-up.
        """
        grid = self.model.times
        happened = event & by_end(time, horizon)
        ended = np.minimum(time, horizon)
        places = np.minimum(np.searchsorted(grid, ended, side="left"), len(grid) - 1)
        before = np.concatenate([[0.0], grid])[places]
        width = grid[places] - before
        share = np.divide(ended - before, width, out=np.ones_like(width), where=width > 0)
        low, high = np.empty(len(time)), np.empty(len(time))
        for part, curves in self.blocks(grid):
            ends = np.take_along_axis(curves, places[part, None], axis=1)[:, 0]
            padded = np.concatenate([np.ones((len(curves), 1)), curves], axis=1)
            starts = np.take_along_axis(padded, places[part, None], axis=1)[:, 0]
            within = starts + share[part] * (ends - starts)
            low[part] = np.where(happened[part], ends, 0.0)
            high[part] = np.where(happened[part], starts, within)
        return low, high


Integers = NDArray[np.int64]
# Bins of the predicted restricted mean, of predicted risks, and of survival at the event.
MEAN_BINS = 8192
# Borders between groups of predicted risk are placed to a thousandth.
RISK_BINS = 1000
# Tenths of the range from 0 to 1, as in D-calibration (Haider et al., 2020).
SPREAD_BINS = 10


class EvaluationSite(SurvivalPart):
    """Site part of an evaluation."""

    has_exact_steps: ClassVar[bool] = True
    method: ClassVar[str] = "survival-evaluation"
    revision: ClassVar[int] = 2
    remembers: ClassVar[type[Message]] = messages.Memory
    lengths: ClassVar[Lengths] = {
        "H": "times of calibration",
        "K": "times of events",
        "L": "ends of follow-up",
        "R": "bins of the predicted restricted mean",
        "C": "bins of the time of an event",
        "T": "times of scoring, or the stretches between them",
        "b": "bins of a prediction",
        "c": "bins of the predicted risk",
        "p": "thresholds of net benefit",
        "g": "groups of patients of similar predicted risk",
        "t": "thresholds of the predicted risk",
    }
    state: messages.Memory | None = None

    def first_memory(self, agreed: Prepared) -> messages.Memory:
        """Return the initial state: the agreement, without a model."""
        agreed_fields = {name: getattr(agreed, name) for name in Prepared.declarations()}
        none, no_places = np.zeros(0), np.zeros(0, dtype=np.int64)
        return messages.Memory(
            **agreed_fields,
            packed=np.zeros(0, np.uint8),
            fill=none,
            grid=none,
            places=no_places,
            at=no_places,
            request_digests=(),
        )

    @step(releases=Acknowledgement, when="once")
    def judge(self, request: messages.Scored) -> Acknowledgement:
        """Check and store the model and the times of the evaluation, once per fit."""
        check_grid_is_coarse(request.grid)
        self._take_in(request)
        return Acknowledgement()

    @step(releases=messages.FineTimes, when="once")
    def judge_at_fine_times(self, request: messages.Scored) -> messages.FineTimes:
        """Check and store the model and more than 256 times, which disclose ends of follow-up and need permission."""
        self._take_in(request)
        return messages.FineTimes(np.array([float(len(request.grid))]))

    def _take_in(self, request: messages.Scored) -> None:
        limits.check_times(request)
        limits.check_fill(request.fill, len(self.agreed.columns))
        unpack(request.packed.tobytes(), EVALUATED_KINDS, len(self.agreed.columns))
        state = self._answer_once("judge", request)
        self.state = replace(
            state, packed=request.packed, fill=request.fill, grid=request.grid, places=request.places, at=request.at
        )

    @step(releases=messages.FollowUp, when="once", summed=True)
    def count_follow_up(self, request: Nothing) -> messages.FollowUp:
        """Count patients by time, for the censoring curve, and by prediction, for shared bins."""
        n_times = len(self.memory.grid)
        edges = restricted_mean_edges(float(self.predictions.model.times[-1]), MEAN_BINS)
        means = np.bincount(np.searchsorted(edges, self.predictions.restricted_means), minlength=MEAN_BINS)
        risks = np.minimum((self.risks * RISK_BINS).astype(np.int64), RISK_BINS - 1)
        tables = [
            np.bincount(self.bins[self.happened], minlength=n_times),
            np.bincount(self.bins[~self.happened], minlength=n_times + 1),
            means,
            np.array([np.bincount(column, minlength=RISK_BINS) for column in risks.T]),
        ]
        counts = [table.astype(np.float64) for table in tables]
        return messages.FollowUp(float(len(self.data)), *counts, patients=self._behind_cells(*counts))

    @step(releases=messages.Pairs, when="at the end", summed=True)
    def count_pairs(self, request: messages.ByMean) -> messages.Pairs:
        """Count patients by predicted restricted mean and time, for the concordance over all sites."""
        check_grid_is_coarse(self.agreed.times)
        self._answer_once("count_pairs", request)
        rows = self._rows_of_means(request.edges)
        n_rows, n_times = len(request.edges) + 1, len(self.agreed.times)
        bins = to_bins(self.data.time, self.agreed.times)
        happened = self._of_cause & (bins < n_times)
        events = count_cells(rows[happened], bins[happened], (n_rows, n_times))
        censored = count_cells(rows[~happened], bins[~happened], (n_rows, n_times + 1))
        return messages.Pairs(events, censored, patients=self._behind_cells(events, censored))

    @step(releases=messages.OwnPairs, when="at the end", summed=True)
    def count_own_pairs(self, request: Nothing) -> messages.OwnPairs:
        """Count comparable pairs of the site's patients, and those with risks in the right order."""
        pair_sums = sum_pairs(self.data.time, self._of_cause, -self.predictions.restricted_means)
        return messages.OwnPairs(*pair_sums, patients=self.behind(self._both_outcomes()))

    @step(releases=messages.Errors, when="at the end", summed=True)
    def sum_errors(self, request: messages.CensoringCurve) -> messages.Errors:
        """Sum squared errors of the survival curves at each time, weighted for censoring."""
        self._answer_once("sum_errors", request)
        memory, weights = self.memory, self._weights(request.staying)
        of_controls = inverse_of(request.staying[memory.places])
        times, shares = memory.grid[memory.places], mean_weights(memory.grid[memory.places])
        errors, squares = np.zeros(len(times)), 0.0
        places, bins = memory.places.astype(np.float64), self.bins.astype(np.float64)
        for part, curves in self.predictions.blocks(times):
            block_errors = squared_errors(curves, places, bins[part], self.happened[part], weights[part], of_controls)
            errors += block_errors.sum(axis=0)
            squares += float(np.square(block_errors @ shares).sum())
        stretches = self.stretches
        cases = np.bincount(stretches, weights=weights, minlength=len(times) + 1)[:-1].cumsum()
        leaving = np.bincount(stretches, minlength=len(times) + 1).astype(np.float64)
        controls = len(self.data) - leaving[:-1].cumsum()
        behind = self._behind_cells(*self._weighted_cells(np.zeros_like(self.bins)))
        return messages.Errors(float(len(self.data)), errors, squares, cases, controls, patients=behind)

    @step(releases=messages.Ranks, when="at the end", summed=True)
    def count_ranks(self, request: messages.CensoringByMean) -> messages.Ranks:
        """Count patients by predicted restricted mean and stretch of time, for areas under the curve."""
        self._answer_once("count_ranks", request)
        rows = self._rows_of_means(request.edges)
        shape = len(request.edges) + 1, len(self.memory.places)
        cases = count_cells(rows, self.stretches, shape, self._weights(request.staying))
        leaving = count_cells(rows, self.stretches, (shape[0], shape[1] + 1))
        return messages.Ranks(cases, leaving, patients=self._behind_cells(*self._weighted_cells(rows)))

    @step(releases=messages.Groups, when="at the end", summed=True)
    def count_groups(self, request: messages.ByChance) -> messages.Groups:
        """Count patients by group of predicted risk and time, and by survival at their event, for calibration."""
        self._answer_once("count_groups", request)
        limits.check_groups(request.edges, len(self.memory.at))
        tables = [self._group(place, edges) for place, edges in enumerate(request.edges)]
        n_patients, predicted, events, censored = (np.array(kind) for kind in zip(*tables, strict=True))
        low, high = self.predictions.survival_at_event(self.data.time, self.happened, float(self.memory.grid[-1]))
        totals = [n_patients, events.sum(axis=2), censored.sum(axis=2), count_touched(low, high, SPREAD_BINS)]
        behind = self._behind_times(*totals, events, censored)
        spread = spread_over_bins(low, high, SPREAD_BINS)
        return messages.Groups(n_patients, predicted, events, censored, spread, patients=behind)

    @step(releases=messages.Benefits, when="at the end", summed=True)
    def sum_benefits(self, request: messages.ByThreshold) -> messages.Benefits:
        """Sum weights of patients between thresholds of predicted risk, for decision curves."""
        self._answer_once("sum_benefits", request)
        limits.check_edges(request.thresholds, "thresholds")
        limits.check_staying(request.staying, len(self.memory.grid))
        inverse, n_bins = inverse_of(request.staying), len(request.thresholds) + 1
        weights = self._weights(request.staying)
        cases, controls, cells = [], [], []
        for place, column in zip(self.memory.at.tolist(), self.risks.T, strict=True):
            rows, by_then = np.searchsorted(request.thresholds, column, side="left"), self.bins <= place
            cases.append(np.bincount(rows[by_then], weights=weights[by_then], minlength=n_bins))
            controls.append(inverse[place] * np.bincount(rows[~by_then], minlength=n_bins))
            early = self.happened & by_then
            cells += [count_cells(rows[early], self.bins[early], (n_bins, place + 1)), np.bincount(rows[~by_then])]
        behind = self._behind_times(*cells)
        return messages.Benefits(float(len(self.data)), np.array(cases), np.array(controls), patients=behind)

    @step(releases=messages.LineDerivatives, when="every round", summed=True)
    def sum_lines(self, request: messages.AtLines) -> messages.LineDerivatives:
        """Sum derivatives by intercept and slope of the events by each time, for calibration in the large and slope."""
        self._answer_few("sum_lines", request, MAX_LINES)
        limits.check_lines(request.lines, len(self.memory.at))
        sums: list[list[Integers]] = [[], [], []]
        for lines in request.lines:
            for terms, (intercept, slope) in zip(self.line_terms, lines.tolist(), strict=True):
                for total, values in zip(sums, derive_hazard_line(*terms, intercept, slope), strict=True):
                    total.append(np.rint(values * messages.FIXED).sum(axis=0).astype(np.int64))
        shape = 2, len(self.memory.at), -1
        deviances, gradients, informations = (np.array(total).reshape(shape) for total in sums)
        behind = self._behind_times(*(np.bincount(events) for *_, events in self.line_terms))
        answers = deviances[..., 0], gradients, informations
        return messages.LineDerivatives(*answers, patients=min(behind, self._n_differing))

    @step(releases=messages.OwnScores, when="on request", refusable=True)
    def score_own(self, request: Nothing) -> messages.OwnScores:
        """Return the scores of the model at a single site.

        The answer describes a single site, so that an analyst can compare the sites. It consists of three numbers,
        and four per time of calibration.
        """
        fewest, least = self._fewest_of_both(), max(self.least_behind, 2)
        if fewest < least:
            return messages.OwnScores(patients=0)
        share, error = concordance_with_error(self.data.time, self._of_cause, -self.predictions.restricted_means)
        bins = to_bins(self.data.time, self._own_grid)
        between = np.searchsorted(self.memory.at, bins, side="left") * 2
        between += self._of_cause & (bins <= self.memory.at[-1])
        cells = np.bincount(between)
        fewest_between = int(cells[cells > 0].min())
        ibs = self._own_ibs()
        behind = {"concordance": fewest, "standard_error": fewest} | ({} if ibs is None else {"ibs": fewest})
        if fewest_between < least:
            return messages.OwnScores(share, error, ibs=ibs, patients=behind)
        behind |= {"predicted": len(self.data), "observed": fewest_between}
        return messages.OwnScores(share, error, self.risks.mean(axis=0), self._observed(), ibs, patients=behind)

    @step(releases=AloneScores, when="on request")
    def evaluate_alone(self, request: Nothing) -> AloneScores:
        """Return scores and curves of merged cells, if this is the only site that is evaluated."""
        least, means = max(self.least_behind, 1), self.predictions.restricted_means
        grid = self._own_grid
        times, at = (np.unique(grid[places]) for places in (self.memory.places, self.memory.at))
        times, at = times[np.isfinite(times)], at[np.isfinite(at)]
        fewest = self._fewest_of_both()
        if self.n_peers > 1 or fewest < least or not len(times):
            raise DisclosureRefused(
                f"a site alone must have at least {least} patients with an event and {least} without, and predictions "
                "that differ among as many, also from those of earlier models; it has fewer, or is not alone",
                where=self.site,
                hint=ALONE_HINT,
            )
        followed = Followed(self.data.time, self._of_cause, means, self.predictions.survival, least)
        return score_alone(followed, times, at, float(self.memory.grid[-1]), self._hazard_terms)

    def behind(self, counts: NDArray[np.generic] | None = None) -> int:
        """Return the number of patients behind a sum; unmasked, also of those whom the model tells from the rest."""
        fewest = super().behind(counts)
        has_model = isinstance(self.state, messages.Memory) and len(self.state.packed) > 0
        return min(fewest, self._fewest_told_apart) if has_model and not self.masked else fewest

    def _fewest_of_both(self) -> int:
        """Return the smallest number of patients on whom an answer about this site alone rests."""
        return min(int(self._both_outcomes().min()), self._fewest_told_apart)

    @property
    def _n_differing(self) -> int:
        """Number of patients, in effect, whose predicted restricted mean differs from the median; all if none does."""
        return fewest_told_apart(self.predictions.restricted_means[:, None])

    @cached_property
    def _fewest_told_apart(self) -> int:
        """Fewest patients, in effect, whom the model tells from the rest at a time of scores, or from an earlier model.

        A sum under a model that predicts the same for all patients except a few depends only on those few.
        """
        memory, site_times = self.memory, np.unique(self.data.time)
        # Nobody outside knows the times of the site, and so how to make two models alike in their means at these.
        means, scored = (
            np.concatenate([curves for _, curves in self.predictions.blocks(times)])
            for times in (
                site_times[:: len(site_times) // MAX_SITE_TIMES + 1],
                memory.grid[np.union1d(memory.places, memory.at)],
            )
        )
        means = np.column_stack([self.predictions.restricted_means, means.mean(axis=1)])
        fewest = fewest_told_apart(np.column_stack([means, scored]))
        if self.least_behind < 2 or self.earlier_predictions is None:
            return fewest
        records = f"{self.method} {self.data.digest()}"
        apart = self.earlier_predictions.fewest_apart(records, means, lambda values: fewest_told_apart(values[:, None]))
        return min(fewest, int(apart) or fewest)

    def _own_ibs(self) -> float | None:
        """Return the integrated Brier score of the site's patients; None without common follow-up."""
        time, event, model = self.data.time, self._of_cause, self.predictions.model
        times = brier_times(time, time, event, float(self.memory.grid[-1]))
        if len(times) < 2:
            return None
        curves = at_times(model.survival(self.predictions.rows), model.times, times)
        return integrated_brier_score(curves, times, time, event, time, event)

    @property
    def memory(self) -> messages.Memory:
        """State of the site, with the model to evaluate.

        Raises
        ------
        ConfigurationError
            There is no agreement, or no model.
        """
        if self.state is None or not len(self.state.packed):
            raise ConfigurationError(
                "the site must have a model before this step; got no model", where=self.method, hint="Start a new fit."
            )
        return self.state

    @cached_property
    def predictions(self) -> Predictions:
        """Predictions of the model for the site's patients."""
        model = unpack(self.memory.packed.tobytes(), EVALUATED_KINDS, len(self.agreed.columns))
        rows = model.complete_rows(self.data.X, self.memory.fill, self.data.columns, self.data.levels)
        return Predictions(model, rows)

    @cached_property
    def risks(self) -> Floats:
        """Predicted risk at each time of calibration, shape (n, H)."""
        return self.predictions.risks(self.memory.grid[self.memory.at])

    @cached_property
    def line_terms(self) -> list[Terms]:
        """Terms of the calibration lines at the times of calibration."""
        return self._hazard_terms(self.memory.grid[self.memory.at])

    def _hazard_terms(self, times: Floats) -> list[Terms]:
        """Return expected events up to each time or the end of follow-up, log hazards at it, and events, by time."""
        ends = self.data.time
        grid = self.predictions.model.times
        places = np.searchsorted(grid, np.minimum(ends[:, None], times), side="right")  # 0 before the first time
        expected, hazards = np.empty((len(ends), len(times))), np.empty((len(ends), len(times)))
        at = np.searchsorted(grid, times, side="right")
        for part, curves in self.predictions.blocks(grid):
            padded = np.concatenate([np.ones((len(curves), 1)), curves], axis=1)
            padded = -np.log(np.maximum(padded, SMALLEST_SURVIVAL))
            expected[part], hazards[part] = np.take_along_axis(padded, places[part], axis=1), padded[:, at]
        scores = np.log(np.maximum(hazards, np.exp(-MAX_SCORE)))
        events = self._of_cause[:, None] & (ends[:, None] <= times)
        return [(expected[:, place], scores[:, place], events[:, place]) for place in range(len(times))]

    @cached_property
    def bins(self) -> Integers:
        """Bin of every patient's time on the grid, shape (n,)."""
        return to_bins(self.data.time, self.memory.grid)

    @cached_property
    def happened(self) -> Flags:
        """Flags of patients with the event up to the last time of the grid, shape (n,)."""
        return np.asarray(self._of_cause & (self.bins < len(self.memory.grid)), dtype=np.bool_)

    @property
    def stretches(self) -> Integers:
        """Stretch between the times of scoring that holds each patient's time, shape (n,)."""
        return np.searchsorted(self.memory.places, self.bins, side="left").astype(np.int64)

    @property
    def _of_cause(self) -> Flags:
        return np.asarray(self.data.event == self.agreed.cause, dtype=np.bool_)

    def _both_outcomes(self) -> Integers:
        """Return numbers of patients with an event and without."""
        n_events = int(self._of_cause.sum())
        return np.array([n_events, len(self.data) - n_events])

    @property
    def _own_grid(self) -> Floats:
        """Times of the scores of the site: public ones if the policy sets a minimum of patients."""
        return public_times(self.memory.grid) if self.least_behind > 1 else self.memory.grid

    def _observed(self) -> Floats:
        """Return the observed risk and its interval at each time of calibration, shape (H, 3)."""
        times, one = self._own_grid[self.memory.at], np.zeros(0)
        groups = [
            calibrate_groups(column, self.data.time, self._of_cause, moment, one)
            for column, moment in zip(self.risks.T, times.tolist(), strict=True)
        ]
        return np.array([[each.observed[0], each.lower[0], each.upper[0]] for each in groups])

    def _behind_cells(self, *cells: NDArray[np.number]) -> int:
        """Return the number of patients behind counts, or sums with weights by these cells."""
        return self.behind(np.concatenate([np.ravel(table) for table in cells]))

    def _behind_times(self, *cells: NDArray[np.number]) -> int:
        """Return the number of patients behind counts at the times of calibration.

        The difference of counts at two times discloses the patients with an event between them.
        """
        if not self.masked and len(self.memory.at) > 1:
            return 1
        return self._behind_cells(*cells)

    def _weighted_cells(self, rows: Integers) -> list[Floats]:
        """Return the cells of sums with weights by time: events by row and time, other patients by row and stretch."""
        shape, happened = (int(rows.max()) + 1, len(self.memory.grid) + 1), self.happened
        by_column = (happened, self.bins), (~happened, self.stretches)
        return [count_cells(rows[chosen], columns[chosen], shape) for chosen, columns in by_column]

    def _weights(self, staying: Floats) -> Floats:
        """Return 1 / G at the time of each patient with an event, 0 for the others; shape (n,)."""
        limits.check_staying(staying, len(self.memory.grid))
        places = np.minimum(self.bins, len(staying) - 1)
        return np.where(self.happened, inverse_of(staying)[places], 0.0)

    def _rows_of_means(self, edges: Floats) -> Integers:
        limits.check_edges(edges, "edges")
        return np.searchsorted(edges, self.predictions.restricted_means, side="left").astype(np.int64)

    def _group(self, place: int, edges: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return patients, predicted risks, events and censorings of the groups at one time of calibration."""
        risks, last = self.risks[:, place], int(self.memory.at[place])
        rows, n_rows, n_times = np.searchsorted(edges, risks, side="left"), len(edges) + 1, len(self.memory.grid)
        by_then = self.happened & (self.bins <= last)
        ended = np.where(self.bins <= last, self.bins, n_times)
        events = count_cells(rows[by_then], ended[by_then], (n_rows, n_times))
        censored = count_cells(rows[~by_then], ended[~by_then], (n_rows, n_times + 1))
        counts = np.bincount(rows, minlength=n_rows).astype(np.float64)
        predicted = np.bincount(rows, weights=risks, minlength=n_rows).astype(np.float64)
        return counts, predicted, events, censored

    def _answer_once(self, step: str, request: Message) -> messages.Memory:
        """Store the request of a step, and refuse a different one."""
        return self._answer_few(step, request, 1)

    def _answer_few(self, step: str, request: Message, most: int) -> messages.Memory:
        """Store the request of a step, and refuse more than some different ones."""
        if self.state is None:
            raise ConfigurationError(
                "the site must have an agreement before this step; got none", where=self.method, hint="Start a new fit."
            )
        entry = f"{step} {hashlib.sha256(encode(request)).hexdigest()}"
        if entry not in self.state.request_digests:
            if sum(stored.partition(" ")[0] == step for stored in self.state.request_digests) >= most:
                expected = "repeated requests of a fit must be identical" if most == 1 else f"requests must be {most}"
                raise ConfigurationError(f"{expected}; got a different one", where=step, hint="Start a new fit.")
            self.state = replace(self.state, request_digests=(*self.state.request_digests, entry))
        return self.state
