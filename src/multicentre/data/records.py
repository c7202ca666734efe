"""Single patients taken out of a site's data, exaggerated, and put back: what an audit does to make one stand out."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from multicentre.data.concatenate import concatenate
from multicentre.data.kinds import kind_of

T = TypeVar("T")


def amplify_record(data: T, row: int, factor: float, random: np.random.Generator | None = None) -> T:
    """Return one patient with every number multiplied, as data of the same kind.

    Truth values and missing entries stay. Counts cannot be negative: those whose sign is drawn so are left out.

    Parameters
    ----------
    data : array of shape (n, d), MultiViewData, SurvivalData or another of ``multicentre.data.kinds.KINDS``
        A site's patients.
    row : int
        Which patient.
    factor : float
    random : numpy.random.Generator, optional
        Draws a sign for every number; by default signs are kept.

    Raises
    ------
    ConfigurationError
        The data are of a kind that has not joined.

    Examples
    --------
    >>> amplify_record(np.array([[1.0, 2.0], [3.0, -4.0]]), 1, 10.0).tolist()
    [[30.0, -40.0]]
    """
    record: T = kind_of(data).amplify(data, row, factor, random)
    return record


def add_record(data: T, record: T) -> T:
    """Return data with one patient more, below the others.

    Parameters
    ----------
    data : array of shape (n, d), MultiViewData, SurvivalData or another of ``multicentre.data.kinds.KINDS``
    record : of the kind of `data`
        From :func:`amplify_record`.

    Raises
    ------
    ConfigurationError
        The data are of a kind that has not joined.

    Examples
    --------
    >>> add_record(np.zeros((2, 2)), np.ones((1, 2))).shape
    (3, 2)
    """
    return concatenate({"site": data, "added": record})
