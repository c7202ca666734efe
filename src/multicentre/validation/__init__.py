"""Validation across sites that duplicated patients cannot inflate."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multicentre.validation.cross_validation import CVResult, cross_val_score, cross_validate
    from multicentre.validation.folds.drawn import FederatedKFold
    from multicentre.validation.folds.plan import FoldPlan

__all__ = ["CVResult", "FederatedKFold", "FoldPlan", "cross_val_score", "cross_validate"]

_HOMES = {
    "FederatedKFold": "folds.drawn",
    "FoldPlan": "folds.plan",
    "CVResult": "cross_validation",
    "cross_val_score": "cross_validation",
    "cross_validate": "cross_validation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'multicentre.validation' has no attribute {name!r}")
    return getattr(importlib.import_module(f"multicentre.validation.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
