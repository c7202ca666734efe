"""Contract of every registered method: a parameter that changes the model changes the sentence on the model."""

import inspect

import pytest

from multicentre.errors import MissingExtra
from multicentre.estimator.base import find_estimator
from multicentre.estimator.registry import METHODS
from support.other_values import NOTHING, declared_value, stated_value

# They end the rounds, or choose how a fit is computed, and not which model is fitted.
COMPUTING = {"max_iter", "tol"}
# Values next to which a parameter takes effect.
NEXT_TO = {
    "n_times": {"fed-cox": {"times": "grid"}, "log-rank": {"stratify_by_site": False}},
    "weight_type": {None: {"weights": "w"}},
    "l1_ratio": {None: {"alpha": 1.0}},
    "cluster": {None: {"errors": "cluster"}},
    "errors": {None: {"cluster": "ward"}},
    "delta": {"fed-glm": {"epsilon": 1.0}},
    "rho": {"log-rank": {"weights": "fleming-harrington"}},
    "gamma": {"log-rank": {"weights": "fleming-harrington"}},
}


def registered():
    for method in METHODS:
        if METHODS[method].package == "multicentre":
            try:
                yield method, find_estimator(method)
            except MissingExtra:
                continue


def other_value(method, kind, name):
    """Return another value than the default one."""
    default = inspect.signature(kind).parameters[name].default
    value = stated_value((method,), name, default)
    return value if value is not NOTHING else declared_value(kind.parameter_ranges.get(name, ()), default)


CASES = [
    (method, kind, name)
    for method, kind in registered()
    for name in inspect.signature(kind).parameters
    if name in kind.parameter_ranges and name not in COMPUTING
]


@pytest.mark.parametrize(("method", "kind", "name"), CASES, ids=[f"{method}-{name}" for method, _, name in CASES])
def test_another_value_of_a_parameter_is_another_sentence(method, kind, name):
    parameters = inspect.signature(kind).parameters
    chosen = NEXT_TO.get(name, {})
    context = {key: value for key, value in chosen.get(method, chosen.get(None, {})).items() if key in parameters}
    value = other_value(method, kind, name)
    assert value is not NOTHING, "state another value in tests/support/other_values.py"
    required = {key: 3 for key, one in parameters.items() if one.default is inspect.Parameter.empty}
    base = {**required, **context}
    assert kind(**{**base, name: value}).describe_model() != kind(**base).describe_model()


@pytest.mark.parametrize(("method", "kind"), list(registered()), ids=[method for method, _ in registered()])
def test_a_method_states_its_model_before_a_fit(method, kind):
    parameters = inspect.signature(kind).parameters
    model = kind(**{key: 3 for key, one in parameters.items() if one.default is inspect.Parameter.empty})
    sentence = model.describe_model()
    assert sentence.endswith(".")
    assert set(model.model_in_force()) <= {*parameters, "references"}
    assert "None" not in sentence
