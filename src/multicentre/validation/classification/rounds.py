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
from multicentre.validation.scoring.classes.maths import even_edges, log_odds, wide_edges
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
# A slope beyond this does not converge: predictions separate the outcomes, or are nearly the same for all records.
LARGEST_LINE = 1000.0


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
    opened: Session,
    part: type[ClassEvaluationPart],
    subgroups: Subgroups,
    thresholds: Floats,
    fewest: float,
    *,
    fewest_in_bin: float = 0.0,
) -> Collected:
    """Request all sums of an evaluation.

    Parameters
    ----------
    opened : Session
        The model has been sent.
    part : type
    subgroups : Subgroups
    thresholds : array of shape (t,)
        Probabilities that are edges of bins.
    fewest : float
        Records of a class below which a subgroup is withheld.
    fewest_in_bin : float, default 0
        Records of all sites in every bin; thresholds then move to the next border of the coarse bins, or are left out.
    """
    names: tuple[str, ...] = ()
    visible = np.zeros(0, dtype=np.int64)
    if subgroups.column:
        names = opened.once("named", SubgroupNames, lambda: _agreed(opened.ask(part.name_subgroups, subgroups))).names
        counts = total(opened, part.count_subgroups, subgroups).counts.astype(np.float64)
        visible = curves.join_small(counts, fewest)[0]
        visible = visible[visible < len(names)]  # the last row is of records without a subgroup
    located = total(opened, part.locate_scores, Nothing())
    coarse, wanted = located.counts.astype(np.float64), log_odds(thresholds)
    wide = bool(fewest_in_bin)
    edges = wide_edges(coarse[0], wanted, fewest_in_bin) if wide else np.union1d(even_edges(coarse)[0], wanted)
    profile = total(opened, part.count_profile, ProfileRequest(subgroups.column, subgroups.cuts, visible, edges))
    lines, errors = _fit_lines(opened, part, subgroups, visible, float(profile.counts[0].sum()))
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
    opened: Session, part: type[ClassEvaluationPart], subgroups: Subgroups, visible: Integers, n_records: float
) -> tuple[Floats, Floats]:
    """Fit intercepts at a slope of 1 (first), and intercepts and slopes, by Newton's method with halved steps."""
    n_groups = len(visible) + 1
    fits = [Line(*start, rounding=n_records / FIXED) for start in ((0.0, 1.0), (0.0, 0.0)) for _ in range(n_groups)]
    for _ in range(MOST_LINES):
        tried = np.array([fit.tried for fit in fits]).reshape(2, n_groups, 2)
        sums = opened.sum(part.sum_lines, LinesRequest(subgroups.column, subgroups.cuts, visible, tried))
        for place, fit in enumerate(fits):
            at = divmod(place, n_groups)
            fit.take(
                unfixed(sums.deviances[at]),
                curves.LineSums(sums.gradients[at] / FIXED, sums.informations[at] / FIXED),
                intercept_only=at[0] == 0,
            )
        if all(fit.has_ended for fit in fits):
            break
    lines = np.array([fit.result for fit in fits]).reshape(2, n_groups, 2)
    return lines, np.array([fit.errors for fit in fits]).reshape(2, n_groups, 2)


class Line:
    """State of a fit of intercept and slope.

    Parameters
    ----------
    intercept, slope : float
        Start.
    rounding : float
        Rise of the deviance that may be rounding, because its terms are multiples of 2^-24.

    Attributes
    ----------
    tried : array of shape (2,)
        Intercept and slope of the next request.
    errors : array of shape (2,)
        Standard errors; NaN unless the fit converged.
    has_ended : bool
    """

    def __init__(self, intercept: float, slope: float, *, rounding: float) -> None:
        self.tried = np.array([intercept, slope])
        self.errors = np.full(2, np.nan)
        self._rounding = rounding
        self.has_ended = False
        self._best, self._step, self._deviance, self._converged = self.tried, np.zeros(2), np.inf, False

    @property
    def result(self) -> Floats:
        """Intercept and slope; NaN unless the fit converged."""
        return self.tried if self._converged else np.full(2, np.nan)

    def take(self, deviance: float, sums: curves.LineSums, *, intercept_only: bool) -> None:
        """Take the next step from the tried values, or half of the last one if the deviance rose."""
        if self.has_ended:
            return
        if not deviance <= self._deviance + self._rounding:
            self._step = self._step / 2.0
            self.tried = self._best + self._step
            return
        self._best, self._deviance = self.tried, deviance
        self._step, errors = curves.step_line(sums, intercept_only=intercept_only)
        reached = self._best + self._step
        if not (np.abs(reached) <= LARGEST_LINE).all():
            self.has_ended = True
            return
        self.tried = reached
        if np.abs(self._step).max() <= TOL:
            self.has_ended, self._converged, self.errors = True, True, errors
