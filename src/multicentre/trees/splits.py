"""Splits of leaves, as a criterion selects them: plain arrays, free of messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Sums = NDArray[np.int64]


@dataclass(frozen=True)
class Splits:
    """Best split of each leaf (column -1 for none), and the sums of either side, shape (s, z)."""

    column: Sums
    cut: Sums
    gain: NDArray[np.floating[Any]]
    left: Sums
    right: Sums

    @property
    def fields(self) -> dict[str, NDArray[Any]]:
        """Values of the nodes that are split, by field."""
        return {"column": self.column, "cut": self.cut, "gain": self.gain}
