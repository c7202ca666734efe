"""Figures and tables of an evaluation."""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from multicentre.estimator.figures import Bars, Cloud, Exhibit, Lines, Points, Table
from multicentre.survival.evaluation.concluded import Concluded
from multicentre.survival.scores.calibration import Calibration

Floats = NDArray[np.float64]
LEAST_SHOWN = 10


def show_scores(found: Concluded) -> list[Exhibit]:
    """Return the exhibits of an evaluation: those of the measures that were asked for."""
    shown: list[Exhibit] = [_scores(found)]
    if hasattr(found, "brier_"):
        shown.append(_brier(found))
    if hasattr(found, "auc_"):
        shown.append(_areas(found))
    if hasattr(found, "calibration_"):
        shown += [_calibration(found), _groups(found), _spread(found)]
    if hasattr(found, "net_benefit_"):
        shown += [_benefit(found, time) for time in found.net_benefit_]
    if found.sites_:
        shown.append(_sites(found))
    return shown


def _scores(found: Concluded) -> Table:
    told = f"{found.n_patients_:,.0f} held-out patients of all sites, {found.n_events_:,.0f} with an event."
    return Table("Scores", told, "fit", ["score", "value", "from", "to"], [list(row) for row in found.rows()])


def _brier(found: Concluded) -> Lines:
    told = (
        "Mean squared error of the predicted chance to be free of the event, weighted for censoring; lower is better. "
        f"The model's mean over time is {found.ibs_:.4f}, that of one Kaplan-Meier curve {found.ibs_reference_:.4f}."
    )
    curves = {"model": found.brier_.tolist(), "Kaplan-Meier": found.brier_reference_.tolist()}
    return Lines("Brier score", told, "fit", "time", "Brier score", found.times_.tolist(), curves, {})


def _areas(found: Concluded) -> Lines:
    told = (
        "Chance that a patient with an event by then had a higher risk than one free of it, weighted for censoring; "
        f"0.5 by chance. The mean is {found.mean_auc_:.3f}."
    )
    known = np.isfinite(found.auc_)
    areas = {"model": found.auc_[known].tolist(), "by chance": [0.5] * int(known.sum())}
    times = found.times_[known].tolist()
    return Lines("Area under the curve", told, "fit", "time", "area under the curve", times, areas, {})


def _shown(groups: Calibration) -> NDArray[np.bool_]:
    return groups.n_patients >= LEAST_SHOWN


def _calibration(found: Concluded) -> Points:
    told = (
        "Each point is a group of patients of similar predicted risk: across, their mean predicted risk of an event; "
        "upwards, the Kaplan-Meier estimate. Points on the diagonal are well calibrated."
    )
    clouds = [
        Cloud(
            f"by {time:.6g}",
            "groups",
            groups.predicted[_shown(groups)].tolist(),
            groups.observed[_shown(groups)].tolist(),
        )
        for time, groups in found.calibration_.items()
    ]
    return Points("Calibration", told, "fit", "predicted risk", "observed risk", clouds)


def _groups(found: Concluded) -> Table:
    rows = chain.from_iterable(_rows_of(time, groups) for time, groups in found.calibration_.items())
    told = "Predicted and observed risk of an event in groups of predicted risk, with 95 % intervals."
    columns = ["time", "patients", "predicted", "observed", "from", "to"]
    return Table("Calibration by group", told, "fit", columns, list(rows))


def _rows_of(time: float, groups: Calibration) -> list[list[str | float | None]]:
    columns = (groups.n_patients, groups.predicted, groups.observed, groups.lower, groups.upper)
    return [[time, *map(float, row)] for row in np.column_stack(columns)[_shown(groups)]]


def _spread(found: Concluded) -> Bars:
    counts = found.d_calibration_.counts
    edges = np.linspace(0, 1, len(counts) + 1)
    names = [f"{low:.1f}-{high:.1f}" for low, high in pairwise(edges)]
    shares = counts / counts.sum()
    told = (
        "Share of patients by the survival that was predicted for their own event time; even under a true model "
        f"(p = {found.d_calibration_.p_value:.2g})."
    )
    return Bars("Calibration over all times", told, "fit", "share of patients", names, {"model": shares.tolist()}, {})


def _benefit(found: Concluded, time: float) -> Lines:
    prevalence = float(found.net_benefit_of_all_[time][0])
    some = found.thresholds_ <= max(0.1, min(1.0, 2 * prevalence))
    told = (
        f"Net benefit of treating those whose predicted risk by {time:.6g} is above a threshold, in true positives a "
        "patient; a model is of use where it lies above both treating everyone and nobody."
    )
    curves = {"model": found.net_benefit_[time], "everyone": np.maximum(found.net_benefit_of_all_[time], -0.05)}
    series = {name: curve[some].tolist() for name, curve in curves.items()}
    series["nobody"] = [0.0] * int(some.sum())
    thresholds = found.thresholds_[some].tolist()
    return Lines(f"Decision curve by {time:.6g}", told, "fit", "threshold", "net benefit", thresholds, series, {})


def _sites(found: Concluded) -> Table:
    times = list(found.calibration_) if hasattr(found, "calibration_") else []
    middle = len(times) // 2
    rows: list[list[str | float | None]] = []
    for site, own in found.sites_.items():
        pair: list[float | None] = [None, None]
        if own.predicted is not None and own.observed is not None:
            pair = [float(own.predicted[middle]), float(own.observed[middle, 0])]
        rows.append([site, own.concordance, own.standard_error, *pair])
    told = "Each site's own concordance, its standard error, and mean predicted and observed risk in mid-follow-up."
    columns = ["site", "concordance", "standard error", "predicted", "observed"]
    return Table("Scores by site", told, "fit", columns, rows)
