"""Federated statistical learning on multi-centre health data.

>>> import multicentre as mc
>>> sites = mc.datasets.split_scenario(mc.datasets.load_wisconsin(), "IID", n_sites=3, seed=0)
>>> federation = mc.Federation.in_process({name: site.data for name, site in sites.items()})
>>> federation.sites
('centre-1', 'centre-2', 'centre-3')
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multicentre import (
        boosting,
        clustering,
        data,
        datasets,
        linkage,
        multiview,
        phenotyping,
        privacy,
        survival,
        validation,
    )
    from multicentre.consortium.federation import Federation
    from multicentre.privacy.policy import Policy

__version__ = "0.1.0"

_ROOMS = (
    "boosting",
    "clustering",
    "data",
    "datasets",
    "linkage",
    "multiview",
    "phenotyping",
    "privacy",
    "survival",
    "validation",
)
_NAMES = {"Federation": "multicentre.consortium.federation", "Policy": "multicentre.privacy.policy"}

__all__ = [
    "Federation",
    "Policy",
    "__version__",
    "boosting",
    "clustering",
    "data",
    "datasets",
    "linkage",
    "multiview",
    "phenotyping",
    "privacy",
    "survival",
    "validation",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"multicentre.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'multicentre' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
