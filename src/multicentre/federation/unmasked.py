"""Memory of the records that unmasked answers rested on.

Under masks a plan of folds may be made of small pieces, for example buckets of a hash with one patient each: what one
site adds to a sum stays hidden. Two such plans can differ by one piece. If a site then answered unmasked for a fold of
each, the difference of its two answers would be one patient's row. So each site checks the plan behind every unmasked
answer about patients, whichever protection the folds were counted under:

1. Each fold, and the records in none, are of no patient or of at least the policy's minimum.
2. Of all plans made of the same pieces, only one is answered for, unless all pieces have at least the minimum.
3. No two selections differ by fewer patients than the minimum if one contains the other.

Plans by another hash (another number, another study) are of other pieces, so repeated cross-validation passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import DisclosureRefused
from multicentre.federation.steps import Pieces

Rows = NDArray[np.int64]
CountPatients = Callable[[Rows], int]
_MASK = "Mask the sums (secure_sum=True)"


@dataclass(frozen=True, eq=False)
class Division:
    """A plan of folds behind a selection of records.

    Parameters
    ----------
    folds : array of int, shape (n,)
        Fold of each record that was divided, -1 for none.
    rows : array of int, shape (n,)
        Rows of these records in the site's data.
    digest : str
        Hash of the request that the records were divided by.
    pieces : Pieces
        The smallest groups of records that another plan could put into other folds.
    """

    folds: Rows
    rows: Rows
    digest: str
    pieces: Pieces

    def has_few(self, least: int, count_patients: CountPatients) -> bool:
        """Whether a fold, or the records in none, are of fewer than `least` patients, but of some."""
        groups = (self.rows[self.folds == fold] for fold in np.unique(self.folds))
        return any(count_patients(rows) < least for rows in groups)


@dataclass(eq=False)
class UnmaskedAnswers:
    """Plans and records that unmasked answers rested on, for all runs over the same data.

    Lasts as long as the site's process; a policy's ``min_difference`` lasts longer.
    """

    _plans: dict[str, Division] = field(default_factory=dict)
    _cohorts: dict[bytes, NDArray[np.uint8]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def admit(
        self, rows: Rows, n_records: int, divisions: Sequence[Division], least: int, count_patients: CountPatients
    ) -> None:
        """Check the records that an unmasked answer is to rest on, and remember them.

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

        Raises
        ------
        DisclosureRefused
            One of the rules at the top of this module is broken.
        """
        if least <= 1:  # the policy lets answers about single patients leave
            return
        chosen = np.zeros(n_records, dtype=np.bool_)
        chosen[rows] = True
        packed = np.packbits(chosen)
        with self._lock:
            others = [division for division in divisions if not self._is_known(division)]
            self._check_sizes(others, least, count_patients)
            self._check_pieces(others, least)
            if packed.tobytes() not in self._cohorts:
                self._check_cohorts(chosen, least, count_patients)
            self._plans |= {one.pieces.source: one for one in others if one.pieces.source}
            self._cohorts[packed.tobytes()] = packed

    def _is_known(self, division: Division) -> bool:
        """Whether the site answered for this plan before, with the same folds of the same records."""
        known = self._plans.get(division.pieces.source)
        return (
            known is not None
            and known.digest == division.digest
            and np.array_equal(known.rows, division.rows)
            and np.array_equal(known.folds, division.folds)
        )

    def _check_sizes(self, divisions: Sequence[Division], least: int, count_patients: CountPatients) -> None:
        if any(division.has_few(least, count_patients) for division in divisions):
            raise DisclosureRefused(
                f"each fold, and the records in no fold, must be of at least {least} patients for an unmasked answer",
                where="records",
                hint=f"{_MASK}, or leave out the records that are in no fold at the site beforehand.",
            )

    def _check_pieces(self, divisions: Sequence[Division], least: int) -> None:
        """Refuse a second plan of the same pieces. The answer does not depend on whom a single piece holds."""
        for division in divisions:
            known = self._plans.get(division.pieces.source)
            if known is None or known.digest == division.digest:
                continue
            if min(known.pieces.n_patients, division.pieces.n_patients) < least:
                raise DisclosureRefused(
                    "unmasked answers must be about one plan of folds where plans can differ by few patients; "
                    "got a second plan by the same hash or covariate",
                    where="records",
                    hint=f"{_MASK}, use the first plan, or make one by another hash (repeat=, study=).",
                )

    def _check_cohorts(self, chosen: NDArray[np.bool_], least: int, count_patients: CountPatients) -> None:
        whole = np.ones(len(chosen), dtype=np.bool_)
        known = (np.unpackbits(packed, count=len(chosen)).astype(np.bool_) for packed in self._cohorts.values())
        for other in (whole, *known):
            more, less = np.flatnonzero(chosen & ~other), np.flatnonzero(other & ~chosen)
            if min(len(more), len(less)) == 0 and 0 < count_patients(more if len(more) else less) < least:
                raise DisclosureRefused(
                    f"two selections of records with unmasked answers must differ by at least {least} patients",
                    where="records",
                    hint=f"{_MASK}, use the plan of folds that there is, or take fewer folds.",
                )
