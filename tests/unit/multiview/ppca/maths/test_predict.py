import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import ConfigurationError
from multicentre.multiview.ppca.maths.model import LatentLaw, Layout, Parameters, absorb_law
from multicentre.multiview.ppca.maths.predict import (
    Spread,
    absolute_errors,
    cross_view_errors,
    impute,
    posterior_latent,
    reconstruct,
    row_log_likelihood,
    sample,
)
from support.examples import examples
from support.ppca_predict_simulation import LAYOUT, fit_entries, simulate


def draw_problem(seed, n=30, d=7, q=2, share=0.4):
    rng = np.random.default_rng(seed)
    parameters = Parameters(rng.standard_normal((d, q)), rng.standard_normal(d), rng.uniform(0.1, 2, d))
    root = rng.standard_normal((q, q))
    law = LatentLaw(rng.standard_normal(q), root @ root.T + 0.2 * np.eye(q))
    X = 3 * rng.standard_normal((n, d))
    return np.where(rng.random((n, d)) < share, np.nan, X), parameters, law


@examples(25)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 0.5]))
def test_a_row_is_read_the_same_alone_as_among_others(seed, share):
    X, parameters, law = draw_problem(seed, share=share)
    X = np.vstack([X, np.tile(X[:2], (40, 1))])
    together = posterior_latent(X, parameters, law)
    marginal = absorb_law(parameters, law)
    likelihood = row_log_likelihood(X, marginal)
    for n in (0, 1, 5, 29, 109):
        alone = posterior_latent(X[n : n + 1], parameters, law)
        np.testing.assert_allclose(together.mean[n], alone.mean[0], atol=1e-9)
        covariance = together.covariances[together.pattern_of[n]]
        np.testing.assert_allclose(covariance, alone.covariances[0], atol=1e-9)
        assert likelihood[n] == pytest.approx(row_log_likelihood(X[n : n + 1], marginal)[0], abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_feature_order_rotation_and_gauge_change_nothing_that_is_seen(seed):
    X, parameters, law = draw_problem(seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(7)
    turn = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    moved = Parameters(parameters.loadings[order] @ turn, parameters.mean[order], parameters.noise[order])
    turned_law = LatentLaw(turn.T @ law.mean, turn.T @ law.covariance @ turn)
    expected = row_log_likelihood(X, absorb_law(parameters, law))
    np.testing.assert_allclose(row_log_likelihood(X[:, order], absorb_law(moved, turned_law)), expected, atol=1e-9)
    rebuilt = reconstruct(X[:, order], absorb_law(moved, turned_law))
    np.testing.assert_allclose(rebuilt, reconstruct(X, absorb_law(parameters, law))[:, order], atol=1e-9)


def test_a_row_without_entries_gets_the_law_itself():
    _, parameters, law = draw_problem(0)
    nothing = np.full((1, 7), np.nan)
    posterior = posterior_latent(nothing, parameters, law)
    np.testing.assert_allclose(posterior.mean[0], law.mean, atol=1e-12)
    np.testing.assert_allclose(posterior.covariances[0], law.covariance, atol=1e-12)
    assert row_log_likelihood(nothing, parameters)[0] == 0


def test_drawn_rows_have_the_laws_moments():
    _, parameters, law = draw_problem(2, d=4)
    rows = sample(absorb_law(parameters, law), 200_000, np.random.default_rng(0))
    W = parameters.loadings
    covariance = W @ law.covariance @ W.T + np.diag(parameters.noise)
    np.testing.assert_allclose(rows.mean(axis=0), parameters.mean + W @ law.mean, atol=0.03)
    np.testing.assert_allclose(np.cov(rows.T), covariance, atol=0.03 * covariance.max())


def test_drawn_latent_positions_have_the_posteriors_moments():
    X, parameters, law = draw_problem(3, n=2)
    posterior = posterior_latent(np.repeat(X, 50_000, axis=0), parameters, law)
    drawn = posterior.sample(np.random.default_rng(1))
    np.testing.assert_allclose(drawn[:50_000].mean(axis=0), posterior.mean[0], atol=0.03)
    np.testing.assert_allclose(np.cov(drawn[50_000:].T), posterior.covariances[posterior.pattern_of[-1]], atol=0.05)


def test_a_new_centres_parameters_widen_the_prediction():
    X, parameters, _ = draw_problem(4)
    wanted = np.arange(7) < 3
    spread = Spread(mean=np.full(7, 0.2), loadings=np.full(7, 0.05))
    known, new = impute(X, parameters, wanted), impute(X, parameters, wanted, spread)
    rng = np.random.default_rng(0)
    latent = posterior_latent(np.repeat(X[:1], 200_000, axis=0), parameters).sample(rng)
    loading_shift = rng.standard_normal(latent.shape) * np.sqrt(0.05)
    extra = 0.2 + ((loading_shift * latent).sum(axis=1)).var()
    np.testing.assert_array_equal(known.mean, new.mean)
    np.testing.assert_allclose(new.variance[0] - known.variance[0], extra, rtol=0.03)
    np.testing.assert_allclose(np.diag(new.covariance(0)), new.variance[0])


def test_an_interval_needs_a_probability():
    X, parameters, _ = draw_problem(5)
    with pytest.raises(ConfigurationError, match="between 0 and 1"):
        impute(X, parameters, np.ones(7, dtype=bool)).interval(90)


def test_errors_add_over_sites_and_skip_missing_entries():
    layout = Layout(("mri", "pet"), (2, 1))
    X = np.array([[1.0, np.nan, 4.0], [3.0, 5.0, np.nan]])
    guess = np.zeros((2, 3))
    whole = absolute_errors(X, guess, layout)
    np.testing.assert_array_equal(whole.mean, [3.0, 4.0])
    parts = absolute_errors(X[:1], guess[:1], layout) + absolute_errors(X[1:], guess[1:], layout)
    np.testing.assert_array_equal(parts.absolute, whole.absolute)
    np.testing.assert_array_equal(parts.counts, whole.counts)


@pytest.fixture(scope="module")
def fitted():
    """Fit of 300 of 400 rows, and the 100 others."""
    data = simulate(0, shift="paper")
    parameters, _ = fit_entries(data.rows[:300], LAYOUT, 5, iterations=30)
    return parameters, data.rows[300:]


def test_views_are_predicted_from_the_others(fitted):
    parameters, rows = fitted
    errors = cross_view_errors(rows, parameters, LAYOUT)
    by_mean = absolute_errors(rows, np.broadcast_to(parameters.mean, rows.shape), LAYOUT)
    assert (errors.mean < 0.12 * by_mean.mean).all()
    assert errors.absolute.sum() < 0.07 * by_mean.absolute.sum()
    np.testing.assert_array_equal(errors.counts, by_mean.counts)
    doubled = cross_view_errors(rows, parameters, LAYOUT, unit=np.full(33, 2.0))
    np.testing.assert_allclose(doubled.absolute, 2 * errors.absolute)


def test_rows_with_one_view_only_are_no_evidence_across_views(fitted):
    parameters, rows = fitted
    lonely = np.where(LAYOUT.features_of(["first"]), rows, np.nan)
    errors = cross_view_errors(lonely, parameters, LAYOUT)
    assert (errors.counts == 0).all()
    assert np.isnan(errors.mean).all()


def test_ninety_percent_intervals_cover_about_ninety_percent_of_held_out_entries(fitted):
    parameters, rows = fitted
    hits = total = 0
    for view in LAYOUT.names:
        wanted = LAYOUT.features_of([view])
        low, high = impute(np.where(wanted, np.nan, rows), parameters, wanted).interval(0.9)
        truth = rows[:, wanted]
        hits += int(((truth >= low) & (truth <= high)).sum())
        total += truth.size
    assert total == rows.size
    assert 0.86 <= hits / total <= 0.93
