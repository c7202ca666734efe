"""Models with effects of sites: derivatives, and results that are exact, refused or marked."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError, SeparationWarning
from multicentre.regression import FedGLM, FedGLMM, FedLinearMixedModel, FedLogisticRegression
from multicentre.regression.mixed.laplace import SiteData, expand, find_mode, gradient, log_likelihood
from multicentre.regression.mixed.maths import (
    Curved,
    Moments,
    Weighted,
    by_factor,
    derive_criterion,
    directions_of,
    lower,
    sensitivity,
    solve,
    weigh,
    weigh_with_derivatives,
)

OPEN = mc.Policy(min_patients=0)
STEP = 1e-5


def differences(function, at):
    """Return the central differences of a function, one row per parameter."""
    moves = STEP * np.eye(len(at))
    return np.array([(function(at + move) - function(at - move)) / (2 * STEP) for move in moves])


def sites_of(*, classes=True, n_sites=4, constant=None):
    sites = {}
    for number in range(n_sites):
        rng = np.random.default_rng(number)
        X = rng.normal(size=(60, 2))
        predictor = X[:, 0] + rng.normal()
        y = (rng.random(60) < 1 / (1 + np.exp(-predictor))).astype(int) if classes else predictor + rng.normal(size=60)
        if number == constant:
            y = np.zeros_like(y)
        kind = {} if classes else {"outcome": "number"}
        sites[f"s{number}"] = mc.data.TableData(X, y, columns=["age", "dose"], **kind)
    return sites


def federate(sites, *, secure=False):
    return mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure)


@pytest.fixture(scope="module")
def moments():
    rng = np.random.default_rng(0)
    rows = [np.column_stack([np.ones(30), rng.normal(size=(30, 2))]) for _ in range(5)]
    return [Moments.of(X, X @ [1, 2, 0] + X[:, :2] @ rng.normal(size=2) + rng.normal(size=30), [0, 1]) for X in rows]


def test_weighted_products_are_those_of_the_inverse_covariance():
    rng = np.random.default_rng(1)
    rows, y = np.column_stack([np.ones(12), rng.normal(size=12)]), rng.normal(size=12)
    covariance = np.array([[0.5, 0.2], [0.2, 0.4]])
    whole = np.eye(12) + rows @ covariance @ rows.T
    both = np.column_stack([rows, y])
    sums = weigh(Moments.of(rows, y, [0, 1]), covariance)
    assert sums.products == pytest.approx(both.T @ np.linalg.solve(whole, both), rel=1e-10)
    assert sums.log_determinant == pytest.approx(np.linalg.slogdet(whole)[1], rel=1e-12)


@pytest.mark.parametrize("restricted", [True, False], ids=["REML", "ML"])
def test_rounded_products_change_the_criterion_by_at_most_its_sensitivity(moments, restricted):
    each = [weigh(one, 0.5 * np.eye(2)) for one in moments]
    products, determinant = sum(one.products for one in each), sum(one.log_determinant for one in each)
    exact = solve(Weighted(products, determinant), 150.0, restricted=restricted)
    rng = np.random.default_rng(0)
    signs = [np.triu(rng.choice([-1.0, 1.0], size=products.shape)) for _ in range(200)]
    rounded = [Weighted(products + STEP * (sign + np.triu(sign, 1).T), determinant) for sign in signs]
    changes = [abs(solve(one, 150.0, restricted=restricted).criterion - exact.criterion) for one in rounded]
    limit = STEP * sensitivity(exact, restricted=restricted)
    assert 0.3 * limit < max(changes) <= 1.001 * limit


@pytest.mark.parametrize("restricted", [True, False], ids=["REML", "ML"])
def test_derivatives_of_the_criterion_are_its_differences(moments, restricted):
    at = np.array([1.2, 0.3, 0.8])
    directions = directions_of(lower(at))

    def derive(entries):
        factor = lower(entries)
        each = [weigh_with_derivatives(one, factor @ factor.T, directions) for one in moments]
        sums = Curved(*(sum(getattr(one, name) for one in each) for name in Curved.__dataclass_fields__))
        solution = solve(sums, 150.0, restricted=restricted)
        derivatives = derive_criterion(sums, solution, 150.0, restricted=restricted)
        return solution.criterion, *by_factor(np.linalg.solve(directions, factor), *derivatives)

    # The derivatives are by the entries of M, where the factor is C M.
    inner = np.linalg.solve(directions, lower(at))[np.tril_indices(2)]

    def moved(entries):
        return derive((directions @ lower(entries))[np.tril_indices(2)])

    _, slope, curvature = derive(at)
    assert slope == pytest.approx(differences(lambda m: moved(m)[0], inner), abs=1e-6)
    assert curvature == pytest.approx(differences(lambda m: moved(m)[1], inner), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_derivatives_of_the_laplace_likelihood_are_its_differences(family):
    rng = np.random.default_rng(2)
    rows = np.column_stack([np.ones(50), rng.normal(size=(50, 2))])
    mean = rows @ [0.3, 0.5, -0.4]
    y = (rng.random(50) < 1 / (1 + np.exp(-mean))) * 1.0 if family == "binomial" else rng.poisson(np.exp(mean)) * 1.0
    site = SiteData(family, rows, rows[:, :2], y, np.zeros(50))
    at = np.array([0.2, 0.4, -0.3, 0.9, 0.3, 0.6])

    def mode(entries):
        return find_mode(site, entries[:3], lower(entries[3:]), np.zeros(2))

    value, slope, information = expand(site, at)
    assert value == log_likelihood(mode(at))
    assert slope == pytest.approx(differences(lambda e: log_likelihood(mode(e)), at), abs=1e-7)
    numeric = differences(lambda e: gradient(site, mode(e), lower(e[3:])), at)
    assert information == pytest.approx(-numeric, rel=1e-5, abs=1e-6)


def test_a_site_of_one_class_is_counted_and_does_not_influence_the_coefficients():
    sites = sites_of(constant=3)
    with pytest.warns(SeparationWarning, match="1 of 4 sites"):
        model = FedLogisticRegression(site_effects="fixed").fit(federate(sites))
    without = FedLogisticRegression(site_effects="fixed").fit(federate({k: v for k, v in sites.items() if k != "s3"}))
    # Means over all patients scale the covariates of the rounds, hence the rounding.
    assert model.coef_ == pytest.approx(without.coef_, rel=1e-7)
    assert model.standard_errors_[1:] == pytest.approx(without.standard_errors_[1:], rel=1e-7)
    assert model.site_intercepts()["intercept"].isna().tolist() == [False, False, False, True]


def test_a_covariate_that_is_constant_within_sites_is_named():
    sites = {
        site: mc.data.TableData(
            np.column_stack([data.X, np.full(len(data), number)]), data.y, columns=["a", "b", "beds"]
        )
        for number, (site, data) in enumerate(sites_of().items())
    }
    with pytest.raises(DataError, match="beds"):
        FedLogisticRegression(site_effects="fixed").fit(federate(sites))


def test_intercepts_of_sites_need_fixed_effects_and_model_based_errors():
    federation = federate(sites_of())
    with pytest.raises(ConfigurationError, match='must be "fixed"'):
        FedLogisticRegression().fit(federation).site_intercepts()
    with pytest.raises(DataError, match="model-based"):
        FedLogisticRegression(site_effects="fixed", errors="HC1").fit(federation).site_intercepts()
    with pytest.raises(ConfigurationError, match="one maximum"):
        FedGLM("gaussian", link="log", site_effects="fixed").fit(federation)


def test_fixed_effects_with_an_offset_shift_the_predictor():
    """An offset that is constant within each site changes the intercepts only."""
    sites = {}
    for number, (site, data) in enumerate(sites_of(classes=False).items()):
        y = np.random.default_rng(number).poisson(np.exp(0.3 * data.X[:, 0]))
        X = np.column_stack([data.X, np.full(len(data), 0.5 * number)])
        sites[site] = mc.data.TableData(X, y, columns=["age", "dose", "shift"], outcome="number")
    plain = {
        site: mc.data.TableData(d.X[:, :2], d.y, columns=["age", "dose"], outcome="number") for site, d in sites.items()
    }
    model = FedGLM("poisson", offset="shift", site_effects="fixed").fit(federate(sites))
    without = FedGLM("poisson", site_effects="fixed").fit(federate(plain))
    assert model.coef_ == pytest.approx(without.coef_, rel=1e-8)
    moved = without.site_intercepts()["intercept"] - model.site_intercepts()["intercept"]
    assert moved.to_numpy() == pytest.approx([0.0, 0.5, 1.0, 1.5], abs=1e-8)


def test_slopes_must_be_covariates():
    with pytest.raises(ConfigurationError, match="slopes must be covariates; got height"):
        FedLinearMixedModel(["height"]).fit(federate(sites_of(classes=False)))


def test_rounds_that_end_early_have_no_errors():
    with pytest.warns(ConvergenceWarning):
        model = FedGLMM(max_iter=1).fit(federate(sites_of()))
    assert np.isnan(model.standard_errors_).all()
    assert model.tests_ == {}


def test_a_mixed_model_predicts_for_a_site_with_effects_of_zero(tmp_path):
    sites = sites_of()
    model = FedGLMM(slopes=["age"]).fit(federate(sites))
    data = sites["s0"]
    expected = 1 / (1 + np.exp(-(model.intercept_ + data.X @ model.coef_)))
    assert model.predict(data) == pytest.approx(expected)
    model.save(tmp_path)
    again = FedGLMM.load(tmp_path)
    assert np.array_equal(again.predict(data), model.predict(data))
    assert again.variances().equals(model.variances())


@pytest.mark.parametrize("model", [FedLinearMixedModel(), FedGLMM()], ids=["linear", "generalised"])
def test_one_site_shows_no_variance_between_sites(model):
    sites = sites_of(classes=isinstance(model, FedGLMM), n_sites=1)
    with pytest.raises(DataError, match="at least two sites"):
        model.fit(federate(sites))


def test_classes_that_do_not_differ_between_sites_are_a_singular_fit():
    data = sites_of()["s0"]
    federation = federate({f"s{number}": data for number in range(4)})
    model, pooled = FedGLMM().fit(federation), FedLogisticRegression().fit(federation)
    assert model.singular_
    assert model.random_covariance_.tolist() == [[0.0]]
    assert model.coef_ == pytest.approx(pooled.coef_, rel=1e-6)
    assert model.standard_errors_ == pytest.approx(pooled.standard_errors_, rel=1e-6)
    assert model.log_likelihood_ == pytest.approx(pooled.log_likelihood_, rel=1e-9)
    assert "Singular fit" in str(model)
