"""What clinicians read: curves, tests and scores of several sites' patients, by sums."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multicentre.analytics.aalen_johansen.estimator import AalenJohansen
    from multicentre.analytics.evaluation.estimator import SurvivalEvaluation
    from multicentre.analytics.kaplan_meier.estimator import KaplanMeier
    from multicentre.analytics.log_rank.estimator import LogRank

__all__ = [
    "AalenJohansen",
    "KaplanMeier",
    "LogRank",
    "SurvivalEvaluation",
]

_HOMES = {
    "KaplanMeier": "kaplan_meier.estimator",
    "AalenJohansen": "aalen_johansen.estimator",
    "LogRank": "log_rank.estimator",
    "SurvivalEvaluation": "evaluation.estimator",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'multicentre.analytics' has no attribute {name!r}")
    return getattr(importlib.import_module(f"multicentre.analytics.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
