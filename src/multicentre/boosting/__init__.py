"""Gradient boosting over several sites, with the same trees as on the pooled records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.boosting.estimator import FedXGBClassifier, FedXGBRegressor
    from multicentre.boosting.trees import Ensemble

__all__ = ["Ensemble", "FedXGBClassifier", "FedXGBRegressor"]

_MODULES = {"Ensemble": "trees", "FedXGBClassifier": "estimator", "FedXGBRegressor": "estimator"}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
