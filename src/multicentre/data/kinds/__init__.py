"""Registry of the kinds of data that studies support.

To add a kind, write a module with its :class:`Kind` and register it in :data:`KINDS`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from multicentre.data.both import SurvivalAndTable
from multicentre.data.events.tensor import EventTensor
from multicentre.data.kinds.both import BOTH
from multicentre.data.kinds.events import EVENTS
from multicentre.data.kinds.kind import ARRAYS, Kind, PatientData
from multicentre.data.kinds.survival import SURVIVAL
from multicentre.data.kinds.tables import TABLES
from multicentre.data.kinds.views import VIEWS
from multicentre.data.multiview import MultiViewData
from multicentre.data.survival import SurvivalData
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError

__all__ = ["KINDS", "Kind", "PatientData", "kind_of"]

KINDS: dict[type, Kind[Any]] = {
    MultiViewData: VIEWS,
    EventTensor: EVENTS,
    SurvivalData: SURVIVAL,
    TableData: TABLES,
    SurvivalAndTable: BOTH,
    np.ndarray: ARRAYS,
}


def kind_of(*data: object) -> Kind[Any]:
    """Return the kind of these data, which must all be of the same kind.

    Raises
    ------
    ConfigurationError
        The kind is not registered, or there are several kinds.

    Examples
    --------
    >>> kind_of(np.zeros((2, 3))) is ARRAYS
    True
    """
    kinds = {type(one): _registered_kind(one) for one in data}
    if len({id(kind) for kind in kinds.values()}) > 1:
        raise ConfigurationError(
            f"data must be of one kind; got {', '.join(kind.__name__ for kind in kinds)}",
            where="sites",
            hint="Use data of the same kind at every site.",
        )
    return next(iter(kinds.values()))


def _registered_kind(data: object) -> Kind[Any]:
    for container, kind in KINDS.items():
        if isinstance(data, container):
            return kind
    raise ConfigurationError(
        f"data must be one of {', '.join(container.__name__ for container in KINDS)}; got {type(data).__name__}",
        where="multicentre.data.kinds",
        hint="Convert the data, or register their kind in KINDS.",
    )
