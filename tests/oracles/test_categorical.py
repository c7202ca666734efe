"""Multinomial and ordinal regression are those of the pooled patients: R, closed forms and numerical derivatives."""

import json
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.regression import FedLogisticRegression, FedMultinomialRegression, FedOrdinalRegression
from multicentre.regression.categorical import maths
from multicentre.regression.categorical.likelihoods import ClassMoments, likelihood_of
from oracles.categorical_values import COLUMNS, draw

# Written by tests/oracles/categorical_values.py, which names the versions of the packages.
FROZEN = json.loads(Path(__file__).with_name("categorical_values.json").read_text())
X, UNORDERED, ORDERED = draw()
OPEN = mc.Policy(min_patients=0, max_parameters_per_patient=0)
CLASSES = ["none", "mild", "moderate", "severe"]


def fitted(model, outcome, *, n_sites=3, secure=False, by=None, columns=X, names=COLUMNS, classes=CLASSES):
    """Fit to sites that differ in their patients: `by` decides who is where."""
    data = mc.data.TableData(columns, outcome, columns=names, classes=classes)
    site = np.arange(len(outcome)) % n_sites if by is None else by
    sites = {f"s{i}": data.take(np.flatnonzero(site == i)) for i in np.unique(site)}
    return model.fit(mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure))


def check_multinomial(model, rel):
    expected = FROZEN["multinomial"]
    assert model.model_.parameters == pytest.approx(np.array(expected["coefficients"]), rel=rel, abs=rel)
    assert model.standard_errors_.ravel() == pytest.approx(np.array(expected["errors"]), rel=rel)
    assert model.log_likelihood_ == pytest.approx(expected["log_likelihood"], rel=1e-9)
    assert model.null_log_likelihood_ == pytest.approx(expected["null"], rel=1e-9)
    assert model.aic_ == pytest.approx(expected["aic"], rel=1e-9)


def check_ordinal(model, rel):
    expected = FROZEN[model.link]
    assert model.model_.parameters == pytest.approx(np.array(expected["coefficients"]), rel=rel)
    assert model.standard_errors_ == pytest.approx(np.array(expected["errors"]), rel=rel)
    assert model.log_likelihood_ == pytest.approx(expected["log_likelihood"], rel=1e-9)
    assert model.aic_ == pytest.approx(expected["aic"], rel=1e-9)
    assert model.bic_ == pytest.approx(expected["bic"], rel=1e-9)


@pytest.mark.parametrize("n_sites", [1, 3, 10])
def test_multinomial_models_equal_nnet_for_any_split(n_sites):
    check_multinomial(fitted(FedMultinomialRegression(), UNORDERED, n_sites=n_sites), 1e-6)


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize("n_sites", [1, 3, 10])
def test_ordinal_models_equal_clm_for_any_split(link, n_sites):
    check_ordinal(fitted(FedOrdinalRegression(link=link), ORDERED, n_sites=n_sites), 1e-8)


def test_a_class_may_be_at_one_site_only():
    check_multinomial(fitted(FedMultinomialRegression(), UNORDERED, by=np.minimum(UNORDERED, 2)), 1e-6)
    check_ordinal(fitted(FedOrdinalRegression(), ORDERED, by=np.minimum(ORDERED, 2)), 1e-8)


def test_masked_sums_lose_less_than_a_millionth():
    check_multinomial(fitted(FedMultinomialRegression(), UNORDERED, secure=True), 1e-6)
    check_ordinal(fitted(FedOrdinalRegression(), ORDERED, secure=True), 1e-6)


def test_two_classes_are_a_logistic_regression():
    y = (ORDERED > 1).astype(int)
    expected = fitted(FedLogisticRegression(), y, classes=["no", "yes"])
    multinomial = fitted(FedMultinomialRegression(), y, classes=["no", "yes"])
    ordinal = fitted(FedOrdinalRegression(), y, classes=["no", "yes"])
    assert multinomial.coef_[0] == pytest.approx(expected.coef_, rel=1e-8)
    assert ordinal.coef_ == pytest.approx(expected.coef_, rel=1e-8)
    assert ordinal.thresholds_[0] == pytest.approx(-expected.intercept_, rel=1e-8)
    assert multinomial.standard_errors_[0] == pytest.approx(expected.standard_errors_, rel=1e-8)
    assert ordinal.equal_slopes_ is None
    for name, test in expected.tests_.items():
        assert multinomial.tests_[name].statistic == pytest.approx(test.statistic, rel=1e-7)
        assert ordinal.tests_[name].statistic == pytest.approx(test.statistic, rel=1e-7)


# Ratings of four cheeses by 52 tasters each: P. McCullagh, J. A. Nelder (1989), Generalized linear models, section 5.6.
RATINGS = np.array(
    [
        [0, 0, 1, 7, 8, 8, 19, 8, 1],
        [6, 9, 12, 11, 7, 6, 1, 0, 0],
        [1, 1, 6, 8, 23, 7, 5, 1, 0],
        [0, 0, 0, 1, 3, 7, 14, 16, 11],
    ]
)


def test_the_test_of_equal_slopes_is_pearsons_statistic_where_the_wider_model_is_saturated():
    """With one binary covariate per group but one, slopes for each threshold fit every share of every group."""
    group, rating = (each.ravel() for each in np.indices(RATINGS.shape))
    columns = np.repeat(np.eye(4)[group, :3], RATINGS.ravel(), axis=0)
    outcome = np.repeat(rating, RATINGS.ravel())
    names, classes = ["a", "b", "c"], [str(i) for i in range(9)]
    model = fitted(FedOrdinalRegression(), outcome, columns=columns, names=names, classes=classes)
    # The published coefficients, to the digits of the book.
    assert model.coef_.round(3).tolist() == [-1.613, -4.965, -3.323]
    expected = 52 * model.predict_proba(np.eye(4)[:, :3])
    assert model.equal_slopes_.statistic == pytest.approx(((RATINGS - expected) ** 2 / expected).sum(), rel=1e-6)
    assert model.equal_slopes_.degrees_of_freedom == 21


def numerical(function, point, step=1e-6):
    """Return the gradient of a function of a vector, by central differences."""
    shifts = step * np.eye(len(point))
    return np.array([(function(point + one) - function(point - one)) / (2 * step) for one in shifts])


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_derivatives_are_those_of_the_log_likelihood(link):
    rows, classes = (X - X.mean(axis=0)) / X.std(axis=0), ORDERED
    point = np.array([-1.0, 0.3, 1.5, 0.4, -0.2, 0.1])

    def log_likelihood(parameters):
        return maths.derive_ordinal(link, rows, classes, parameters).log_likelihood

    def gradient(parameters):
        return maths.derive_ordinal(link, rows, classes, parameters).gradient

    sums = maths.derive_ordinal(link, rows, classes, point)
    shares = maths.ordinal_probabilities(link, point[:3], rows @ point[3:])
    assert sums.log_likelihood == pytest.approx(np.log(shares[np.arange(len(rows)), classes]).sum(), rel=1e-12)
    assert sums.gradient == pytest.approx(numerical(log_likelihood, point), rel=1e-5, abs=1e-4)
    assert sums.information == pytest.approx(-numerical(gradient, point), rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_the_wider_model_has_the_derivatives_of_its_log_likelihood(link):
    """The expected information is the covariance of the gradient over the classes that a patient could have."""
    rows = ((X - X.mean(axis=0)) / X.std(axis=0))[:40]
    point, classes = np.array([-1.0, 0.3, 1.5, 0.4, -0.2, 0.1]), ORDERED[:40]

    def log_shares(parameters):
        table = parameters.reshape(3, 4)
        ends = table[:, 0] - rows @ table[:, 1:].T
        below = np.column_stack([np.zeros(40), maths.distribution(link, ends)[0], np.ones(40)])
        return np.log(np.diff(below, axis=1))

    wide = np.column_stack([point[:3], np.tile(point[3:], (3, 1))]).ravel()
    gradients = numerical(log_shares, wide)
    sums = maths.derive_unequal_slopes(link, rows, classes, point)
    assert sums.gradient == pytest.approx(gradients[:, np.arange(40), classes].sum(axis=1), rel=1e-6, abs=1e-6)
    expected = np.einsum("aik,bik,ik->ab", gradients, gradients, np.exp(log_shares(wide)))
    assert sums.information == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_the_score_statistics_are_those_of_the_derivatives_without_covariates():
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    for link, classes in ((None, UNORDERED), ("logit", ORDERED), ("probit", ORDERED)):
        likelihood = likelihood_of("ordinal" if link else "multinomial", link or "logit")
        counts = np.bincount(classes).astype(float)
        members = np.eye(4)[classes]
        moments = ClassMoments(counts, rows.T @ rows, members.T @ rows)
        if link is None:
            null = np.column_stack([np.log(counts[1:] / counts[0]), np.zeros((3, 3))]).ravel()
            sums = maths.derive_multinomial(np.column_stack([np.ones(len(rows)), rows]), classes, null)
            statistic = sums.gradient @ np.linalg.solve(sums.information, sums.gradient)
            slopes = np.arange(len(sums.gradient)) % 4 > 0
        else:
            null = np.concatenate([likelihood.null(counts), np.zeros(3)])
            gradient = maths.derive_ordinal(link, rows, classes, null).gradient[3:]
            density = np.concatenate([[0.0], maths.distribution(link, null[:3])[1], [0.0]])
            weight = (np.diff(density) ** 2 / (counts / counts.sum())).sum()
            statistic = gradient @ np.linalg.solve(rows.T @ rows, gradient) / weight
            slopes = np.arange(6) >= 3
        information = likelihood.null_information(moments)[np.ix_(slopes, slopes)]
        assert maths.score_statistic(likelihood.null_gradient(moments), information) == pytest.approx(
            statistic, rel=1e-9
        )
