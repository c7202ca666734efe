"""Several views of the same patients: federated multi-view probabilistic PCA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.multiview.ppca.estimator import FedMvPPCA
    from multicentre.multiview.ppca.model_selection import select_n_components

__all__ = ["FedMvPPCA", "select_n_components"]

_MODULES = {
    "FedMvPPCA": "ppca.estimator",
    "select_n_components": "ppca.model_selection",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
