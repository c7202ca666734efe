"""Contract of every registered method: a parameter that changes the model changes the sentence on the model."""

import inspect

import pytest

from multicentre.errors import MissingExtra
from multicentre.estimator.base import find_estimator
from multicentre.estimator.parameters import Flag, Integer, OneOf, Real
from multicentre.estimator.registry import METHODS

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


def other_value(declared, default):
    """Return a valid value other than the default one; None if the declaration gives none."""
    for constraint in declared if isinstance(declared, tuple | list) else (declared,):
        if isinstance(constraint, Flag):
            return not default
        if isinstance(constraint, OneOf):
            return next((each for each in reversed(constraint.values) if each != default), None)
        if isinstance(constraint, Integer | Real):
            candidates = [3, 2, 1, 7, 0.25, 0.75, 0.9, 1.5, 12, 40]
            return next((one for one in candidates if constraint.accepts(one) and one != default), None)
        if constraint is not None and constraint.accepts("ward"):
            return "ward"
        if constraint is not None and constraint.accepts([0.25, 2.0]):
            return [0.25, 2.0]
    return None


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
    default = parameters[name].default
    value = other_value(kind.parameter_ranges[name], default)
    if value is None:
        pytest.skip("the declaration names no other value")
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
