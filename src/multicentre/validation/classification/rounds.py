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
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Nothing
from multicentre.core.session import Session
from multicentre.errors import DisclosureRefused, SchemaMismatch
from multicentre.statistics.line import MAX_LINES, Line, LineSums
from multicentre.validation.scoring.classes import curves
from multicentre.validation.scoring.classes.maths import even_edges, log_odds, wide_edges
from multicentre.validation.scoring.classes.profiles import (
    INTERCEPT,
    SHIFT,
    SLOPE,
    ClassEvaluationPart,
    LinesRequest,
    ProfileRequest,
    SiteProfile,
    SubgroupNames,
    Subgroups,
)
from multicentre.validation.scoring.classes.site import ERROR
from multicentre.validation.scoring.judging import FIXED, ScoreNames, is_alone, total, unfixed

Floats = NDArray[np.float64]
_NO_SUBGROUPS = "Leave subgroups out at a single site, or select the records of a subgroup beforehand."
Integers = NDArray[np.int64]


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
    alone : dict of str to float
        Scores of a single site, computed there, with standard errors; empty for sums over sites.
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
    alone: Mapping[str, float] = field(default_factory=dict)


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
    if is_alone(opened) and not subgroups.column:
        return _collect_alone(opened, part)
    names: tuple[str, ...] = ()
    visible = np.zeros(0, dtype=np.int64)
    if subgroups.column:
        names = opened.once("named", SubgroupNames, lambda: _agreed(opened.ask(part.name_subgroups, subgroups))).names
        counts = total(opened, part.count_subgroups, subgroups).counts.astype(np.float64)
        visible = curves.join_small(counts, fewest)[0]
        visible = visible[visible < len(names)]  # the last row is of records without a subgroup
    try:
        located = total(opened, part.locate_scores, Nothing())
    except DisclosureRefused as refused:
        if not is_alone(opened):
            raise
        raise DisclosureRefused(refused.what, where=refused.where, hint=_NO_SUBGROUPS) from None
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


def _collect_alone(opened: Session, part: type[ClassEvaluationPart]) -> Collected:
    """Request the evaluation of a single site, whose sums cannot be masked."""
    (site,) = opened.sites
    request = ScoreNames((*part.described_by, "average_precision", INTERCEPT, f"{INTERCEPT}{ERROR}"))
    profile = opened.once("alone", SiteProfile, lambda: opened.ask(part.evaluate_alone, request)[site])
    scores = dict(zip(request.names, profile.scores.tolist(), strict=True))
    n, brier = float(profile.counts.sum()), -scores["neg_brier_score"]
    fourth = scores[f"neg_brier_score{ERROR}"] ** 2 * max(n - 1, 1) + brier**2
    lines, errors = (
        np.array([[[scores[SHIFT + end], 1.0 - bool(end)]], [[scores[INTERCEPT + end], scores[SLOPE + end]]]])
        for end in ("", ERROR)
    )
    counts, predicted = profile.counts[None].astype(np.float64), profile.predicted[None] / FIXED
    squares = np.array([brier * n]), np.array([fourth * n])
    return Collected((), (), profile.borders, counts, predicted, *squares, lines, errors, scores)


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
    for _ in range(MAX_LINES):
        tried = np.array([fit.tried for fit in fits]).reshape(2, n_groups, 2)
        sums = opened.sum(part.sum_lines, LinesRequest(subgroups.column, subgroups.cuts, visible, tried))
        for place, fit in enumerate(fits):
            at = divmod(place, n_groups)
            fit.take(
                unfixed(sums.deviances[at]),
                LineSums(sums.gradients[at] / FIXED, sums.informations[at] / FIXED),
                intercept_only=at[0] == 0,
            )
        if all(fit.has_ended for fit in fits):
            break
    lines = np.array([fit.result for fit in fits]).reshape(2, n_groups, 2)
    return lines, np.array([fit.errors for fit in fits]).reshape(2, n_groups, 2)
