"""Contract of all methods: a parameter changes the fitted result, or is refused.

Every case of ``support/method_cases.py`` is a mode of its method. In each, every parameter gets another value; the fit
must then differ, or the value must be refused before the first request or by the sites.
"""

import dataclasses
import functools
import inspect

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import MulticentreError
from multicentre.estimator.registry import METHODS
from support.method_cases import CASES
from support.other_values import NOTHING, declared_value, stated_value

pytestmark = pytest.mark.slow
OPEN = mc.Policy(min_patients=0, exact_times=True)
# Reasons by case, method or None (any), for a parameter that may leave the result of these small cases as it is.
UNCHANGED = {
    (None, "missing"): "the cases have no missing values; tests/unit compares the ways to handle them",
    (None, "tol"): "ends the rounds; a fit that has converged further than both values is the same",
    (None, "max_iter"): "ends the rounds; a fit that converges sooner is the same",
    (None, "n_iter_no_change"): "ends the rounds; a fit with fewer rounds in all is the same",
    ("fed-cox", "ties"): "the cases have no events at the same time at a site; tests/oracles compares tied data",
    ("fed-hazard-boost", "early_stopping"): '"auto" stands for one of the other values',
    ("fed-surv-boost", "recalibrate"): '"auto" stands for one of the other values',
    ("fed-surv-boost", "learner_params"): "the rounds of the case choose the proportional hazards model of all sites",
    ("fed-surv-boost", "weight_cap"): "no weight of the case reaches a cap",
    ("fed-surv-boost", "random_state"): "draws the parts of early stopping and recalibration, which the case lacks",
    (None, "random_state"): "seeds draws; a fit without draws, or with the same result from all of them, is the same",
    (None, "n_init"): "k-means may reach the same partition from fewer starts",
    ("fed-mv-ppca", "max_components"): "read by the selection of the number of dimensions",
    (None, "small_views"): "permits more dimensions; as many as fit in any case are the same",
    ("fed-msgl", "incomplete"): "no site of the cases lacks a patient",
    ("fed-msgl", "distance_penalty"): "may leave the weights of a few landmarks as they are",
    ("fed-xgb, weights", "interaction_constraints"): "every path of the case splits one column only",
    ("classifier-validation", "threshold"): "of the confusion matrix, which no table of results has",
    ("fed-glm", "link"): "None stands for one of the other values",
    ("fed-glm-cv", "rule"): "both rules can choose the same penalty",
    ("fed-deep-surv", "proximal_penalty"): "acts from a site's second step of a round on; the case has one batch",
}


def modes():
    paths = {METHODS[method].path.partition(":")[2]: method for method in METHODS}
    for case in CASES:
        kind = type(CASES[case].make())
        if kind.__name__ in paths and kind.__module__.startswith("multicentre.") and case not in SLOW_TO_FIT:
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
    tables = {"": model.to_frame()} if hasattr(model, "to_frame") else {}
    tables |= model.result_tables() if hasattr(model, "result_tables") else {}
    numbers = {name: np.asarray(value).tolist() for name, value in sorted(arrays.items())}
    return repr([numbers, facts, {name: table.to_numpy(object).tolist() for name, table in tables.items()}])


@functools.cache
def base(case):
    return fingerprint(fit(CASES[case].make(), case))


def fit(model, case):
    policy = dataclasses.replace(CASES[case].policy or OPEN, min_patients=0, exact_times=True)
    with mc.Federation.in_process(sites_of(case), policy=policy, secure_sum=False) as federation:
        return model.fit(federation)


def chosen(case, method, model, name):
    value = stated_value((case, method), name, getattr(model, name))
    if value is not NOTHING:
        return value
    return declared_value(type(model).parameter_ranges.get(name, ()), getattr(model, name))


def test_every_parameter_has_another_value():
    """No parameter is left out because its declaration names one value only."""
    without = [
        f"{case}: {name}" for case, method, name in MODES if chosen(case, method, CASES[case].make(), name) is NOTHING
    ]
    assert not without, "state another value in tests/support/other_values.py"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("case", "method", "name"), MODES, ids=[f"{case}-{name}" for case, _, name in MODES])
def test_another_value_changes_the_result_or_is_refused(case, method, name):
    model = CASES[case].make()
    value = chosen(case, method, model, name)
    try:
        changed = fingerprint(fit(model.set_params(**{name: value}), case))
    except MulticentreError:
        return
    reason = next((UNCHANGED[each, name] for each in (case, method, None) if (each, name) in UNCHANGED), "")
    assert changed != base(case) or reason, f"{name}={value!r} leaves the result of {case} as it is"
