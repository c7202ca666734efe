"""Contract of regression, survival and descriptive methods: a parameter changes the fitted result, or is refused.

Every case of ``support/method_cases.py`` is a mode of its method. In each, every parameter gets another value; the fit
must then differ, or the value must be refused before the first request or by the sites.
"""

import functools
import inspect

import numpy as np
import pytest

import multicentre as mc
from contracts.test_model_in_force import other_value
from multicentre.errors import MulticentreError
from multicentre.estimator.registry import METHODS
from support.method_cases import CASES

pytestmark = pytest.mark.slow
PACKAGES = ("multicentre.survival", "multicentre.regression", "multicentre.analytics")
OPEN = mc.Policy(min_patients=0, exact_times=True)
# Values by method (None: any method) and parameter where the declared range names no other one or a refused one.
OTHER_VALUES = {
    ("log-rank", "group"): "x1",
    ("kaplan-meier", "group"): "x1",
    ("aalen-johansen", "group"): "x1",
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
# Reasons for a parameter that may leave the result of these small cases as it is.
UNCHANGED = {
    (None, "missing"): "the cases have no missing values; tests/unit compares the ways to handle them",
    (None, "tol"): "ends the rounds; a fit that has converged further than both values is the same",
    (None, "max_iter"): "ends the rounds; a fit that converges sooner is the same",
    (None, "n_iter_no_change"): "ends the rounds; a fit with fewer rounds in all is the same",
    ("fed-cox", "ties"): "the cases have no events at the same time at a site; tests/oracles compares tied data",
    ("fed-hazard-boost", "early_stopping"): '"auto" stands for one of the other values',
    ("fed-surv-boost", "recalibrate"): '"auto" stands for one of the other values',
    ("fed-surv-boost", "weight_cap"): "no weight of the case reaches a cap",
    ("fed-surv-boost", "random_state"): "draws the parts of early stopping and recalibration, which the case lacks",
    ("fed-glm", "link"): "None stands for one of the other values",
    ("fed-glm-cv", "rule"): "both rules can choose the same penalty",
    ("fed-deep-surv", "proximal_penalty"): "acts from a site's second step of a round on; the case has one batch",
}


def modes():
    paths = {METHODS[method].path.partition(":")[2]: method for method in METHODS}
    for case in CASES:
        kind = type(CASES[case].make())
        if kind.__name__ in paths and kind.__module__.startswith(PACKAGES) and case not in SLOW_TO_FIT:
            for name in inspect.signature(kind).parameters:
                yield case, paths[kind.__name__], name


# Their fits take seconds; their parameters are tested next to the methods.
SLOW_TO_FIT = {"fed-surv-boost, pool", "fed-surv-boost, corrected text", "fed-stack"}
MODES = list(modes())


@functools.cache
def sites_of(case):
    return CASES[case].sites()


def fingerprint(model):
    """Return the numbers of a fitted model, as its files and its table hold them."""
    arrays, facts = model._state()
    table = model.to_frame().to_numpy(object).tolist()
    return repr([{name: np.asarray(value).tolist() for name, value in sorted(arrays.items())}, facts, table])


@functools.cache
def base(case):
    return fingerprint(fit(CASES[case].make(), case))


def fit(model, case):
    with mc.Federation.in_process(sites_of(case), policy=OPEN, secure_sum=False) as federation:
        return model.fit(federation)


def chosen(method, model, name):
    value = OTHER_VALUES.get((method, name), OTHER_VALUES.get((None, name)))
    if value is None or value == getattr(model, name):
        value = other_value(type(model).parameter_ranges.get(name, ()), getattr(model, name))
    return value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("case", "method", "name"), MODES, ids=[f"{case}-{name}" for case, _, name in MODES])
def test_another_value_changes_the_result_or_is_refused(case, method, name):
    model = CASES[case].make()
    value = chosen(method, model, name)
    if value is None:
        pytest.skip("the declaration names no other value")
    try:
        changed = fingerprint(fit(model.set_params(**{name: value}), case))
    except MulticentreError:
        return
    reason = UNCHANGED.get((method, name), UNCHANGED.get((None, name)))
    assert changed != base(case) or reason, f"{name}={value!r} leaves the result of {case} as it is"
