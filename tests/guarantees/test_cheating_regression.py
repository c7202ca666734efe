"""A coordinator that aims the requests of a regression at single patients gets no answer."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DisclosureRefused
from multicentre.regression import messages
from multicentre.regression.site import RegressionSite

N = 60
MODEL = ("binomial", "logit", "", "", "", True)


def federate(*, secure=True, extra=None, policy=None):
    """Return three sites; patient 0 of the first has the highest age of all."""
    sites = {}
    for place in range(3):
        rng = np.random.default_rng(place)
        age = np.round(rng.normal(60, 10, N), 1)
        age[0] = 150.0 if place == 0 else 60.0
        columns, names = [age, rng.normal(size=N)], ["age", "dose"]
        if extra is not None:
            columns, names = [*columns, extra(place)], [*names, "extra"]
        y = (rng.random(N) < 0.5).astype(int)
        sites[f"s{place}"] = mc.data.TableData(np.column_stack(columns), y, columns=names)
    options = {} if policy is None else {"policy": policy}
    return mc.Federation.in_process(sites, secure_sum=secure, one_row_per_patient=True, **options)


def at(coefficients, model=MODEL, d=2):
    spread = np.ones(d)
    return messages.At(*model, np.zeros(d), 0.5, spread, 1.0, np.asarray(coefficients, dtype=float))


@pytest.mark.parametrize("secure", [True, False], ids=["masked", "unmasked"])
def test_coefficients_that_leave_weight_on_one_patient_only_are_refused(secure):
    """Everybody else is predicted with certainty, so the information would be that of the patient of 150 years."""
    session = federate(secure=secure).begin(RegressionSite)
    with pytest.raises(DisclosureRefused):
        session.sum(RegressionSite.sum_derivatives, at([-3000.0, 20.0, 0.0]))


@pytest.mark.parametrize("secure", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("step", ["sum_derivatives", "sum_score_products", "sum_slopes"])
def test_weights_that_select_one_patient_are_refused(step, secure):
    model = ("binomial", "logit", "", "extra", "", True)

    def select_one(place):
        return (np.arange(N) == 0).astype(float)

    session = federate(secure=secure, extra=select_one).begin(RegressionSite)
    with pytest.raises(DisclosureRefused):
        session.sum(RegressionSite.sum_columns, messages.Model(*model))
    with pytest.raises(DisclosureRefused):
        session.sum(getattr(RegressionSite, step), at([0.0, 0.0, 0.0], model))


def test_a_step_function_between_two_patients_is_refused():
    session = federate().begin(RegressionSite)
    with pytest.raises(ConfigurationError, match="at most 1000"):
        session.sum(RegressionSite.sum_derivatives, at([0.0, 1e6, 0.0]))


def test_the_model_cannot_change_during_a_fit():
    """With and without weights, the difference of two sums would be one patient's."""

    def all_but_one(place):
        return (np.arange(N) > 0).astype(float)

    session = federate(extra=all_but_one).begin(RegressionSite)
    session.sum(RegressionSite.sum_columns, messages.Model(*MODEL))
    with pytest.raises(ConfigurationError, match="must be that of the first"):
        session.sum(RegressionSite.sum_columns, messages.Model("binomial", "logit", "", "extra", "", True))


def test_unmasked_a_column_of_few_patients_is_refused():
    def rare(place):
        return (np.arange(N) < 3).astype(float)

    with pytest.raises(DisclosureRefused):
        mc.regression.FedLogisticRegression().fit(federate(secure=False, extra=rare))
    mc.regression.FedLogisticRegression().fit(federate(secure=True, extra=rare))


def test_a_model_with_many_coefficients_is_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 31))
    data = mc.data.TableData(X, (rng.random(90) < 0.5).astype(int))
    sites = {f"s{i}": data.take(np.arange(i, 90, 3)) for i in range(3)}
    with pytest.raises(mc.errors.RefusedByPolicy, match="patients of all sites per coefficient; got 32"):
        mc.regression.FedLogisticRegression(alpha=1.0).fit(mc.Federation.in_process(sites, one_row_per_patient=True))
