"""Site part of the audit of a fold plan. It is a base of the plan's site part, which has the folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths
from multicentre.core.steps import step
from multicentre.errors import ConfigurationError
from multicentre.linkage.keys.mixed_buckets import MARK_BOUND, Checking, FoldMarks, Reviewed, Reviewing, mark_folds
from multicentre.linkage.keys.occupied_buckets import MAX_BUCKETS, MIN_BUCKETS
from multicentre.linkage.persons import KeyedPart, Persons

Integers = NDArray[np.int64]
# At first about 1 person in 8 shares a bucket, then 1 in 32 of those per turn: 1/8 / 32**5 = 4e-9 after six turns.
MAX_TURNS = 6


@dataclass(frozen=True, eq=False)
class _Question:
    """Records, buckets and number of the previous question."""

    persons: tuple[object, ...]
    rows: Integers
    buckets: Integers
    n_buckets: int
    turn: int


class AuditedPart(KeyedPart):
    """Answers to an audit, for site parts with `folds`."""

    lengths: ClassVar[Lengths] = {"M": "buckets that persons are hashed into"}
    session_memory: ClassVar[tuple[str, ...]] = ("_previous_question",)
    _previous_question: _Question | None = None

    @step(releases=Reviewed, when="on request", summed=True)
    def review_folds(self, request: Reviewing) -> Reviewed:
        """Count records with and without a fold, persons, and patients of this site in several folds."""
        self.check_masked()
        folds = self._settled_folds()
        tokens = self.tokens(self.identifiers(request.person_key), request, "audit/v1/review")
        inside = folds >= 0
        identified = inside & tokens.present
        by_patient = self.identifiers(request.patient_key) if request.patient_key else tokens.hex()
        return Reviewed(
            float(len(folds)),
            float((~inside).sum()),
            float((inside & ~tokens.present).sum()),
            float(len(np.unique(tokens.tokens[identified], axis=0))),
            float(_n_split(by_patient, folds)),
            patients=len(self.data),
        )

    @step(releases=FoldMarks, when="on request", summed=True)
    def mark_folds(self, request: Checking) -> FoldMarks:
        """Mark the buckets of a keyed hash by the folds of the people in them, so that only mixtures are revealed."""
        self.check_masked()
        if not MIN_BUCKETS <= request.n_buckets <= MAX_BUCKETS:
            raise ConfigurationError(
                f"n_buckets must be from {MIN_BUCKETS} to {MAX_BUCKETS}; got {request.n_buckets}", where="n_buckets"
            )
        rows = self._rows_of_interest(request)
        label = self.use_label(request.nonces)
        values = self.identifiers(request.person_key)
        tokens = self.tokens([values[row] for row in rows], request, f"audit/v1/{label}")
        rows, buckets = rows[tokens.present], tokens.buckets(request.n_buckets)[tokens.present]
        self._previous_question = _Question(_persons(request), rows, buckets, request.n_buckets, request.turn)
        marks = mark_folds(buckets, self._settled_folds()[rows], request.n_buckets, MARK_BOUND)
        return FoldMarks(*marks, patients=len(self.data))

    def _rows_of_interest(self, request: Checking) -> Integers:
        if request.turn == 0:
            return np.flatnonzero(self._settled_folds() >= 0)
        previous = self._previous_question
        if previous is None or not previous.turn + 1 == request.turn < MAX_TURNS:
            raise ConfigurationError(
                f"an audit must be at most {MAX_TURNS} consecutive questions; got question {request.turn + 1} after "
                f"question {0 if previous is None else previous.turn + 1}",
                where=self.site,
                hint="Start the audit again.",
            )
        if previous.persons != _persons(request):
            raise ConfigurationError(
                "all questions of an audit must use the same identifier; got a different one",
                where=self.site,
                hint="Start the audit again.",
            )
        if len(request.mixed) and not 0 <= request.mixed.min() <= request.mixed.max() < previous.n_buckets:
            raise ConfigurationError(
                f"mixed must be buckets from 0 to {previous.n_buckets - 1}; got {request.mixed.min()} to "
                f"{request.mixed.max()}",
                where="mixed",
            )
        return previous.rows[np.isin(previous.buckets, request.mixed)]

    def _settled_folds(self) -> Integers:
        if self.folds is None:
            raise ConfigurationError(
                "records must be split into folds before an audit; got records without folds",
                where=self.method,
                hint="Make a new plan.",
            )
        return self.folds


def _persons(persons: Persons) -> tuple[object, ...]:
    return tuple(getattr(persons, name) for name in Persons.declarations())


def _n_split(patients: Sequence[str | None], folds: Integers) -> int:
    """Return the number of patients with records in several folds; records without a fold are ignored."""
    patient_folds: dict[str, set[int]] = {}
    for patient, fold in zip(patients, folds.tolist(), strict=True):
        if patient is not None and fold >= 0:
            patient_folds.setdefault(patient, set()).add(fold)
    return sum(len(each) > 1 for each in patient_folds.values())
