import numpy as np
import pytest

from multicentre.errors import ConfigurationError, DataError
from multicentre.multiview.ppca.maths.model import Layout, Parameters
from multicentre.multiview.ppca.maths.predict import row_log_likelihood, sample
from multicentre.multiview.ppca.maths.selection import (
    GibbsSampler,
    WAICParts,
    compute_bic,
    count_parameters,
    waic_parts,
)
from support.ppca_predict_simulation import LAYOUT, fit_entries, hide, simulate


class WithoutMove(GibbsSampler):
    """Plain data augmentation: right, only slow."""

    def _move_latent(self, x):
        return x


@pytest.fixture(scope="module")
def small():
    layout = Layout(("mri", "pet"), (3, 2))
    rng = np.random.default_rng(0)
    truth = Parameters(np.array([[1.0], [0.8], [-0.7], [0.9], [0.5]]), np.arange(5.0), np.array([1, 1, 1, 0.5, 0.5]))
    return layout, truth, sample(truth, 50, rng)


def summarise(kind, rows, layout, start, n_draws, seed):
    """Posterior means of what rotations leave alone."""
    sampler = kind(rows, layout, start, np.random.default_rng(seed))
    draws = []
    for _ in range(n_draws):
        sampler.sweep()
        now = sampler.draw
        signal = now.loadings @ now.loadings.T
        draws.append(
            [*now.mean, *signal[np.triu_indices(5)], *now.noise[layout.starts], sampler.row_log_likelihood.sum()]
        )
    return np.array(draws)[n_draws // 10 :]


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True])
def test_the_moves_of_the_latent_space_leave_the_posterior_alone(small, missing):
    layout, truth, rows = small
    if missing:
        rows = hide(rows, 0.2, np.random.default_rng(1))
        rows[:15, 3:] = np.nan
    fast = summarise(GibbsSampler, rows, layout, truth, 1500, 1)
    slow = summarise(WithoutMove, rows, layout, truth, 3000, 2)
    spread = slow.std(axis=0)
    np.testing.assert_array_less(np.abs(fast.mean(axis=0) - slow.mean(axis=0)), 0.25 * spread)
    np.testing.assert_allclose(fast.std(axis=0), spread, rtol=0.25)


def test_the_sampler_reports_the_likelihood_of_its_own_draw(small):
    layout, truth, rows = small
    sampler = GibbsSampler(rows, layout, truth, np.random.default_rng(3))
    for _ in range(3):
        sampler.sweep()
        np.testing.assert_allclose(sampler.row_log_likelihood, row_log_likelihood(rows, sampler.draw), atol=1e-9)


def test_waic_is_gelmans_formula_over_the_same_draws(small):
    layout, truth, rows = small
    sampler = GibbsSampler(rows, layout, truth, np.random.default_rng(4))
    kept = []
    for sweep in range(60):
        sampler.sweep()
        if sweep >= 10:
            kept.append(sampler.row_log_likelihood)
    kept = np.array(kept)
    parts = waic_parts(rows, layout, truth, np.random.default_rng(4), n_draws=50, n_burn=10)
    assert parts.lppd == pytest.approx(np.log(np.exp(kept).mean(axis=0)).sum(), abs=1e-9)
    assert parts.p_waic == pytest.approx(kept.var(axis=0, ddof=1).sum(), abs=1e-9)
    assert parts.waic == pytest.approx(-2 * (parts.lppd - parts.p_waic))


def test_the_penalty_is_about_the_number_of_parameters(small):
    layout, truth, _ = small
    rows = sample(truth, 1000, np.random.default_rng(5))
    parts = waic_parts(rows, layout, truth, np.random.default_rng(6))
    assert parts.p_waic == pytest.approx(count_parameters(layout, 1), rel=0.15)


def waic_of_three_sites(rows, n_components):
    total = WAICParts(0.0, 0.0, 0)
    for c in range(3):
        own = rows[c::3]
        start, _ = fit_entries(own, LAYOUT, n_components, iterations=25)
        total = total + waic_parts(own, LAYOUT, start, np.random.default_rng(c), n_draws=100, n_burn=40)
    return total.waic


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_waic_and_bic_find_the_five_dimensions_of_the_simulated_data(seed):
    rows = simulate(seed).rows
    by_waic = {q: waic_of_three_sites(rows, q) for q in (4, 5, 6)}
    assert min(by_waic, key=by_waic.get) == 5
    by_bic = {}
    for q in (4, 5, 6, 7):
        _, path = fit_entries(rows, LAYOUT, q, iterations=40)
        by_bic[q] = compute_bic(path[-1], count_parameters(LAYOUT, q), len(rows))
    assert min(by_bic, key=by_bic.get) == 5


@pytest.mark.slow
def test_missing_views_and_entries_do_not_mislead_waic():
    rows = hide(simulate(2).rows, 0.1, np.random.default_rng(0))
    rows[::4, LAYOUT.columns("second")] = np.nan
    rows[0] = np.nan
    found = {}
    for q in (4, 5, 6):
        start, _ = fit_entries(rows, LAYOUT, q, iterations=25)
        parts = waic_parts(rows, LAYOUT, start, np.random.default_rng(1), n_draws=60, n_burn=30)
        assert parts.n_rows == 399
        found[q] = parts.waic
    assert min(found, key=found.get) == 5


def test_too_few_rows_for_flat_priors_are_refused(small):
    layout, truth, rows = small
    with pytest.raises(DataError, match="at least 8 for the WAIC"):
        waic_parts(rows[:7], layout, truth, np.random.default_rng(0))
    sparse = rows.copy()
    sparse[2:, 0] = np.nan
    with pytest.raises(DataError, match="with each column"):
        waic_parts(sparse, layout, truth, np.random.default_rng(0))
    with pytest.raises(ConfigurationError, match="two draws"):
        waic_parts(rows, layout, truth, np.random.default_rng(0), n_draws=1)


def test_parameters_are_counted_as_the_dimension_of_the_family():
    layout = Layout(("mri", "pet"), (4, 2))
    rng = np.random.default_rng(0)
    W, of = rng.standard_normal((6, 2)), layout.view_of

    def family(theta):
        loadings, mean, noise = theta[:12].reshape(6, 2), theta[12:18], np.exp(theta[18:20])[of]
        return np.concatenate([mean, (loadings @ loadings.T + np.diag(noise)).ravel()])

    at = np.concatenate([W.ravel(), rng.standard_normal(8)])
    jacobian = np.array([(family(at + 1e-6 * e) - family(at - 1e-6 * e)) / 2e-6 for e in np.eye(20)])
    assert count_parameters(layout, 2) == np.linalg.matrix_rank(jacobian, tol=1e-5)
    assert count_parameters(layout, 2, n_noise=6) == count_parameters(layout, 2) + 4


def test_the_bayesian_criterion_is_its_formula():
    assert compute_bic(-10.0, 4, 100) == pytest.approx(20 + 4 * np.log(100))


def test_one_noise_variance_a_feature_predicts_unequal_noise_better():
    rng = np.random.default_rng(4)
    layout, W = Layout(("mri",), (5,)), rng.standard_normal((5, 1))
    noise = np.array([0.05, 0.05, 0.5, 2.0, 2.0])
    rows = rng.standard_normal((300, 1)) @ W.T + rng.standard_normal((300, 5)) * np.sqrt(noise)
    begin = Parameters(W, np.zeros(5), noise)
    waic = {
        kind: waic_parts(rows, layout, begin, np.random.default_rng(0), noise=kind, n_draws=200).waic
        for kind in ("isotropic", "diagonal")
    }
    assert waic["diagonal"] < waic["isotropic"] - 100
    truth = -2 * row_log_likelihood(rows, begin).sum()
    assert waic["diagonal"] == pytest.approx(truth, abs=60)
