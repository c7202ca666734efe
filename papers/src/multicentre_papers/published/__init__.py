"""Algorithms as they were published, for comparison with the corrected ones of the library."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multicentre_papers.published.dpfact.estimator import DPFactAsPublished
    from multicentre_papers.published.fedmsgl.estimator import FedMSGLAsPrinted, FedMSGLAsPublished
    from multicentre_papers.published.ppca.estimator import FedMvPPCAAsPublished
    from multicentre_papers.published.surv_boost.estimator import FedSurvBoostAsPublished

__all__ = [
    "DPFactAsPublished",
    "FedMSGLAsPrinted",
    "FedMSGLAsPublished",
    "FedMvPPCAAsPublished",
    "FedSurvBoostAsPublished",
]

_HOMES = {
    "DPFactAsPublished": "dpfact.estimator",
    "FedMSGLAsPrinted": "fedmsgl.estimator",
    "FedMSGLAsPublished": "fedmsgl.estimator",
    "FedMvPPCAAsPublished": "ppca.estimator",
    "FedSurvBoostAsPublished": "surv_boost.estimator",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'multicentre_papers.published' has no attribute {name!r}")
    return getattr(importlib.import_module(f"multicentre_papers.published.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
