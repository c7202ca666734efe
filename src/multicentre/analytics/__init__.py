"""Descriptive statistics of the patients of several sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.analytics.describe.estimator import Describe

__all__ = ["Describe"]

_MODULES = {"Describe": "describe.estimator"}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
