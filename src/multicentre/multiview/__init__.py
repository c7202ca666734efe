"""Several views of the same patients: federated multi-view probabilistic PCA."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multicentre.multiview.ppca.estimator import FedMvPPCA
    from multicentre.multiview.ppca.model_selection import select_n_components

__all__ = ["FedMvPPCA", "select_n_components"]

_HOMES = {
    "FedMvPPCA": "ppca.estimator",
    "select_n_components": "ppca.model_selection",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"multicentre.multiview.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'multicentre.multiview' has no attribute {name!r}")
