"""The site part that counts patients by group, outcome and time.

In a fit a site answers for one grid and one grouping, with exact counts. Under a mask only their total over sites
shows; unmasked the guard refuses a table with a cell of few patients. Recorded times leave only with the policy's
permission, masked or not: a grid of more than 256 times counts as such.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.missing.values import Missing
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.messages import Lengths, Message, array, number, text, texts
from multicentre.federation.steps import Release, step
from multicentre.federation.wire import encode
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.agreement.site import SurvivalPart, check_grid_is_coarse
from multicentre.survival.agreement.sketch import public_times
from multicentre.survival.curves.tables.groups import find_members
from multicentre.survival.curves.tables.risk import count_table
from multicentre.survival.times import check_grid

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

PATIENTS = 2.0**24


@dataclass(frozen=True)
class ByGroup(Message):
    """Which patients make a group, and which causes are told apart; without columns all are one group."""

    columns: tuple[str, ...] = texts("column of every group")
    levels: Floats = array("value of the column in the group", ("g",))
    causes: Integers = array("causes of events, the others ending the follow-up", ("c",), dtype="i8")


@dataclass(frozen=True)
class Table(Release):
    """Patients by group, outcome and time."""

    n_patients: float = number("patients, those left out among them", unit="patients", bound=PATIENTS)
    events: Floats = array(
        "patients by group, cause and place on the grid", ("g", "c", "k"), unit="patients", bound=PATIENTS, counts=True
    )
    leaving: Floats = array(
        "patients without event by group and place", ("g", "l"), unit="patients", bound=PATIENTS, counts=True
    )


@dataclass(frozen=True)
class ExactTable(Table):
    """Patients by group, outcome and time, the times being those that were recorded."""

    events: Floats = array(
        "patients by group, cause and recorded time of the event",
        ("g", "c", "k"),
        unit="patients",
        bound=PATIENTS,
        counts=True,
        permission="exact_times",
    )


@dataclass(frozen=True)
class TableMemory(Agreed):
    """What a site remembers: the agreement, and the one grouping that it answers for."""

    asked: str = text("digest of the grouping that was asked for")


T = TypeVar("T", bound=Table)

MOST_CAUSES = 16


class TablePart(SurvivalPart):
    """Base of the site parts that count patients by group, outcome and time."""

    has_exact_steps: ClassVar[bool] = True
    handles: ClassVar[tuple[Missing, ...]] = ("complete",)
    remembers: ClassVar[type[Message]] = TableMemory
    lengths: ClassVar[Lengths] = {
        "g": "groups of patients",
        "c": "causes of events",
        "k": "times of events",
        "l": "ends of follow-up",
    }

    @step(releases=Table, when="once", summed=True)
    def sum_table(self, ask: ByGroup) -> Table:
        """Count patients by group, outcome and time, on a grid of at most 256 times."""
        check_grid_is_coarse(self.agreed.times)
        return self.count(Table, ask)

    @step(releases=ExactTable, when="once", summed=True)
    def sum_exact_table(self, ask: ByGroup) -> ExactTable:
        """Count patients by group, outcome and recorded time; only with the policy's permission."""
        return self.count(ExactTable, ask)

    def first_memory(self, agreed: Agreed) -> TableMemory:
        """Return the agreement, and that nothing was asked."""
        return TableMemory(**{name: getattr(agreed, name) for name in Agreed.declarations()}, asked="")

    def count(self, kind: type[T], ask: ByGroup, *, rounded: bool = False) -> T:
        """Return the site's counts; with `rounded`, recorded and agreed times count as the public ones above them."""
        self.settle_on(ask)
        check_grid(self.agreed.times)
        time, grid = self.data.time, self.agreed.times
        if rounded:
            time, grid = public_times(time), public_times(grid)
        if (
            not 0 < len(ask.causes) <= MOST_CAUSES
            or len(np.unique(ask.causes)) < len(ask.causes)
            or ask.causes.min() < 1
        ):
            raise ConfigurationError("causes are to differ and to be above 0", where="causes", hint="Give (1, 2), say.")
        group = find_members(self.data.X, self.data.columns, ask.columns, ask.levels, self.data.levels)
        events, leaving = count_table(time, self.outcomes, group, grid, ask.causes, max(1, len(ask.columns)))
        # Patients in no group are a cell too: the total less the other cells.
        behind = self.behind_cells(events, leaving, np.count_nonzero(group < 0))
        n_patients, *counts = float(len(self.data)), events.astype(np.float64), leaving.astype(np.float64)
        return kind(n_patients, *counts, patients=behind)

    def behind_cells(self, *cells: ArrayLike) -> int:
        """Return how many patients stand behind counts: all under a mask, else those of the smallest non-empty cell."""
        counts = np.concatenate([np.ravel(each) for each in cells])
        return int(counts[counts > 0].min(initial=len(self.data))) if not self.masked else len(self.data)

    @property
    def outcomes(self) -> NDArray[np.int8]:
        """Cause of every patient's event, 0 for none."""
        return self.data.event

    def settle_on(self, ask: Message) -> None:
        """Take note of what was asked; two groupings of one fit would tell of those in whom they differ.

        Raises
        ------
        ConfigurationError
            Another one was asked for before.
        """
        known, asked = self.agreed, hashlib.sha256(encode(ask)).hexdigest()
        if not isinstance(known, TableMemory) or known.asked not in ("", asked):
            raise ConfigurationError(
                "the site has answered for other groups in this fit", where="group", hint="Begin a new fit."
            )
        self.state = replace(known, asked=asked)
