import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.multiview.ppca.maths.gauge import (
    canonical_rotation,
    explained_by_model,
    feature_correlations,
    rotate_parameters,
    sum_variances,
    varimax_rotation,
)
from multicentre.multiview.ppca.maths.model import LatentLaw, Layout, Parameters, absorb_law, change_axes
from multicentre.multiview.ppca.maths.predict import posterior_latent, row_log_likelihood, sample
from support.examples import examples
from support.ppca_predict_simulation import LAYOUT, fit_entries, hide, simulate

TWO_VIEWS = Layout(("mri", "pet"), (5, 4))


def draw(seed, q=3):
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.1, 1, 2)[TWO_VIEWS.view_of]
    return Parameters(rng.standard_normal((9, q)), rng.standard_normal(9), noise)


def random_rotation(seed, q=3):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((q, q)))[0]


def cosines(one, other):
    return (one / np.linalg.norm(one, axis=0)).T @ (other / np.linalg.norm(other, axis=0))


@examples(30)
@given(st.integers(0, 10**6))
def test_canonical_axes_do_not_depend_on_the_rotation_they_were_found_in(seed):
    parameters = draw(seed)
    turned = rotate_parameters(parameters, random_rotation(seed + 1))
    one = rotate_parameters(parameters, canonical_rotation(parameters))
    other = rotate_parameters(turned, canonical_rotation(turned))
    np.testing.assert_allclose(one.loadings, other.loadings, atol=1e-7)
    covariance = posterior_latent(np.zeros((1, 9)), one).covariances[0]
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-10)
    power = np.square(one.loadings).sum(axis=0)
    assert (np.diff(power) <= 1e-12).all()
    strongest = np.argmax(np.abs(one.loadings), axis=0)
    assert (one.loadings[strongest, range(3)] > 0).all()


def test_turning_parameters_and_law_together_leaves_the_rows_alone():
    parameters, turn = draw(0), random_rotation(5)
    law = LatentLaw(np.arange(3.0), np.diag([1.0, 2.0, 0.5]))
    X = sample(absorb_law(parameters, law), 20, np.random.default_rng(0))
    expected = row_log_likelihood(X, absorb_law(parameters, law))
    turned = absorb_law(rotate_parameters(parameters, turn), change_axes(law, np.zeros(3), turn))
    found = row_log_likelihood(X, turned)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_varimax_reaches_the_best_angle():
    W = draw(7, q=2).loadings

    def criterion(turned):
        return np.square(turned).var(axis=0).sum()

    angles = np.linspace(0, np.pi / 2, 2001)
    scanned = max(criterion(W @ np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])) for a in angles)
    rotation = varimax_rotation(W)
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(2), atol=1e-12)
    assert criterion(W @ rotation) == pytest.approx(scanned, rel=1e-5)
    assert criterion(W @ rotation) >= scanned * (1 - 1e-9)


def test_varimax_recovers_a_simple_structure():
    simple = np.kron(np.eye(3), np.array([[1.0], [0.9], [0.8]]))
    mixed = simple @ random_rotation(3)
    found = mixed @ varimax_rotation(mixed)
    assert np.allclose(np.abs(cosines(simple, found)).max(axis=0), 1, atol=1e-3)


def test_shares_of_variance_are_those_of_many_drawn_rows():
    parameters = draw(2)
    rows = sample(parameters, 100_000, np.random.default_rng(0))
    power = np.add.reduceat(rows.var(axis=0), TWO_VIEWS.starts)
    signal = np.add.reduceat(np.square(parameters.loadings), TWO_VIEWS.starts, axis=0)
    np.testing.assert_allclose(explained_by_model(parameters, TWO_VIEWS), signal / power[:, None], atol=0.01)


def test_correlations_with_features_are_those_of_many_drawn_rows():
    parameters = draw(3)
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((100_000, 3))
    rows = latent @ parameters.loadings.T + rng.standard_normal((100_000, 9)) * np.sqrt(parameters.noise)
    expected = np.corrcoef(rows.T, latent.T)[:9, 9:]
    np.testing.assert_allclose(feature_correlations(parameters), expected, atol=0.015)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_explained_variance_is_its_definition_and_adds_over_sites(share):
    parameters = absorb_law(draw(4), LatentLaw(np.array([1.0, 0.0, -1.0]), 2 * np.eye(3)))
    rng = np.random.default_rng(1)
    X = hide(sample(parameters, 50, rng), share, rng)
    sums = sum_variances(X[:20], parameters, TWO_VIEWS) + sum_variances(X[20:], parameters, TWO_VIEWS)
    x = posterior_latent(X, parameters).mean
    for k, view in enumerate(TWO_VIEWS.names):
        own = TWO_VIEWS.columns(view)
        deviation = X[:, own] - parameters.mean[own]
        W = parameters.loadings[own]
        for j in range(3):
            left = deviation - np.outer(x[:, j], W[:, j])
            expected = 1 - np.nansum(left**2) / np.nansum(deviation**2)
            assert sums.explained[k, j] == pytest.approx(expected, abs=1e-10)
        left = deviation - x @ W.T
        assert sums.explained_by_all[k] == pytest.approx(1 - np.nansum(left**2) / np.nansum(deviation**2), abs=1e-10)
        assert sums.counts[k] == np.isfinite(deviation).sum()


def test_a_view_that_nobody_has_explains_nothing_known():
    X = sample(draw(5), 10, np.random.default_rng(0))
    X[:, TWO_VIEWS.columns("pet")] = np.nan
    sums = sum_variances(X, draw(5), TWO_VIEWS)
    assert np.isnan(sums.explained[1]).all()
    assert np.isfinite(sums.explained[0]).all()


def test_two_random_starts_show_the_same_factors():
    data = simulate(0)
    loadings = []
    for seed in range(2):
        fitted, _ = fit_entries(data.rows, LAYOUT, 5, iterations=60, seed=seed)
        loadings.append(rotate_parameters(fitted, canonical_rotation(fitted)).loadings)
    assert (np.diag(cosines(*loadings)) > 0.9999).all()
