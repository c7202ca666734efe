"""Estimation of the number of people with records at more than one site; identifiers do not leave the sites."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multicentre.linkage.duplicates.estimator import estimate_duplicate_rate
    from multicentre.linkage.duplicates.rate import DuplicateRate

__all__ = ["DuplicateRate", "estimate_duplicate_rate"]

_HOMES = {"DuplicateRate": "rate", "estimate_duplicate_rate": "estimator"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
