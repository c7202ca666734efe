"""How fits of multi-view methods are held against held-out patients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from multicentre.estimator.base import Figure

Floats = NDArray[np.float64]
SHARED_FIGURES = {
    "mae": Figure(
        "MAE, test",
        "lower",
        "standard deviations",
        "mean absolute error of held-out patients' columns rebuilt from their latents",
    ),
    "accuracy": Figure(
        "accuracy in latent space",
        "higher",
        "",
        "share of held-out patients whose group linear discriminant analysis of the latents names",
    ),
}


def accuracy_of_groups(
    training: Floats, training_labels: Sequence[str], held_out: Floats, labels: Sequence[str]
) -> float:
    """Return the share of held-out patients whose group linear discriminant analysis names rightly.

    Parameters
    ----------
    training : array of shape (n, q)
        Latents from which the discriminant is learnt.
    training_labels : sequence of str
    held_out : array of shape (m, q)
    labels : sequence of str

    Returns
    -------
    float
        Not-a-number when the training patients are all of one group.
    """
    if len(set(training_labels)) < 2:
        return float("nan")
    discriminant = LinearDiscriminantAnalysis().fit(training, np.asarray(training_labels))
    return float(discriminant.score(held_out, np.asarray(labels)))


def unit_of_errors(rows: Floats, deviation: Floats) -> Floats:
    """Return one over each column's standard deviation among these patients, so that fits compare in one unit.

    Parameters
    ----------
    rows : array of shape (n, d)
        Held-out patients, NaN where missing.
    deviation : array of shape (d,)
        Used for columns that do not vary among them.
    """
    known = (~np.isnan(rows)).sum(axis=0) > 1
    found = deviation.copy()
    found[known] = np.nanstd(rows[:, known], axis=0)
    return 1 / np.where(found > 0, found, deviation)
