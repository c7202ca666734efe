"""Missing entries filled with the mean of all sites, at the sites themselves.

For methods that need filled values before their first round. Survival methods fill with the means of their agreement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.minimum_counts import fewest_different
from multicentre.data.missing.values import Missing, TabularPart
from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.federation.messages import Message, Nothing, array
from multicentre.federation.session import Session
from multicentre.federation.steps import Acknowledgement, Release, step

Floats = NDArray[np.float64]
FILL_STEPS = frozenset({"sum_known", "fill_gaps"})
FILLING: tuple[Missing, ...] = ("mean", "indicator")
_PATIENTS = 2.0**24  # as in survival methods: records of one site
_TOTAL = 2.0**36  # as in survival methods: sum of a column at one site
_MOST_NAMED = 5


@dataclass(frozen=True)
class KnownEntries(Release):
    """Number and sum of the entries that are not missing."""

    present: Floats = array("records whose entry is known", ("d",), unit="records", bound=_PATIENTS)
    total: Floats = array("sum of the known entries", ("d",), bound=_TOTAL)


@dataclass(frozen=True)
class Means(Message):
    """Values that fill missing entries."""

    values: Floats = array("mean of every column over all sites", ("d",))


class FillingPart(TabularPart):
    """Base of the site parts whose missing entries are filled before the first round."""

    handles: ClassVar[tuple[Missing, ...]] = ("native", "complete", "indicator", "mean")
    _means: Floats | None = None

    @step(releases=KnownEntries, when="once", summed=True)
    def sum_known(self, ask: Nothing) -> KnownEntries:
        """Count and sum the known entries of every column, for their means."""
        X = self._all.X
        known = ~np.isnan(X)
        total = np.where(known, X, 0.0).sum(axis=0)
        return KnownEntries(
            known.sum(axis=0).astype(np.float64), total, patients=len(X) if self.masked else fewest_different(X)
        )

    @step(releases=Acknowledgement, when="once")
    def fill_gaps(self, ask: Means) -> Acknowledgement:
        """Fill missing entries with the means of all sites; nothing leaves."""
        if self._handling is None or self._handling.missing not in FILLING or len(ask.values) != self._all.X.shape[1]:
            raise ConfigurationError("means do not fit the fit's columns", where="fill_gaps", hint="Begin a new fit.")
        if self._means is not None and not np.array_equal(self._means, ask.values):
            raise ConfigurationError(
                "missing entries were filled otherwise", where="fill_gaps", hint="Begin a new fit."
            )
        self._means = ask.values
        values = self.data.X.copy()
        own = values[:, : len(ask.values)]  # indicators follow the columns, and miss no entry
        own[...] = np.where(np.isnan(own), ask.values, own)
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
    """Fill missing entries at every site with known means."""
    session.ask(part.fill_gaps, Means(means))


def _find_means(session: Session, part: type[FillingPart], columns: Sequence[str]) -> Means:
    sums = session.sum(part.sum_known, Nothing())
    empty = [name for name, present in zip(columns, sums.present, strict=True) if present < 1]
    if empty:
        raise DataError(
            "no site has a value", where=f"columns {', '.join(empty[:_MOST_NAMED])}", hint="Leave the columns out."
        )
    return Means(sums.total / sums.present)
