"""FedSurvBoost as its authors' code runs, which is bagging."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from multicentre.estimator.parameters import ParameterRanges
from multicentre.survival import FedSurvBoost
from multicentre.survival.agreement.site import SurvivalMissing
from multicentre.survival.surv_boost.maths import Rule
from multicentre.survival.surv_boost.plan import RANGES, Plan, make_plan


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
        Maximum number of hypotheses.
    resample : bool, default True
        Draw patients by weight for a hypothesis; False weights them.
    learner_params : mapping of str to object, optional
        Hyperparameters of the weak learner.
    n_times : int, default 64
        Number of times of the grid.
    horizon : float, optional
        Last time of the grid; by default the time by which 95 % of the follow-ups ended.
    missing : {"mean", "complete", "indicator"}, default "mean"
        Handling of missing values.
    random_state : int, default 0
        Seed of the sites' draws, which mix it with their own data.

    References
    ----------
    O. Harrak, B. Casella, S. Fonio, P. Fariselli, G. Mittone, C. Rollo, T. Sanavia, M. Aldinucci, "Federated AdaBoost
    for survival analysis", 2024, http://hdl.handle.net/2318/2030498.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> from multicentre_papers.published import FedSurvBoostAsPublished
    >>> rng = np.random.default_rng(0)
    >>> def site(n):
    ...     X = rng.normal(size=(n, 2))
    ...     return mc.data.SurvivalData(X, rng.exponential(np.exp(-X[:, 0])), rng.random(n) < 0.7)
    >>> federation = mc.Federation.in_process({name: site(80) for name in ("lyon", "nice", "lille")})
    >>> from multicentre_papers.published import FedSurvBoostAsPublished
    >>> model = FedSurvBoostAsPublished("tree", n_estimators=2).fit(federation)
    >>> len(model.history_)
    2
    """

    parameter_ranges: ClassVar[ParameterRanges] = {
        name: RANGES[name]
        for name in (
            "weak_learner",
            "n_estimators",
            "resample",
            "learner_params",
            "missing",
            "n_times",
            "horizon",
            "random_state",
        )
    }

    def __init__(
        self,
        weak_learner: Literal["cox", "tree", "deepsurv"] = "tree",
        *,
        n_estimators: int = 50,
        resample: bool = True,
        learner_params: Mapping[str, Any] | None = None,
        n_times: int = 64,
        horizon: float | None = None,
        missing: SurvivalMissing = "mean",
        random_state: int = 0,
    ) -> None:
        super().__init__(
            weak_learner,
            n_estimators=n_estimators,
            candidates="best",
            loss="median",
            norm="tau",
            learning_rate=1.0,
            weight_cap=None,
            resample=resample,
            recalibrate=False,
            learner_params=learner_params,
            n_times=n_times,
            horizon=horizon,
            missing=missing,
            random_state=random_state,
        )

    def _make_plan(self) -> Plan:
        library = {name: getattr(self, name) for name in FedSurvBoost().get_params(deep=False)}
        plan = make_plan(library)
        return replace(plan, rule=Rule(plan.rule.rate, equal=True))
