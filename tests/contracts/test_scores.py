"""Every method that predicts has a score, and scikit-learn recognises classifiers and regressors."""

import numpy as np
import pytest
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import accuracy_score, r2_score

import multicentre as mc
from multicentre.estimator.base import find_estimator
from multicentre.estimator.registry import METHODS

PREDICTORS = {
    name: kind
    for name, method in METHODS.items()
    if method.package == "multicentre" and hasattr(kind := find_estimator(name), "predict")
}
CLASSIFIERS = {
    "fed-logistic-regression",
    "fed-multinomial-regression",
    "fed-ordinal-regression",
    "fed-xgb-classifier",
    "phenotype-outcome",
}


@pytest.mark.parametrize("name", sorted(PREDICTORS))
def test_what_predicts_has_a_score_and_the_tags_of_its_kind(name):
    kind = PREDICTORS[name]
    assert callable(kind.score)
    model = kind() if name != "fed-stack" else None
    if model is not None and kind.__module__.split(".")[1] != "survival":
        assert is_classifier(model) == (name in CLASSIFIERS or getattr(model, "family", "") == "binomial")
        assert is_regressor(model) != is_classifier(model)


def test_a_probability_without_classes_is_a_score_as_well():
    assert all(
        hasattr(find_estimator(name), "score") for name in METHODS if hasattr(find_estimator(name), "predict_proba")
    )


def sites_of(outcome, kind, classes=None):
    rng = np.random.default_rng(3)
    made = {}
    for site in ("lyon", "oslo", "turin", "held out"):
        X = rng.normal(size=(60, 2))
        made[site] = mc.data.TableData(X, outcome(X, rng), columns=["age", "dose"], outcome=kind, classes=classes)
    return made, made.pop("held out")


MODELS = {
    "logistic": (mc.regression.FedLogisticRegression, "yes"),
    "binomial": (lambda: mc.regression.FedGLM("binomial"), "yes"),
    "linear": (mc.regression.FedLinearRegression, "level"),
    "gamma": (lambda: mc.regression.FedGLM("gamma"), "level"),
    "counts": (mc.regression.FedPoissonRegression, "count"),
    "mixed": (mc.regression.FedLinearMixedModel, "level"),
    "multinomial": (mc.regression.FedMultinomialRegression, "stage"),
    "ordinal": (mc.regression.FedOrdinalRegression, "stage"),
}
OUTCOMES = {
    "yes": (lambda X, rng: (rng.random(len(X)) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int), "class", ["no", "yes"]),
    "level": (lambda X, rng: np.exp(0.4 * X[:, 0] + rng.normal(0, 0.2, len(X))), "number", None),
    "count": (lambda X, rng: rng.poisson(np.exp(0.5 * X[:, 0])), "number", None),
    "stage": (
        lambda X, rng: np.digitize(X[:, 0] + rng.normal(0, 0.7, len(X)), [-0.5, 0.6]),
        "class",
        ["I", "II", "III"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scores_are_those_of_scikit_learn_for_the_predictions(name):
    make, outcome = MODELS[name]
    simulate, kind, classes = OUTCOMES[outcome]
    sites, held = sites_of(simulate, kind, classes)
    with mc.Federation.in_process(sites, policy=mc.Policy(min_patients=0)) as federation:
        model = make().fit(federation)
    predicted = model.predict(held)
    if kind == "number":
        right = r2_score(held.y, predicted)
    elif name == "binomial":
        right = accuracy_score(held.y, predicted > 0.5)
    else:
        right = accuracy_score(np.array(classes)[held.y], predicted)
    assert model.score(held) == pytest.approx(right, abs=1e-12)


@pytest.mark.slow
def test_a_score_refuses_classes_in_another_order():
    simulate, kind, classes = OUTCOMES["yes"]
    sites, held = sites_of(simulate, kind, classes)
    with mc.Federation.in_process(sites, policy=mc.Policy(min_patients=0)) as federation:
        model = mc.regression.FedLogisticRegression().fit(federation)
    other = mc.data.TableData(held.X, 1 - held.y, columns=held.columns, classes=["yes", "no"])
    for use in (model.score, model.assess):
        with pytest.raises(mc.errors.SchemaMismatch, match="classes must be the 2 classes of the model"):
            use(other)
