"""Spline bases with explicit knots: B-splines, natural splines and cardinal natural splines.

B-splines and natural splines equal those of R's package splines (``bs`` and ``ns`` without intercept).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline, CubicSpline

Floats = NDArray[np.float64]
# Degree of the pieces of natural splines, and the default of B-splines; as in R.
CUBIC = 3


def b_splines(
    x: Floats, knots: Floats, boundary: tuple[float, float], degree: int = CUBIC, derivative: int = 0
) -> Floats:
    """Return B-splines without the first one, shape (n, len(knots) + degree).

    Beyond the boundary knots the polynomials of the outer pieces go on.

    Parameters
    ----------
    x : array of shape (n,)
    knots : array
        Interior knots, increasing.
    boundary : tuple of two floats
    degree : int, default 3
    derivative : int, default 0
        Order of the derivative.

    References
    ----------
    C. de Boor (1978), A practical guide to splines, Springer.

    Examples
    --------
    >>> b_splines(np.array([0.0, 0.5, 1.0]), np.zeros(0), (0.0, 1.0), degree=1).ravel().tolist()
    [0.0, 0.5, 1.0]
    """
    return _all_b_splines(x, knots, boundary, degree, derivative)[:, 1:]


def _all_b_splines(x: Floats, knots: Floats, boundary: tuple[float, float], degree: int, derivative: int) -> Floats:
    ends = np.repeat(boundary, degree + 1)
    places = np.concatenate([ends[: degree + 1], knots, ends[degree + 1 :]])
    basis = BSpline(places, np.eye(len(places) - degree - 1), degree)
    if derivative > degree:
        return np.zeros((len(x), len(places) - degree - 1))
    return np.asarray((basis.derivative(derivative) if derivative else basis)(x), dtype=np.float64)


def natural_splines(x: Floats, knots: Floats, boundary: tuple[float, float], derivative: int = 0) -> Floats:
    """Return cubic splines that are linear beyond the boundary knots, shape (n, len(knots) + 1).

    Parameters
    ----------
    x : array of shape (n,)
    knots : array
        Interior knots, increasing.
    boundary : tuple of two floats
    derivative : {0, 1}, default 0
        Order of the derivative.

    References
    ----------
    T. J. Hastie (1992), Generalized additive models, in Statistical models in S, chapter 7: B-splines whose second
    derivatives at the boundary knots are 0.

    Examples
    --------
    >>> basis = natural_splines(np.array([-1.0, 0.0, 1.0, 2.0]), np.array([0.5]), (0.0, 1.0))
    >>> bool(np.allclose(basis[0] - basis[1], -natural_splines(np.zeros(1), np.array([0.5]), (0.0, 1.0), 1)))
    True
    """
    edges = np.array(boundary)
    curvature = _all_b_splines(edges, knots, boundary, CUBIC, 2)[:, 1:]
    complement = np.linalg.qr(curvature.T, mode="complete")[0][:, 2:]
    inside = np.clip(x, *boundary)
    slope = _all_b_splines(inside, knots, boundary, CUBIC, 1)[:, 1:]
    if derivative:
        return np.asarray(slope @ complement, dtype=np.float64)
    values = _all_b_splines(inside, knots, boundary, CUBIC, 0)[:, 1:]
    return np.asarray((values + slope * (x - inside)[:, None]) @ complement, dtype=np.float64)


def cardinal_splines(x: Floats, knots: Floats, boundary: tuple[float, float], derivative: int = 0) -> Floats:
    """Return natural splines that are 1 at one knot and 0 at the others, without that of the first boundary knot.

    A coefficient is therefore the difference between the function at a knot and at the first boundary knot. The bases
    span the same functions as :func:`natural_splines`.

    Parameters
    ----------
    x : array of shape (n,)
    knots : array
        Interior knots, increasing.
    boundary : tuple of two floats
    derivative : {0, 1}, default 0
        Order of the derivative.

    Returns
    -------
    array of shape (n, len(knots) + 1)

    References
    ----------
    S. N. Wood (2006), Generalized additive models, section 4.1.2.

    Examples
    --------
    >>> cardinal_splines(np.array([0.0, 0.5, 1.0]), np.array([0.5]), (0.0, 1.0)).round(12).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    places = np.concatenate([boundary[:1], knots, boundary[1:]])
    basis = CubicSpline(places, np.eye(len(places)), bc_type="natural")
    inside = np.clip(x, *boundary)
    slope = np.asarray(basis(inside, 1), dtype=np.float64)[:, 1:]
    if derivative:
        return slope
    return np.asarray(basis(inside)[:, 1:] + slope * (x - inside)[:, None], dtype=np.float64)
