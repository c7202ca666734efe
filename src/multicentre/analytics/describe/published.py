"""Published part of a descriptive table: texts, numbers and histograms, without small counts.

A saved table holds this and no count of patients that the printed table leaves out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.analytics.describe.suppression import with_totals
from multicentre.analytics.describe.table_one import OVERALL, Kind, Row, TableOne

Floats = NDArray[np.float64]
Numbers = list[list[float | None]]


@dataclass(frozen=True)
class Published:
    """Printed table as plain values.

    Parameters
    ----------
    n_patients : int
        Patients of all sites.
    rows : list of tuple
        Variable, kind, level and cells of each row of the table.
    numbers : list of list
        Variable, group, patients with and without a value, mean, standard deviation and quartiles; None if left out.
    histograms : dict of str to list
        Names of the bins, and counts by bin (all patients first, then groups), by variable; empty without histograms.
    rank_tests : dict of str to list
        Statistic, p-value, its limits, and whether it is exact.
    rough_ranks : list of str
        Variables whose ranks are approximate.
    without_group : str
        Sentence about patients without a group.
    """

    n_patients: int
    rows: list[tuple[str, Kind, str, list[str]]]
    numbers: list[list[Any]]
    histograms: dict[str, list[Any]]
    rank_tests: dict[str, list[Any]]
    rough_ranks: list[str]
    without_group: str

    @classmethod
    def of(cls, table: TableOne) -> Self:
        """Return what a table publishes."""
        bins, names = table.histograms, table.groups.numbers
        present, n_patients = table.counts.present.sum(axis=0), int(table.counts.n_patients.sum())
        rough = [
            name
            for place, name in enumerate(() if bins.is_empty else names)
            if present[place] < n_patients or not bins.is_exact(place)
        ]
        return cls(
            n_patients,
            [(row.variable, row.kind, row.level, row.cells) for row in table.rows()],
            [_plain(row) for row in _numbers(table)],
            {} if bins.is_empty else {name: _histogram(table, place) for place, name in enumerate(names)},
            {
                name: [*_plain([test.statistic, test.p_value, test.lower, test.upper]), test.is_exact]
                for place, (name, test) in enumerate(table.rank_tests.items())
                if table.can_test(place)
            },
            rough,
            table.patients_without_group(),
        )

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Self:
        """Return the table that :meth:`to_dict` wrote."""
        return cls(**facts)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as values that JSON can hold."""
        return asdict(self)

    @property
    def table(self) -> list[Row]:
        """Rows of the printed table."""
        return [Row(*row) for row in self.rows]


def _numbers(table: TableOne) -> list[list[Any]]:
    """Return a row per numeric variable and group; NaN for what the table leaves out."""
    moments, rows = table.moments, []
    for place, group in enumerate([OVERALL, *table.names]):
        for column, name in enumerate(table.groups.numbers):
            values, suppressed = table.number_table(column)
            inner = table.columns_of(with_totals(table.inner(values)))[:, place]
            is_hidden = table.columns_of(suppressed.flags)[[-2, -1], place].any()
            n, missing = float(inner[-1]), float(inner[-2])
            counts = [np.nan, np.nan] if is_hidden else [n - missing, missing]
            is_visible = table.shows_moments(column)[place]
            figures = [moments.mean[place, column], moments.deviation[place, column]] if is_visible else [np.nan] * 2
            quarters = table.quartiles[place, column] if table.has_many(column)[place] else np.full(3, np.nan)
            rows.append([name, group, *counts, *figures, *quarters])
    return rows


def _histogram(table: TableOne, column: int) -> list[Any]:
    """Return the names of the printed bins, and their counts of all patients and of each group."""
    counts, suppressed = table.number_table(column)
    columns = table.columns_of(with_totals(table.inner(counts)))[:-2].astype(np.float64)
    visible = np.where(table.columns_of(suppressed.flags)[:-2], np.nan, columns)
    return [table.histograms.labels(column), [_plain(row) for row in visible.tolist()]]


def _plain(values: list[Any]) -> list[Any]:
    """Return values with None for NaN, which JSON cannot hold."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return [None if isinstance(value, float) and not np.isfinite(value) else value for value in plain]
