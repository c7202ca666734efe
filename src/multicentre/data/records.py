"""Construction of canary records for privacy audits: one patient is copied, amplified and added to a site's data."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from multicentre.data.concatenate import concatenate
from multicentre.data.kinds import kind_of

T = TypeVar("T")


def amplify_record(data: T, row: int, factor: float, random: np.random.Generator | None = None) -> T:
    """Multiply every number of one patient; the result is of the same kind.

    Truth values and missing entries are unchanged. Counts with a negative sign are left out.

    Parameters
    ----------
    data : array of shape (n, d), MultiViewData, SurvivalData or another of ``multicentre.data.kinds.KINDS``
        A site's patients.
    row : int
        Row of the patient.
    factor : float
    random : numpy.random.Generator, optional
        Source of a random sign for every number; by default signs are unchanged.

    Raises
    ------
    ConfigurationError
        The kind of data is not registered.

    Examples
    --------
    >>> amplify_record(np.array([[1.0, 2.0], [3.0, -4.0]]), 1, 10.0).tolist()
    [[30.0, -40.0]]
    """
    record: T = kind_of(data).amplify(data, row, factor, random)
    return record


def add_record(data: T, record: T) -> T:
    """Append one patient to the data.

    Parameters
    ----------
    data : array of shape (n, d), MultiViewData, SurvivalData or another of ``multicentre.data.kinds.KINDS``
    record : of the kind of `data`
        From :func:`amplify_record`.

    Raises
    ------
    ConfigurationError
        The kind of data is not registered.

    Examples
    --------
    >>> add_record(np.zeros((2, 2)), np.ones((1, 2))).shape
    (3, 2)
    """
    return concatenate({"site": data, "added": record})
