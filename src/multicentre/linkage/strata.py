"""Classes of the outcome, for folds that are alike in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.data.events.tensor import EventTensor
from multicentre.data.survival import SurvivalData
from multicentre.data.tabledata import TableData

Integers = NDArray[np.int64]


def outcome_strata(data: Any) -> tuple[Integers, int]:
    """Return the class of every record's outcome, shape (n,), and the number of classes, which all sites share.

    Classes of a table are its own; times to an event have two, with and without an event; patients with events and
    outcomes two; all other data one.

    Examples
    --------
    >>> outcome_strata(SurvivalData([[1.0], [2.0]], [3.0, 4.0], [0, 2]))
    (array([0, 1]), 2)
    """
    if isinstance(data, TableData) and data.outcome == "class":
        return data.y.astype(np.int64), len(data.classes)
    if isinstance(data, SurvivalData):
        return (data.event > 0).astype(np.int64), 2
    if isinstance(data, EventTensor) and data.outcomes is not None:
        return data.outcomes.astype(np.int64), 2
    return np.zeros(len(data), dtype=np.int64), 1


def array_strata(y: NDArray[Any] | None, n_records: int) -> tuple[Integers, int]:
    """Return the class of every row's outcome, shape (n,), and the number of classes, for arrays.

    Labels and whole numbers have their own classes, if rows have one in common on average; pairs of event and time
    (scikit-survival's structured arrays) two, with and without an event; other numbers one.

    Examples
    --------
    >>> array_strata(np.array(["ill", "well", "ill"]), 3)
    (array([0, 1, 0]), 2)
    >>> array_strata(np.array([0.5, 1.5, 0.5]), 3)
    (array([0, 0, 0]), 1)
    """
    if y is not None and y.dtype.names:
        y = next((y[name] for name in y.dtype.names if y[name].dtype == bool), None)
    if y is not None and y.ndim == 1 and (y.dtype.kind != "f" or np.array_equal(y, np.round(y))):
        classes, strata = np.unique(y, return_inverse=True)
        if 2 * len(classes) <= max(n_records, 4):
            return strata.astype(np.int64), len(classes)
    return np.zeros(n_records, dtype=np.int64), 1
