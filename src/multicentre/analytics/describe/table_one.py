"""Rows of a Table 1 as texts, with small counts left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.analytics.describe.histograms import Histograms
from multicentre.analytics.describe.maths import (
    MIN_OF_QUARTILES,
    chi_square_test,
    difference_of_means,
    difference_of_shares,
    means,
    standard_deviations,
    welch_test,
)
from multicentre.analytics.describe.messages import Counts, Groups, Squares
from multicentre.analytics.describe.ranks import RankTest
from multicentre.analytics.describe.suppression import (
    Suppressed,
    hidden_groups,
    suppressed_cells,
    with_totals,
)
from multicentre.core.published_counts import count_text
from multicentre.data.categories import split_level
from multicentre.estimator.printing import p_cell

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
OVERALL = "overall"
# A standardised difference of groups without a common level.
INFINITE = "∞"
# Decimals of a table: enough for concentrations in mol per litre.
MAX_DECIMALS = 12
Kind = Literal["n", "mean (SD)", "median [quartiles]", "n (%)", "missing"]


@dataclass(frozen=True)
class Row:
    """Row of the table.

    Parameters
    ----------
    variable : str
        Empty in the row of the numbers of patients.
    kind : {"n", "mean (SD)", "median [quartiles]", "n (%)", "missing"}
    level : str
        Level of a category; empty otherwise.
    cells : list of str
        All patients first, then each group, then difference and p-value if there are groups.
    """

    variable: str
    kind: Kind
    level: str
    cells: list[str]

    @property
    def label(self) -> str:
        """Name of the row in a frame."""
        if self.kind == "n":
            return "n"
        name = f"{self.variable} = {self.level}" if self.level else self.variable
        return f"{name}, {self.kind}"


@dataclass(frozen=True)
class Moments:
    """Patients with a number, mean and standard deviation of each variable; shape (G + 2, d).

    Rows: all patients, each group, patients without a group.
    """

    present: Floats
    mean: Floats
    deviation: Floats


@dataclass(frozen=True)
class TableOne:
    """Table 1 from sums over sites.

    Parameters
    ----------
    groups : Groups
    counts : Counts
    squares : Squares
    quartiles : array of shape (G + 1, d, 3)
    histograms : Histograms
    min_cell : int
    has_quartiles : bool
    """

    groups: Groups
    counts: Counts
    squares: Squares
    quartiles: Floats
    histograms: Histograms
    min_cell: int
    has_quartiles: bool
    names: tuple[str, ...] = field(init=False)
    _suppressed: dict[bytes, Suppressed] = field(init=False, default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", self.groups.group_levels)

    def is_of(self, *fitted: object) -> bool:
        """Return whether the table has these fields, the same objects."""
        fields = self.groups, self.counts, self.squares, self.quartiles, self.histograms
        *objects, min_cell, has_quartiles = fitted
        same = all(mine is other for mine, other in zip(fields, objects, strict=True))
        return same and (self.min_cell, self.has_quartiles) == (min_cell, has_quartiles)

    @cached_property
    def hidden(self) -> Flags:
        """Groups of which no count is shown, shape (G,); one entry for all patients without groups."""
        return self._hidden[: max(len(self.names), 1)]

    @property
    def hides_rest(self) -> bool:
        """True if the number of patients without a group is not shown."""
        return len(self._hidden) > len(self.hidden) and bool(self._hidden[-1])

    @cached_property
    def _hidden(self) -> Flags:
        """Groups of which no count is shown; patients without a group are the last one, if there are any."""
        return hidden_groups(self.inner(self.counts.n_patients[None])[0], self.min_cell)

    @cached_property
    def moments(self) -> Moments:
        """Moments of all patients, of groups, and of patients without a group."""
        counts, squares = self.counts, self.squares.squares
        present = counts.present.astype(np.float64)
        group_means = np.nan_to_num(means(present, counts.total))
        everyone = means(present.sum(axis=0), counts.total.sum(axis=0))
        within = squares.sum(axis=0) + (present * np.square(group_means - np.nan_to_num(everyone))).sum(axis=0)
        overall = standard_deviations(present.sum(axis=0), within)
        return Moments(
            np.vstack([present.sum(axis=0), present]),
            np.vstack([everyone, means(present, counts.total)]),
            np.vstack([overall, standard_deviations(present, squares)]),
        )

    def shows_moments(self, column: int) -> Flags:
        """Return whether mean and deviation are shown, of all patients and of each group, shape (G + 1,).

        Those of fewer than `min_cell` patients are not. If one group alone is left out, its sum would follow from that
        of all patients, so that the next smallest group is left out too.
        """
        present = self.moments.present[:, column]
        least = max(self.min_cell, 1)
        if not self.names:
            return np.asarray(present[:1] >= least, dtype=np.bool_)
        is_visible = np.append(~self.hidden & (present[1:-1] >= least), False)
        hidden = ~is_visible & (present[1:] > 0)
        if hidden.sum() == 1 and (present[1:][hidden] < least).any() and is_visible.any():
            sizes = np.where(is_visible, present[1:], np.inf)
            is_visible[int(sizes.argmin())] = False
        return np.append(present[0] >= least, is_visible[:-1])

    @cached_property
    def rank_tests(self) -> Mapping[str, RankTest]:
        """Rank test of each numeric variable; empty without groups or histograms."""
        if not self.names or self.histograms.is_empty:
            return {}
        groups = slice(0, len(self.names))
        return {name: self.histograms.rank_test(place, groups) for place, name in enumerate(self.groups.numbers)}

    def number_table(self, column: int) -> tuple[Integers, Suppressed]:
        """Return counts of a numeric variable by shown bin (missing last) and group, and which are left out.

        Without histograms all numbers are one bin. The table has a column per group and one of patients without a
        group.
        """
        missing = self.counts.n_patients - self.counts.present[:, column]
        bins = self.counts.present[None, :, column] if self.histograms.is_empty else self.histograms.printed(column)
        table = np.vstack([bins, missing])
        return table, self.suppress(table)

    def level_table(self, places: Sequence[int]) -> tuple[Integers, Suppressed]:
        """Return counts of a category by level (missing last) and group, and which are left out."""
        levels = self.counts.levels[:, places].T
        table = np.vstack([levels, self.counts.n_patients - levels.sum(axis=0)])
        return table, self.suppress(table)

    def suppress(self, table: Integers) -> Suppressed:
        """Return which counts are left out, of the shape of ``with_totals`` for :meth:`inner`."""
        inner = self.inner(table)
        key = inner.tobytes()
        if key not in self._suppressed:  # many linear programs, for several frames and files of one fit
            self._suppressed[key] = suppressed_cells(inner, self.min_cell, self._hidden)
        return self._suppressed[key]

    def inner(self, table: Integers) -> Integers:
        """Return a table without the column of patients without a group, if there are none."""
        return table if self.names and self.counts.n_patients[-1] else table[:, :-1]

    def columns_of(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return columns of all patients and of each group from those of groups and totals."""
        if not self.names or values.shape[1] == 1:
            return values[:, [0] * (len(self.names) + 1)]
        return np.column_stack([values[:, -1], values[:, : len(self.names)]])

    @cached_property
    def categories(self) -> dict[str, list[int]]:
        """Places of the levels of each category."""
        places: dict[str, list[int]] = {}
        for place, name in enumerate(self.groups.levels):
            places.setdefault(split_level(name)[0], []).append(place)
        return places

    def sizes(self) -> list[str]:
        """Return the numbers of patients as texts, of all and of each group."""
        n = self.counts.n_patients
        groups = [
            count_text(size, self.min_cell, is_hidden=flag)
            for size, flag in zip(n[:-1].tolist(), self.hidden.tolist(), strict=True)
        ]
        return [count_text(n.sum(), 0), *groups] if self.names else groups

    def patients_without_group(self) -> str:
        """Return a sentence about patients without a group; empty if there are none."""
        n_without = int(self.counts.n_patients[-1])
        if not n_without:
            return ""
        number = count_text(n_without, self.min_cell, is_hidden=self.hides_rest)
        patients = "Patients" if number == "-" else f"{number} patients"
        sentence = f"{patients} without a group are part of the overall column."
        if self.hides_rest and n_without < self.min_cell:
            sentence += (
                " Their number would follow from those of all groups, so that the smallest group is left out too."
            )
        return sentence

    def rows(self) -> list[Row]:
        """Return the rows of the table."""
        rows = [Row("", "n", "", self.sizes() + self._blank())]
        for column, name in enumerate(self.groups.numbers):
            rows += self._rows_of_number(name, column)
        for name, places in self.categories.items():
            rows += self._rows_of_category(name, places)
        return rows

    def _rows_of_number(self, name: str, column: int) -> list[Row]:
        moments, is_visible = self.moments, self.shows_moments(column)
        digits = digits_for(float(moments.deviation[0, column]))
        cells = [
            moment_text(float(mean), float(deviation), digits) if is_shown else "-"
            for mean, deviation, is_shown in zip(
                moments.mean[:, column], moments.deviation[:, column], is_visible, strict=False
            )
        ]
        rows = [Row(name, "mean (SD)", "", cells + self._tests_of_means(column))]
        if self.has_quartiles:
            quarters = [
                quarters_text(values, digits) if is_few else "-"
                for values, is_few in zip(self.quartiles[:, column], self.has_many(column), strict=False)
            ]
            rows.append(Row(name, "median [quartiles]", "", quarters + self._test_of_ranks(name, column)))
        table, suppressed = self.number_table(column)
        if table[-1].any():
            rows.append(Row(name, "missing", "", self._texts(table, suppressed)[-1] + self._blank()))
        return rows

    def has_many(self, column: int) -> Flags:
        """Return whether all patients, and each group, have enough numbers for quartiles, shape (G + 1,)."""
        present = self.moments.present[: len(self.names) + 1, column]
        hidden = np.append(False, self.hidden) if self.names else self.hidden
        return (present >= max(self.min_cell, MIN_OF_QUARTILES)) & ~hidden

    def _tests_of_means(self, column: int) -> list[str]:
        if not self.names:
            return []
        moments = self.moments
        present, mean, deviation = (each[1:-1, column] for each in (moments.present, moments.mean, moments.deviation))
        if not (self.can_test(column) and self.shows_moments(column).all()):
            return ["-", "-"]
        difference = difference_of_means(mean, deviation)
        return [decimal_text(difference, 2), p_text(welch_test(present, mean, deviation))]

    def _test_of_ranks(self, name: str, column: int) -> list[str]:
        if not self.names or name not in self.rank_tests:
            return self._blank()
        test = self.rank_tests[name]
        if not self.can_test(column):
            return ["", "-"]
        return ["", p_text(test.p_value, "" if test.is_exact or not np.isfinite(test.p_value) else "‡")]

    def can_test(self, column: int) -> bool:
        """Return whether tests of a numeric variable rest on enough patients in every group."""
        present = self.moments.present[1:-1, column]
        return not ((present[present > 0] < self.min_cell).any() or self.hidden.any())

    def _rows_of_category(self, name: str, places: Sequence[int]) -> list[Row]:
        table, suppressed = self.level_table(places)
        texts = self._texts(table, suppressed, with_shares=True)
        tests = self._blank()
        if self.names:
            grouped = self.counts.levels[:-1][:, places].T.astype(np.float64)
            p_value, is_small = chi_square_test(grouped)
            figures = [decimal_text(difference_of_shares(grouped), 2), p_text(p_value, "†" if is_small else "")]
            tests = ["-", "-"] if suppressed.flags[:-1].any() else figures
        levels = [split_level(self.groups.levels[place])[1] for place in places]
        rows = [
            Row(name, "n (%)", level, texts[row] + (tests if row == 0 else self._blank()))
            for row, level in enumerate(levels)
        ]
        if table[-1].any():
            rows.append(Row(name, "missing", "", texts[-1] + self._blank()))
        return rows

    def _texts(self, table: Integers, suppressed: Suppressed, *, with_shares: bool = False) -> list[list[str]]:
        """Return the cells of a table of levels (missing last): all patients, then each group."""
        columns = self.columns_of(with_totals(self.inner(table)))[:-1]
        flags, is_marked = (self.columns_of(each)[:-1] for each in (suppressed.flags, suppressed.is_marked))
        return table_texts(columns, flags, is_marked, self.min_cell, with_shares=with_shares)

    def _blank(self) -> list[str]:
        return ["", ""] if self.names else []


def table_texts(
    table: Integers, flags: Flags, is_marked: Flags, min_cell: int, *, with_shares: bool
) -> list[list[str]]:
    """Return counts as texts, shape of `table`; the last row is missing entries, which have no share."""
    n_present = table[:-1].sum(axis=0)
    texts = []
    for row, counts in enumerate(table.tolist()):
        cells = []
        for column, count in enumerate(counts):
            text = count_text(count, min_cell if is_marked[row, column] else 0, is_hidden=bool(flags[row, column]))
            # A share gives the number of patients with a level, and with it the missing ones.
            has_share = with_shares and row < len(table) - 1 and n_present[column] and not flags[-1, column]
            if has_share and not flags[row, column]:
                text += f" ({100.0 * count / n_present[column]:.1f})"
            cells.append(text)
        texts.append(cells)
    return texts


def digits_for(deviation: float) -> int:
    """Return decimals that show a standard deviation with two or three digits."""
    if not (np.isfinite(deviation) and deviation > 0):
        return 1
    return int(np.clip(1 - np.floor(np.log10(deviation)), 1, MAX_DECIMALS))


def moment_text(mean: float, deviation: float, digits: int) -> str:
    """Return mean and standard deviation as a text; "-" without patients.

    Examples
    --------
    >>> moment_text(1.25, 0.5, 2)
    '1.25 (0.50)'
    """
    return f"{mean:.{digits}f} ({deviation:.{digits}f})" if np.isfinite(mean) else "-"


def quarters_text(values: Floats, digits: int) -> str:
    """Return median and quartiles as a text; "-" without patients."""
    if not np.isfinite(values).all():
        return "-"
    return f"{values[1]:.{digits}f} [{values[0]:.{digits}f}, {values[2]:.{digits}f}]"


def decimal_text(value: float, digits: int) -> str:
    """Return a number as a text; "-" for NaN."""
    if np.isinf(value):
        return INFINITE
    return f"{value:.{digits}f}" if np.isfinite(value) else "-"


def p_text(value: float, mark: str = "") -> str:
    """Return a p-value as a text with a mark.

    Examples
    --------
    >>> p_text(0.00004), p_text(0.2, "†"), p_text(float("nan"))
    ('<0.001', '0.200†', '-')
    """
    return p_cell(value) + mark if np.isfinite(value) else p_cell(value)
