"""Separated, collinear and badly scaled columns: results are exact, refused, or marked."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError, PerfectFitWarning, SeparationWarning
from multicentre.regression import FedGLM

OPEN = mc.Policy(min_patients=0)
N = 300


def federate(X, y, *, secure=False, classes=False):
    columns = [f"x{place}" for place in range(X.shape[1])]
    kind = {} if classes else {"outcome": "number"}
    data = mc.data.TableData(X, y, columns=columns, **kind)
    sites = {f"s{i}": data.take(np.arange(i, len(data), 3)) for i in range(3)}
    return mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure)


def separated(share, *, upwards):
    """Draw classes; all patients with the second column are of one class."""
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.normal(size=N), rng.random(N) < share]).astype(float)
    y = np.where(X[:, 1] == 1, 1, rng.random(N) < 0.5).astype(int)
    return X, y if upwards else 1 - y


@pytest.mark.parametrize("upwards", [True, False])
@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_separation_is_marked_under_every_link(link, upwards):
    for share in (0.03, 0.3):
        X, y = separated(share, upwards=upwards)
        with pytest.warns(SeparationWarning, match="x1"):
            model = FedGLM("binomial", link=link).fit(federate(X, y, classes=True))
        assert not model.converged_
        assert np.isnan(model.standard_errors_).tolist() == [False, False, True]
        rest = X[:, 1] == 0
        others = FedGLM("binomial", link=link).fit(federate(X[rest, :1], y[rest], classes=True))
        np.testing.assert_allclose(model.standard_errors_[:2], others.standard_errors_, rtol=1e-3)
        assert model.tests_ == {}


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_one_patient_against_the_others_is_no_separation(link):
    X, y = separated(0.3, upwards=True)
    y[np.flatnonzero(X[:, 1] == 1)[0]] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = FedGLM("binomial", link=link).fit(federate(X, y, classes=True))
    assert model.converged_
    assert model.standard_errors_[2] < 2


def collinear(distance):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    X = np.column_stack([X, X[:, 0] + distance * rng.normal(size=N)])
    return X, (rng.random(N) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)


def test_nearly_dependent_columns_are_fitted_without_a_false_warning():
    X, y = collinear(1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = FedGLM("binomial").fit(federate(X, y, classes=True))
    centred = np.column_stack([X[:, 0], X[:, 1], (X[:, 2] - X[:, 0]) / 1e-3])  # the same model, well conditioned
    oracle = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(centred, y).coef_[0]
    expected = [oracle[0] - oracle[2] / 1e-3, oracle[1], oracle[2] / 1e-3]
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-4)
    assert model.converged_


def test_columns_too_dependent_for_the_range_of_coefficients_are_named():
    X, y = collinear(1e-5)
    y[X[:, 2] > X[:, 0]] = 1  # a steep slope of the difference
    y[np.argsort(X[:, 2] - X[:, 0])[-40:]] = 0
    with pytest.raises(DataError, match=r"must be independent.*x0, x2"):
        FedGLM("binomial").fit(federate(X, y, classes=True))


def scaled(unit_x=1.0, unit_y=1.0, family="gaussian"):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, 2))
    y = 0.3 * X[:, 0] + rng.normal(size=N) if family == "gaussian" else rng.gamma(2, np.exp(0.3 * X[:, 0]) / 2)
    return X * unit_x, y * unit_y


def statistics(model):
    return {name: test.statistic for name, test in model.tests_.items()}


@pytest.mark.parametrize("units", [{"unit_x": 2.0**-8}, {"unit_y": 2.0**-8}])
def test_masked_tests_do_not_depend_on_the_unit(units):
    expected = statistics(FedGLM().fit(federate(*scaled())))
    model = FedGLM().fit(federate(*scaled(**units), secure=True))
    assert statistics(model) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("units", "place"), [({"unit_x": 2e-5}, "x0, x1"), ({"unit_y": 2e-5}, "outcomes must vary")])
def test_columns_that_rounding_of_masked_sums_hides_are_refused(units, place):
    X, y = scaled(**units)
    with pytest.raises(DataError, match=rf"{place}.*smaller unit"):
        FedGLM().fit(federate(X, y, secure=True))
    unmasked = FedGLM().fit(federate(X, y))
    assert statistics(unmasked) == pytest.approx(statistics(FedGLM().fit(federate(*scaled()))), rel=1e-6)


def test_masked_covariates_of_classes_are_refused_in_small_units():
    X, y = scaled(unit_x=2e-5)
    classes = np.digitize(y, [-0.5, 0.5])
    with pytest.raises(DataError, match=r"x0, x1.*smaller unit"):
        mc.regression.FedMultinomialRegression().fit(federate(X, classes, secure=True, classes=True))


def test_masked_gamma_tests_do_not_depend_on_the_unit():
    expected = statistics(FedGLM("gamma").fit(federate(*scaled(family="gamma"))))
    model = FedGLM("gamma").fit(federate(*scaled(unit_y=2.0**-17, family="gamma"), secure=True))
    assert statistics(model) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("kind", [FedGLM, mc.regression.FedLinearMixedModel])
def test_a_perfect_fit_is_marked_and_has_no_errors(kind, secure):
    X, _ = scaled()
    with pytest.warns(PerfectFitWarning, match="exactly"):
        model = kind().fit(federate(X, 2 * X[:, 0] + 1, secure=secure))
    np.testing.assert_allclose(model.coef_, [2, 0], atol=1e-6)
    assert np.isnan(model.standard_errors_).all()
    assert np.isnan(model.p_values_).all()


def test_a_column_beyond_the_range_of_sums_is_named():
    X, y = scaled()
    X[:, 1] = 250_000 + 80_000 * X[:, 1]
    for model in (FedGLM(), mc.regression.FedLinearMixedModel()):
        with pytest.raises(DataError, match=r"squares.*larger for x1\..*larger unit"):
            model.fit(federate(X, y, secure=True))


def test_effects_of_a_formula_with_effects_of_sites_are_refused_with_a_way_out():
    X, y = separated(0.3, upwards=True)
    y[::7] = 0
    model = FedGLM("binomial", formula="x0 * x1", site_effects="fixed").fit(federate(X, y, classes=True))
    with pytest.raises(ConfigurationError, match="Fit the formula with site_effects=None"):
        model.marginal_effects()
