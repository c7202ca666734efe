"""A coordinator that aims folds, or coefficients, at single patients gets no answer."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError
from multicentre.regression import FedGLMCV
from multicentre.regression.path.messages import AtFolds, AtPath
from multicentre.regression.path.site import PathSite

N = 120
MODEL = ("binomial", "logit", "", "", "", True)


def federate(n=N, *, secure=True):
    """Return three sites; patient 0 of the first has the highest age of all."""
    sites = {}
    for place in range(3):
        rng = np.random.default_rng(place)
        age = np.round(rng.normal(60, 10, n), 1)
        age[0] = 150.0 if place == 0 else 60.0
        y = (rng.random(n) < 0.5).astype(int)
        sites[f"s{place}"] = mc.data.TableData(np.column_stack([age, rng.normal(size=n)]), y, columns=["age", "dose"])
    return mc.Federation.in_process(sites, secure_sum=secure, one_row_per_patient=True)


def at(coefficients, held_out, *, n_folds=5, seed=0):
    coefficients, held_out = np.atleast_2d(np.asarray(coefficients, dtype=float)), np.atleast_1d(held_out)
    return AtPath(*MODEL, np.zeros(2), 0.5, np.ones(2), 1.0, n_folds, seed, coefficients, held_out)


@pytest.mark.parametrize("secure", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_folds_of_few_patients_are_refused(family, secure):
    federation = federate(40, secure=secure)
    if family == "gaussian":
        rng = np.random.default_rng(0)
        sites = {
            f"s{i}": mc.data.TableData(rng.normal(size=(40, 2)), rng.normal(size=40), outcome="number")
            for i in range(3)
        }
        federation = mc.Federation.in_process(sites, secure_sum=secure, one_row_per_patient=True)
    with pytest.raises(DisclosureRefused):
        FedGLMCV(family, cv=10, alphas=[1.0]).fit(federation)
    if secure:
        FedGLMCV(family, cv=2, alphas=[1.0]).fit(federation)


@pytest.mark.parametrize("secure", [True, False], ids=["masked", "unmasked"])
def test_coefficients_that_leave_weight_on_few_patients_of_a_fold_are_refused(secure):
    """Over all folds there is weight on enough patients, in each fold only on a few."""
    session = federate(secure=secure).begin(PathSite)
    coefficients = [-120.0, 2.0, 0.0]
    with pytest.raises(DisclosureRefused):
        session.sum(PathSite.sum_path_derivatives, at(coefficients, 0))


def test_the_folds_cannot_change_during_a_fit():
    """With other seeds, sums of other groups would single out patients."""
    session = federate().begin(PathSite)
    session.sum(PathSite.sum_path_derivatives, at([0.0, 0.0, 0.0], 0))
    for changed in ({"seed": 1}, {"n_folds": 4}):
        with pytest.raises(ConfigurationError, match="must be those of the first"):
            session.sum(PathSite.sum_path_derivatives, at([0.0, 0.0, 0.0], 0, **changed))


def test_a_step_function_between_two_patients_is_refused():
    with pytest.raises(ConfigurationError, match="at most 1000"):
        federate().begin(PathSite).sum(PathSite.sum_path_derivatives, at([0.0, 1e6, 0.0], 0))


def test_folds_that_do_not_exist_are_refused():
    for held_out in (-2, 5):
        with pytest.raises(MessageError, match="folds from -1 to 4"):
            federate().begin(PathSite).sum(PathSite.sum_path_derivatives, at([0.0, 0.0, 0.0], held_out))
    request = AtFolds(*MODEL, np.zeros(2), 0.5, np.ones(2), 1.0, 60, 0)
    with pytest.raises(ConfigurationError, match="2 to 50; got 60"):
        federate().begin(PathSite).sum(PathSite.sum_fold_products, request)


def test_folds_depend_on_the_data_of_the_site():
    """A coordinator that knows the seed does not know who is in which fold."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.tile([0, 1], 30)
    parts = []
    for change in (0.0, 1e-9):
        part = PathSite("lyon", mc.data.TableData(X + change, y))
        part.division_of_fit = (5, 0)
        parts.append(part._folds)
    assert not np.array_equal(*parts)
