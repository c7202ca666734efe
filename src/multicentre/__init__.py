"""Federated statistical learning on multi-centre health data.

>>> import multicentre as mc
>>> sites = mc.datasets.split_scenario(mc.datasets.load_wisconsin(), "IID", n_sites=3, random_state=0)
>>> federation = mc.Federation.in_process({name: site.data for name, site in sites.items()})
>>> federation.sites
('centre-1', 'centre-2', 'centre-3')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre import (
        analytics,
        boosting,
        clustering,
        data,
        datasets,
        errors,
        linkage,
        multiview,
        phenotyping,
        privacy,
        regression,
        survival,
        validation,
    )
    from multicentre.federation import Federation
    from multicentre.privacy.policy import Policy
    from multicentre.progress import Progress

__version__ = "0.1.0"

__all__ = [
    "Federation",
    "Policy",
    "Progress",
    "__version__",
    "analytics",
    "boosting",
    "clustering",
    "data",
    "datasets",
    "errors",
    "linkage",
    "multiview",
    "phenotyping",
    "privacy",
    "regression",
    "survival",
    "validation",
]

_MODULES = {"Federation": "federation", "Policy": "privacy.policy", "Progress": "progress"}
_PACKAGES = [name for name in __all__ if name not in _MODULES and name != "__version__"]
__getattr__, __dir__ = lazy_names(__name__, {**_MODULES, **dict.fromkeys(_PACKAGES, "")}, __all__)
