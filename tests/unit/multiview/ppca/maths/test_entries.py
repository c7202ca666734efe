import numpy as np
import pytest

from multicentre.multiview.ppca.maths.invariant import answer_round
from multicentre.multiview.ppca.maths.model import LatentLaw, Parameters, absorb_law
from multicentre.multiview.ppca.maths.moments import reduce_rows
from multicentre.multiview.ppca.maths.predict import reconstruct, row_log_likelihood
from multicentre.multiview.ppca.maths.prior import Prior
from multicentre.multiview.ppca.maths.rows import sum_entries, update_law
from multicentre_papers.published.ppca.em import fit_local
from multicentre_papers.published.ppca.entries import fit_local_entries, maximise_entries, solve_features
from support.ppca_predict_simulation import LAYOUT, add_up, fit_entries, fit_shared, hide, random_start, simulate
from support.ppca_simulation import largest_angle, maximise_shared

FIELDS = ("cross", "squares", "latent_first", "latent_second", "n_rows", "log_likelihood")


@pytest.fixture(scope="module")
def data():
    return simulate(3)


@pytest.fixture
def start(data):
    return random_start(data.rows, LAYOUT, 5, np.random.default_rng(1))


@pytest.fixture
def law():
    root = np.random.default_rng(2).standard_normal((5, 5))
    return LatentLaw(np.arange(5) / 5, root @ root.T / 5 + 0.3 * np.eye(5))


def law_of(sums):
    return update_law(sums.latent_first, sums.latent_second, sums.n_rows)


def relative_gap(one, other):
    return np.max(np.abs(np.asarray(one) - np.asarray(other))) / np.max(np.abs(other))


@pytest.mark.parametrize("missing_view", [False, True])
def test_without_missing_entries_the_sums_are_those_of_the_moments(data, start, law, missing_view):
    rows = data.rows.copy()
    if missing_view:
        rows[:150, LAYOUT.columns("second")] = np.nan
        rows[100:300, LAYOUT.columns("third")] = np.nan
    by_rows = sum_entries(rows, start, law)
    by_moments, _ = answer_round(reduce_rows(rows, LAYOUT), LAYOUT, start, law, n_repetitions=0)
    for field in FIELDS:
        assert relative_gap(getattr(by_rows, field), getattr(by_moments, field)) < 1e-9, field
    assert relative_gap(by_rows.second, by_moments.second[LAYOUT.view_of]) < 1e-9


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_sums_add_over_chunks_and_over_sites(data, start, law, share):
    rows = hide(data.rows, share, np.random.default_rng(0))
    whole = sum_entries(rows, start, law)
    chunked = sum_entries(rows, start, law, chunk_rows=37)
    split = add_up([sum_entries(part, start, law) for part in (rows[:11], rows[11:250], rows[250:])])
    for field in (*FIELDS, "second"):
        assert relative_gap(getattr(chunked, field), getattr(whole, field)) < 1e-11, field
        assert relative_gap(getattr(split, field), getattr(whole, field)) < 1e-11, field


def test_likelihood_of_the_sums_is_that_of_the_rows(data, start, law):
    rows = hide(data.rows, 0.2, np.random.default_rng(0))
    expected = row_log_likelihood(rows, absorb_law(start, law)).sum()
    assert sum_entries(rows, start, law).log_likelihood == pytest.approx(expected)


def test_likelihood_never_falls_and_the_fit_forgets_its_start(data):
    rows = hide(data.rows, 0.3, np.random.default_rng(4))
    fits = [fit_entries(rows, LAYOUT, 5, iterations=50, seed=seed) for seed in range(2)]
    for _, path in fits:
        assert min(np.diff(path)) > -1e-7
    assert fits[0][1][-1] == pytest.approx(fits[1][1][-1], abs=1e-4)


def test_nearly_all_of_the_hidden_spread_comes_back():
    data = simulate(1, shift="paper")
    rows = hide(data.rows, 0.3, np.random.default_rng(7))
    parameters, _ = fit_entries(rows, LAYOUT, 5, iterations=30)
    hidden = np.isnan(rows)
    scaled = np.abs(reconstruct(rows, parameters) - data.rows) / data.rows.std(axis=0)
    assert scaled[hidden].mean() < 0.08
    by_mean = np.abs(np.nanmean(rows, axis=0) - data.rows) / data.rows.std(axis=0)
    assert scaled[hidden].mean() < 0.15 * by_mean[hidden].mean()


@pytest.mark.slow
def test_sites_with_different_case_mix_and_missing_entries_find_the_pooled_subspace(data):
    rows = hide(data.rows, 0.2, np.random.default_rng(5))
    order = np.argsort(data.group, kind="stable")
    sites = [rows[order[:120]], rows[order[120:200]], rows[order[200:]]]
    shared, laws = fit_shared(sites, LAYOUT, 5, rounds=30)
    pooled, _ = fit_entries(rows, LAYOUT, 5)
    assert largest_angle(shared.loadings, pooled.loadings) < 0.2
    assert np.linalg.norm(laws[0].mean - laws[2].mean) > 1


def make_prior(data, loadings_variance=0.01, mean_variance=0.05):
    truth, k = data.parameters, LAYOUT.n_views
    noise = truth.noise[LAYOUT.starts]
    return Prior(
        truth.loadings,
        truth.mean,
        np.full(k, loadings_variance),
        np.full(k, mean_variance),
        np.array([3.0, 0.5, 8.0]),
        4 * noise,
        noise,
    )


def log_prior(parameters, prior, groups):
    """Up to a constant; `groups` are the first features of every noise variance."""
    of = LAYOUT.view_of
    noise, view = parameters.noise[groups], of[groups]
    normal = np.square(parameters.loadings - prior.loadings).sum(axis=1) / prior.loadings_variance[of]
    normal = normal + np.square(parameters.mean - prior.mean) / prior.mean_variance[of]
    gamma = (prior.noise_shape[view] + 1) * np.log(noise) + prior.noise_scale[view] / noise
    return -normal.sum() / 2 - gamma.sum()


@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
def test_the_posterior_density_never_falls(data, start, noise):
    rows = hide(data.rows[:60], 0.3, np.random.default_rng(8))
    prior = make_prior(data)
    groups = LAYOUT.starts if noise == "isotropic" else np.arange(33)
    parameters, law, path = start, LatentLaw.standard(5), []
    for _ in range(60):
        sums = sum_entries(rows, parameters, law)
        path.append(sums.log_likelihood + log_prior(parameters, prior, groups))
        parameters, law = maximise_entries(sums, parameters, prior, LAYOUT, noise=noise), law_of(sums)
    assert min(np.diff(path)) > -1e-7
    assert path[-1] - path[0] > 100
    assert len(np.unique(parameters.noise)) == len(groups)


def test_a_flat_prior_is_the_shared_update_without_its_gauge(data, start):
    rows = hide(data.rows, 0.3, np.random.default_rng(9))
    sums = sum_entries(rows, start)
    local = maximise_entries(sums, start, Prior.flat(start, LAYOUT), LAYOUT)
    shared, _ = maximise_shared(sums, start, LAYOUT)
    np.testing.assert_allclose(local.noise, shared.noise, rtol=1e-9)
    assert largest_angle(local.loadings, shared.loadings) < 1e-6


def test_a_strict_prior_keeps_the_shared_parameters(data, start):
    prior = make_prior(data, loadings_variance=1e-12, mean_variance=1e-12)
    fitted = maximise_entries(sum_entries(data.rows, start), start, prior, LAYOUT)
    np.testing.assert_allclose(fitted.loadings, prior.loadings, atol=1e-5)
    np.testing.assert_allclose(fitted.mean, prior.mean, atol=1e-5)


def test_features_that_nobody_measured_keep_their_values(data, start):
    rows = data.rows.copy()
    own = LAYOUT.columns("second")
    rows[:, own] = np.nan
    rows[:, 0] = np.nan
    fitted = maximise_entries(sum_entries(rows, start), start, Prior.flat(start, LAYOUT), LAYOUT)
    for field in ("loadings", "mean", "noise"):
        np.testing.assert_array_equal(getattr(fitted, field)[own], getattr(start, field)[own])
    np.testing.assert_array_equal(fitted.loadings[0], start.loadings[0])
    assert np.isfinite(fitted.loadings).all()


def test_features_are_solved_one_by_one():
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((4, 3, 3))
    precision = roots @ roots.transpose(0, 2, 1) + np.eye(3)
    right = rng.standard_normal((4, 3))
    solved = solve_features(right, precision)
    np.testing.assert_allclose(np.einsum("da,dab->db", solved, precision), right, atol=1e-12)


def test_the_law_update_is_mean_and_covariance_of_the_latents():
    parameters = Parameters(np.eye(3)[:, :2], np.zeros(3), np.full(3, 1e-10))
    latent = np.random.default_rng(0).standard_normal((50, 2))
    law = law_of(sum_entries(np.column_stack([latent, np.zeros(50)]), parameters))
    np.testing.assert_allclose(law.mean, latent.mean(axis=0), atol=1e-8)
    np.testing.assert_allclose(law.covariance, np.cov(latent.T, ddof=0), atol=1e-8)


@pytest.mark.parametrize("with_prior", [False, True])
def test_the_local_fit_from_moments_is_where_the_one_from_rows_stands_still(data, with_prior):
    rows = data.rows[:80].copy()
    rows[:20, LAYOUT.columns("second")] = np.nan
    prior = make_prior(data) if with_prior else None
    best = fit_local(reduce_rows(rows, LAYOUT), LAYOUT, data.parameters, prior, n_iterations=300, tolerance=1e-11)
    still = fit_local_entries(rows, LAYOUT, best.parameters, prior, n_iterations=5)
    far = fit_local_entries(rows, LAYOUT, data.parameters, prior, n_iterations=100)
    assert still.objective[-1] - still.objective[0] < 1e-6
    assert -1e-6 < still.objective[-1] - far.objective[-1] < (20 if with_prior else 1e-4)
    np.testing.assert_allclose(still.parameters.noise, best.parameters.noise, rtol=1e-5)
    np.testing.assert_allclose(still.parameters.loadings, best.parameters.loadings, atol=1e-4)
    assert still.views.all()
    # The fit from moments states the loadings' variance at a known mean, a little less than at an estimated one.
    ratio = still.spread.loadings / best.spread.loadings
    assert ((ratio > 1 - 1e-3) & (ratio < 1.1)).all()
    np.testing.assert_allclose(still.spread.loadings_information, best.spread.loadings_information, rtol=0.05)
    np.testing.assert_allclose(still.spread.weight[:, :5, :5], best.spread.weight[:, :5, :5], atol=0.05)


def test_the_local_fit_never_worsens_and_leaves_absent_views_alone(data, start):
    rows = hide(data.rows[:70], 0.2, np.random.default_rng(3))
    own = LAYOUT.columns("third")
    rows[:, own] = np.nan
    for prior in (None, make_prior(data)):
        for noise in ("isotropic", "diagonal"):
            fit = fit_local_entries(rows, LAYOUT, start, prior, n_iterations=30, noise=noise)
            assert min(np.diff(fit.objective)) > -1e-7
            assert fit.views.tolist() == [True, True, False]
            np.testing.assert_array_equal(fit.parameters.loadings[own], start.loadings[own])
            assert fit.spread.loadings[2] == fit.spread.mean_information[2] == 0
