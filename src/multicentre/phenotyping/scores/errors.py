"""Errors of a model of a sparse tensor, from sums over its entries and cells that sites can add up."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from multicentre.federation.errors import DataError


@dataclass(frozen=True)
class TensorErrors:
    """Sums over a tensor and a model of it, and the errors that follow from them.

    Every field is a sum that sites can add up over their patients. Entries are the cells that are not zero. An
    error at the entries alone says nothing of the cells that a model wrongly fills: a model that says the mean count
    everywhere does well there. Read every error beside `rmse_of_zero` and `rmse_of_constant`.

    Parameters
    ----------
    n_entries : float
        Number of entries.
    n_cells : float
        Number of cells, the product of the sides.
    sum_counts : float
        Sum of the entries o.
    sum_squares : float
        Sum of their squares.
    squared_error : float
        Sum of ``(o - x)^2`` over all cells. Rounding can leave a perfect model slightly below 0, which counts as 0.
    squared_error_at_entries : float
        The same over the entries.

    Raises
    ------
    DataError
        A sum is not finite, or there are more entries than cells or none.

    Examples
    --------
    >>> errors = TensorErrors(3, 150, 5.0, 9.0, 5.0, 4.0)
    >>> round(errors.rmse, 3), round(errors.rmse_at_entries, 3), round(errors.rmse_of_zero, 3)
    (1.291, 1.155, 1.732)
    """

    n_entries: float
    n_cells: float
    sum_counts: float
    sum_squares: float
    squared_error: float
    squared_error_at_entries: float

    def __post_init__(self) -> None:
        for field in fields(self):
            if not math.isfinite(getattr(self, field.name)):
                raise DataError("the sum is not finite", where=field.name, mend="Look for factors that diverged.")
        if not 0 < self.n_entries <= self.n_cells or self.sum_squares <= 0:
            raise DataError(
                f"{self.n_entries:g} entries in {self.n_cells:g} cells, their squares sum to {self.sum_squares:g}",
                where="n_entries",
                mend="Give at least one entry, and no more than there are cells.",
            )

    @property
    def rmse_at_entries(self) -> float:
        """Root of the mean squared error over the entries."""
        return _root(self.squared_error_at_entries / self.n_entries)

    @property
    def rmse(self) -> float:
        """Root of the squared error over all cells, divided by the number of entries (the paper's scale)."""
        return _root(self.squared_error / self.n_entries)

    @property
    def fit(self) -> float:
        """``1 - ||O - X|| / ||O||``: 1 of a perfect model, 0 of one that says 0 everywhere."""
        return 1.0 - _root(self.squared_error / self.sum_squares)

    @property
    def rmse_of_zero(self) -> float:
        """Both `rmse` and `rmse_at_entries` of the model that says 0 everywhere: root of the mean squared entry."""
        return _root(self.sum_squares / self.n_entries)

    @property
    def rmse_of_constant(self) -> float:
        """The `rmse_at_entries` of the model that says the mean entry everywhere: standard deviation of the entries."""
        return _root(self.sum_squares / self.n_entries - (self.sum_counts / self.n_entries) ** 2)


def _root(value: float) -> float:
    return math.sqrt(max(value, 0.0))
