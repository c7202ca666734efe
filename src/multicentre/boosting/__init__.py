"""Gradient boosting over several sites that is the same as that of the pooled records."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multicentre.boosting.estimator import FedXGBClassifier, FedXGBRegressor
    from multicentre.boosting.trees import Ensemble

__all__ = ["Ensemble", "FedXGBClassifier", "FedXGBRegressor"]

_HOMES = {"Ensemble": "trees", "FedXGBClassifier": "estimator", "FedXGBRegressor": "estimator"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'multicentre.boosting' has no attribute {name!r}")
    return getattr(importlib.import_module(f"multicentre.boosting.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
