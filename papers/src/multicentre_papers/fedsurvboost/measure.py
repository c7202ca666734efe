"""How well a fit serves held-out patients: as papers usually measure it, and as the published scripts did."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.survival.fitted import SurvivalEstimator
from multicentre.survival.models.base import SurvivalModel
from multicentre.survival.scores.brier import integrated_brier_score
from multicentre.survival.scores.concordance import concordance_index

Floats = NDArray[np.float64]


def assess(fitted: SurvivalEstimator, test: SurvivalData, training: SurvivalData) -> dict[str, float]:
    """Return concordance and integrated Brier score, with the censoring of the training patients."""
    return fitted.assess(test, training=training)


def assess_as_the_authors(fitted: SurvivalEstimator, test: SurvivalData) -> dict[str, float]:
    """Return concordance and integrated Brier score as the published scripts take them.

    The censoring is that of the test patients, the score is taken at each of their times below the last, and curves are
    drawn straight between the times of a model.
    """
    times = np.unique(test.time)[:-1]
    rows = fitted.filled(test)
    curves = between(fitted.model_, rows, times)
    happened = test.event == 1
    return {
        "concordance": concordance_index(test.time, happened, fitted.predict(test)),
        "ibs": integrated_brier_score(curves, times, test.time, happened, test.time, happened),
    }


def between(model: SurvivalModel, rows: Floats, times: Floats) -> Floats:
    """Return curves at given times by straight lines between those of the grid, shape (n, len(times))."""
    grid = np.concatenate([[0.0], model.times])
    curves = np.column_stack([np.ones(len(rows)), model.survival(rows)])
    return np.array([np.interp(times, grid, curve) for curve in curves])
