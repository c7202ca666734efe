"""Survival analysis over several sites: models, curves, tests and scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.survival.cox.estimator import FedCox
    from multicentre.survival.curves.aalen_johansen import AalenJohansen
    from multicentre.survival.curves.kaplan_meier.estimator import KaplanMeier
    from multicentre.survival.curves.log_rank import LogRank
    from multicentre.survival.evaluation.estimator import SurvivalEvaluation
    from multicentre.survival.hazard_boost.estimator import FedHazardBoost
    from multicentre.survival.mixed_cox.estimator import FedMixedCox
    from multicentre.survival.rsf.estimator import FedRSF
    from multicentre.survival.stack.estimator import FedStack, split_held_out
    from multicentre.survival.surv_boost.estimator import FedSurvBoost

__all__ = [
    "AalenJohansen",
    "FedCox",
    "FedHazardBoost",
    "FedMixedCox",
    "FedRSF",
    "FedStack",
    "FedSurvBoost",
    "KaplanMeier",
    "LogRank",
    "SurvivalEvaluation",
    "split_held_out",
]

_MODULES = {
    "KaplanMeier": "curves.kaplan_meier.estimator",
    "AalenJohansen": "curves.aalen_johansen",
    "LogRank": "curves.log_rank",
    "SurvivalEvaluation": "evaluation.estimator",
    "FedCox": "cox.estimator",
    "FedMixedCox": "mixed_cox.estimator",
    "FedHazardBoost": "hazard_boost.estimator",
    "FedRSF": "rsf.estimator",
    "FedStack": "stack.estimator",
    "FedSurvBoost": "surv_boost.estimator",
    "split_held_out": "stack.estimator",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
