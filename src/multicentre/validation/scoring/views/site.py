"""Scoring of rows of several views beside the patients: sums over records, by view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.multiview import MultiViewData
from multicentre.federation.messages import Nothing, array
from multicentre.federation.steps import Release, step
from multicentre.validation.scoring.judging import LARGEST_FIXED, RECORDS, JudgingPart, fixed
from multicentre.validation.scoring.views.predictors import RowEncoder, RowLaw, RowModel

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
    kinds: ClassVar[Mapping[str, type[Any]]] = {"RowLaw": RowLaw, "RowEncoder": RowEncoder}
    data: MultiViewData
    model: RowModel

    @step(releases=RowErrors, when="at the end", summed=True)
    def sum_errors(self, ask: Nothing) -> RowErrors:
        """Sum absolute differences of entries and rebuilt rows, by view."""
        errors = self.errors
        absolute = np.array([fixed(np.nansum(errors[:, own], axis=1)) for own in self.blocks])
        entries = np.array([np.isfinite(errors[:, own]).sum() for own in self.blocks])
        return RowErrors(absolute, entries, patients=self._behind(*(errors[:, own] for own in self.blocks)))

    @step(releases=RowDensities, when="at the end", summed=True)
    def sum_densities(self, ask: Nothing) -> RowDensities:
        """Sum log densities of rows, and of each view by itself."""
        observed = np.isfinite(self.rows)
        has_entry = [observed.any(axis=1), *(observed[:, own].any(axis=1) for own in self.blocks)]
        log = np.array([fixed(column) for column in self.log_likelihoods.T])
        records = np.array([own.sum() for own in has_entry])
        return RowDensities(log, records, patients=self._behind(*(self.rows[:, own] for own in self.blocks)))

    def own_score(self, name: str) -> tuple[float, int]:
        """Return a score of the site's own records, and how many patients stand behind it."""
        stem, _, view = name.partition("/")
        place = self.model.views.index(view) if view in self.model.views else None
        if stem == "log_likelihood":
            own = self.log_likelihoods[:, 0 if place is None else 1 + place]
            return float(own.mean()), len(own)
        errors = self.errors if place is None else self.errors[:, self.blocks[place]]
        known = np.isfinite(errors)
        return (-float(np.nanmean(errors)) if known.any() else float("nan")), int(known.any(axis=1).sum())

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
    def errors(self) -> Floats:
        """Absolute differences of entries and rebuilt rows in standard deviations, shape (n, d), NaN where missing."""
        return np.asarray(np.abs(self.rows - self.model.rebuild(self.rows)) / self.model.deviation, dtype=np.float64)

    @cached_property
    def log_likelihoods(self) -> Floats:
        """Log densities of rows, shape (n, 1 + k)."""
        return self.model.log_likelihoods(self.rows)

    def _behind(self, *tables: Floats) -> int:
        """Return the fewest patients, but some, who have an entry of a table; under a mask all."""
        counts = np.array([np.isfinite(table).any(axis=1).sum() for table in tables])
        return self.behind(counts)
