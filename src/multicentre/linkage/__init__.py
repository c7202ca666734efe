"""Records of the same person at several sites: pseudonyms, alignment and duplicates."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multicentre.linkage.alignment.alignment import Alignment, align, find_places
    from multicentre.linkage.duplicates.estimator import estimate_duplicate_rate
    from multicentre.linkage.duplicates.rate import DuplicateRate
    from multicentre.linkage.pseudonyms import PseudonymKey

__all__ = ["Alignment", "DuplicateRate", "PseudonymKey", "align", "estimate_duplicate_rate", "find_places"]

_HOMES = {
    "Alignment": "alignment.alignment",
    "align": "alignment.alignment",
    "find_places": "alignment.alignment",
    "DuplicateRate": "duplicates.rate",
    "estimate_duplicate_rate": "duplicates.estimator",
    "PseudonymKey": "pseudonyms",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'multicentre.linkage' has no attribute {name!r}")
    return getattr(importlib.import_module(f"multicentre.linkage.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
