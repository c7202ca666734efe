"""Single patients taken out of a site's data, exaggerated, and put back: what an audit does to make one stand out."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.data.blocks import Block
from multicentre.data.concatenate import concatenate
from multicentre.data.multiview import MultiViewData
from multicentre.federation.errors import ConfigurationError


@singledispatch
def amplify_record(data: Any, row: int, factor: float, random: np.random.Generator | None = None) -> Any:
    """Return one patient with every number multiplied, as data of the same kind.

    Other kinds of data join with ``amplify_record.register``.

    Parameters
    ----------
    data : array of shape (n, d) or MultiViewData
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
    raise _unknown(data)


@singledispatch
def add_record(data: Any, record: Any) -> Any:
    """Return data with one patient more, below the others.

    Other kinds of data join with ``add_record.register``.

    Parameters
    ----------
    data : array of shape (n, d) or MultiViewData
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
    raise _unknown(data)


@amplify_record.register
def _(data: np.ndarray, row: int, factor: float, random: np.random.Generator | None = None) -> NDArray[Any]:
    record = data[[row]]
    return np.asarray(record * (factor * _signs(record.shape, random))).astype(data.dtype)


@add_record.register
def _(data: np.ndarray, record: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([data, record])


@amplify_record.register
def _(data: MultiViewData, row: int, factor: float, random: np.random.Generator | None = None) -> MultiViewData:
    patient = data.take([row])
    blocks = {}
    for view in patient.views:
        values, kinds = patient.array(view), patient.kinds[view]
        times = np.where(np.array(kinds) == "number", factor * _signs(values.shape, random), 1.0)
        blocks[view] = Block(patient.columns[view], kinds, values * times)
    return MultiViewData(blocks, ids=None if patient.ids is None else patient.ids.tolist())


@add_record.register
def _(data: MultiViewData, record: MultiViewData) -> MultiViewData:
    return concatenate({"site": data, "added": record})


def _signs(shape: tuple[int, ...], random: np.random.Generator | None) -> NDArray[np.float64]:
    return np.ones(shape) if random is None else random.choice([-1.0, 1.0], shape)


def _unknown(data: object) -> ConfigurationError:
    return ConfigurationError(
        f"nothing is known of how to add a patient to {type(data).__name__}",
        where="multicentre.data.records",
        mend="Register the kind of data with amplify_record and add_record.",
    )
