"""Descriptive statistics of the patients of several sites, and meta-analysis of their estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.analytics.describe.estimator import Describe
    from multicentre.analytics.meta_analysis import Combination, Combinations, combine

__all__ = ["Combination", "Combinations", "Describe", "combine"]

_MODULES = {
    "Combination": "meta_analysis",
    "Combinations": "meta_analysis",
    "Describe": "describe.estimator",
    "combine": "meta_analysis",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
