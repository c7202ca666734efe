"""Folds beside the patients: what every strategy shares. The fold of a record never leaves its site."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.identifiers import IDENTIFIER, Identifiers
from multicentre.federation.errors import ConfigurationError, DataError, DisclosureRefused
from multicentre.federation.messages import Message, Nothing
from multicentre.federation.steps import SitePart, step
from multicentre.federation.wire import encode
from multicentre.validation.folds import messages as sent
from multicentre.validation.folds.strata import outcome_strata

Integers = NDArray[np.int64]


class FoldPart(SitePart):
    """Base of the site parts that divide records into folds.

    A strategy adds a step that works out the fold of every record and hands it to :meth:`settle`.
    """

    sees_identifiers: ClassVar[bool] = True
    remembers: ClassVar[type[Message]] = sent.Folds
    state: sent.Folds | None = None

    @property
    def folds(self) -> Integers | None:
        """Fold of each record, once the folds were counted and found large enough."""
        return self.state.fold if self.state is not None and self.state.counted else None

    @step(releases=sent.FoldCounts, when="once", summed=True)
    def count_folds(self, ask: Nothing) -> sent.FoldCounts:
        """Count records by fold and class of the outcome; refuse folds that are too small to be told apart in clear."""
        settled = self._settled
        strata, n_strata = outcome_strata(self.data)
        table = np.zeros((settled.n_splits, n_strata), dtype=np.int64)
        inside = settled.fold >= 0
        np.add.at(table, (settled.fold[inside], strata[inside]), 1)
        sizes = table.sum(axis=1)
        if not self.masked:
            self._check_sizes(sizes, int(len(inside) - inside.sum()))
            table = np.where(table < self.least_behind, 0, table)
            table[:, 0] += sizes - table.sum(axis=1)
        self.state = replace(settled, counted=True)
        return sent.FoldCounts(table, float((~inside).sum()), patients=len(self.data))

    @step(releases=sent.Presence, when="once")
    def tell_presence(self, ask: Nothing) -> sent.Presence:
        """Tell in which folds the site has records, and by what it divided them."""
        settled = self._settled
        present = np.bincount(settled.fold[settled.fold >= 0], minlength=settled.n_splits) > 0
        return sent.Presence(present, settled.digest, patients=len(self.data))

    def settle(self, fold: Integers, n_splits: int, told: Message) -> None:
        """Remember the fold of every record, once.

        Parameters
        ----------
        fold : array of int, shape (n,)
            0 to n_splits - 1, or -1.
        n_splits : int
        told : Message
            What the coordinator told all sites to divide by.
        """
        if self.state is not None:
            raise ConfigurationError("the records are divided already", where=self.method, mend="Make a plan anew.")
        digest = hashlib.sha256(encode(told)).hexdigest()
        self.state = sent.Folds(np.asarray(fold, dtype=np.int64), n_splits, digest, counted=False)

    def identifiers(self, name: str) -> list[str | None]:
        """Return a column of identifiers; the records' own names stand in where the site has no column "identifier".

        Raises
        ------
        DataError
            The site has no such column.
        """
        if self.data_identifier is not None:
            return self.data_identifier.column(name)
        own = getattr(self.data, "ids", None)
        if own is None or name != IDENTIFIER:
            raise DataError(
                "the records have no identifiers",
                where=f"{self.site}, {name}",
                mend="Give them with data.with_identifier(...), or use a strategy that needs none.",
            )
        return [str(one) for one in own]

    def patients_by(self, name: str) -> Integers:
        """Return a number for each record's patient, shape (n,); records without an identifier are patients apart."""
        if not name:
            return np.arange(len(self.data))
        return number_patients(self.identifiers(name))

    @property
    def data_identifier(self) -> Identifiers | None:
        """The site's columns of identifiers."""
        return getattr(self.data, "identifier", None)

    @property
    def _settled(self) -> sent.Folds:
        if self.state is None:
            raise ConfigurationError("the records are not divided yet", where=self.method, mend="Make a plan anew.")
        return self.state

    def _check_sizes(self, sizes: Integers, n_excluded: int) -> None:
        smallest = min([int(size) for size in (*sizes, n_excluded) if size], default=0)
        if smallest < self.least_behind:
            raise DisclosureRefused(
                f"a fold has fewer than {self.least_behind} of this site's records",
                where=self.site,
                mend="Take fewer folds, mask the sums (secure_sum=True), or leave the site out.",
            )


def number_patients(known: Sequence[str | None]) -> Integers:
    """Return a number for each record's patient, shape (n,); records without an identifier are patients apart.

    Examples
    --------
    >>> number_patients(["b", None, "a", "b", None]).tolist()
    [1, 2, 0, 1, 3]
    """
    apart = [f"record {row:09d}" if one is None else f"patient {one}" for row, one in enumerate(known)]
    return np.unique(apart, return_inverse=True)[1].astype(np.int64)
