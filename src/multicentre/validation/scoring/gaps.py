"""Records with missing entries: models of complete records are scored on these, and the others are counted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, Nothing, array
from multicentre.core.session import Session
from multicentre.core.steps import Release, step
from multicentre.data.tabledata import TableData
from multicentre.errors import DataError
from multicentre.validation.scoring.judging import RECORDS, ScoringPart, total


@dataclass(frozen=True)
class Complete(Release):
    """Numbers of scored records and of records left out."""

    counts: NDArray[np.int64] = array(
        "records that are scored, and those left out because of missing entries",
        (2,),
        dtype="i8",
        unit="records",
        bound=RECORDS,
        counts=True,
    )


class TablePart(ScoringPart):
    """Base class of site parts that score tables; records with gaps in columns that must be complete are left out."""

    data: TableData

    @step(releases=Complete, when="at the end", summed=True)
    def count_complete(self, request: Nothing) -> Complete:
        """Count the records that are scored, and those left out because of missing entries."""
        counts = np.array([self.n_records, len(self.data) - self.n_records])
        return Complete(counts, patients=self.behind(counts))

    @cached_property
    def records(self) -> TableData:
        """Records without gaps in the columns that the model requires to be complete.

        Raises
        ------
        DataError
            Every record has a gap.
        """
        complete = ~self.data.incomplete(self.model.complete)
        if not complete.any():
            raise DataError(
                "at least one record must have no missing entries, because the fit left incomplete records out; got "
                "none",
                where="judge",
                hint='Fit with another value of missing, such as missing="mean".',
            )
        return self.data if complete.all() else self.data.take(np.flatnonzero(complete))

    @property
    def n_records(self) -> int:
        """Records that are scored."""
        return len(self.records)


def count_left_out(opened: Session, part: type[ScoringPart], model: Message) -> dict[str, float]:
    """Return the number of records left out as a fact of scores; empty for models that accept missing entries."""
    complete: tuple[str, ...] = getattr(model, "complete", ())
    if not (complete and issubclass(part, TablePart)):
        return {}
    return {"n_incomplete": float(total(opened, part.count_complete, Nothing()).counts[1])}
