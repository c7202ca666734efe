"""The methods of the tables, and the settings between which each may choose inside its training patients."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from multicentre import survival
from multicentre.survival.fitted import SurvivalEstimator
from multicentre_papers.fedsurvboost.plan import Plan
from multicentre_papers.published.surv_boost.estimator import FedSurvBoostAsPublished

Settings = Mapping[str, Any]
Group = Literal["published", "compared", "exact"]
Learner = Literal["cox", "tree", "deepsurv"]
Mode = Literal["as_published", "paper", "robust"]
Sampling = Literal["uniform", "ibs", "concordance"]
PLAIN: tuple[Settings, ...] = ({},)


@dataclass(frozen=True)
class Contender:
    """A method of the tables.

    Parameters
    ----------
    name : str
    group : {"published", "compared", "exact"}
        The paper's own methods, those it was compared with, or those that need sums alone.
    make : callable
        From settings and a seed to an unfitted estimator.
    settings : tuple of mapping
        Those between which it chooses; the first where there is no choice.
    alone : bool
        Every site fits by itself, and figures are means over sites.
    same_for_any_split : bool
        The fit does not depend on how patients are split between sites.
    parts : tuple of Contender
        Those whose curves are averaged.
    learnt : bool
        Weights of the parts come from patients of their own; otherwise they are equal.
    """

    name: str
    group: Group
    make: Callable[[Settings, int], SurvivalEstimator]
    settings: tuple[Settings, ...] = PLAIN
    alone: bool = False
    same_for_any_split: bool = False
    parts: tuple[Contender, ...] = ()
    learnt: bool = False


COX_ALONE, FOREST_ALONE = "Cox, each site alone", "forest, each site alone"
COX, RSF, HAZARD = "FedCox", "FedRSF", "FedHazardBoost"
BLEND, STACK = "mean of FedRSF and FedHazardBoost", "FedStack of the three"
FED_SURF, FED_SURF_IBS, FED_SURF_C = "FedSurF", "FedSurF-IBS", "FedSurF-C"
UNION, FED_AVG = "forests of all sites", "DeepSurv under FedAvg"
LEARNERS: dict[Learner, str] = {"cox": "Cox", "tree": "tree", "deepsurv": "DeepSurv"}
MODES: tuple[Mode, ...] = ("as_published", "paper", "robust")
DEPTHS: tuple[Settings, ...] = (
    {"max_depth": 2},
    {"max_depth": 4, "learning_rate": 0.02, "n_times": 32, "min_child_hessian": 40.0},
    {"max_depth": 5},
)
LEAVES: tuple[Settings, ...] = ({"min_samples_leaf": 15}, {"min_samples_leaf": 30})


def boosted(learner: Learner, mode: Mode) -> str:
    """Return the name of FedSurvBoost with a learner in a mode.

    Examples
    --------
    >>> boosted("cox", "as_published")
    'FedSurvBoost, Cox, as published'
    """
    return f"FedSurvBoost, {LEARNERS[learner]}, {mode.replace('_', ' ')}"


def contenders(plan: Plan) -> list[Contender]:
    """Return all methods of the paired tables, those with networks where the plan has rounds for them."""
    return [*_alone(), *_boosted(plan), *_compared(plan), *_exact(plan)]


def has_networks(plan: Plan) -> bool:
    """Tell whether networks are asked for, and torch is installed."""
    return bool(plan.n_network_rounds) and importlib.util.find_spec("torch") is not None


def _alone() -> list[Contender]:
    return [
        Contender(COX_ALONE, "compared", lambda given, seed: survival.FedCox(alpha=1.0, **given), alone=True),
        Contender(
            FOREST_ALONE,
            "compared",
            lambda given, seed: survival.LocalForests(random_state=seed, **given),
            LEAVES,
            alone=True,
        ),
    ]


def _boosted(plan: Plan) -> list[Contender]:
    learners: list[Learner] = ["cox", "tree"]
    if has_networks(plan):
        learners.append("deepsurv")
    return [_boost(plan, learner, mode) for learner in learners for mode in MODES]


def _boost(plan: Plan, learner: Learner, mode: Mode) -> Contender:
    n_rounds = plan.n_network_rounds if learner == "deepsurv" else plan.n_rounds

    def make(given: Settings, seed: int) -> SurvivalEstimator:
        if mode == "as_published":
            return FedSurvBoostAsPublished(learner, n_estimators=n_rounds, random_state=seed, **given)
        return survival.FedSurvBoost(weak_learner=learner, mode=mode, n_estimators=n_rounds, random_state=seed, **given)

    return Contender(boosted(learner, mode), "published", make)


def _compared(plan: Plan) -> list[Contender]:
    found = [
        _forest(FED_SURF, "uniform", plan),
        _forest(FED_SURF_IBS, "ibs", plan),
        _forest(FED_SURF_C, "concordance", plan),
    ]
    found.append(
        Contender(UNION, "compared", lambda given, seed: survival.LocalForests(random_state=seed, **given), LEAVES)
    )
    if has_networks(plan):
        found.append(
            Contender(FED_AVG, "compared", lambda given, seed: survival.FedDeepSurv(random_state=seed, **given))
        )
    return found


def _forest(name: str, sampling: Sampling, plan: Plan) -> Contender:
    n_estimators = min(plan.n_estimators, 100)

    def make(given: Settings, seed: int) -> SurvivalEstimator:
        return survival.FedSurF(
            n_estimators, n_local_estimators=n_estimators, sampling=sampling, random_state=seed, **given
        )

    return Contender(name, "compared", make, LEAVES)


def _exact(plan: Plan) -> list[Contender]:
    cox = Contender(COX, "exact", _cox, same_for_any_split=True)
    rsf = Contender(RSF, "exact", lambda given, seed: _rsf(plan, given, seed), LEAVES, same_for_any_split=True)
    hazard = Contender(HAZARD, "exact", lambda given, seed: _hazard(plan, given, seed), DEPTHS, same_for_any_split=True)
    blend = Contender(BLEND, "exact", _unmade, same_for_any_split=True, parts=(rsf, hazard))
    # Weights are learnt on patients that every site draws for itself, so another split has others.
    stack = Contender(STACK, "exact", _unmade, parts=(cox, rsf, hazard), learnt=True)
    return [cox, rsf, hazard, blend, stack]


def _cox(given: Settings, seed: int) -> SurvivalEstimator:
    return survival.FedCox("grid", alpha=1.0, **given)


def _rsf(plan: Plan, given: Settings, seed: int) -> SurvivalEstimator:
    return survival.FedRSF(plan.n_estimators, random_state=seed, **given)


def _hazard(plan: Plan, given: Settings, seed: int) -> SurvivalEstimator:
    return survival.FedHazardBoost(plan.n_estimators, random_state=seed, **given)


def _unmade(given: Settings, seed: int) -> SurvivalEstimator:
    raise NotImplementedError("it is made of the fits of its parts")
