"""Methods of the tables and their candidate settings, selected on training patients only."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from multicentre import survival
from multicentre.survival.estimator import SurvivalEstimator
from multicentre.validation import HashGroupKFold
from multicentre_papers import baselines
from multicentre_papers.baselines.local_forests import LocalForests
from multicentre_papers.fedsurvboost.plan import Plan
from multicentre_papers.published.surv_boost.estimator import FedSurvBoostAsPublished

Settings = Mapping[str, Any]
Group = Literal["published", "compared", "exact"]
Learner = Literal["cox", "tree", "deepsurv"]
Variant = Literal["as_published", "corrected", "default"]
Sampling = Literal["uniform", "ibs", "concordance"]
PLAIN: tuple[Settings, ...] = ({},)


@dataclass(frozen=True)
class Contender:
    """A method of the tables.

    Parameters
    ----------
    name : str
    group : {"published", "compared", "exact"}
        Methods of the paper, methods that it compares with, or methods that need only sums.
    make : callable
        Returns an unfitted estimator for settings and a seed.
    settings : tuple of mapping
        Candidate settings; the first one if no selection is made.
    per_site : bool
        Fit at each site separately; the metrics are means over sites.
    same_for_any_split : bool
        The fit does not depend on how patients are split between sites.
    parts : tuple of Contender
        Methods whose curves are averaged, with equal weights.
    """

    name: str
    group: Group
    make: Callable[[Settings, int], SurvivalEstimator]
    settings: tuple[Settings, ...] = PLAIN
    per_site: bool = False
    same_for_any_split: bool = False
    parts: tuple[Contender, ...] = ()


COX_ALONE, FOREST_ALONE = "Cox, one per site", "forest, one per site"
COX, RSF, HAZARD = "FedCox", "FedRSF", "FedHazardBoost"
BLEND, STACK, CHOSEN = (
    "mean of FedRSF and FedHazardBoost",
    "FedStack of the three",
    "FedStack, members by cross-validation",
)
FED_SURF, FED_SURF_IBS, FED_SURF_C = "FedSurF", "FedSurF-IBS", "FedSurF-C"
SURF_PUBLISHED, SURF_IBS_PUBLISHED = "FedSurF, as published", "FedSurF-IBS, as published"
UNION, FED_AVG = "forests of all sites", "DeepSurv under FedAvg"
LEARNERS: dict[Learner, str] = {"cox": "Cox", "tree": "tree", "deepsurv": "DeepSurv"}
VARIANTS: tuple[Variant, ...] = ("as_published", "corrected", "default")
# The text of the paper, with its equations corrected.
CORRECTED: Settings = {
    "candidates": "best",
    "loss": "median",
    "norm": "max",
    "learning_rate": 1.0,
    "weight_cap": None,
    "recalibrate": False,
}
# Shallow trees, and slow boosting of medium trees.
DEPTHS: tuple[Settings, ...] = (
    {"max_depth": 2},
    {"max_depth": 4, "learning_rate": 0.02, "n_times": 32, "min_child_hessian": 40.0},
)
# Number of folds of the cross-validated stack.
N_FOLDS = 3
# The default of the forests and twice that.
LEAVES: tuple[Settings, ...] = ({"min_samples_leaf": 15}, {"min_samples_leaf": 30})


def boosted(learner: Learner, variant: Variant) -> str:
    """Return the name of a variant of FedSurvBoost with a learner.

    Examples
    --------
    >>> boosted("cox", "as_published")
    'FedSurvBoost, Cox, as published'
    """
    return f"FedSurvBoost, {LEARNERS[learner]}, {variant.replace('_', ' ')}"


def contenders(plan: Plan) -> list[Contender]:
    """Return all methods of the paired tables; networks only if the plan has rounds for them."""
    return [*_per_site(), *_boosted(plan), *_compared(plan), *_exact(plan)]


def forests_as_published(sample: str) -> list[Contender]:
    """Return FedSurF and FedSurF-IBS with the settings of the authors' code for a data set.

    Their trees are drawn with replacement. The smallest leaves that a site permits are larger than those of the code (3
    patients), except for the stumps of SUPPORT.
    """
    stumps = {"n_local_estimators": 500, "max_depth": 1}
    grown = {"n_local_estimators": 200, "max_depth": 20, "max_features": "log2", "min_events_leaf": 0}
    settings: Settings = {"n_estimators": 500, "replacement": True, **(stumps if "support" in sample else grown)}
    samplings: dict[str, Sampling] = {SURF_PUBLISHED: "uniform", SURF_IBS_PUBLISHED: "ibs"}
    return [_forest(name, sampling, settings, PLAIN) for name, sampling in samplings.items()]


def has_networks(plan: Plan) -> bool:
    """Return True if the plan has rounds with networks and torch is installed."""
    return bool(plan.n_network_rounds) and importlib.util.find_spec("torch") is not None


def _per_site() -> list[Contender]:
    return [
        Contender(
            COX_ALONE,
            "compared",
            lambda settings, seed: survival.FedCox(alpha=1.0, missing="mean", **settings),
            per_site=True,
        ),
        Contender(
            FOREST_ALONE,
            "compared",
            lambda settings, seed: LocalForests(random_state=seed, **settings),
            LEAVES,
            per_site=True,
        ),
    ]


def _boosted(plan: Plan) -> list[Contender]:
    learners: list[Learner] = ["cox", "tree"]
    if has_networks(plan):
        learners.append("deepsurv")
    # The library's default learner is a tree; its four passes with others would mainly take time.
    return [
        _boost(plan, learner, variant)
        for learner in learners
        for variant in VARIANTS
        if variant != "default" or learner == "tree"
    ]


def _boost(plan: Plan, learner: Learner, variant: Variant) -> Contender:
    n_rounds = plan.n_network_rounds if learner == "deepsurv" else plan.n_rounds

    def make(settings: Settings, seed: int) -> SurvivalEstimator:
        if variant == "as_published":
            return FedSurvBoostAsPublished(learner, n_estimators=n_rounds, random_state=seed, **settings)
        parameters = {**CORRECTED, **settings} if variant == "corrected" else settings
        return survival.FedSurvBoost(learner, n_estimators=n_rounds, random_state=seed, **parameters)

    return Contender(boosted(learner, variant), "published", make)


def _compared(plan: Plan) -> list[Contender]:
    # FedSurF samples by weight from every site's trees; more than 100 trees would mainly take time.
    n_estimators = min(plan.n_estimators, 100)
    size = {"n_estimators": n_estimators, "n_local_estimators": n_estimators}
    samplings: dict[str, Sampling] = {FED_SURF: "uniform", FED_SURF_IBS: "ibs", FED_SURF_C: "concordance"}
    compared = [_forest(name, sampling, size, LEAVES) for name, sampling in samplings.items()]
    compared.append(
        Contender(UNION, "compared", lambda settings, seed: LocalForests(random_state=seed, **settings), LEAVES)
    )
    if has_networks(plan):
        compared.append(
            Contender(FED_AVG, "compared", lambda settings, seed: baselines.FedDeepSurv(random_state=seed, **settings))
        )
    return compared


def _forest(name: str, sampling: Sampling, fixed: Settings, candidates: tuple[Settings, ...]) -> Contender:
    def make(settings: Settings, seed: int) -> SurvivalEstimator:
        return baselines.FedSurF(sampling=sampling, random_state=seed, **fixed, **settings)

    return Contender(name, "compared", make, candidates)


def _exact(plan: Plan) -> list[Contender]:
    cox = Contender(COX, "exact", _cox, same_for_any_split=True)
    rsf = Contender(RSF, "exact", lambda settings, seed: _rsf(plan, settings, seed), LEAVES, same_for_any_split=True)
    hazard = Contender(
        HAZARD, "exact", lambda settings, seed: _hazard(plan, settings, seed), DEPTHS, same_for_any_split=True
    )
    blend = Contender(BLEND, "exact", _unmade, same_for_any_split=True, parts=(rsf, hazard))
    stack = Contender(STACK, "exact", _unmade, same_for_any_split=True, parts=(cox, rsf, hazard))
    # Folds follow from the identifiers of the patients, so they are the same for any split.
    chosen = Contender(CHOSEN, "exact", lambda settings, seed: _chosen(plan, seed), same_for_any_split=True)
    return [cox, rsf, hazard, blend, stack, chosen]


def _chosen(plan: Plan, seed: int) -> SurvivalEstimator:
    members = [_cox({}, seed), _rsf(plan, {}, seed), _hazard(plan, {}, seed)]
    return survival.FedStack(members, weights="brier", cv=HashGroupKFold(N_FOLDS))


def _cox(settings: Settings, seed: int) -> SurvivalEstimator:
    # Missing entries as in the other methods, so that all predict for all patients.
    return survival.FedCox("grid", alpha=1.0, missing="mean", **settings)


def _rsf(plan: Plan, settings: Settings, seed: int) -> SurvivalEstimator:
    return survival.FedRSF(plan.n_estimators, random_state=seed, **settings)


def _hazard(plan: Plan, settings: Settings, seed: int) -> SurvivalEstimator:
    return survival.FedHazardBoost(plan.n_estimators, random_state=seed, **settings)


def _unmade(settings: Settings, seed: int) -> SurvivalEstimator:
    raise NotImplementedError("a mean of methods is fitted via its parts")
