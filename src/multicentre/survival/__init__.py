"""Times to an event at several sites: exact methods by sums, and the ensembles that they are compared with."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multicentre.survival.boost.classes.estimator import AdaBoostF, DistBoostF, PreWeakF
    from multicentre.survival.boost.estimator import FedSurvBoost
    from multicentre.survival.cox.estimator import FedCox
    from multicentre.survival.deep.estimator import FedDeepSurv
    from multicentre.survival.forest.estimator import FedSurF, LocalForests
    from multicentre.survival.hazard.estimator import FedHazardBoost
    from multicentre.survival.rsf.estimator import FedRSF
    from multicentre.survival.stack.estimator import FedStack
    from multicentre.survival.stack.held_out import split_held_out

__all__ = [
    "AdaBoostF",
    "DistBoostF",
    "FedCox",
    "FedDeepSurv",
    "FedHazardBoost",
    "FedRSF",
    "FedStack",
    "FedSurF",
    "FedSurvBoost",
    "LocalForests",
    "PreWeakF",
    "split_held_out",
]

_HOMES = {
    "FedCox": "cox.estimator",
    "FedHazardBoost": "hazard.estimator",
    "FedRSF": "rsf.estimator",
    "FedStack": "stack.estimator",
    "FedSurvBoost": "boost.estimator",
    "AdaBoostF": "boost.classes.estimator",
    "DistBoostF": "boost.classes.estimator",
    "PreWeakF": "boost.classes.estimator",
    "FedSurF": "forest.estimator",
    "LocalForests": "forest.estimator",
    "FedDeepSurv": "deep.estimator",
    "split_held_out": "stack.held_out",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'multicentre.survival' has no attribute {name!r}")
    return getattr(importlib.import_module(f"multicentre.survival.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
