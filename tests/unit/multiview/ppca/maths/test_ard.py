import numpy as np
import pytest

from multicentre.multiview.ppca.maths.ard import (
    active_axes,
    maximise_relevant,
    sparsest_rotation,
    update_loadings,
    update_precisions,
)
from multicentre.multiview.ppca.maths.gauge import explained_by_model
from multicentre.multiview.ppca.maths.invariant import answer_round
from multicentre.multiview.ppca.maths.model import LatentLaw, Layout, Parameters, change_axes, square_root
from multicentre.multiview.ppca.maths.moments import reduce_rows
from multicentre.multiview.ppca.maths.predict import row_log_likelihood, sample
from multicentre.multiview.ppca.maths.rows import sum_entries
from support.ppca_predict_simulation import LAYOUT, fit_entries, fit_relevant, fit_shared, hide, simulate
from support.ppca_simulation import largest_angle


@pytest.mark.slow
@pytest.mark.parametrize("shift", ["mild", "paper"])
@pytest.mark.parametrize("seed", range(3))
def test_exactly_five_of_ten_axes_survive(shift, seed):
    data = simulate(seed, shift=shift)
    sites = [data.rows[c::3] for c in range(3)]
    fitted, _, _ = fit_relevant(sites, LAYOUT, 10, rounds=20)
    assert active_axes(fitted, LAYOUT).any(axis=0).tolist() == [True] * 5 + [False] * 5
    assert explained_by_model(fitted, LAYOUT)[:, 5:].max() < 5e-5
    plain, _ = fit_shared(sites, LAYOUT, 5)
    assert largest_angle(fitted.loadings[:, :5], plain.loadings) < 0.5


@pytest.mark.slow
def test_missing_entries_do_not_wake_an_axis():
    data = simulate(1)
    rows = hide(data.rows, 0.2, np.random.default_rng(0))
    fitted, _, _ = fit_relevant([rows[:200], rows[200:]], LAYOUT, 8, rounds=25)
    assert active_axes(fitted, LAYOUT).any(axis=0).sum() == 5


@pytest.mark.parametrize("seed", range(3))
def test_an_axis_of_one_view_is_off_in_the_other(seed):
    layout = Layout(("mri", "pet"), (12, 10))
    rng = np.random.default_rng(seed)
    W = 2 * rng.standard_normal((22, 3))
    W[:12, 1] = 0
    W[12:, 2] = 0
    truth = Parameters(W, np.zeros(22), np.full(22, 0.25))
    fitted, _, precisions = fit_relevant([sample(truth, 600, rng)], layout, 5, rounds=25)
    on = active_axes(fitted, layout, least_share=0.005)
    assert sorted(on[:, :3].T.tolist()) == [[False, True], [True, False], [True, True]]
    assert not on[:, 3:].any()
    assert (precisions[:, 3:] > 100 * precisions[0, 0]).all()
    left = truth.loadings @ truth.loadings.T - fitted.loadings @ fitted.loadings.T
    assert np.linalg.norm(left) < 0.15 * np.linalg.norm(truth.loadings @ truth.loadings.T)


def test_the_rotation_undoes_a_mixing_of_axes_that_belong_to_single_views():
    layout = Layout(("mri", "pet"), (6, 4))
    rng = np.random.default_rng(4)
    W = rng.standard_normal((10, 4))
    W[:6, :2] = 0
    W[6:, 2:3] = 0
    mixing = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    law = Parameters(W @ mixing, np.zeros(10), np.ones(10))
    turn = sparsest_rotation(law, np.tile(1e-9 * np.eye(4), (2, 1, 1)), layout, n_sweeps=10)
    np.testing.assert_allclose(turn.T @ turn, np.eye(4), atol=1e-12)
    power = np.add.reduceat(np.square(law.loadings @ turn), layout.starts, axis=0)
    assert ((power < 1e-4).sum(axis=1) == [2, 1]).all()
    assert (np.diff(power.sum(axis=0)) <= 0).all()


def test_without_precisions_the_update_is_least_squares():
    rng = np.random.default_rng(0)
    layout = Layout(("mri",), (4,))
    root = rng.standard_normal((3, 3))
    second = np.broadcast_to(root @ root.T + np.eye(3), (4, 3, 3))
    cross = rng.standard_normal((4, 3))
    solved, spread = update_loadings(cross, second, np.full(4, 0.5), np.zeros((1, 2)), layout)
    np.testing.assert_allclose(solved @ second[0], cross, atol=1e-12)
    np.testing.assert_allclose(spread[0], 4 * 0.5 * np.linalg.inv(second[0])[:2, :2], atol=1e-12)


def test_precisions_shrink_as_ridge_regression_does():
    rng = np.random.default_rng(1)
    x, noise, alpha = rng.standard_normal((30, 2)), 0.3, np.array([[2.0, 50.0]])
    t = x @ [1.0, 0.5] + 1 + rng.standard_normal(30)
    z = np.column_stack([x, np.ones(30)])
    solved, _ = update_loadings((t @ z)[None], (z.T @ z)[None], np.array([noise]), alpha, Layout(("mri",), (1,)))
    stacked = np.vstack([z / np.sqrt(noise), np.diag([*np.sqrt(alpha[0]), 0])])
    expected = np.linalg.lstsq(stacked, np.append(t / np.sqrt(noise), np.zeros(3)), rcond=None)[0]
    np.testing.assert_allclose(solved[0], expected, atol=1e-10)


def test_precisions_are_inverse_mean_squares():
    layout = Layout(("mri", "pet"), (2, 1))
    W = np.array([[1.0, 0.0], [3.0, 2.0], [0.5, 1.0]])
    spread = np.zeros((2, 2, 2))
    spread[0, 1, 1] = 6
    np.testing.assert_allclose(update_precisions(W, spread, layout), [[0.2, 0.2], [4.0, 1.0]])


def test_moments_and_rows_lead_to_the_same_round():
    data = simulate(2)
    start, _ = fit_entries(data.rows, LAYOUT, 6, iterations=3)
    law = LatentLaw.standard(6)
    by_rows = sum_entries(data.rows, start, law)
    by_moments, _ = answer_round(reduce_rows(data.rows, LAYOUT), LAYOUT, start, law, n_repetitions=0)
    precisions = np.full((3, 6), 2.0)
    one = maximise_relevant(by_rows, start, precisions, LAYOUT)
    other = maximise_relevant(by_moments, start, precisions, LAYOUT)
    np.testing.assert_allclose(one.parameters.loadings, other.parameters.loadings, atol=1e-8)
    np.testing.assert_allclose(one.parameters.noise, other.parameters.noise, rtol=1e-8)
    np.testing.assert_allclose(one.precisions, other.precisions, rtol=1e-6)


def test_the_new_axes_carry_a_sites_law_along():
    data = simulate(0)
    start, _ = fit_entries(data.rows, LAYOUT, 5, iterations=3)
    law = LatentLaw(np.linspace(-1, 1, 5), np.diag(np.linspace(0.5, 2, 5)))
    done = maximise_relevant(sum_entries(data.rows, start, law), start, np.zeros((3, 5)), LAYOUT)
    carried = change_axes(law, done.gauge.mean, square_root(done.gauge.covariance) @ done.turn)
    through = np.linalg.inv(_symmetric_root(done.gauge.covariance))
    np.testing.assert_allclose(carried.mean, done.turn.T @ through @ (law.mean - done.gauge.mean), atol=1e-10)
    covariance = done.turn.T @ through @ law.covariance @ through @ done.turn
    np.testing.assert_allclose(carried.covariance, covariance, atol=1e-10)


def _symmetric_root(covariance):
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(values)) @ vectors.T


def test_features_that_nobody_has_keep_their_values():
    data = simulate(0)
    rows = data.rows.copy()
    rows[:, LAYOUT.columns("third")] = np.nan
    start, _ = fit_entries(data.rows, LAYOUT, 5, iterations=3)
    done = maximise_relevant(sum_entries(rows, start), start, np.zeros((3, 5)), LAYOUT)
    assert np.isfinite(done.parameters.loadings).all()
    assert np.isfinite(done.precisions).all()
    own = LAYOUT.columns("third")
    np.testing.assert_array_equal(done.parameters.noise[own], start.noise[own])
    assert np.isfinite(row_log_likelihood(data.rows, done.parameters)).all()
