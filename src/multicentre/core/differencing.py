"""Records that earlier answers of a site rest on, so that later answers do not isolate a few patients.

Aligned records: a site works on records that all sites brought into one order. If these differ by few patients from
other records that it worked on, the difference of two answers is about those few patients.

Folds: under masks a plan of folds may be made of small pieces, for example buckets of a hash with one patient each,
since the contribution of one site to a sum stays hidden. Two such plans can differ by one piece. If a site then
answered unmasked for a fold of each, the difference of its two answers would be one patient's row. So each site checks
the plan behind every unmasked answer about patients, also if the folds were counted under masks:

1. Each fold, and the records in no fold, belong to no patient or to at least the policy's minimum.
2. Of all plans made of the same pieces, the site answers for one only, unless all pieces have at least the minimum.
3. No two selections differ by fewer patients than the minimum if one contains the other.

Plans by another hash (another number, another study) consist of other pieces, so repeated cross-validation passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from multicentre.core.calls import suggest_masks
from multicentre.core.steps import Pieces
from multicentre.errors import DisclosureRefused

Rows = NDArray[np.int64]
Columns = NDArray[np.float64]
# Bounds the memory of a site: a search over many values of parameters scores some hundred models.
MAX_MODELS = 1000
CountPatients = Callable[[Rows], int]


@dataclass(frozen=True, eq=False)
class Division:
    """A plan of folds behind a selection of records.

    Parameters
    ----------
    folds : array of int, shape (n,)
        Fold of each record that was divided, -1 for a record in no fold.
    rows : array of int, shape (n,)
        Rows of these records in the site's data.
    digest : str
        Hash of the request by which the records were divided.
    pieces : Pieces
        The smallest groups of records that another plan could put into other folds.
    """

    folds: Rows
    rows: Rows
    digest: str
    pieces: Pieces

    def has_few(self, least: int, count_patients: CountPatients) -> bool:
        """Return whether a fold, or the records in no fold, belong to fewer than `least` patients, but to some."""
        groups = (self.rows[self.folds == fold] for fold in np.unique(self.folds))
        return any(count_patients(rows) < least for rows in groups)


@dataclass(eq=False)
class UnmaskedAnswers:
    """Plans and records that unmasked answers rest on, for all runs over the same data.

    Lasts as long as the site's process; a policy's ``min_difference`` lasts longer.
    """

    _plans: dict[str, Division] = field(default_factory=dict)
    _cohorts: dict[bytes, NDArray[np.uint8]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def admit(
        self,
        rows: Rows,
        n_records: int,
        divisions: Sequence[Division],
        least: int,
        count_patients: CountPatients,
        n_sites: int = 1,
    ) -> None:
        """Check the records that an unmasked answer is about, and remember them.

        Parameters
        ----------
        rows : array of int
            The selected records.
        n_records : int
            Number of records of the site.
        divisions : sequence of Division
            The plans behind the selection, the outermost first.
        least : int
            The policy's minimum number of patients.
        count_patients : callable
            Returns the number of patients whose records are at the given rows.
        n_sites : int, default 1
            Sites of the call; the hint of a refusal depends on it.

        Raises
        ------
        DisclosureRefused
            One of the rules at the top of this module is violated.
        """
        if least <= 1:  # the policy allows answers about single patients
            return
        chosen = np.zeros(n_records, dtype=np.bool_)
        chosen[rows] = True
        packed = np.packbits(chosen)
        with self._lock:
            new_plans = [division for division in divisions if not self._is_repeated(division)]
            masks = suggest_masks(protection="unmasked", n_sites=n_sites)
            self._check_sizes(new_plans, least, count_patients, masks)
            self._check_pieces(new_plans, least, masks)
            if packed.tobytes() not in self._cohorts:
                self._check_cohorts(chosen, least, count_patients, masks)
            self._plans |= {one.pieces.source: one for one in new_plans if one.pieces.source}
            self._cohorts[packed.tobytes()] = packed

    def _is_repeated(self, division: Division) -> bool:
        """Return whether the site answered for this plan before, with the same folds of the same records."""
        earlier = self._plans.get(division.pieces.source)
        return (
            earlier is not None
            and earlier.digest == division.digest
            and np.array_equal(earlier.rows, division.rows)
            and np.array_equal(earlier.folds, division.folds)
        )

    def _check_sizes(
        self, divisions: Sequence[Division], least: int, count_patients: CountPatients, masks: str
    ) -> None:
        if any(division.has_few(least, count_patients) for division in divisions):
            raise DisclosureRefused(
                f"each fold, and the records in no fold, must be of at least {least} patients for an unmasked answer",
                where="records",
                hint=f"{masks} Remove the records in no fold from the site's data.".strip(),
            )

    def _check_pieces(self, divisions: Sequence[Division], least: int, masks: str) -> None:
        """Refuse a second plan of the same pieces. The decision does not depend on the patients of a single piece."""
        for division in divisions:
            earlier = self._plans.get(division.pieces.source)
            if earlier is None or earlier.digest == division.digest:
                continue
            if min(earlier.pieces.n_patients, division.pieces.n_patients) < least:
                raise DisclosureRefused(
                    "unmasked answers must be about one plan of folds where plans can differ by few patients; "
                    "got a second plan by the same hash or covariate",
                    where="records",
                    hint=f"{masks} Use the first plan, or make one with another hash (repeat=, study=).".strip(),
                )

    def _check_cohorts(self, chosen: NDArray[np.bool_], least: int, count_patients: CountPatients, masks: str) -> None:
        whole = np.ones(len(chosen), dtype=np.bool_)
        cohorts = (np.unpackbits(packed, count=len(chosen)).astype(np.bool_) for packed in self._cohorts.values())
        for other in (whole, *cohorts):
            more, less = np.flatnonzero(chosen & ~other), np.flatnonzero(other & ~chosen)
            if min(len(more), len(less)) == 0 and 0 < count_patients(more if len(more) else less) < least:
                raise DisclosureRefused(
                    f"two selections of records with unmasked answers must differ by at least {least} patients",
                    where="records",
                    hint=f"{masks} Use the existing plan of folds, or select fewer folds.".strip(),
                )


@dataclass(eq=False)
class EarlierPredictions:
    """Predictions of the models that unmasked answers rest on, for all runs over the same data.

    Two models that differ for one patient would disclose this patient's outcome in the difference of two answers, also
    where one is shifted or scaled. Lasts as long as the site's process.
    """

    _by_records: dict[str, list[Columns]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def fewest_apart(self, records: str, predicted: Columns, count: Callable[[Columns], int]) -> int:
        """Return the fewest patients that tell a model from an earlier one, 0 for none, and remember the model.

        Parameters
        ----------
        records : str
            Digest of the records and of the kind of predictions.
        predicted : array of shape (n, r)
        count : callable
            Returns the number of records whose distances, shape (n,), differ from the rest; 0 for none.

        Raises
        ------
        DisclosureRefused
            More than 1000 models were scored unmasked on the same records.
        """
        with self._lock:
            models = self._by_records.setdefault(records, [])
            earlier = [each for each in models if each.shape == predicted.shape]
            if any(np.array_equal(each, predicted) for each in earlier):
                return 0
            if len(models) >= MAX_MODELS:
                raise DisclosureRefused(
                    f"at most {MAX_MODELS} models may be scored unmasked on the same records; got another one",
                    where="model",
                    hint="Score the models on masked sums of several sites.",
                )
            models.append(predicted)
        distances = (_distance(*pair) for each in earlier for pair in zip(predicted.T, each.T, strict=True))
        numbers = [count(column) for both in distances for column in both]
        return min((number for number in numbers if number), default=0)


def _distance(column: Columns, earlier: Columns) -> tuple[Columns, Columns]:
    """Return the residuals of the line of new by earlier predictions, and the differences of their ranks."""
    centred = earlier - earlier.mean()
    variance = float(centred @ centred)
    slope = float(centred @ column) / variance if variance > 0 else 0.0
    return column - column.mean() - slope * centred, _ranks(column) - _ranks(earlier)


def _ranks(column: Columns) -> Columns:
    """Return mean ranks, with equal ranks for equal values, shape (n,)."""
    _, places, counts = np.unique(column, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places], dtype=np.float64)


@dataclass(eq=False)
class EarlierAnswers:
    """Records that earlier answers rest on, for all runs over the same data.

    Lasts as long as the site's process; a policy's ``min_difference`` lasts longer.

    Attributes
    ----------
    aligned : list of array of int
        Rows of each alignment in use so far.
    includes_all : bool
        Whether there were answers about all records together.
    unmasked : UnmaskedAnswers
        Plans of folds that were answered for unmasked.
    predictions : EarlierPredictions
        Predictions of the models that were scored unmasked.
    """

    aligned: list[Rows] = field(default_factory=list)
    includes_all: bool = False
    unmasked: UnmaskedAnswers = field(default_factory=UnmaskedAnswers)
    predictions: EarlierPredictions = field(default_factory=EarlierPredictions)

    def admit(self, rows: Rows | None, data: Sized, least: int, count_patients: CountPatients, site: str) -> None:
        """Check the records that a session is to work on, and remember them.

        Parameters
        ----------
        rows : array of int, optional
            Rows of aligned records; None for all records of the site.
        data : object
            The site's data.
        least : int
            The policy's minimum number of patients.
        count_patients : callable
            Returns the number of patients whose records are at the given rows.
        site : str
            Name of the site.

        Raises
        ------
        DisclosureRefused
            Other records in use differ from these by fewer patients than the minimum.
        """
        others: list[Rows | None] = list(self.aligned)
        if rows is None:
            self.includes_all = True
        elif self.includes_all:
            others.append(None)
        differences = [count_patients(np.setxor1d(_indices(rows, data), _indices(other, data))) for other in others]
        if any(0 < n_patients < least for n_patients in differences):
            raise DisclosureRefused(
                f"the records must equal those of earlier answers, or differ from them by at least {least} patients; "
                "they differ by fewer",
                where=site,
                hint="Use the existing alignment, or begin a new federation.",
            )
        if rows is not None and 0 not in differences:
            self.aligned.append(rows)


def _indices(rows: Rows | None, data: Sized) -> Rows:
    return np.arange(len(data)) if rows is None else rows
