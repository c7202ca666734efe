"""Rounds of an evaluation: the coordinator's requests for one column of subgroups.

1. The coordinator sends the model to every site.
2. With subgroups, each site counts its records by subgroup and class. Small subgroups are withheld, and further ones so
   that none of those withheld follows from the total.
3. Each site counts its records by coarse bin of the predicted log odds. The sums give bins of about equal counts.
4. Each site returns counts, sums of predictions and sums of squared errors by bin, for all records and each subgroup.
5. In each round the coordinator sends intercepts and slopes, and each site returns derivatives of the log-likelihood of
   its outcomes by them. The rounds stop when no intercept and slope changes by more than 1e-7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Nothing
from multicentre.core.session import Session
from multicentre.errors import SchemaMismatch
from multicentre.validation.scoring.classes import curves
from multicentre.validation.scoring.classes.maths import even_edges, log_odds
from multicentre.validation.scoring.classes.profiles import (
    MOST_LINES,
    ClassEvaluationPart,
    LinesRequest,
    ProfileRequest,
    SubgroupNames,
    Subgroups,
)
from multicentre.validation.scoring.judging import FIXED, total, unfixed

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Largest change of an intercept or slope at the end of the rounds; sums are multiples of 2^-24.
TOL = 1e-7
# A slope beyond this does not converge: predictions separate the outcomes, or do not rank them at all.
LARGEST_LINE = 100.0


@dataclass(frozen=True)
class Collected:
    """Sums over sites, for all records (first row) and the subgroups that are shown.

    Parameters
    ----------
    visible : tuple of str
        Names of the subgroups, shape (s - 1,).
    withheld : tuple of str
        Names of the subgroups that are withheld.
    edges : array of shape (b - 1,)
        Log odds between bins.
    counts : array of shape (s, 2, b)
    predicted : array of shape (s, b)
    squares, fourths : arrays of shape (s,)
    lines, line_errors : arrays of shape (2, s, 2)
        Intercept and slope, and their standard errors; the first fit has a slope of 1.
    """

    visible: tuple[str, ...]
    withheld: tuple[str, ...]
    edges: Floats
    counts: Floats
    predicted: Floats
    squares: Floats
    fourths: Floats
    lines: Floats
    line_errors: Floats


def collect(
    opened: Session, part: type[ClassEvaluationPart], subgroups: Subgroups, thresholds: Floats, fewest: float
) -> Collected:
    """Request all sums of an evaluation."""
    names: tuple[str, ...] = ()
    visible = np.zeros(0, dtype=np.int64)
    if subgroups.column:
        names = opened.once("named", SubgroupNames, lambda: _agreed(opened.ask(part.name_subgroups, subgroups))).names
        counts = total(opened, part.count_subgroups, subgroups).counts.astype(np.float64)
        visible = curves.join_small(counts, fewest)[0]
        visible = visible[visible < len(names)]  # the last row is of records without a subgroup
    located = total(opened, part.locate_scores, Nothing())
    edges = np.union1d(even_edges(located.counts.astype(np.float64))[0], log_odds(thresholds))
    profile = total(opened, part.count_profile, ProfileRequest(subgroups.column, subgroups.cuts, visible, edges))
    lines, errors = _fit_lines(opened, part, subgroups, visible)
    return Collected(
        tuple(names[place] for place in visible.tolist()),
        tuple(name for place, name in enumerate(names) if place not in visible),
        edges,
        profile.counts.astype(np.float64),
        profile.predicted / FIXED,
        np.array([unfixed(value) for value in profile.squares]),
        np.array([unfixed(value) for value in profile.fourths]),
        lines,
        errors,
    )


def _agreed(answers: Mapping[str, SubgroupNames]) -> SubgroupNames:
    """Return the names of the subgroups, which must be the same at all sites."""
    first, *others = answers.items()
    for site, answer in others:
        if answer.names != first[1].names:
            raise SchemaMismatch(
                f"levels must be equal at all sites; those of {site} and {first[0]} differ",
                where="subgroups",
                hint="Declare the same levels at every site.",
            )
    return first[1]


def _fit_lines(
    opened: Session, part: type[ClassEvaluationPart], subgroups: Subgroups, visible: Integers
) -> tuple[Floats, Floats]:
    """Fit intercepts at a slope of 1 (first), and intercepts and slopes, by Newton's method."""
    n_groups = len(visible) + 1
    lines = np.tile([0.0, 1.0], (2, n_groups, 1))
    errors = np.full((2, n_groups, 2), np.nan)
    moving = np.ones((2, n_groups), dtype=np.bool_)
    for _ in range(MOST_LINES):
        request = LinesRequest(subgroups.column, subgroups.cuts, visible, lines.copy())
        sums = opened.sum(part.sum_lines, request)
        for fit, group in np.argwhere(moving).tolist():
            values = curves.LineSums(sums.gradients[fit, group] / FIXED, sums.informations[fit, group] / FIXED)
            step, errors[fit, group] = curves.step_line(values, intercept_only=fit == 0)
            reached = lines[fit, group] + np.clip(step, -2.0, 2.0)
            if not (np.abs(reached) <= LARGEST_LINE).all():
                lines[fit, group], errors[fit, group], moving[fit, group] = (0.0, 1.0), np.nan, False
                continue
            lines[fit, group] = reached
            moving[fit, group] = bool(np.abs(step).max() > TOL)
        if not moving.any():
            break
    failed = moving | np.isnan(errors).any(axis=2)
    result = np.where(failed[..., None], np.nan, lines)
    return result, np.where(failed[..., None], np.nan, errors)
