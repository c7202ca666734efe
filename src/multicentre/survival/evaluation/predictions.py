"""Predictions of a model for the patients of one site, in blocks of patients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.survival.models.base import SurvivalModel
from multicentre.survival.times import at_times, restricted_mean

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# Patients per block, which limits memory.
BLOCK = 4096


class Predictions:
    """Predictions of a model for patients, computed on access.

    Parameters
    ----------
    model : SurvivalModel
    rows : array of shape (n, d)
        Columns without missing entries.

    Examples
    --------
    >>> from multicentre.survival.models import CoxModel
    >>> times = np.array([1.0, 3.0])
    >>> model = CoxModel(times, np.zeros(1), np.zeros(1), np.log([2.0, 4.0]), patients=0)
    >>> predictions = Predictions(model, np.zeros((1, 1)))
    >>> predictions.restricted_means.tolist(), predictions.risks(times).round(2).tolist()
    ([2.0], [[0.5, 0.75]])
    """

    def __init__(self, model: SurvivalModel, rows: Floats) -> None:
        self.model = model
        self.rows = rows

    def blocks(self, times: Floats) -> Iterator[tuple[slice, Floats]]:
        """Yield patients, and their survival at given times, shape (block, T)."""
        for start in range(0, len(self.rows), BLOCK):
            part = slice(start, start + BLOCK)
            yield part, at_times(self.model.survival(self.rows[part]), self.model.times, times)

    @cached_property
    def restricted_means(self) -> Floats:
        """Mean time survived up to the model's horizon, shape (n,); independent of the other patients of the site."""
        grid = self.model.times
        return np.concatenate([restricted_mean(curves, grid) for _, curves in self.blocks(grid)])

    def risks(self, times: Floats) -> Floats:
        """Return each patient's probability of an event by given times, shape (n, H)."""
        return np.concatenate([1.0 - curves for _, curves in self.blocks(times)])

    def survival_at_event(self, time: Floats, event: Flags, horizon: float) -> tuple[Floats, Floats]:
        """Return bounds of survival at the patients' event times, low and high, shape (n,) each.

        An event lies on a step of the curve. If follow-up ended before an event, or at the horizon, survival lies
        between 0 and its linearly interpolated value at the end of follow-up.
        """
        grid = self.model.times
        happened = event & (time <= horizon)
        ended = np.minimum(time, horizon)
        places = np.minimum(np.searchsorted(grid, ended, side="left"), len(grid) - 1)
        before = np.concatenate([[0.0], grid])[places]
        width = grid[places] - before
        share = np.divide(ended - before, width, out=np.ones_like(width), where=width > 0)
        low, high = np.empty(len(time)), np.empty(len(time))
        for part, curves in self.blocks(grid):
            ends = np.take_along_axis(curves, places[part, None], axis=1)[:, 0]
            padded = np.concatenate([np.ones((len(curves), 1)), curves], axis=1)
            starts = np.take_along_axis(padded, places[part, None], axis=1)[:, 0]
            within = starts + share[part] * (ends - starts)
            low[part] = np.where(happened[part], ends, 0.0)
            high[part] = np.where(happened[part], starts, within)
        return low, high
