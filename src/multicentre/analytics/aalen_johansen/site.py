"""Cumulative incidence beside the patients: the grid is that of the events of any cause."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.analytics.tables.site import TablePart
from multicentre.data.survival import SurvivalData


class AalenJohansenSite(TablePart):
    """The site part of the cumulative incidence; what it agrees on counts every cause as the first."""

    method: ClassVar[str] = "aalen-johansen"

    def __init__(self, site: str, data: Any) -> None:
        super().__init__(site, data)
        self._causes = self.data.event
        self.data = SurvivalData(
            self.data.X,
            self.data.time,
            np.minimum(self._causes, 1),
            None if self.data.ids is None else self.data.ids.tolist(),
            columns=self.data.columns,
            unit=self.data.unit,
        )

    @property
    def outcomes(self) -> NDArray[np.int8]:
        """Cause of every patient's event, 0 for none."""
        return self._causes
