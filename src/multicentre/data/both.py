"""Survival data and a table with an outcome of the same patients, for studies with analyses of both kinds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.flow import Flow
from multicentre.data.identifiers import Identifiers
from multicentre.data.survival import SurvivalData
from multicentre.data.tabledata import TableData
from multicentre.errors import DataError


class SurvivalAndTable:
    """Times to an event, and a class or a number to predict, of the same patients in the same order.

    A site part works on the half that it holds; other parts, such as those of folds, work on the survival data.

    Parameters
    ----------
    survival : SurvivalData
        Times, events and columns of n patients.
    table : TableData
        Outcomes and columns of the same n patients, in the same order, with the same `ids`.

    Raises
    ------
    DataError
        The halves differ in their patients.

    Examples
    --------
    >>> survival = SurvivalData([[61.0], [64.0]], [12.0, 30.0], [1, 0], columns=["age"])
    >>> both = SurvivalAndTable(survival, TableData([[61.0], [64.0]], [0, 1], columns=["age"]))
    >>> both.of_type(TableData).y.tolist(), len(both.take([1]))
    ([0, 1], 1)
    """

    def __init__(self, survival: SurvivalData, table: TableData) -> None:
        if len(survival) != len(table) or not _equal_ids(survival.ids, table.ids):
            raise DataError(
                f"both halves must be of the same patients; got {len(survival)} and {len(table)}, or other identifiers",
                where="survival, table",
                hint="Make both from the same rows of one table.",
            )
        self.survival = survival
        self.table = table

    def of_type(self, kind: type) -> SurvivalData | TableData:
        """Return the half that a site part with ``holds = kind`` works on."""
        is_table = issubclass(TableData, kind) and not issubclass(SurvivalData, kind)
        return self.table if is_table else self.survival

    @property
    def ids(self) -> NDArray[np.str_] | None:
        """Ids of the patients, shape (n,), or None."""
        return self.survival.ids

    @property
    def identifier(self) -> Identifiers | None:
        """Identifiers of the records, or None."""
        return self.survival.identifier

    @property
    def flow(self) -> Flow | None:
        """Records from which these were selected, or None."""
        return self.survival.flow

    def with_flow(self, flow: Flow) -> Self:
        """Return the same patients with the counts of the records from which they were selected."""
        return type(self)(self.survival.with_flow(flow), self.table)

    @property
    def parts(self) -> dict[str, int]:
        """Number of patients with an event, of any cause."""
        return self.survival.parts

    def __len__(self) -> int:
        return len(self.survival)

    def without_identifier(self) -> SurvivalAndTable:
        """Return the data without identifiers, as passed to a method's site part."""
        return SurvivalAndTable(self.survival.without_identifier(), self.table.without_identifier())

    def take(self, rows: ArrayLike) -> Self:
        """Return the patients at `rows`."""
        return type(self)(self.survival.take(rows), self.table.take(rows))

    def keep_columns(self, names: Iterable[str]) -> Self:
        """Return the data with only these columns in both halves.

        Raises
        ------
        DataError
            One of the halves has none of these columns.
        """
        allowed = tuple(names)
        return type(self)(self.survival.keep_columns(allowed), self.table.keep_columns(allowed))

    def columns_below(self, least: int) -> dict[str, tuple[str, ...]]:
        """Return the columns of either half with entries of fewer than `least` records, under the key ""."""
        halves = (self.survival.columns_below(least), self.table.columns_below(least))
        below = tuple(dict.fromkeys(name for half in halves for name in half.get("", ())))
        return {"": below} if below else {}

    def digest(self) -> str:
        """Return the SHA-256 of both halves, by which a resumed run identifies its data."""
        return hashlib.sha256(f"{self.survival.digest()} {self.table.digest()}".encode()).hexdigest()

    def __repr__(self) -> str:
        return f"SurvivalAndTable({self.survival!r}, {self.table!r})"


def _equal_ids(first: NDArray[np.str_] | None, second: NDArray[np.str_] | None) -> bool:
    if first is None or second is None:
        return first is second
    return bool(np.array_equal(first, second))
