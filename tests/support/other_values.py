"""Another value for every parameter, by method and mode, where its declaration names none or a value of no interest."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import multicentre as mc
from multicentre.estimator.parameters import Flag, Integer, OneOf, Real
from support.event_sites import simulate_events


class _Nothing:
    """No other value is declared."""


NOTHING = _Nothing()


def _phenotypes() -> Any:
    from multicentre.phenotyping.outcome import PhenotypeFactors

    drawn = simulate_events()
    scales = np.arange(1.0, drawn.memberships.shape[1] + 1.0)
    return PhenotypeFactors({mode: factor[::-1] for mode, factor in drawn.factors.items()}, drawn.tensor.codes, scales)


def _model(family: str) -> Any:
    return mc.validation.model_from_mapping({"family": family, "intercept": 0.1, "coefficients": {"x2": -0.4}})


def _survival_model() -> Any:
    times = np.linspace(5.0, 60.0, 12)
    return mc.survival.fitted_models.CoxModel(times, np.array([0.1, 0.9, 0.3]), np.zeros(3), times / 40)


# By method (or case), and by parameter for any method; a function is called without arguments.
OTHER_VALUES: Mapping[tuple[str | None, str], Any] = {
    ("log-rank", "group"): "x1",
    ("kaplan-meier", "group"): "x1",
    ("aalen-johansen", "group"): "x1",
    ("aalen-johansen", "causes"): [1],
    ("fed-mv-ppca", "ddof"): 0,
    ("fed-mv-ppca", "delta"): 1e-6,
    ("fed-mv-ppca", "reference"): {
        "a": {"centre": [0.0] * 3, "spread": [1.0] * 3},
        "b": {"centre": [0.0] * 4, "spread": [1.0] * 4},
    },
    ("dpfact", "vocabulary"): lambda: {mode: codes[1:] for mode, codes in simulate_events().tensor.codes.items()},
    ("dpfact, three code modes", "vocabulary"): lambda: {
        mode: codes[1:] for mode, codes in simulate_events(sizes=(5, 6, 4), rate=3.0).tensor.codes.items()
    },
    ("dpfact", "n_codes"): lambda: dict.fromkeys(simulate_events().tensor.codes, 4),
    ("dpfact, three code modes", "n_codes"): lambda: dict.fromkeys(simulate_events(sizes=(5, 6, 4)).tensor.codes, 3),
    ("phenotype-outcome", "phenotypes"): _phenotypes,
    ("fed-msgl", "hyperedge_sizes"): (3, 6),
    ("fed-msgl", "landmarks"): 12,
    ("fed-msgl, landmarks", "landmarks"): 20,
    ("fed-msgl", "person_key"): "study",
    ("classifier-validation", "model"): lambda: _model("binomial"),
    ("regressor-validation", "model"): lambda: _model("gaussian"),
    ("survival-evaluation", "model"): _survival_model,
    ("survival-evaluation", "scoring"): ("brier",),
    ("fed-surv-boost", "learner_params"): {"max_depth": 3},
    ("fed-stack", "cv"): lambda: mc.validation.FederatedKFold(3),
    ("fed-xgb-classifier", "missing"): "complete",
    ("fed-xgb-regressor", "missing"): "complete",
    (None, "cuts"): [[0.0]] * 3,
    ("fed-xgb, weights", "cuts"): [[0.0]] * 2,
    (None, "monotone_constraints"): {"x0": -1},
    ("fed-xgb, weights", "monotone_constraints"): {"age": -1},
    (None, "interaction_constraints"): [["x0"], ["x1"]],
    ("fed-xgb, weights", "interaction_constraints"): [["dose"]],
    **{
        (method, name): value
        for method in ("fed-xgb-classifier", "fed-xgb-regressor")
        for name, value in (("gamma", 1e5), ("min_child_weight", 1e5))
    },
    ("dpfact", "min_code_patients"): 90,
    (None, "tweedie_variance_power"): 1.2,
    ("describe", "categorical"): ["x2"],
    ("fed-glm, sites", "site_effects"): None,
    ("fed-linear-mixed-model", "slopes"): ["dose"],
    ("fed-glmm", "slopes"): ["x0"],
    (None, "bounds"): {"age": [-1.0, 1.0], "dose": [-1.0, 1.0]},
    ("fed-deep-surv", "hidden_layer_sizes"): (3,),
    ("fed-hazard-boost", "early_stopping"): True,
    ("fed-hazard-boost", "min_child_hessian"): 60.0,
    ("kaplan-meier", "missing"): "mean",
    ("aalen-johansen", "missing"): "mean",
    ("log-rank", "missing"): "mean",
    (None, "levels"): [1.0, 2.0],
    (None, "horizon"): 9.0,
    (None, "at"): [5.0, 15.0],
    (None, "times"): [5.0, 15.0],
    (None, "tol"): 1e-2,
    (None, "max_iter"): 1,
    (None, "cause"): 2,
    (None, "confidence_level"): 0.8,
    (None, "random_state"): 7,
    (None, "max_features"): 3,
    ("fed-surf", "min_events_leaf"): 40,
}


def stated_value(names: Sequence[str], parameter: str, current: Any) -> Any:
    """Return the value for the first of some names (a case, a method), or any; NOTHING if it is the present one."""
    for name in (*names, None):
        if (name, parameter) in OTHER_VALUES:
            value = OTHER_VALUES[name, parameter]
            value = value() if callable(value) else value
            return NOTHING if _is_same(value, current) else value
    return NOTHING


def _is_same(value: Any, current: Any) -> bool:
    if dataclasses.is_dataclass(value) or dataclasses.is_dataclass(current):
        return value is current
    return bool(np.array_equal(np.asarray(value, dtype=object), np.asarray(current, dtype=object)))


def declared_value(declared: Any, current: Any) -> Any:
    """Return a valid value of a declaration other than the present one; NOTHING if the declaration gives none."""
    for constraint in declared if isinstance(declared, tuple | list) else (declared,):
        value = _of(constraint, current)
        if value is not NOTHING:
            return value
    return NOTHING


def _of(constraint: Any, current: Any) -> Any:
    if isinstance(constraint, Flag):
        return not current
    if isinstance(constraint, OneOf):
        return next((each for each in reversed(constraint.values) if each != current), NOTHING)
    if isinstance(constraint, Integer | Real):
        candidates = [3, 2, 1, 7, 0.25, 0.75, 0.9, 1.5, 12, 40]
        return next((one for one in candidates if constraint.accepts(one) and one != current), NOTHING)
    if constraint is None:
        return NOTHING
    texts = ("ward", [0.25, 2.0])
    return next((value for value in texts if constraint.accepts(value) and value != current), NOTHING)
