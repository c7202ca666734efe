"""Steps at the site that evaluate a classifier, and their messages.

Answers are terms of sums over sites: counts and sums over the site's records, overall and by subgroup. A session has
one division into subgroups. A site answers one request per step, and at most `MAX_LINES` pairs of intercept and slope.
If sums are unmasked, the guard refuses counts of few patients, and sums that rest on few patients whose predictions
differ from the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, array, text, texts
from multicentre.core.steps import Release, step
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError
from multicentre.statistics.line import MAX_LINES
from multicentre.validation.scoring.classes.curves import derive_line, fit_line, merge_bins
from multicentre.validation.scoring.classes.maths import N_BINS, WIDEST, brier_losses
from multicentre.validation.scoring.classes.site import ERROR, ClassPart
from multicentre.validation.scoring.judging import (
    ALONE_HINT,
    FIXED,
    MAX_FIXED,
    RECORDS,
    ScoreNames,
    fixed,
    request_digest,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MAX_SUBGROUPS = 100  # far more levels than a category of patients has
# Log odds of a calibration are kept within this; their squares times 2^24 are integers that doubles represent.
MAX_ODDS = 1000.0


@dataclass(frozen=True)
class Subgroups(Message):
    """Subgroups of records: the levels of a category, or intervals of a column."""

    column: str = text("category or column; empty for no subgroups")
    cuts: Floats = array("limits between intervals of a column; none for a category", ("c",))


@dataclass(frozen=True)
class SubgroupNames(Release):
    """Names of the subgroups, which must agree over sites."""

    names: tuple[str, ...] = texts("levels of the category, or intervals of the column")


@dataclass(frozen=True)
class SubgroupCounts(Release):
    """Records by subgroup and class."""

    counts: Integers = array(
        "records without and with the class by subgroup, those without a subgroup last",
        ("g", 2),
        dtype="i8",
        bound=RECORDS,
        counts=True,
    )


@dataclass(frozen=True)
class ProfileRequest(Subgroups):
    """Subgroups that are evaluated, and bins of the predicted log odds."""

    chosen: Integers = array("places of the subgroups that are evaluated", ("h",), dtype="i8")
    edges: Floats = array("log odds between bins", ("e",))


@dataclass(frozen=True)
class Profile(Release):
    """Records and predictions by bin of log odds; the first row is of all records, then one row per subgroup."""

    counts: Integers = array("records without and with the class by bin", ("v", 2, "b"), dtype="i8", bound=RECORDS)
    predicted: Integers = array("sums of predictions, times 2^24", ("v", "b"), dtype="i8", bound=MAX_FIXED)
    squares: Integers = array("sums of squared errors, times 2^24", ("v",), dtype="i8", bound=MAX_FIXED)
    fourths: Integers = array("sums of their squares, times 2^24", ("v",), dtype="i8", bound=MAX_FIXED)


@dataclass(frozen=True)
class LinesRequest(Subgroups):
    """Intercepts and slopes at which derivatives are summed."""

    chosen: Integers = array("places of the subgroups that are evaluated", ("h",), dtype="i8")
    lines: Floats = array("intercept and slope of each fit, for all records and each subgroup", (2, "v", 2))


@dataclass(frozen=True)
class Derivatives(Release):
    """Derivatives of the log-likelihood by intercept and slope."""

    deviances: Integers = array("deviances, times 2^24", (2, "v"), dtype="i8", bound=MAX_FIXED)
    gradients: Integers = array("first derivatives, times 2^24", (2, "v", 2), dtype="i8", bound=MAX_FIXED)
    informations: Integers = array("second derivatives, times 2^24", (2, "v", 3), dtype="i8", bound=MAX_FIXED)


@dataclass(frozen=True)
class SiteProfile(Release):
    """Scores of a single site, and its records by bins that hold the minimum of patients of each class."""

    scores: Floats = array("score; NaN if it rests on too few records", ("s",))
    counts: Integers = array("records without and with the class by bin", (2, "b"), dtype="i8", bound=RECORDS)
    predicted: Integers = array("sums of predictions by bin, times 2^24", ("b",), dtype="i8", bound=MAX_FIXED)
    borders: Floats = array("log odds between bins, to the nearest 1/32", ("e",))


# Intercept of the calibration at a slope of 1, slope, and the intercept that belongs to it.
SHIFT, SLOPE, INTERCEPT = "calibration_intercept", "calibration_slope", "calibration_line"
# Borders between merged bins are rounded to the width of a coarse bin.
BORDER = 2 * WIDEST / N_BINS


class ClassEvaluationPart(ClassPart):
    """Base class of site parts that evaluate classifiers of two classes."""

    described_by: ClassVar[tuple[str, ...]] = tuple(
        name
        for each in ("roc_auc", "neg_brier_score", "observed_over_expected", SHIFT, SLOPE)
        for name in (each, f"{each}{ERROR}")
    )
    lengths: ClassVar[Lengths] = {
        "e": "borders between bins",
        "s": "scores",
        "g": "subgroups, and one for records without a subgroup",
        "v": "groups that are evaluated: all records, and subgroups",
    }

    def subgroups(self, request: Subgroups) -> tuple[Integers, tuple[str, ...]]:
        """Return the subgroup of every record, shape (n,), -1 without one, and the names of the subgroups."""
        if request.column:
            raise ConfigurationError(
                f"subgroups must be those of a column of a table; got {request.column!r}",
                where="subgroups",
                hint="Leave subgroups out.",
            )
        return np.full(len(self.truth), -1, dtype=np.int64), ()

    @step(releases=SubgroupNames, when="once")
    def name_subgroups(self, request: Subgroups) -> SubgroupNames:
        """Return the names of the subgroups, which do not depend on the site's records."""
        return SubgroupNames(self.subgroups(request)[1], patients=self.n_records)

    @step(releases=SubgroupCounts, when="at the end", summed=True)
    def count_subgroups(self, request: Subgroups) -> SubgroupCounts:
        """Count records by subgroup and class, so that small subgroups are left out of later requests."""
        places, n_subgroups = self._divided(request)
        cells = np.where(places < 0, n_subgroups, places) * 2 + self._has_class
        counts = np.bincount(cells, minlength=2 * (n_subgroups + 1)).reshape(-1, 2)
        return SubgroupCounts(counts, patients=self.behind(counts))

    @step(releases=Profile, when="at the end", summed=True)
    def count_profile(self, request: ProfileRequest) -> Profile:
        """Count records with and without the class by bin of the log odds, and sum predictions and squared errors."""
        self.answer_once("count_profile", request)
        if len(request.edges) >= 4 * N_BINS or (np.diff(request.edges) <= 0).any():
            raise MessageError(
                f"edges must be fewer than {4 * N_BINS} increasing numbers; got {len(request.edges)}",
                where="count_profile",
            )
        n_bins = len(request.edges) + 1
        bins = np.searchsorted(request.edges, self.scores[:, 0])
        errors, multiples = brier_losses(self.chances, self.truth), np.rint(self.chances[:, 1] * FIXED)
        rows = self._rows(request, request.chosen)
        counts = np.array(
            [np.bincount(self._has_class[row] * n_bins + bins[row], minlength=2 * n_bins) for row in rows]
        ).reshape(-1, 2, n_bins)
        predicted = np.array([np.bincount(bins[row], multiples[row], n_bins) for row in rows])
        return Profile(
            counts,
            predicted.astype(np.int64),
            np.array([fixed(errors[row]) for row in rows], dtype=np.int64),
            np.array([fixed(errors[row] ** 2) for row in rows], dtype=np.int64),
            patients=min(self.behind(counts), self.n_differing),
        )

    @step(releases=Derivatives, when="every round", summed=True)
    def sum_lines(self, request: LinesRequest) -> Derivatives:
        """Sum derivatives of the log-likelihood of intercept and slope of the predicted log odds."""
        self._answer_few(request)
        rows = self._rows(request, request.chosen)
        if request.lines.shape[1] != len(rows) or np.abs(request.lines).max(initial=0.0) > MAX_ODDS:
            raise MessageError(
                f"lines must be those of {len(rows)} groups, within {MAX_ODDS:g}; "
                f"got {request.lines.shape[1]}, or larger ones",
                where="sum_lines",
            )
        outcomes = self._has_class.astype(np.float64)
        deviances = np.zeros((2, len(rows)), np.int64)
        gradients, informations = np.zeros((2, len(rows), 2), np.int64), np.zeros((2, len(rows), 3), np.int64)
        for fit in range(2):
            for group, row in enumerate(rows):
                intercept, slope = request.lines[fit, group].tolist()
                terms, first, second = derive_line(self.line_scores[row], outcomes[row], intercept, slope)
                deviances[fit, group] = fixed(terms)
                gradients[fit, group] = [fixed(column) for column in first.T]
                informations[fit, group] = [fixed(column) for column in second.T]
        return Derivatives(deviances, gradients, informations, patients=self._behind_rows(rows))

    @step(releases=SiteProfile, when="on request")
    def evaluate_alone(self, request: ScoreNames) -> SiteProfile:
        """Return scores, and counts by merged bins, if this is the only site that is evaluated.

        Bins have equal numbers of records by rank; neighbours are merged until each has the minimum of both classes.
        """
        self.answer_once("evaluate_alone", request)
        least = max(self.least_behind, 1)
        if self.n_peers > 1 or np.bincount(self._has_class, minlength=2).min() < least:
            raise DisclosureRefused(
                f"a site alone must have at least {least} records of each class; it has fewer, or is not alone",
                where=self.site,
                hint=ALONE_HINT,
            )
        values = [self.site_score(name) for name in request.names]
        scores = np.array([value if behind >= least else np.nan for value, behind in values])
        bins = merge_bins(self.scores[:, 0], self._has_class, least)
        n_bins = int(bins.max()) + 1
        counts = np.bincount(self._has_class * n_bins + bins, minlength=2 * n_bins).reshape(2, n_bins)
        predicted = np.bincount(bins, np.rint(self.chances[:, 1] * FIXED), n_bins).astype(np.int64)
        highest = [self.scores[bins == place, 0].max() for place in range(n_bins - 1)]
        borders = np.rint(np.asarray(highest) / BORDER) * BORDER
        return SiteProfile(scores, counts, predicted, borders, patients=min(self.behind(counts), self.n_differing))

    def site_score(self, name: str) -> tuple[float, int]:
        """Return a score of the site's records and the number of patients that it is based on."""
        line = name.removesuffix(ERROR)
        if not line.startswith("calibration_"):
            return super().site_score(name)
        sizes = np.bincount(self._has_class, minlength=2)
        if self.chances.shape[1] != 2 or not sizes.min():
            return float("nan"), 0
        fit = fit_line(self.line_scores, self._has_class.astype(np.float64), intercept_only=line == SHIFT)
        value = fit[1 if name.endswith(ERROR) else 0][int(line == SLOPE)]
        return float(value), min(self.behind(sizes), self.n_differing)

    @cached_property
    def line_scores(self) -> Floats:
        """Log odds of the second class within `MAX_ODDS`, shape (n,), also where the probability rounds to 1."""
        odds = self.log_odds()
        if odds is None:
            return self.scores[:, 0]
        return np.clip(np.nan_to_num(odds), -MAX_ODDS, MAX_ODDS)

    def log_odds(self) -> Floats | None:
        """Return the log odds of the second class if the model has them before rounding, shape (n,)."""
        return None

    @property
    def _has_class(self) -> Integers:
        return np.asarray(self.truth == 1, dtype=np.int64)

    def _divided(self, request: Subgroups) -> tuple[Integers, int]:
        """Return the subgroup of every record and their number; a session has one division for all steps.

        Sums for two divisions with a record between their limits would differ by that record.
        """
        self.answer_once("subgroups", Subgroups(request.column, request.cuts))
        places, names = self.subgroups(request)
        return places, len(names)

    def _rows(self, request: Subgroups, chosen: Integers) -> list[NDArray[np.bool_]]:
        """Return the records of each evaluated group; the first is all records."""
        places, n_subgroups = self._divided(request)
        if len(set(chosen.tolist())) < len(chosen) or (chosen < 0).any() or (chosen >= n_subgroups).any():
            raise MessageError(
                f"chosen must be different places below {n_subgroups}; got {len(chosen)}, or others", where="chosen"
            )
        return [np.ones(len(places), dtype=np.bool_), *(places == place for place in chosen.tolist())]

    def _behind_rows(self, rows: list[NDArray[np.bool_]]) -> int:
        """Return the fewest records of a group and class; all if sums are masked."""
        sizes = [np.bincount(self._has_class[row], minlength=2) for row in rows]
        return min(self.behind(np.array(sizes)), self.n_differing)

    def _answer_few(self, request: LinesRequest) -> None:
        digest = request_digest("sum_lines", request)
        earlier = [one for one in self.memory.requests if one.startswith("sum_lines ")]
        if digest in earlier:
            return
        if len(earlier) >= MAX_LINES:
            raise ConfigurationError(
                f"a session must request at most {MAX_LINES} intercepts and slopes; got more",
                where="sum_lines",
                hint="Start a new session.",
            )
        self.state = replace(self.memory, requests=(*self.memory.requests, digest))
