"""Cumulative incidence beside the patients: the grid is that of the events of any cause."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.survival.curves.tables.site import TablePart


class AalenJohansenSite(TablePart):
    """The site part of the cumulative incidence; what it agrees on counts every cause as the first."""

    method: ClassVar[str] = "aalen-johansen"

    def __init__(self, site: str, data: Any) -> None:
        super().__init__(site, data)
        self._causes = self.data.event
        self.data = self.data.with_arrays(event=np.minimum(self._causes, 1))

    @property
    def outcomes(self) -> NDArray[np.int8]:
        """Cause of every patient's event, 0 for none."""
        return self._causes if self.used is None else self._causes[self.used]
