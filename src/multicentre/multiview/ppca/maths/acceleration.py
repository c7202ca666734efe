"""Acceleration of a fixed-point iteration that climbs an objective, with refusal of steps that lower it.

A map such as a round of EM takes each point x to an image g(x) at which the objective is at least as high. Its steps
become short long before the objective is at its maximum. Anderson's method combines the last images so that the
combined residual g(x) - x is smallest, and needs no further evaluation. The combination may lower the objective. Such
a point is refused: the next one is the image itself, then that of a shorter step which never lowers the objective,
then points on the way to it, at half the distance each time.

References
----------
Walker and Ni (2011), Anderson acceleration for fixed-point iterations;
Henderson and Varadhan (2019), Damped Anderson acceleration with restarts and monotonicity control.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from multicentre.multiview.ppca.maths.model import Floats

# Points that are combined. More of them cost memory and seldom help, since the map is not linear.
MAX_POINTS = 10
# Ridge of the least squares, for columns of length 1. A smaller one amplifies rounding errors, such as those of sums in
# another order; a larger one slows the iteration down.
RIDGE = 1e-5
# Loss of the objective, relative to its size, that is due to rounding; 1e-6 nats are added for masked sums.
ROUNDING = 1e-12
# Refusals in a row after which the best point is final: the last step tried is half the plain one.
MAX_REFUSALS = 4


@dataclass(frozen=True)
class Trail:
    """Points of an ascent that were accepted, their images, and the objective at the last of them, the best.

    Parameters
    ----------
    points, images : arrays of shape (h, p)
        The last of them at the end.
    plain : array of shape (p,)
        Image of the last point by a step that never lowers the objective; ``images`` may be those of a longer one.
    best : float
        Objective at the last point; minus infinity before the first.
    refusals : int
        Points in a row that were refused since.
    """

    points: Floats
    images: Floats
    plain: Floats
    best: float
    refusals: int

    @classmethod
    def begin(cls, n_parameters: int) -> Self:
        """Return the trail without points."""
        none = np.zeros((0, n_parameters))
        return cls(none, none.copy(), np.zeros(n_parameters), -np.inf, 0)

    def accepts(self, objective: float) -> bool:
        """Return whether the objective at a new point is not below the best, but for rounding."""
        if not len(self.points):
            return True
        return bool(objective >= self.best - ROUNDING * abs(self.best) - 1e-6)

    def accept(self, point: Floats, image: Floats, objective: float, plain: Floats | None = None) -> Self:
        """Add a point; after a refusal, the older half is dropped, since the combination misled."""
        last = MAX_POINTS - 1 if not self.refusals else len(self.points) // 2
        first = max(len(self.points) - last, 0)
        points, images = np.vstack([self.points[first:], point]), np.vstack([self.images[first:], image])
        plain = image if plain is None else plain
        return replace(self, points=points, images=images, plain=plain, best=objective, refusals=0)

    def refuse(self) -> Self:
        """Count a refusal."""
        return replace(self, refusals=self.refusals + 1)

    def moved(self, move: Callable[[Floats], Floats]) -> Self:
        """Return the trail in other coordinates."""
        points, images = self.points.copy(), self.images.copy()
        for each in (points, images):
            for row in range(len(each)):
                each[row] = move(each[row])
        return replace(self, points=points, images=images)

    def propose(self, metric: Floats) -> Floats:
        """Return the next point to try, shape (p,); `metric` are weights of the coordinates of a residual."""
        if not self.refusals:
            return extrapolate(self.points, self.images, metric)
        if self.refusals == 1:
            return np.asarray(self.images[-1])
        point = self.points[-1]
        return np.asarray(point + 0.5 ** (self.refusals - 2) * (self.plain - point))


def extrapolate(points: Floats, images: Floats, metric: Floats) -> Floats:
    """Combine images so that the combined residual is smallest (Anderson's method), shape (p,).

    Parameters
    ----------
    points, images : arrays of shape (h, p)
        With one point, the result is its image.
    metric : array of shape (p,)
        Weights of the coordinates of a residual.

    Examples
    --------
    A linear map in one dimension is solved by two points:

    >>> points = np.array([[0.0], [1.0]])
    >>> bool(abs(extrapolate(points, 0.9 * points + 0.5, np.ones(1))[0] - 5.0) < 1e-4)
    True
    """
    if len(points) < 2:
        return np.asarray(images[-1])
    residuals = (images - points) * metric
    changes = np.diff(residuals, axis=0)
    lengths = np.sqrt(np.maximum(np.square(changes).sum(axis=1), np.finfo(np.float64).tiny))
    unit = changes / lengths[:, None]
    weights = np.linalg.solve(unit @ unit.T + RIDGE * np.eye(len(unit)), unit @ residuals[-1]) / lengths
    return np.asarray(images[-1] - weights @ np.diff(images, axis=0))
