"""Figures and tables of survival curves."""

from __future__ import annotations

import numpy as np

from multicentre.estimator.figures import Curves as Drawn
from multicentre.estimator.figures import Figure, Table
from multicentre.survival.curves.kaplan_meier.maths import Curves, Estimate
from multicentre.survival.curves.tables.estimator import (
    LEAST_SHOWN,
    band_of,
    chosen_times,
    named,
    numbers_below,
    time_label,
    told_count,
)


def show_curves(curves: Curves, unit: str, group: str | None) -> list[Figure]:
    """Return the figure of the curves, and the table of medians, means and follow-up.

    Parameters
    ----------
    curves : Curves
    unit : str
        Unit of the times.
    group : str or None
        Column that defines the groups.
    """
    lower, upper = curves.limits
    table = curves.table
    bands = [
        band_of(named(group, name), table, place, (curves.survival[place], lower[place], upper[place]), start=1.0)
        for place, name in enumerate(curves.groups)
    ]
    positions = chosen_times(curves.horizon)
    figure = Drawn(
        "Survival (Kaplan-Meier)",
        f"Share of the patients without the event, over all sites, with {100 * curves.confidence_level:g} % intervals; "
        f"drawn while at least {LEAST_SHOWN} patients are at risk. Numbers at risk are given below.",
        "model",
        time_label(unit),
        "survival",
        bands,
        table.exact,
        positions,
        numbers_below(table, positions, group),
    )
    return [figure, _summary(curves, unit, group)]


def _summary(curves: Curves, unit: str, group: str | None) -> Table:
    means = curves.restricted_mean()
    events = curves.table.died.sum(axis=1).tolist()
    rows: list[list[str | float | None]] = [
        [
            named(group, name),
            float(curves.table.n_patients[place]),
            told_count(events[place]),
            _told(curves.median[name]),
            _told(means[name]),
            _told(curves.follow_up[name]),
        ]
        for place, name in enumerate(curves.groups)
    ]
    return Table(
        "Survival by group",
        f"Over all sites, in {unit or 'the unit of the data'}, with {100 * curves.confidence_level:g} % intervals. "
        f"The restricted mean is the mean time survived up to {curves.horizon:g}; "
        "follow-up is by the reverse Kaplan-Meier estimate.",
        "model",
        ["group", "patients", "events", "median", "restricted mean", "median follow-up"],
        rows,
    )


def _told(estimate: Estimate) -> str:
    return f"{_number(estimate.value)} ({_number(estimate.lower)} to {_number(estimate.upper)})"


def _number(value: float) -> str:
    return "not reached" if np.isnan(value) else f"{value:.3g}"
