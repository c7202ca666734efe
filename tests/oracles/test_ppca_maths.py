"""The fit against closed forms, other libraries and the pooled optimum."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA

from multicentre.multiview.ppca.maths.invariant import site_log_likelihood
from multicentre.multiview.ppca.maths.model import LatentLaw, Layout, Parameters
from multicentre.multiview.ppca.maths.moments import reduce_rows
from multicentre_papers.published.ppca.em import fit_local, random_start
from support import ppca_oracles as oracles
from support.ppca_simulation import (
    LAYOUT,
    covariance_of,
    fit_invariant,
    hold_out,
    largest_angle,
    random_parameters,
    reduce_sites,
    relative_error,
    simulate,
    split_sites,
    start_shared,
)


@pytest.fixture(scope="module")
def both():
    return hold_out(simulate(1, n=1200, n_shifted=750), 400)


@pytest.fixture(scope="module")
def data(both):
    return both[0]


@pytest.fixture(scope="module")
def pooled(data):
    return oracles.profile_optimum(data.rows, LAYOUT, 5)


def start(seed, q=5, layout=LAYOUT):
    return random_start(layout, q, np.ones(layout.n_views), np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(3))
def test_one_view_reaches_the_closed_form(seed):
    layout, rng = Layout(("all",), (12,)), np.random.default_rng(seed)
    rows = rng.normal(size=(400, 3)) @ rng.normal(size=(3, 12)) + rng.normal(size=(400, 12)) + 5.0
    truth = oracles.tipping_bishop(rows, 3)
    best = multivariate_normal(truth.mean, covariance_of(truth)).logpdf(rows).sum()
    moments = reduce_rows(rows, layout)
    fit = fit_local(moments, layout, start(seed, 3, layout), n_iterations=30)
    assert abs(best - fit.objective[-1]) < 1e-6
    longer = fit_local(moments, layout, fit.parameters, n_iterations=60, tolerance=-1)
    assert largest_angle(longer.parameters.loadings, truth.loadings) < 1e-4
    assert longer.parameters.noise == pytest.approx(truth.noise, rel=1e-8)


def test_one_view_agrees_with_scikit_learn_up_to_its_denominator():
    layout, rng = Layout(("all",), (10,)), np.random.default_rng(4)
    rows = rng.normal(size=(150, 2)) @ rng.normal(size=(2, 10)) + rng.normal(size=(150, 10))
    fit = fit_local(reduce_rows(rows, layout), layout, start(0, 2, layout), n_iterations=200, tolerance=-1)
    assert covariance_of(fit.parameters) * 150 / 149 == pytest.approx(PCA(2).fit(rows).get_covariance(), abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_several_views_reach_the_profile_optimum_from_any_start(data, pooled, seed):
    fit = fit_local(reduce_rows(data.rows, LAYOUT), LAYOUT, start(seed), n_iterations=30)
    assert abs(pooled[1] - fit.objective[-1]) < 1e-6


def test_plain_em_is_still_far_when_the_expanded_one_is_there(data, pooled):
    plain = fit_local(reduce_rows(data.rows, LAYOUT), LAYOUT, start(0), n_iterations=60, accelerate=False)
    assert pooled[1] - plain.objective[-1] > 10


def test_noise_is_the_size_of_the_truth_without_a_hidden_prior():
    """A trace taken entry by entry, or a prior in absolute units, makes the noise several times too large."""
    data = simulate(3, scale="none")
    fit = fit_local(reduce_rows(data.rows, LAYOUT), LAYOUT, start(1), n_iterations=30)
    assert fit.parameters.noise / data.truth.noise == pytest.approx(np.ones(33), abs=0.12)
    small = fit_local(reduce_rows(data.rows * 1e-3, LAYOUT), LAYOUT, start(1), n_iterations=30)
    assert small.parameters.noise * 1e6 == pytest.approx(fit.parameters.noise, rel=1e-5)


@pytest.mark.parametrize("with_law", [False, True])
def test_log_likelihood_is_that_of_a_normal_law(with_law):
    rng = np.random.default_rng(0)
    parameters = random_parameters(rng, LAYOUT, 4)
    rows = rng.normal(size=(50, 33)) * 2 + 1
    rows[:20, LAYOUT.columns("second")] = np.nan
    root = rng.normal(size=(4, 4))
    law = LatentLaw(rng.normal(size=4), root @ root.T + 0.1 * np.eye(4)) if with_law else LatentLaw.standard(4)
    mean = parameters.mean + parameters.loadings @ law.mean
    covariance = parameters.loadings @ law.covariance @ parameters.loadings.T + np.diag(parameters.noise)
    expected = 0.0
    for row in rows:
        seen = ~np.isnan(row)
        expected += multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)]).logpdf(row[seen])
    assert site_log_likelihood(reduce_rows(rows, LAYOUT), parameters, law) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("scenario", "n_sites"), [("IID", 3), ("IID", 6), ("G", 3), ("G", 6)])
def test_shared_fit_equals_the_pooled_one_when_all_views_are_seen(both, pooled, scenario, n_sites):
    data, fresh = both
    sites = reduce_sites(split_sites(data, n_sites, scenario, np.random.default_rng(2)))
    shared, _, trace = fit_invariant(sites, LAYOUT, start_shared(sites, LAYOUT, 5), n_rounds=12)
    best, _ = pooled
    rows = reduce_rows(fresh.rows, LAYOUT)
    gap = (site_log_likelihood(rows, best) - site_log_likelihood(rows, shared)) / len(fresh.rows)
    assert abs(gap) < 0.01
    assert relative_error(covariance_of(shared), covariance_of(best)) < 0.005
    assert largest_angle(shared.loadings, best.loadings) < 0.1
    assert np.argmax(trace > trace[-1] - 0.1) <= 6


@pytest.mark.parametrize(("scenario", "n_sites"), [("K", 3), ("K", 6), ("G/K", 3), ("G/K", 6)])
def test_shared_fit_is_near_the_pooled_one_with_views_missing(both, pooled, scenario, n_sites):
    data, fresh = both
    sites = reduce_sites(split_sites(data, n_sites, scenario, np.random.default_rng(2)))
    shared, _, trace = fit_invariant(sites, LAYOUT, start_shared(sites, LAYOUT, 5), n_rounds=30)
    best, _ = pooled
    assert np.diff(trace).min() > -1e-7
    assert np.argmax(trace > trace[-1] - 0.1) <= 15
    assert relative_error(covariance_of(shared), covariance_of(best)) < 0.01
    assert largest_angle(shared.loadings, best.loadings) < 2
    rows = reduce_rows(fresh.rows, LAYOUT)
    assert (site_log_likelihood(rows, best) - site_log_likelihood(rows, shared)) / len(fresh.rows) < 0.3


def test_one_site_equals_the_pooled_optimum(data, pooled):
    sites = reduce_sites([data.rows])
    _, _, trace = fit_invariant(sites, LAYOUT, start_shared(sites, LAYOUT, 5), n_rounds=25)
    assert abs(trace[-1] - pooled[1]) < 1e-6


@pytest.mark.parametrize("n_sites", [2, 5])
def test_rows_split_over_sites_with_one_law_give_the_pooled_fit(data, n_sites):
    sites = reduce_sites(np.array_split(data.rows, n_sites))
    whole = reduce_sites([data.rows])
    begin = start_shared(whole, LAYOUT, 5)
    one, _, trace = fit_invariant(sites, LAYOUT, begin, n_rounds=10, fixed_law=True)
    other, _, reference = fit_invariant(whole, LAYOUT, begin, n_rounds=10, fixed_law=True)
    assert np.abs(covariance_of(one) - covariance_of(other)).max() < 1e-9
    assert trace == pytest.approx(reference, abs=1e-6)


def test_diagonal_noise_reaches_the_likelihood_of_factor_analysis():
    from sklearn.decomposition import FactorAnalysis

    rng, layout = np.random.default_rng(7), Layout(("a", "b"), (6, 7))
    rows = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 13)) + rng.normal(size=(300, 13)) * rng.uniform(0.5, 2, 13)
    reference = FactorAnalysis(2, tol=1e-10, max_iter=5000, svd_method="lapack").fit(rows).score(rows) * 300
    fit = fit_local(reduce_rows(rows, layout), layout, start(0, 2, layout), n_iterations=400, noise="diagonal")
    assert fit.objective[-1] == pytest.approx(reference, abs=1e-3)
    sites = reduce_sites([rows], layout)
    _, _, trace = fit_invariant(sites, layout, start_shared(sites, layout, 2), n_rounds=300, noise="diagonal")
    assert trace[-1] == pytest.approx(reference, abs=1e-3)


@pytest.mark.slow
def test_wide_data_are_reduced_exactly(monkeypatch):
    rng, layout = np.random.default_rng(3), Layout(("genes", "lipids"), (400, 90))
    rows = rng.normal(size=(25, 3)) @ rng.normal(size=(3, 490)) + 0.5 * rng.normal(size=(25, 490)) + 2
    begin = Parameters(rng.normal(size=(490, 3)), rng.normal(size=490), np.ones(490))
    reduced = fit_local(reduce_rows(rows, layout), layout, begin, n_iterations=20, tolerance=-1)
    monkeypatch.setattr("multicentre_papers.published.ppca.problem._worth_reducing", lambda *_: False)
    full = fit_local(reduce_rows(rows, layout), layout, begin, n_iterations=20, tolerance=-1)
    assert reduced.objective == pytest.approx(full.objective, rel=1e-12)
    assert covariance_of(reduced.parameters) == pytest.approx(covariance_of(full.parameters), abs=1e-9)
    assert reduced.parameters.mean == pytest.approx(full.parameters.mean, abs=1e-10)
