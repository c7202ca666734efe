"""Algorithms as they were published, for comparison with the corrected ones of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

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

_MODULES = {
    "DPFactAsPublished": "dpfact.estimator",
    "FedMSGLAsPrinted": "fedmsgl.estimator",
    "FedMSGLAsPublished": "fedmsgl.estimator",
    "FedMvPPCAAsPublished": "ppca.estimator",
    "FedSurvBoostAsPublished": "surv_boost.estimator",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
