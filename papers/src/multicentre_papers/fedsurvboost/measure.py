"""Metrics on held-out patients: the usual definitions and those of the published scripts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.survival.estimator import SurvivalEstimator
from multicentre.survival.fitted_models.base import SurvivalModel
from multicentre.survival.scores.brier import integrated_brier_score
from multicentre.survival.scores.concordance import concordance_index

Floats = NDArray[np.float64]


def assess(fitted: SurvivalEstimator, test: SurvivalData, training: SurvivalData) -> dict[str, float]:
    """Return concordance and integrated Brier score, with the censoring of the training patients."""
    return fitted.assess(test, training=training)


def assess_as_the_authors(fitted: SurvivalEstimator, test: SurvivalData) -> dict[str, float]:
    """Return concordance and integrated Brier score as the published scripts compute them.

    The censoring distribution is that of the test patients. The score is evaluated at each of their times below the
    last one, with linear interpolation of the curves.
    """
    times = np.unique(test.time)[:-1]
    rows = fitted.filled(test)
    curves = between(fitted.model_, rows, times)
    events = test.event == 1
    return {
        "concordance": concordance_index(test.time, events, fitted.predict(test)),
        "ibs": integrated_brier_score(curves, times, test.time, events, test.time, events),
    }


def between(model: SurvivalModel, rows: Floats, times: Floats) -> Floats:
    """Interpolate curves linearly between the times of the model's grid, shape (n, len(times))."""
    grid = np.concatenate([[0.0], model.times])
    curves = np.column_stack([np.ones(len(rows)), model.survival(rows)])
    return np.array([np.interp(times, grid, curve) for curve in curves])
