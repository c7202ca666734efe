"""Scores of a survival model at a single site, whose sums cannot be masked.

Scores of all patients rest on the site's minimum of patients with an event and without. Curves are taken at times,
groups and thresholds that are merged until each cell between neighbours holds the minimum, so that no difference of two
values rests on fewer patients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array, count, number
from multicentre.core.steps import Release
from multicentre.survival.evaluation.maths import mean_weights
from multicentre.survival.scores.auc import dynamic_auc, mean_auc
from multicentre.survival.scores.brier import Censoring, brier_times, squared_errors
from multicentre.survival.scores.calibration import Calibration, calibrate_groups, net_benefit
from multicentre.survival.scores.concordance import concordance_with_error
from multicentre.survival.scores.lines import fit_hazard_lines
from multicentre.survival.times import by_end, count_by_bin, kaplan_meier, to_bins

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Terms = tuple[Floats, Floats, Flags]
ALONE_HINT = "Evaluate more patients of this site, or this site together with others, under masked sums."
# Groups of equal numbers of patients before they are merged. A coordinator cannot choose their number, nor thresholds:
# two answers with limits that are close together would differ by the patients between them.
MAX_MERGED = 20
THRESHOLDS = np.arange(1, 100) / 100


@dataclass(frozen=True)
class AloneScores(Release):
    """Scores of the only site; curves at times, groups and thresholds that hold the minimum of patients."""

    n_patients: int = count("patients", unit="patients", bound=2.0**31)
    n_events: int = count("patients with an event", unit="patients", bound=2.0**31)
    concordance: Floats = array("concordance and its standard error", (2,), finite=False)
    brier: Floats = array("integrated Brier score, its standard error, and that of one curve", (3,), finite=False)
    mean_auc: float = number("mean area under the curve", finite=False)
    times: Floats = array("times of scores", ("T",))
    curves: Floats = array(
        "Brier score, that of one curve, and area under the curve at each time", (3, "T"), finite=False
    )
    at: Floats = array("times of calibration", ("H",))
    groups: Floats = array(
        "patients, predicted and observed risk and its limits, by group; NaN beyond the last group",
        ("H", "g", 5),
        finite=False,
    )
    lines: Floats = array("calibration lines, and their standard errors, at each time", ("H", 2, 2, 2), finite=False)
    thresholds: Floats = array("thresholds of net benefit", ("p",))
    benefits: Floats = array("net benefit of the model and of treating everyone", (2, "H", "p"), finite=False)


@dataclass(frozen=True)
class Followed:
    """Patients of the site and the model's predictions for them.

    Parameters
    ----------
    time : array of shape (n,)
    event : array of shape (n,)
    restricted_means : array of shape (n,)
    survival : callable
        Survival of all patients at some times, shape (n, T).
    least : int
        Minimum of patients of a cell.
    """

    time: Floats
    event: Flags
    restricted_means: Floats
    survival: Callable[[Floats], Floats]
    least: int

    @property
    def censoring(self) -> Censoring:
        """Censoring curve of the site's patients."""
        return Censoring.estimate(self.time, self.event)

    def separated_times(self, times: Floats) -> Floats:
        """Return the times between which enough patients have an event, and enough or none leave without one."""
        chosen, before = [], np.zeros(2)
        for time in times.tolist():
            ended = by_end(self.time, time)
            counts = np.array([(ended & self.event).sum(), (ended & ~self.event).sum()])
            n_events, n_others = counts - before
            if n_events >= self.least and (not n_others or n_others >= self.least) and (~ended).sum() >= self.least:
                chosen.append(time)
                before = counts
        return np.array(chosen)

    def separated(self, values: Floats, candidates: Floats, times: Floats) -> Floats:
        """Return those candidates between which enough patients have an event in each stretch of time, and none."""
        stretch = np.where(self.event & by_end(self.time, times[-1]), to_bins(self.time, times), len(times))

        def is_enough(low: float, high: float) -> bool:
            inside = (values > low) & (values <= high)
            return bool(np.bincount(stretch[inside], minlength=len(times) + 1).min() >= self.least)

        chosen = [-np.inf]
        for candidate in candidates.tolist():
            if is_enough(chosen[-1], candidate):
                chosen.append(candidate)
        while len(chosen) > 1 and not is_enough(chosen[-1], np.inf):
            chosen.pop()
        return np.array(chosen[1:])

    def brier(self, times: Floats) -> tuple[Floats, Floats]:
        """Return errors of the model by patient and time, shape (n, T), and scores of one curve, shape (T,)."""
        censoring = self.censoring
        time, event = censoring.cut(self.time, self.event)
        weights = censoring.weights(time), censoring.weights(times)
        errors = squared_errors(self.survival(times), times, time, event, *weights)
        grid = np.unique(np.append(self.time, times))
        curve = kaplan_meier(*count_by_bin(to_bins(self.time, grid), self.event, len(grid)))
        one = np.broadcast_to(curve[np.searchsorted(grid, times)], errors.shape)
        return errors, squared_errors(one, times, time, event, *weights).mean(axis=0)

    def areas(self, times: Floats) -> Floats:
        """Return the area under the curve at each time, shape (T,)."""
        return dynamic_auc(self.time, self.event, -self.restricted_means, times, self.censoring)

    def means_over_time(self, horizon: float) -> tuple[Floats, float]:
        """Return the Brier score over the common follow-up, its error and that of one curve, and the mean area."""
        times = brier_times(self.time, self.time, self.event, horizon)
        if len(times) < 2:
            return np.full(3, np.nan), np.nan
        errors, of_curve = self.brier(times)
        shares = mean_weights(times)
        means = errors @ shares
        error = means.std() / np.sqrt(max(len(means) - 1, 1))
        area = mean_auc(self.areas(times), times, self.time, self.event)
        return np.array([means.mean(), error, shares @ of_curve]), area

    def groups(self, risks: Floats, time: float, at: Floats) -> Calibration:
        """Return predicted and observed risks of merged groups of about equal size."""
        quantiles = np.unique(np.quantile(risks, np.arange(1, MAX_MERGED) / MAX_MERGED))
        return calibrate_groups(risks, self.time, self.event, time, self.separated(risks, quantiles, at))

    def benefits(self, risks: Floats, at: Floats, thresholds: Floats) -> Floats:
        """Return the net benefit of the model and of treating everyone, shape (2, H, p)."""
        rows = [
            [
                net_benefit(column, self.time, self.event, by, thresholds, self.censoring)
                for column, by in zip(predicted.T, at.tolist(), strict=True)
            ]
            for predicted in (risks, np.ones_like(risks))
        ]
        return np.array(rows).reshape(2, len(at), len(thresholds))


def score_alone(
    followed: Followed, times: Floats, at: Floats, horizon: float, hazard_terms: Callable[[Floats], list[Terms]]
) -> AloneScores:
    """Return all scores of a site; curves only where each cell between neighbours holds the minimum of patients."""
    time, event = followed.time, followed.event
    curve_times, at = followed.separated_times(times), followed.separated_times(at)
    errors, of_curve = followed.brier(curve_times)
    risks, thresholds = 1.0 - followed.survival(at), THRESHOLDS if len(at) else THRESHOLDS[:0]
    for column in risks.T:
        thresholds = followed.separated(column, thresholds, at)
    fits = [fit_hazard_lines(*terms) for terms in hazard_terms(at)]
    return AloneScores(
        len(time),
        int(event.sum()),
        np.array(concordance_with_error(time, event, -followed.restricted_means)),
        *followed.means_over_time(horizon),
        curve_times,
        np.array([errors.mean(axis=0), of_curve, followed.areas(curve_times)]),
        at,
        _table([followed.groups(column, by, at) for column, by in zip(risks.T, at.tolist(), strict=True)]),
        np.array(fits).reshape(len(at), 2, 2, 2),
        thresholds,
        followed.benefits(risks, at, thresholds),
        patients=int(min(event.sum(), (~event).sum())),
    )


def _table(groups: list[Calibration]) -> Floats:
    """Return groups as an array of shape (H, g, 5); NaN beyond the last group of a time."""
    rows = [
        np.column_stack([each.n_patients, each.predicted, each.observed, each.lower, each.upper]) for each in groups
    ]
    table = np.full((len(rows), max(map(len, rows), default=0), 5), np.nan)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return table
