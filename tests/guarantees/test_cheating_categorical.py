"""A coordinator that aims multinomial or ordinal requests at single patients gets no answer."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError, RefusedByPolicy
from multicentre.regression.categorical import messages
from multicentre.regression.categorical.site import CategoricalSite
from multicentre.regression.messages import Model

N = 60
both = pytest.mark.parametrize("secure", [True, False], ids=["masked", "unmasked"])


def federate(*, secure=True, rare=0, policy=None, others=None):
    """Return three sites; patient 0 of the first has the highest age of all, `rare` patients of each a third class.

    With `others`, this is the age of all other patients.
    """
    sites = {}
    for place in range(3):
        rng = np.random.default_rng(place)
        age = np.round(rng.normal(60, 10, N), 1)
        age = age if others is None else np.full(N, others)
        age[0] = 150.0 if place == 0 else 60.0
        y = rng.integers(0, 2 if rare else 3, N)
        y[1 : 1 + rare] = 2
        sites[f"s{place}"] = mc.data.TableData(
            np.column_stack([age, rng.normal(size=N)]), y, columns=["age", "dose"], classes=["a", "b", "c"]
        )
    options = {} if policy is None else {"policy": policy}
    return mc.Federation.in_process(sites, secure_sum=secure, one_row_per_patient=True, **options)


def model(kind, weights=""):
    return Model(kind, "logit", "", weights, "", True)


def at(kind, parameters):
    fields = {**vars(model(kind)), "centre": np.zeros(2), "mean": 0.0, "spread": np.ones(2)}
    return messages.At(**fields, parameters=np.asarray(parameters, dtype=float))


# Everybody else is in one class with certainty, so that derivatives would be those of the patient of 150 years.
STEEP = {
    "multinomial": [-3000.0, 20.0, 0.0, -3000.0, 20.0, 0.0],
    "ordinal": [3000.0, 3001.0, 20.0, 0.0],
}
# One class or threshold is as steep, the other one leaves all patients some weight.
HALF_STEEP = {
    "multinomial": [0.0, 0.0, 0.0, -3000.0, 20.0, 0.0],
    "ordinal": [1200.0, 3000.0, 20.0, 0.0],
}


@both
@pytest.mark.parametrize("kind", STEEP)
@pytest.mark.parametrize("aims", [STEEP, HALF_STEEP], ids=["all", "one"])
def test_parameters_that_leave_weight_on_one_patient_only_are_refused(kind, secure, aims):
    session = federate(secure=secure).begin(CategoricalSite)
    steps = [CategoricalSite.sum_derivatives, CategoricalSite.sum_score_products]
    steps += [CategoricalSite.sum_unequal_slopes] if kind == "ordinal" else []
    for one in steps:
        with pytest.raises(DisclosureRefused):
            session.sum(one, at(kind, aims[kind]))


@pytest.mark.parametrize("kind", STEEP)
def test_a_step_function_between_two_patients_is_refused(kind):
    session = federate().begin(CategoricalSite)
    steep = [0.0, 1e6, 0.0] * 2 if kind == "multinomial" else [0.0, 1.0, 1e6, 0.0]
    with pytest.raises(ConfigurationError, match="at most 1000"):
        session.sum(CategoricalSite.sum_derivatives, at(kind, steep))


def test_thresholds_out_of_order_are_refused():
    session = federate().begin(CategoricalSite)
    with pytest.raises(MessageError, match="must increase"):
        session.sum(CategoricalSite.sum_derivatives, at("ordinal", [1.0, 1.0, 0.0, 0.0]))


def test_the_model_cannot_change_during_a_fit():
    session = federate().begin(CategoricalSite)
    session.ask(CategoricalSite.describe, Nothing())
    session.sum(CategoricalSite.sum_classes, model("ordinal"))
    with pytest.raises(ConfigurationError, match="must be that of the first"):
        session.sum(CategoricalSite.sum_classes, model("multinomial"))


def test_an_offset_that_several_equations_would_not_have_is_refused():
    request = Model("multinomial", "logit", "age", "", "", True)
    with pytest.raises(MessageError, match="multinomial without offset"):
        federate().begin(CategoricalSite).sum(CategoricalSite.sum_classes, request)


@both
@pytest.mark.parametrize("kind", STEEP)
def test_weights_that_leave_one_patient_only_are_refused(kind, secure):
    with pytest.raises(DisclosureRefused):
        federate(secure=secure, others=1e-6).begin(CategoricalSite).sum(CategoricalSite.sum_classes, model(kind, "age"))


def test_unmasked_a_class_of_few_patients_is_refused():
    with pytest.raises(DisclosureRefused):
        mc.regression.FedMultinomialRegression().fit(federate(secure=False, rare=3))
    mc.regression.FedMultinomialRegression().fit(federate(secure=True, rare=3))


def test_a_class_of_few_patients_over_all_sites_is_refused_under_masks_too():
    policy = mc.Policy(min_patients_in_total=10)
    with pytest.raises(DisclosureRefused, match=r"Totals\.counts"):
        mc.regression.FedMultinomialRegression().fit(federate(rare=3, policy=policy))
    mc.regression.FedMultinomialRegression().fit(federate(rare=4, policy=policy))


def test_a_model_with_many_parameters_is_refused():
    rng = np.random.default_rng(0)
    data = mc.data.TableData(rng.normal(size=(90, 15)), rng.integers(0, 3, 90))
    sites = {f"s{i}": data.take(np.arange(i, 90, 3)) for i in range(3)}
    with pytest.raises(RefusedByPolicy, match="patients of all sites per coefficient; got 32"):
        mc.regression.FedMultinomialRegression(alpha=1.0).fit(mc.Federation.in_process(sites, one_row_per_patient=True))
