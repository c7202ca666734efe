"""Checked parameters of a fit: candidates, settings and requests to the sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from multicentre.core.steps import Step
from multicentre.errors import ConfigurationError
from multicentre.estimator.parameters import Flag, Integer, OneOf, ParameterRanges, Real, Where, check_parameters
from multicentre.survival.agreement.site import MAX_TIMES
from multicentre.survival.estimator import MISSING
from multicentre.survival.learners.networks import NetworkSettings
from multicentre.survival.learners.tree import TreeSettings
from multicentre.survival.surv_boost import messages
from multicentre.survival.surv_boost.hypotheses import LOSSES
from multicentre.survival.surv_boost.maths import Rule
from multicentre.survival.surv_boost.site import BoostSite

CANDIDATES = ("best", "committee", "all", "pool")
NORMS = ("max", "tau")
TREE = {"max_depth": None, "min_samples_leaf": 15, "min_events_leaf": 3, "max_features": "sqrt"}
COX = {"alpha": 1.0, "ties": "breslow", "min_events_leaf": 3}
TRAINING = {
    "dropout": 0.1,
    "learning_rate": 0.003,
    "weight_decay": 0.0001,
    "batch_size": 256,
    "max_epochs": 100,
    "n_iter_no_change": 8,
    "validation_fraction": 0.2,
}
NETWORK = {"hidden_layer_sizes": (32, 32), "norm": "batch", **TRAINING}
DEFAULT_SETTINGS: dict[str, dict[str, Any]] = {"cox": COX, "tree": TREE, "deepsurv": NETWORK}
# Valid values of the estimator's parameters. The largest numbers of rounds and weights are far above useful ones; they
# catch mistyped values before a long fit.
RANGES: ParameterRanges = {
    "weak_learner": OneOf(*DEFAULT_SETTINGS),
    "n_estimators": Integer(1, 10_000),
    "candidates": OneOf(*CANDIDATES),
    "loss": OneOf(*LOSSES),
    "norm": OneOf(*NORMS),
    "learning_rate": Real(0, 1, open="low"),
    "weight_cap": (None, Real(1, 1e9, open="low")),
    "resample": Flag(),
    "recalibrate": (Flag(), OneOf("auto")),
    "n_iter_no_change": (None, Integer(1, 10_000)),
    "n_splits": Integer(2, 10),
    "learner_params": (None, Where("a mapping of names to values", lambda value: isinstance(value, Mapping))),
    "n_times": Integer(1, MAX_TIMES),
    "horizon": (None, Real(0, open="low")),
    "missing": MISSING,
    "random_state": Integer(0, 2**31),
}
# Valid values of the settings of the Cox model.
COX_RANGES: ParameterRanges = {
    "alpha": Real(0),
    "ties": OneOf("breslow", "efron"),
    "min_events_leaf": Integer(0, 2**31),
}
STEPS: dict[str, Step[BoostSite, Any, Any]] = {
    "cox": BoostSite.fit_cox,
    "tree": BoostSite.fit_tree,
    "deepsurv": BoostSite.fit_network,
}


@dataclass(frozen=True)
class Plan:
    """Parameters of the rounds.

    Parameters
    ----------
    weak_learner : str
    settings : mapping
        Hyperparameters of the weak learner, complete.
    candidates, loss, norm : str
    rule : Rule
    weight_cap : float, optional
        Maximum weight, as a multiple of the mean.
    resample : bool
    recalibrate : bool or "auto"
    n_estimators, n_splits, seed : int
    n_iter_no_change : int, optional
    """

    weak_learner: str
    settings: Mapping[str, Any]
    candidates: str
    loss: str
    norm: str
    rule: Rule
    weight_cap: float | None
    resample: bool
    recalibrate: bool | str
    n_estimators: int
    n_splits: int
    n_iter_no_change: int | None
    seed: int

    @property
    def needs_censoring(self) -> bool:
        """True if the fit uses Brier scores."""
        return self.loss == "brier" or self.recalibrate == "auto" or self.n_iter_no_change is not None

    @property
    def with_cox(self) -> bool:
        """True if the proportional hazards model of all sites' patients is a candidate."""
        return self.candidates == "all"

    def log_cap(self, n_patients: float) -> float:
        """Return the logarithm of the maximum weight."""
        return float("inf") if self.weight_cap is None else float(np.log(self.weight_cap / n_patients))

    def fit_request(self, scale: messages.Scale, number: int, *, alone: bool) -> messages.Fit:
        """Return the request for a hypothesis in a round."""
        common = {
            "log_total": scale.log_total,
            "log_cap": scale.log_cap,
            "of_pass": scale.of_pass,
            "seed": self.seed,
            "round": number,
            "resample": self.resample,
            "alone": alone,
            "rate": self.rule.rate,
            "by_largest": self.norm == "max",
        }
        return _REQUESTS[self.weak_learner](common, self.settings)


def make_plan(params: Mapping[str, Any]) -> Plan:
    """Check the parameters of an estimator and complete the settings of its weak learner.

    Raises
    ------
    ConfigurationError
        A parameter has an unknown value or is out of its range.
    """
    check_parameters(params, RANGES)
    learner, weight_cap = params["weak_learner"], params["weight_cap"]
    return Plan(
        weak_learner=learner,
        settings=_settings(learner, params["learner_params"] or {}),
        candidates=params["candidates"],
        loss=params["loss"],
        norm=params["norm"],
        rule=Rule(float(params["learning_rate"])),
        weight_cap=None if weight_cap is None else float(weight_cap),
        resample=bool(params["resample"]),
        recalibrate=params["recalibrate"],
        n_estimators=int(params["n_estimators"]),
        n_splits=int(params["n_splits"]),
        n_iter_no_change=None if params["n_iter_no_change"] is None else int(params["n_iter_no_change"]),
        seed=int(params["random_state"]),
    )


def _settings(learner: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    defaults = DEFAULT_SETTINGS[learner]
    unknown = sorted(set(overrides) - set(defaults))
    if unknown:
        raise ConfigurationError(
            f"learner_params of {learner} must be among {', '.join(defaults)}; got {', '.join(unknown)}",
            where="learner_params",
            hint="Remove the others.",
        )
    settings = {**defaults, **overrides}
    _check_settings(learner, settings)
    return settings


def _check_settings(learner: str, settings: Mapping[str, Any]) -> None:
    if learner == "tree":
        TreeSettings(**settings)
    elif learner == "deepsurv":
        NetworkSettings(**settings)
    else:
        check_parameters(settings, COX_RANGES)


def _cox_request(common: Mapping[str, Any], settings: Mapping[str, Any]) -> messages.Fit:
    specific: dict[str, Any] = {
        "ridge": float(settings["alpha"]),
        "ties": str(settings["ties"]),
        "min_events_leaf": int(settings["min_events_leaf"]),
    }
    return messages.FitCox(**common, **specific)


def _tree_request(common: Mapping[str, Any], settings: Mapping[str, Any]) -> messages.Fit:
    least: dict[str, Any] = {name: int(settings[name]) for name in ("min_samples_leaf", "min_events_leaf")}
    depth = int(settings["max_depth"] or 0)
    max_features = messages.write_columns(settings["max_features"])
    return messages.FitTree(**common, **least, max_depth=depth, max_features=max_features)


def _network_request(common: Mapping[str, Any], settings: Mapping[str, Any]) -> messages.Fit:
    hidden = np.array(settings["hidden_layer_sizes"], dtype=np.int64)
    training = np.array([float(settings[name]) for name in TRAINING])
    return messages.FitNetwork(**common, hidden=hidden, norm=str(settings["norm"]), training=training)


_REQUESTS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], messages.Fit]] = {
    "cox": _cox_request,
    "tree": _tree_request,
    "deepsurv": _network_request,
}
