"""Estimation of the number of people with records at more than one site; identifiers do not leave the sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.linkage.duplicates.estimator import estimate_duplicate_rate
    from multicentre.linkage.duplicates.rate import DuplicateRate

__all__ = ["DuplicateRate", "estimate_duplicate_rate"]

_MODULES = {"DuplicateRate": "rate", "estimate_duplicate_rate": "estimator"}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
