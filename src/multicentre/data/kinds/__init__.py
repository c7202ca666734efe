"""The kinds of data that studies know; another joins by a module like its neighbours and a line in :data:`KINDS`."""

from __future__ import annotations

from typing import Any

import numpy as np

from multicentre.data.events.tensor import EventTensor
from multicentre.data.kinds.events import EVENTS
from multicentre.data.kinds.kind import ARRAYS, Kind, PatientData
from multicentre.data.kinds.survival import SURVIVAL
from multicentre.data.kinds.tables import TABLES
from multicentre.data.kinds.views import VIEWS
from multicentre.data.multiview import MultiViewData
from multicentre.data.survival import SurvivalData
from multicentre.data.tabledata import TableData
from multicentre.federation.errors import ConfigurationError

__all__ = ["KINDS", "Kind", "PatientData", "kind_of"]

KINDS: dict[type, Kind[Any]] = {
    MultiViewData: VIEWS,
    EventTensor: EVENTS,
    SurvivalData: SURVIVAL,
    TableData: TABLES,
    np.ndarray: ARRAYS,
}


def kind_of(*data: object) -> Kind[Any]:
    """Return what is known of the kind of these data, all of one kind.

    Raises
    ------
    ConfigurationError
        They are of a kind that has not joined, or of several.

    Examples
    --------
    >>> kind_of(np.zeros((2, 3))) is ARRAYS
    True
    """
    found = {type(one): _known(one) for one in data}
    if len({id(kind) for kind in found.values()}) > 1:
        raise ConfigurationError(
            f"data of several kinds do not fit together: {', '.join(kind.__name__ for kind in found)}",
            where="sites",
            hint="Give every site data of the same kind.",
        )
    return next(iter(found.values()))


def _known(data: object) -> Kind[Any]:
    for held, kind in KINDS.items():
        if isinstance(data, held):
            return kind
    raise ConfigurationError(
        f"nothing is known of how studies handle {type(data).__name__}",
        where="multicentre.data.kinds",
        hint="Add the kind of data to KINDS.",
    )
