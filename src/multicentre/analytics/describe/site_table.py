"""Table 1 with a column per site, next to the table by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.analytics.describe.messages import SiteSummary
from multicentre.analytics.describe.suppression import Suppressed, hidden_groups, suppressed_by_site
from multicentre.analytics.describe.table_one import (
    Row,
    TableOne,
    digits_for,
    moment_text,
    table_texts,
)
from multicentre.core.published_counts import count_text
from multicentre.data.categories import split_level

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
REFUSED = "refused"


@dataclass(frozen=True)
class SiteTable:
    """Table of all patients and of each site.

    Parameters
    ----------
    table : TableOne
        The table by group, which is published too.
    answers : mapping of str to SiteSummary
    refused : sequence of str
        Sites that refused; their cells are "refused".
    """

    table: TableOne
    answers: Mapping[str, SiteSummary]
    refused: Sequence[str]

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return ["overall", *self.answers, *self.refused]

    @cached_property
    def sizes(self) -> Integers:
        """Patients of each site; of all sites that refused together, if any did."""
        sizes = [int(answer.n_patients[0]) for answer in self.answers.values()]
        others = [int(self.table.counts.n_patients.sum()) - sum(sizes)] if self.refused else []
        return np.array([*sizes, *others], dtype=np.int64)

    @cached_property
    def hidden(self) -> Flags:
        """Sites of which no count is shown."""
        return hidden_groups(self.sizes, self.table.min_cell)

    def rows(self) -> list[Row]:
        """Return the rows of the table."""
        rows = [Row("", "n", "", [self.table.sizes()[0], *self._sizes()])]
        for column, name in enumerate(self.table.groups.numbers):
            rows += self._rows_of_number(name, column)
        for name, places in self.table.categories.items():
            rows += self._rows_of_category(name, places)
        return rows

    def _sizes(self) -> list[str]:
        least = self.table.min_cell
        pairs = zip(self.sizes.tolist(), self.hidden.tolist(), strict=True)
        texts = [count_text(size, least, is_hidden=flag) for size, flag in pairs]
        return texts[: len(self.answers)] + [REFUSED] * len(self.refused)

    def _rows_of_number(self, name: str, column: int) -> list[Row]:
        moments = self.table.moments
        digits = digits_for(float(moments.deviation[0, column]))
        total = moment_text(float(moments.mean[0, column]), float(moments.deviation[0, column]), digits)
        cells = [total if self.table.shows_moments(column)[0] else "-"]
        total_present = int(self.table.counts.present[:, column].sum())
        present = np.array([answer.present[column] for answer in self.answers.values()], dtype=np.int64)
        if self.refused:
            present = np.append(present, total_present - present.sum())
        is_visible = self._shows_moments(present)
        for place, answer in enumerate(self.answers.values()):
            text = moment_text(float(answer.mean[column]), float(answer.deviation[column]), digits)
            cells.append(text if is_visible[place] else "-")
        rows = [Row(name, "mean (SD)", "", cells + [REFUSED] * len(self.refused))]
        table, suppressed = self.table.number_table(column)
        if table[-1].any():
            # The bins of a histogram are not known by site: one row of all numbers stands for them.
            by_site = np.vstack([present, self.sizes - present])
            texts = self._missing_texts(table, suppressed, by_site)
            rows.append(Row(name, "missing", "", texts))
        return rows

    def _missing_texts(self, table: Integers, suppressed: Suppressed, by_site: Integers) -> list[str]:
        inner = self.table.inner(table)
        joined = np.vstack([inner[:-1].sum(axis=0), inner[-1]])
        # Without the bins, only the rows of missing numbers and of all patients are published.
        flags, marks = suppressed.flags[[-2, -2, -1]], suppressed.is_marked[[-2, -2, -1]]
        hidden = self._suppress(joined, by_site, Suppressed(flags, marks))
        if not self.table.histograms.is_empty and flags[1, -1]:
            hidden[:] = True  # with the bins, a total that is left out has a range that the cells by site could narrow
        return self._texts(joined, flags, marks, by_site, hidden, with_shares=False)[-1]

    def _rows_of_category(self, name: str, places: Sequence[int]) -> list[Row]:
        table, suppressed = self.table.level_table(places)
        inner = self.table.inner(table)
        levels = np.array([answer.levels[places] for answer in self.answers.values()]).reshape(-1, len(places)).T
        sizes = self.sizes[: len(self.answers)]
        by_site = self._with_refused(np.vstack([levels, sizes - levels.sum(axis=0)]), inner)
        hidden = self._suppress(inner, by_site, suppressed)
        texts = self._texts(inner, suppressed.flags, suppressed.is_marked, by_site, hidden, with_shares=True)
        rows = [
            Row(name, "n (%)", split_level(self.table.groups.levels[place])[1], texts[row])
            for row, place in enumerate(places)
        ]
        return [*rows, Row(name, "missing", "", texts[-1])] if inner[-1].any() else rows

    def _suppress(self, inner: Integers, by_site: Integers, published: Suppressed) -> Flags:
        least, n_refused = self.table.min_cell, len(self.refused)
        return suppressed_by_site(inner, by_site, published, least, hidden=self.hidden, refused=n_refused)

    def _texts(
        self,
        inner: Integers,
        flags: Flags,
        is_marked: Flags,
        by_site: Integers,
        hidden: Flags,
        *,
        with_shares: bool,
    ) -> list[list[str]]:
        n_sites, least = len(self.answers), self.table.min_cell
        totals = inner.sum(axis=1, keepdims=True)
        place = slice(-1, None) if inner.shape[1] > 1 else slice(0, 1)
        first = table_texts(totals, flags[:-1, place], is_marked[:-1, place], least, with_shares=with_shares)
        sites, flagged = by_site[:, :n_sites], hidden[:, :n_sites]
        others = table_texts(sites, flagged, np.zeros_like(flagged), least, with_shares=with_shares)
        return [one + other + [REFUSED] * len(self.refused) for one, other in zip(first, others, strict=True)]

    def _shows_moments(self, present: Integers) -> Flags:
        """Return whether the mean of each site is shown, so that none that is left out follows from all patients'."""
        least = max(self.table.min_cell, 1)
        is_visible = (present >= least) & ~self.hidden
        if self.refused:
            is_visible[-1] = False
        left_out = ~is_visible & (present > 0)
        is_protected = len(self.refused) == 1 or bool((present[left_out] < least).any())
        if left_out.sum() == 1 and is_protected and is_visible.any():
            is_visible[int(np.where(is_visible, present, np.iinfo(np.int64).max).argmin())] = False
        return np.asarray(is_visible, dtype=np.bool_)

    def _with_refused(self, by_site: Integers, inner: Integers) -> Integers:
        """Append the patients of the sites that refused, from those of all sites."""
        if not self.refused:
            return by_site
        return np.column_stack([by_site, inner.sum(axis=1) - by_site.sum(axis=1)])
