"""Signs that covariates separate the outcomes, so that the likelihood rises without bound as coefficients grow.

Where covariates separate outcomes, predicted means go to the end of their range, and with them the information on the
coefficients goes to 0. Dependence between covariates lowers the information at the start and at the end alike. The
other coefficients keep their errors: at the limit, the patients whose outcomes are separated carry no information.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# A coefficient that moves without a gain counts as diverging if its information fell by more than the first. One that
# converged counts as such if the information is below a tenth of that of one patient (the second, times patients): one
# patient or event against the others leaves about that of one.
FALLEN, FALLEN_PER_PATIENT = 100.0, 10.0
# Smallest eigenvalue of correlations that is not rounding.
RESOLVED = 1e-15


@dataclass(frozen=True)
class Reported:
    """Form in which parameters are reported, and the information on them in a model without covariates.

    Intercepts and thresholds at covariates of 0 are mixtures of the parameters of the rounds, which are about the means
    of the covariates. Whether such a parameter grows without bound shows only in the form that is reported.

    Parameters
    ----------
    matrix : array of shape (w, w)
        Matrix from the parameters of the rounds to those that are reported.
    information : array of shape (w, w), optional
        Information without covariates on the parameters of the rounds; 0 on the diagonal for a parameter that cannot be
        separated. None if none can.
    n_patients : float
        Patients, or the sum of their weights or outcomes if that is larger.
    """

    matrix: Floats
    information: Floats | None
    n_patients: float

    @cached_property
    def is_mixed(self) -> Flags:
        """Parameters that are mixtures of those of the rounds, shape (w,)."""
        return np.asarray((self.matrix - np.diag(np.diagonal(self.matrix))).any(axis=1))

    def step(self, step: Floats) -> Floats:
        """Return the size of a step on the scale of the linear predictor, shape (w,)."""
        scale = float(np.diagonal(self.matrix)[0])
        return np.abs(np.where(self.is_mixed, self.matrix @ step / scale, step))

    def has_fallen(self, information: Floats, least: float) -> Flags:
        """Flag the reported parameters on which the information fell by more than a factor, shape (w,).

        Examples
        --------
        >>> reported = Reported(np.eye(2), np.diag([25.0, 50.0]), 100.0)
        >>> reported.has_fallen(np.diag([5.0, 0.0]), FALLEN).tolist()
        [False, True]
        """
        if self.information is None:
            return np.zeros(len(information), dtype=np.bool_)
        used = np.flatnonzero(np.diagonal(self.information) > 0)
        null, reached, inverse = (each[np.ix_(used, used)] for each in (self.information, information, self._inverse))
        fallen = fallen_information(null, reached)
        if self.is_mixed.any():
            of_reported = fallen_information(inverse.T @ null @ inverse, inverse.T @ reached @ inverse)
            fallen = np.asarray(np.where(self.is_mixed[used], of_reported, fallen), dtype=np.float64)
        flags = np.zeros(len(information), dtype=np.bool_)
        flags[used] = fallen > least
        return flags

    @cached_property
    def _inverse(self) -> Floats:
        return np.asarray(np.linalg.inv(self.matrix), dtype=np.float64)


def covariance_of(matrix: Floats, information: Floats, omitted: Flags, products: Floats | None = None) -> Floats:
    """Return the covariance of the reported parameters; NaN for those that are omitted or have no information.

    Parameters
    ----------
    matrix : array of shape (w, w)
        Matrix from the parameters of the rounds to those that are reported.
    information : array of shape (w, w)
        On the parameters of the rounds.
    omitted : array of bool, shape (w,)
        Reported parameters without a maximum.
    products : array of shape (w, w), optional
        Products of first derivatives, for a robust covariance.

    Examples
    --------
    >>> covariance_of(np.eye(2), np.diag([4.0, 0.0]), np.array([False, True])).tolist()
    [[0.25, nan], [nan, nan]]
    """
    inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    used = np.flatnonzero(~omitted)
    if len(used) < len(omitted):  # the others' covariance is that of a model without the omitted parameters
        block, covariance = np.ix_(used, used), np.full_like(information, np.nan)
        covariance[block] = _sandwich((inverse.T @ information @ inverse)[block], _at(products, inverse, block))
        return covariance
    return np.asarray(matrix @ _sandwich(information, products) @ matrix.T, dtype=np.float64)


def _at(products: Floats | None, inverse: Floats, block: Any) -> Floats | None:
    return None if products is None else np.asarray((inverse.T @ products @ inverse)[block], dtype=np.float64)


def _sandwich(information: Floats, products: Floats | None) -> Floats:
    """Return the inverse of the information, or the robust covariance."""
    bread = np.linalg.inv(information)
    return np.asarray(bread if products is None else bread @ products @ bread, dtype=np.float64)


def fallen_information(null: Floats, reached: Floats) -> Floats:
    """Return by which factor the information on each coefficient fell, given the others, shape (p,).

    Parameters
    ----------
    null, reached : arrays of shape (p, p)
        Information without covariates, and at some coefficients.

    Examples
    --------
    >>> fallen_information(np.diag([25.0, 50.0]), np.diag([5.0, 0.0])).round(9).tolist()
    [5.0, inf]
    """
    start, end = _partial(null), _partial(reached)
    return np.asarray(np.divide(start, end, out=np.full_like(start, np.inf), where=end > 0), dtype=np.float64)


def _partial(information: Floats) -> Floats:
    """Return the information on each coefficient given the others; 0 if there is none."""
    sizes = np.diagonal(information)
    scale = np.sqrt(np.where(sizes > 0, sizes, 1.0))
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    inverse = np.square(vectors) @ (1.0 / np.maximum(values, RESOLVED))
    return np.asarray(np.where(sizes > 0, sizes / inverse, 0.0), dtype=np.float64)
