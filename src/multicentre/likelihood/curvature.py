"""Information matrix at the end of a step, extrapolated from the matrices of earlier rounds.

The information changes along a step by its third derivatives, which no site releases. Earlier rounds show them in the
directions of their steps: a new step is written as a combination of earlier steps, and the same combination of earlier
changes of the information is added. The last step of a fit is then taken without a further call to the sites.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Extrapolated:
    """Information at the end of a step.

    Parameters
    ----------
    information : array of shape (p, p)
    error : float
        Estimated error, as the largest error of a coefficient that has the same effect on the information.
    """

    information: Floats
    error: float


def extrapolate_information(information: Floats, step: Floats, steps: Floats, changes: Floats) -> Extrapolated:
    """Return the information at the end of a step.

    The error has two parts: the part of the step that is not a combination of earlier steps, and the curvature along
    the last earlier step, which is proportional to the product of both lengths.

    Parameters
    ----------
    information : array of shape (p, p)
        Information where the step begins.
    step : array of shape (p,)
    steps : array of shape (m, p)
        Earlier steps, the last one ends where `step` begins.
    changes : array of shape (m, p, p)
        Changes of the information along the earlier steps.

    Examples
    --------
    >>> result = extrapolate_information(np.eye(1), np.array([1e-3]), np.array([[0.1]]), np.array([[[0.2]]]))
    >>> result.information.round(6).tolist(), round(result.error, 6)
    ([[1.002]], 0.0001)
    """
    if not len(steps):
        return Extrapolated(information, np.inf)
    # Lengths in units of standard errors, so that well and badly determined directions have the same weight.
    root = np.linalg.cholesky(information).T
    weights = np.linalg.lstsq(root @ steps.T, root @ step, rcond=None)[0]
    unexplained = float(np.abs(step - weights @ steps).max())
    curved = float(np.abs(step).max() * np.abs(steps[-1]).max())
    return Extrapolated(
        np.asarray(information + np.tensordot(weights, changes, axes=1), dtype=np.float64), max(unexplained, curved)
    )
