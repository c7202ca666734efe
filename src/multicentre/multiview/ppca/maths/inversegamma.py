"""Maximum likelihood of an inverse gamma law (Balelli et al. 2021, equation 6) from two means."""

from __future__ import annotations

import numpy as np
from scipy.special import polygamma, psi

from multicentre.multiview.ppca.maths.model import Floats

LARGEST_SHAPE = 1e4


def fit_inverse_gamma(
    mean_inverse: Floats, mean_log: Floats, largest_shape: float = LARGEST_SHAPE
) -> tuple[Floats, Floats]:
    """Maximise the likelihood of an inverse gamma law from the means of 1/s and of ln s.

    Newton's method on the inverse of the shape; ln a - digamma(a) = ln mean(1/s) + mean(ln s) decides the shape
    and shape / mean(1/s) the scale.

    Parameters
    ----------
    mean_inverse, mean_log : arrays of the same shape
    largest_shape : float, default 1e4
        Shape when all s are equal or nearly so.

    Returns
    -------
    shape, scale : arrays

    Examples
    --------
    >>> import numpy as np
    >>> shape, scale = fit_inverse_gamma(np.array([0.5]), np.array([np.log(2.0)]))
    >>> shape.tolist(), scale.tolist()
    ([10000.0], [20000.0])
    """
    inverse = np.where(mean_inverse > 0, mean_inverse, 1.0)
    gap = np.log(inverse) + mean_log
    spread = gap > 0.5 / largest_shape
    target = np.where(spread, gap, 1.0)
    shape = (3.0 - target + np.sqrt((target - 3.0) ** 2 + 24.0 * target)) / (12.0 * target)
    for _ in range(8):
        error = np.log(shape) - psi(shape) - target
        slope = 1.0 / shape - polygamma(1, shape)
        inverse_shape = 1.0 / shape + error / (shape**2 * slope)
        shape = 1.0 / np.maximum(inverse_shape, 0.1 / shape)
    shape = np.where(spread, np.minimum(shape, largest_shape), largest_shape)
    return shape, shape / inverse
