"""Results of an evaluation: scores, tables and figures."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain, pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

from multicentre.estimator.figures import Bars, Cloud, Figure, Lines, Points, Table
from multicentre.estimator.presentation import p_text
from multicentre.survival.evaluation import messages
from multicentre.survival.evaluation.alone import AloneScores
from multicentre.survival.evaluation.maths import (
    at_risk,
    concordance_from_counts,
    interval,
    mean_weights,
    reference_scores,
)
from multicentre.survival.evaluation.rounds import Sums, censoring_of
from multicentre.survival.scores.auc import area_from_counts, weigh_areas
from multicentre.survival.scores.brier import scaled_brier
from multicentre.survival.scores.calibration import (
    Calibration,
    DCalibration,
    benefit_from_counts,
    benefit_of_treating_all,
    calibration_from_counts,
    compare_with_even,
)
from multicentre.survival.scores.concordance import share_of_pairs
from multicentre.survival.scores.lines import CalibrationLine
from multicentre.survival.times import kaplan_meier

Floats = NDArray[np.float64]


Row = tuple[str, float, float | None, float | None, float | None]
# Columns of the table of scores, next to their names.
COLUMNS = ("value", "standard_error", "lower", "upper")
# Standard error and limits of a score without any.
NOT_AVAILABLE = (None, None, None)


class Concluded:
    """Fitted attributes of an evaluation; those of scores that were not requested are absent."""

    n_patients_: int
    n_events_: int
    times_: Floats
    concordance_: float
    concordance_standard_error_: float
    concordance_interval_: tuple[float, float]
    brier_: Floats
    brier_reference_: Floats
    ibs_: float
    ibs_standard_error_: float
    ibs_reference_: float
    ipa_: float
    auc_: Floats
    mean_auc_: float
    calibration_: dict[float, Calibration]
    calibration_lines_: dict[float, CalibrationLine]
    d_calibration_: DCalibration
    thresholds_: Floats
    net_benefit_: dict[float, Floats]
    net_benefit_of_all_: dict[float, Floats]
    sites_: dict[str, messages.OwnScores]
    _judged: messages.Scored
    _sums: Sums
    _lines: messages.Lines | None

    def rows(self) -> list[Row]:
        """Return the scores: name, value, and standard error and limits of the 95 % interval if available."""
        rows: list[Row] = []
        if hasattr(self, "concordance_"):
            rows.append(
                ("concordance", self.concordance_, self.concordance_standard_error_, *self.concordance_interval_)
            )
        if hasattr(self, "brier_"):
            error = self.ibs_standard_error_
            rows.append(("integrated Brier score", self.ibs_, error, *interval(self.ibs_, error)))
            rows.append(("that of the Kaplan-Meier curve", self.ibs_reference_, *NOT_AVAILABLE))
            rows.append(("index of prediction accuracy", self.ipa_, *NOT_AVAILABLE))
        if hasattr(self, "auc_"):
            rows.append(("mean area under the curve", self.mean_auc_, *NOT_AVAILABLE))
        if hasattr(self, "calibration_"):
            rows += [
                (f"calibration error at {time:.6g}", calibration.error, *NOT_AVAILABLE)
                for time, calibration in self.calibration_.items()
            ]
            rows += [
                (f"{name} by {time:.6g}", *values)
                for time, line in self.calibration_lines_.items()
                for name, values in line.rows().items()
            ]
        if hasattr(self, "d_calibration_"):
            rows.append(("p-value of D-calibration", self.d_calibration_.p_value, *NOT_AVAILABLE))
        return rows

    def _conclude(
        self,
        judged: messages.Scored,
        sums: Sums,
        site_scores: Mapping[str, messages.OwnScores],
        lines: messages.Lines | None,
    ) -> None:
        self._judged, self._sums, self.sites_ = judged, dict(sums), dict(site_scores)
        self._lines = lines
        if lines is not None:
            by_time = np.stack([lines.lines, lines.errors]).swapaxes(1, 2).swapaxes(0, 1)
            self._set_lines(judged.grid[judged.at], by_time)
        follow_up = cast("messages.FollowUp", sums["follow_up"])
        self.n_patients_ = round(follow_up.n_patients)
        self.n_events_ = round(float(follow_up.events.sum()))
        self.times_ = judged.grid[judged.places]
        events, risk = follow_up.events, at_risk(follow_up.events, follow_up.censored)
        curve = kaplan_meier(events, risk)[judged.places]
        if "concordance" in sums:
            self._conclude_concordance(sums["concordance"])
        if "brier" in sums:
            self._conclude_brier(cast("messages.Errors", sums["brier"]), curve)
        if "auc" in sums:
            self._conclude_areas(cast("messages.Ranks", sums["auc"]), curve)
        if "calibration" in sums:
            self._conclude_calibration(cast("messages.Groups", sums["calibration"]))
        if "net_benefit" in sums:
            self._conclude_benefit(cast("messages.Benefits", sums["net_benefit"]))

    def _set_lines(self, times: Floats, lines: Floats) -> None:
        """Set the calibration lines from fits and their standard errors by time, shape (H, 2, 2, 2)."""
        self.calibration_lines_ = {
            time: CalibrationLine.of(*pair) for time, pair in zip(times.tolist(), lines, strict=True)
        }

    def _conclude_alone(self, judged: messages.Scored, scores: AloneScores, requested: Collection[str]) -> None:
        """Set the scores of a single site."""
        self._judged, self._sums, self._lines, self.sites_ = judged, {"alone": scores}, None, {}
        self.n_patients_, self.n_events_, self.times_ = int(scores.n_patients), int(scores.n_events), scores.times
        if "concordance" in requested:
            self.concordance_, self.concordance_standard_error_ = map(float, scores.concordance)
            self.concordance_interval_ = interval(*map(float, scores.concordance))
        if "brier" in requested:
            self.brier_, self.brier_reference_ = scores.curves[:2]
            self.ibs_, self.ibs_standard_error_, self.ibs_reference_ = map(float, scores.brier)
            self.ipa_ = scaled_brier(self.ibs_, self.ibs_reference_)
        if "auc" in requested:
            self.auc_, self.mean_auc_ = scores.curves[2], float(scores.mean_auc)
        if "calibration" in requested:
            rows = [table[~np.isnan(table[:, 0])].T for table in scores.groups]
            self.calibration_ = {by: Calibration(*row) for by, row in zip(scores.at.tolist(), rows, strict=True)}
            self._set_lines(scores.at, scores.lines)
        if "net_benefit" in requested:
            self.thresholds_ = scores.thresholds
            self.net_benefit_, self.net_benefit_of_all_ = (
                dict(zip(scores.at.tolist(), each, strict=True)) for each in scores.benefits
            )

    def _conclude_concordance(self, pairs: object) -> None:
        if isinstance(pairs, messages.OwnPairs):
            squares = pairs.won_squared, pairs.crossed, pairs.comparable_squared
            share_and_error = share_of_pairs(pairs.comparable, pairs.won, *squares)
        else:
            counts = cast("messages.Pairs", pairs)
            share_and_error = concordance_from_counts(counts.events, counts.censored)
        self.concordance_, self.concordance_standard_error_ = share_and_error
        self.concordance_interval_ = interval(*share_and_error)

    def _conclude_brier(self, errors: messages.Errors, curve: Floats) -> None:
        shares, n = mean_weights(self.times_), errors.n_patients
        self.brier_ = errors.errors / n
        self.brier_reference_ = reference_scores(curve, errors.cases, self._of_controls() * errors.controls, n)
        self.ibs_, self.ibs_reference_ = float(shares @ self.brier_), float(shares @ self.brier_reference_)
        variance = max(errors.squares / n - self.ibs_**2, 0.0)
        self.ibs_standard_error_ = float(np.sqrt(variance / max(n - 1, 1)))
        self.ipa_ = scaled_brier(self.ibs_, self.ibs_reference_)

    def _conclude_areas(self, ranks: messages.Ranks, curve: Floats) -> None:
        cases = ranks.cases.cumsum(axis=1)
        controls = ranks.leaving.sum(axis=1)[:, None] - ranks.leaving[:, :-1].cumsum(axis=1)
        self.auc_ = area_from_counts(cases.T[:, ::-1], controls.T[:, ::-1])
        self.mean_auc_ = weigh_areas(self.auc_, curve)

    def _conclude_calibration(self, groups: messages.Groups) -> None:
        self.calibration_ = {}
        for row, place in enumerate(self._judged.at.tolist()):
            events, risk = groups.events[row], at_risk(groups.events[row], groups.censored[row])
            until = slice(0, place + 1)
            counts = groups.n_patients[row], groups.predicted[row], events[:, until], risk[:, until]
            self.calibration_[float(self._judged.grid[place])] = calibration_from_counts(*counts)
        self.d_calibration_ = compare_with_even(groups.spread)

    def _conclude_benefit(self, benefits: messages.Benefits) -> None:
        self.net_benefit_, self.net_benefit_of_all_ = {}, {}
        times = self._judged.grid[self._judged.at].tolist()
        for time, cases, controls in zip(times, benefits.cases, benefits.controls, strict=True):
            counted = cases, controls, self.thresholds_, benefits.n_patients
            self.net_benefit_[time] = benefit_from_counts(*counted)
            self.net_benefit_of_all_[time] = benefit_of_treating_all(*counted)

    def _of_controls(self) -> Floats:
        """Return 1 / G at the times of scoring, shape (T,)."""
        follow_up = cast("messages.FollowUp", self._sums["follow_up"])
        return censoring_of(follow_up, self._judged.grid).weights(self.times_)


# Smallest group that figures show, the default minimum of a site's policy.
MIN_SHOWN = 10


def show_scores(evaluation: Concluded) -> list[Figure]:
    """Return the figures of the requested scores."""
    figures: list[Figure] = [_scores(evaluation)]
    if hasattr(evaluation, "brier_") and len(evaluation.times_):
        figures.append(_brier(evaluation))
    if hasattr(evaluation, "auc_") and len(evaluation.times_):
        figures.append(_areas(evaluation))
    if hasattr(evaluation, "calibration_") and evaluation.calibration_:
        figures += [_calibration(evaluation), _groups(evaluation)]
    if hasattr(evaluation, "d_calibration_"):
        figures.append(_spread(evaluation))
    if hasattr(evaluation, "net_benefit_") and len(evaluation.thresholds_):
        figures += [_benefit(evaluation, time) for time in evaluation.net_benefit_]
    if evaluation.sites_:
        figures.append(_sites(evaluation))
    return figures


def _scores(evaluation: Concluded) -> Table:
    caption = f"{evaluation.n_patients_:,} held-out patients of all sites, {evaluation.n_events_:,} with an event."
    return Table(
        "Scores",
        caption,
        "fit",
        ["score", *(name.replace("_", " ") for name in COLUMNS)],
        [list(row) for row in evaluation.rows()],
    )


def _brier(evaluation: Concluded) -> Lines:
    caption = (
        "Mean squared error of the predicted probability to be free of the event, weighted for censoring; lower is "
        f"better. The model's mean over time is {evaluation.ibs_:.4f}, that of one Kaplan-Meier curve "
        f"{evaluation.ibs_reference_:.4f}."
    )
    curves = {"model": evaluation.brier_.tolist(), "Kaplan-Meier": evaluation.brier_reference_.tolist()}
    return Lines("Brier score", caption, "fit", "time", "Brier score", evaluation.times_.tolist(), curves, {})


def _areas(evaluation: Concluded) -> Lines:
    caption = (
        "Probability that a patient with an event by that time has a higher risk than one without, weighted for "
        f"censoring; 0.5 by chance. The mean is {evaluation.mean_auc_:.3f}."
    )
    is_finite = np.isfinite(evaluation.auc_)
    areas = {"model": evaluation.auc_[is_finite].tolist(), "by chance": [0.5] * int(is_finite.sum())}
    times = evaluation.times_[is_finite].tolist()
    return Lines("Area under the curve", caption, "fit", "time", "area under the curve", times, areas, {})


def _is_large(groups: Calibration) -> NDArray[np.bool_]:
    return groups.n_patients >= MIN_SHOWN


def _calibration(evaluation: Concluded) -> Points:
    caption = (
        "Each point is a group of patients of similar predicted risk. The horizontal axis is their mean predicted "
        "risk of an event, the vertical axis the Kaplan-Meier estimate. Points on the diagonal are well calibrated."
    )
    clouds = [
        Cloud(
            f"by {time:.6g}",
            "groups",
            groups.predicted[_is_large(groups)].tolist(),
            groups.observed[_is_large(groups)].tolist(),
        )
        for time, groups in evaluation.calibration_.items()
    ]
    return Points("Calibration", caption, "fit", "predicted risk", "observed risk", clouds)


def _groups(evaluation: Concluded) -> Table:
    rows = chain.from_iterable(_rows_of(time, groups) for time, groups in evaluation.calibration_.items())
    caption = "Predicted and observed risk of an event in groups of predicted risk, with 95 % intervals."
    columns = ["time", "patients", "predicted", "observed", "lower", "upper"]
    return Table("Calibration by group", caption, "fit", columns, list(rows))


def _rows_of(time: float, groups: Calibration) -> list[list[str | float | None]]:
    columns = (groups.n_patients, groups.predicted, groups.observed, groups.lower, groups.upper)
    return [[time, *map(float, row)] for row in np.column_stack(columns)[_is_large(groups)]]


def _spread(evaluation: Concluded) -> Bars:
    counts = evaluation.d_calibration_.counts
    edges = np.linspace(0, 1, len(counts) + 1)
    names = [f"{low:.1f}-{high:.1f}" for low, high in pairwise(edges)]
    shares = counts / counts.sum()
    caption = (
        "Share of patients by predicted survival at their event time; uniform under a true model "
        f"({p_text(evaluation.d_calibration_.p_value)})."
    )
    return Bars(
        "Calibration over all times", caption, "fit", "share of patients", names, {"model": shares.tolist()}, {}
    )


def _benefit(evaluation: Concluded, time: float) -> Lines:
    prevalence = float(evaluation.net_benefit_of_all_[time][0])
    in_range = evaluation.thresholds_ <= max(0.1, min(1.0, 2 * prevalence))
    caption = (
        f"Net benefit of treating those whose predicted risk by {time:.6g} is above a threshold, in true positives "
        "per patient. A model is useful where it lies above treating everyone and treating nobody."
    )
    curves = {
        "model": evaluation.net_benefit_[time],
        "everyone": np.maximum(evaluation.net_benefit_of_all_[time], -0.05),
    }
    series = {name: curve[in_range].tolist() for name, curve in curves.items()}
    series["nobody"] = [0.0] * int(in_range.sum())
    thresholds = evaluation.thresholds_[in_range].tolist()
    return Lines(f"Decision curve by {time:.6g}", caption, "fit", "threshold", "net benefit", thresholds, series, {})


def _sites(evaluation: Concluded) -> Table:
    times = list(evaluation.calibration_) if hasattr(evaluation, "calibration_") else []
    middle = len(times) // 2
    rows: list[list[str | float | None]] = []
    for site, scores in evaluation.sites_.items():
        pair: list[float | None] = [None, None]
        if scores.predicted is not None and scores.observed is not None:
            pair = [float(scores.predicted[middle]), float(scores.observed[middle, 0])]
        rows.append([site, scores.concordance, scores.standard_error, *pair])
    caption = "Concordance of each site, its standard error, and mean predicted and observed risk at the middle time."
    columns = ["site", "concordance", "standard error", "predicted", "observed"]
    return Table("Scores by site", caption, "fit", columns, rows)
