"""Steps of the rounds: the first one, those where a likelihood is not concave, and errors through masked sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Largest standard deviation over patients of the linear predictor after the first step. Second moments exaggerate
# slopes where outcomes are nearly separated; the largest ones that a study shows are half of this.
MAX_START = 5.0
# Largest entry of a step that rounding of masked sums may explain. It is far below changes that matter, and below those
# of separation, where the information vanishes and rounding could explain any change.
COARSEST_TOL = 1e-5
# Relative cutoff of singular values of an information matrix.
RANK = 1e-10


def cap_slopes(slopes: Floats, correlations: Floats) -> Floats:
    """Return slopes of standardised covariates, shape (..., d), shortened to the longest first step.

    Every method with a linear predictor starts at the model without covariates, or takes this step from there.

    Examples
    --------
    >>> cap_slopes(np.array([[3.0, 4.0], [6.0, 8.0]]), np.eye(2)).tolist()
    [[3.0, 4.0], [3.0, 4.0]]
    """
    variances = np.einsum("...i,ij,...j->...", slopes, correlations, slopes)
    lengths = np.sqrt(np.maximum(variances, MAX_START**2))
    return np.asarray(slopes * (MAX_START / lengths)[..., None], dtype=np.float64)


def step_rounding(information: Floats, rounding: Floats | float, coarsest: Floats | float = COARSEST_TOL) -> Floats:
    """Return the largest error of each entry of a Newton step through that of the first derivatives, shape (w,).

    Examples
    --------
    >>> step_rounding(np.diag([2.0, 4.0]), 1e-6).tolist()
    [5e-07, 2.5e-07]
    """
    if not np.any(rounding):
        return np.zeros(len(information))
    inverse = np.abs(np.linalg.pinv(information, rcond=RANK, hermitian=True))
    errors = inverse @ np.broadcast_to(rounding, len(information))
    return np.asarray(np.minimum(errors, coarsest), dtype=np.float64)


def uphill_step(gradient: Floats, information: Floats, longest: float) -> Floats:
    """Return a Newton step that goes up where the likelihood is not concave, at most `longest` in any entry.

    Examples
    --------
    >>> uphill_step(np.array([1.0, 1.0]), np.diag([2.0, -2.0]), 10.0).tolist()
    [0.5, 0.5]
    """
    symmetric = 0.5 * (information + information.T)
    try:
        factor = np.linalg.cholesky(symmetric)
        step = np.linalg.solve(factor.T, np.linalg.solve(factor, gradient))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(symmetric)
        sizes = np.maximum(np.abs(values), 1e-8 * max(float(np.abs(values).max(initial=0.0)), 1e-300))
        step = vectors @ ((vectors.T @ gradient) / sizes)
    return np.asarray(step * min(1.0, longest / max(float(np.abs(step).max(initial=0.0)), 1e-300)), dtype=np.float64)
