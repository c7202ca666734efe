"""Site part that counts patients by group, outcome and time.

Steps also inherited: ``describe``, ``sum_sizes``, ``sum_squares``, ``count_times``, ``count_columns``,
``compare_units``, ``tell_times`` and ``agree`` from survival/agreement/site.py; ``count_gaps``, ``handle_gaps``,
``add_indicators`` and ``report_gaps`` from data/missing/values.py. Of these, ``tell_times`` (event times, only with
``exact_times``) and ``report_gaps`` return values of a single site.

In a fit a site answers for one grid and one grouping, with exact counts. Masked, only the total over sites is visible.
Unmasked, the guard refuses a table with a cell of few patients. Recorded times leave only with the policy's permission,
masked or not; a grid of more than 256 times counts as recorded times.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, array, number, text, texts
from multicentre.core.steps import Release, step
from multicentre.core.wire import encode
from multicentre.data.missing.values import Missing
from multicentre.errors import ConfigurationError
from multicentre.survival.agreement.coarsening import on_full_grid, places_to_keep
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.agreement.site import MAX_TIMES, SurvivalPart, check_grid_is_coarse
from multicentre.survival.agreement.sketch import public_times
from multicentre.survival.curves.tables.groups import find_members
from multicentre.survival.curves.tables.risk import count_table
from multicentre.survival.times import check_grid

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

# Largest number of patients of a site, for masking.
PATIENTS = 2.0**24


@dataclass(frozen=True)
class ByGroup(Message):
    """Definition of the groups and causes of interest; without columns all patients are one group."""

    columns: tuple[str, ...] = texts("column of every group")
    levels: Floats = array("value of the column in the group", ("g",))
    causes: Integers = array("causes of interest; events of other causes are treated as censored", ("c",), dtype="i8")


@dataclass(frozen=True)
class Table(Release):
    """Patients by group, outcome and time."""

    n_patients: float = number("patients, including those left out", unit="patients", bound=PATIENTS)
    events: Floats = array(
        "patients by group, cause and place on the grid", ("g", "c", "k"), unit="patients", bound=PATIENTS, counts=True
    )
    leaving: Floats = array(
        "patients without an event, by group and place on the grid",
        ("g", "l"),
        unit="patients",
        bound=PATIENTS,
        counts=True,
    )
    n_joined: float = number("times that the only site joined with the next", unit="times", bound=MAX_TIMES, default=0)


@dataclass(frozen=True)
class ExactTable(Table):
    """Patients by group, outcome and recorded time."""

    events: Floats = array(
        "patients by group, cause and recorded time of the event",
        ("g", "c", "k"),
        unit="patients",
        bound=PATIENTS,
        counts=True,
        permission="exact_times",
    )


@dataclass(frozen=True)
class TableMemory(Prepared):
    """State of a site: the agreement, and the only grouping that it answers for."""

    grouping_digest: str = text("digest of the requested grouping; empty before the first request")


T = TypeVar("T", bound=Table)

# Largest number of causes of a table.
MAX_CAUSES = 16


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
    def sum_table(self, request: ByGroup) -> Table:
        """Count patients by group, outcome and time, on a grid of at most 256 times."""
        check_grid_is_coarse(self.agreed.times)
        return self.count(Table, request, joined=self.is_alone)

    @step(releases=ExactTable, when="once", summed=True)
    def sum_exact_table(self, request: ByGroup) -> ExactTable:
        """Count patients by group, outcome and recorded time; only with the policy's permission."""
        return self.count(ExactTable, request)

    def first_memory(self, agreed: Prepared) -> TableMemory:
        """Return the initial state: the agreement, without a grouping."""
        return TableMemory(**{name: getattr(agreed, name) for name in Prepared.declarations()}, grouping_digest="")

    def count(self, kind: type[T], request: ByGroup, *, rounded: bool = False, joined: bool = False) -> T:
        """Return the site's counts.

        With `rounded`, recorded and agreed times are rounded up to public ones. With `joined`, times are joined with
        the next until every count meets the site's minimum.
        """
        self.settle_on(request)
        check_grid(self.agreed.times)
        time, grid = self.data.time, self.agreed.times
        if rounded:
            time, grid = public_times(time), public_times(grid)
        if (
            not 0 < len(request.causes) <= MAX_CAUSES
            or len(np.unique(request.causes)) < len(request.causes)
            or request.causes.min() < 1
        ):
            raise ConfigurationError(
                f"causes must be 1 to {MAX_CAUSES} different positive integers; got {request.causes.tolist()[:20]}",
                where="causes",
                hint="Use (1, 2), for example.",
            )
        group = find_members(self.data.X, self.data.columns, request.columns, request.levels, self.data.levels)
        events, leaving = count_table(time, self.outcomes, group, grid, request.causes, max(1, len(request.columns)))
        n_joined = 0
        if joined and (places := places_to_keep(events, leaving, self.least_behind)) is not None:
            n_joined = len(grid) - len(places)
            events, leaving = on_full_grid(events, leaving, places)
        # Patients without a group are a cell too: the total minus the other cells.
        behind = self.n_contributing(len(self.data), events, leaving, np.count_nonzero(group < 0))
        counts = events.astype(np.float64), leaving.astype(np.float64)
        return kind(float(len(self.data)), *counts, n_joined=float(n_joined), patients=behind)

    @property
    def outcomes(self) -> NDArray[np.int8]:
        """Cause of every patient's event, 0 for none."""
        return self.data.event

    def settle_on(self, request: Message) -> None:
        """Store the requested grouping, and refuse a second one: their difference would describe few patients.

        Raises
        ------
        ConfigurationError
            A different grouping was requested before.
        """
        state, digest = self.agreed, hashlib.sha256(encode(request)).hexdigest()
        if not isinstance(state, TableMemory) or state.grouping_digest not in ("", digest):
            raise ConfigurationError(
                "groups must be the same throughout a fit; got other groups", where="group", hint="Start a new fit."
            )
        self.state = replace(state, grouping_digest=digest)
