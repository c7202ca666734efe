"""Scoring of rows of several views beside the patients: sums over records, by view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.multiview import MultiViewData
from multicentre.federation.lengths import Lengths
from multicentre.federation.messages import Nothing, array
from multicentre.federation.steps import Release, step
from multicentre.validation.scoring.judging import LARGEST_FIXED, RECORDS, JudgingPart, limited
from multicentre.validation.scoring.views.predictors import RowLaw, RowModel

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class RowErrors(Release):
    """How far rebuilt rows are from the entries, by view."""

    absolute: Integers = array(
        "sum of |entry - rebuilt| in standard deviations, times 2^24", ("k",), dtype="i8", bound=LARGEST_FIXED
    )
    entries: Integers = array("entries", ("k",), dtype="i8", bound=RECORDS)


@dataclass(frozen=True)
class RowDensities(Release):
    """How likely rows are: all of a row, then each view by itself."""

    log: Integers = array("sum of log densities, times 2^24", ("v",), dtype="i8", unit="nats", bound=LARGEST_FIXED)
    records: Integers = array("records with an entry", ("v",), dtype="i8", bound=RECORDS)


class RowPart(JudgingPart):
    """The site part that scores models of rows."""

    method: ClassVar[str] = "score-views"
    holds: ClassVar[type] = MultiViewData
    sums_fields: ClassVar[bool] = True
    kinds: ClassVar[Mapping[str, type[Any]]] = {"RowLaw": RowLaw}
    lengths: ClassVar[Lengths] = {"k": "views", "v": "views, or one for all views together"}
    data: MultiViewData
    model: RowModel

    @step(releases=RowErrors, when="at the end", summed=True)
    def sum_errors(self, ask: Nothing) -> RowErrors:
        """Sum absolute differences of entries and rebuilt rows, by view."""
        entries = np.array([self.observed[:, own].sum() for own in self.blocks])
        absolute, behind = self._summed([self._errors_of_rows(own) for own in self.blocks])
        return RowErrors(absolute, entries, patients=behind)

    @step(releases=RowDensities, when="at the end", summed=True)
    def sum_densities(self, ask: Nothing) -> RowDensities:
        """Sum log densities of rows, and of each view by itself."""
        known = [self._with_entry(own) for own in (slice(None), *self.blocks)]
        log, behind = self._summed([own[rows] for own, rows in zip(self.log_likelihoods.T, known, strict=True)])
        return RowDensities(log, np.array([rows.sum() for rows in known]), patients=behind)

    def own_score(self, name: str) -> tuple[float, int]:
        """Return a score of the site's own records, and how many patients stand behind it."""
        stem, _, view = name.partition("/")
        place = self.model.views.index(view) if view in self.model.views else None
        columns = slice(None) if place is None else self.blocks[place]
        known = self._with_entry(columns)
        if not known.any():
            return float("nan"), 0
        if stem == "log_likelihood":
            mean, behind = self.own_mean(self.log_likelihoods[known, 0 if place is None else 1 + place])
            return mean, min(behind, int(known.sum()))
        mean, behind = self.own_mean(self._errors_of_rows(columns))
        entries = int(self.observed[:, columns].sum())
        return -mean * int(known.sum()) / entries, min(behind, int(known.sum()))

    @property
    def blocks(self) -> list[slice]:
        """Columns of every view."""
        return [self.model.layout.columns(view) for view in self.model.views]

    @cached_property
    def rows(self) -> Floats:
        """Rows, shape (n, d), NaN where missing."""
        sizes = {view: len(names) for view, names in self.model.columns.items()}
        return self.data.stacked(self.model.views, sizes)

    @cached_property
    def observed(self) -> NDArray[np.bool_]:
        """Entries that are not missing, shape (n, d)."""
        return np.isfinite(self.rows)

    @cached_property
    def errors(self) -> Floats:
        """Absolute differences of entries and rebuilt rows in standard deviations, shape (n, d), 0 where missing."""
        with np.errstate(over="ignore", invalid="ignore"):
            errors = np.abs(self.rows - limited(self.model.rebuild(self.rows))) / self.model.deviation
        return np.where(self.observed, limited(errors), 0.0)

    @cached_property
    def log_likelihoods(self) -> Floats:
        """Log densities of rows, shape (n, 1 + k)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return limited(self.model.log_likelihoods(self.rows))

    def _with_entry(self, columns: slice) -> NDArray[np.bool_]:
        """Return which records have an entry of some columns, shape (n,)."""
        return np.asarray(self.observed[:, columns].any(axis=1))

    def _errors_of_rows(self, columns: slice) -> Floats:
        """Return the sum of errors of every record that has an entry of some columns."""
        return np.asarray(self.errors[self._with_entry(columns)][:, columns].sum(axis=1), dtype=np.float64)

    def _summed(self, terms: list[Floats]) -> tuple[Integers, int]:
        """Return sums over records, and the fewest patients behind one of them, but some; under a mask all."""
        totals, apart = zip(*(self.summed(own) for own in terms), strict=True)
        shown = [min(behind, len(own)) for behind, own in zip(apart, terms, strict=True) if len(own)]
        return np.array(totals), self.n_records if self.masked else min(shown, default=self.n_records)
