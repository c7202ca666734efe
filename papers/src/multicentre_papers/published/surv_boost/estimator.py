"""FedSurvBoost as its authors' code runs, which is bagging."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from multicentre.data.missing.values import Missing
from multicentre.survival import FedSurvBoost
from multicentre.survival.boost.maths import Rule
from multicentre.survival.boost.plan import Plan, make_plan


class FedSurvBoostAsPublished(FedSurvBoost):
    """FedSurvBoost as the code of its authors runs: weights never change and votes are equal, which is bagging.

    For comparison with the publication only. Use :class:`multicentre.survival.FedSurvBoost` or an exact method instead.
    In every round the best of the sites' hypotheses is kept, by the distance of the median from the time of the event
    over the horizon.

    Parameters
    ----------
    weak_learner : {"cox", "tree", "deepsurv"}, default "tree"
        Model that sites fit: a Cox model, a log-rank tree, or a network (extra ``deep``).
    n_estimators : int, default 50
        Largest number of hypotheses.
    resample, settings, n_times, horizon, missing
        As in :class:`multicentre.survival.FedSurvBoost`.
    random_state : int, default 0
        Seed of the sites' draws, which mix it with their own data.

    References
    ----------
    O. Harrak, B. Casella, S. Fonio, P. Fariselli, G. Mittone, C. Rollo, T. Sanavia, M. Aldinucci, "Federated AdaBoost
    for survival analysis", 2024, http://hdl.handle.net/2318/2030498.
    """

    def __init__(
        self,
        weak_learner: Literal["cox", "tree", "deepsurv"] = "tree",
        *,
        n_estimators: int = 50,
        resample: bool = True,
        settings: Mapping[str, Any] | None = None,
        n_times: int = 64,
        horizon: float | None = None,
        missing: Missing = "mean",
        random_state: int = 0,
    ) -> None:
        super().__init__(
            weak_learner,
            mode="paper",
            norm="tau",
            n_estimators=n_estimators,
            resample=resample,
            settings=settings,
            n_times=n_times,
            horizon=horizon,
            missing=missing,
            random_state=random_state,
        )

    def _make_plan(self) -> Plan:
        library = {name: getattr(self, name) for name in FedSurvBoost().get_params(deep=False)}
        plan = make_plan(library)
        return replace(plan, rule=Rule(plan.rule.rate, equal=True))
