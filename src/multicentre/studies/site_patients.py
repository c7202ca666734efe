"""Patients of one site of a simulated run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from multicentre.data import TableData
from multicentre.data.both import SurvivalAndTable
from multicentre.data.kinds import PatientData


@dataclass(frozen=True)
class SiteData:
    """Data of one site of a simulated run.

    Parameters
    ----------
    data : PatientData
        Data of the type that the method requires.
    labels : tuple of str, optional
        Group of every patient; by default the outcomes, the events or the classes of data that have them, as texts.
        Used for figures and for assessment only; no method sees it.
    """

    data: PatientData
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        outcomes = getattr(self.data, "outcomes", getattr(self.data, "event", None))
        if isinstance(self.data, TableData) and self.data.outcome == "class":
            outcomes = np.array(self.data.classes)[self.data.y]
        if self.labels is None and outcomes is not None:
            object.__setattr__(self, "labels", tuple(str(one) for one in outcomes))

    def of_type(self, kind: type) -> SiteData:
        """Return the data that a site part with ``holds = kind`` works on."""
        return SiteData(self.data.of_type(kind), self.labels) if isinstance(self.data, SurvivalAndTable) else self
