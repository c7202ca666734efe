"""Filling of missing entries with the mean over all sites; the sites fill their own data.

For methods that require filled values before the first round. Survival methods fill with the means of their agreement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, Nothing, array
from multicentre.core.session import Session
from multicentre.core.steps import Acknowledgement, Release, step
from multicentre.data.missing.values import Missing, TabularPart
from multicentre.data.records import fewest_different
from multicentre.errors import ConfigurationError, DataError

Floats = NDArray[np.float64]
FILL_STEPS = frozenset({"sum_observed", "fill_gaps"})
FILLING: tuple[Missing, ...] = ("mean", "indicator")
_PATIENTS = 2.0**24  # as in survival methods: records of one site
_TOTAL = 2.0**36  # as in survival methods: sum of a column at one site
# Columns that a message lists, so that it stays readable; as MAX_ROWS_NAMED in `data.cells`.
_MAX_NAMED = 5


@dataclass(frozen=True)
class ObservedEntries(Release):
    """Number and sum of the observed entries."""

    present: Floats = array("records with an observed entry", ("d",), unit="records", bound=_PATIENTS)
    total: Floats = array("sum of the observed entries", ("d",), bound=_TOTAL)


@dataclass(frozen=True)
class Means(Message):
    """Values that fill missing entries."""

    values: Floats = array("mean of every column over all sites", ("d",))


class FillingPart(TabularPart):
    """Base class of the site parts that fill missing entries before the first round."""

    handles: ClassVar[tuple[Missing, ...]] = ("native", "complete", "indicator", "mean")
    _means: Floats | None = None

    @step(releases=ObservedEntries, when="once", summed=True)
    def sum_observed(self, request: Nothing) -> ObservedEntries:
        """Count and sum the observed entries of every column, for the means."""
        X = self._all.X
        is_observed = ~np.isnan(X)
        total = np.where(is_observed, X, 0.0).sum(axis=0)
        return ObservedEntries(
            is_observed.sum(axis=0).astype(np.float64), total, patients=len(X) if self.masked else fewest_different(X)
        )

    @step(releases=Acknowledgement, when="once")
    def fill_gaps(self, request: Means) -> Acknowledgement:
        """Fill missing entries with the means over all sites; no value leaves the site."""
        if (
            self._handling is None
            or self._handling.missing not in FILLING
            or len(request.values) != self._all.X.shape[1]
        ):
            raise ConfigurationError(
                "means must match the columns and the handling of missing entries of the fit; they do not",
                where="fill_gaps",
                hint="Start a new fit.",
            )
        if self._means is not None and not np.array_equal(self._means, request.values):
            raise ConfigurationError(
                "means must be those of the first request of this fit; got different ones",
                where="fill_gaps",
                hint="Start a new fit.",
            )
        self._means = request.values
        values = self.data.X.copy()
        columns = values[:, : len(request.values)]  # indicators follow the columns and have no missing entries
        columns[...] = np.where(np.isnan(columns), request.values, columns)
        self.data = self.data.with_arrays(X=values)
        return Acknowledgement()


def fill_missing(session: Session, part: type[FillingPart], columns: Sequence[str]) -> Floats:
    """Fill missing entries at every site with the means over all sites; return the means, shape (d,).

    Raises
    ------
    DataError
        A column is empty at all sites.
    """
    means = session.once("means", Means, lambda: _find_means(session, part, columns))
    send_means(session, part, means.values)
    return means.values


def send_means(session: Session, part: type[FillingPart], means: Floats) -> None:
    """Fill missing entries at every site with these means."""
    session.ask(part.fill_gaps, Means(means))


def _find_means(session: Session, part: type[FillingPart], columns: Sequence[str]) -> Means:
    sums = session.sum(part.sum_observed, Nothing())
    empty = [name for name, present in zip(columns, sums.present, strict=True) if present < 1]
    if empty:
        raise DataError(
            "columns must have an entry at one site at least; these have none",
            where=f"columns {', '.join(empty[:_MAX_NAMED])}",
            hint="Leave the columns out.",
        )
    return Means(sums.total / sums.present)
