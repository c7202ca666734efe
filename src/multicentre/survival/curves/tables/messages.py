"""What the sites are asked to count, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, number, text, texts
from multicentre.federation.steps import Release
from multicentre.survival.agreement.messages import Agreed

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
