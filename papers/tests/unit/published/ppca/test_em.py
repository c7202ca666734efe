import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import invgamma, multivariate_normal, norm

from multicentre.errors import DataError
from multicentre.multiview.ppca.maths.model import Layout, Parameters
from multicentre.multiview.ppca.maths.moments import reduce_rows
from multicentre.multiview.ppca.maths.prior import Prior
from multicentre_papers.published.ppca.em import fit_local, random_start
from support.examples import examples
from support.ppca_simulation import LAYOUT, covariance_of, random_parameters, simulate

SMALL = Layout(("a", "b"), (4, 3))


def draw_prior(rng, layout, q):
    centre, k = random_parameters(rng, layout, q), layout.n_views
    wide = 10 ** rng.uniform(-3, 1, size=(2, k))
    noise = centre.noise[layout.starts]
    return Prior(centre.loadings, centre.mean, wide[0], wide[1], rng.uniform(0.5, 50, k), rng.uniform(0.1, 5, k), noise)


def draw_rows(rng, n, layout, patterns):
    truth = random_parameters(rng, layout, 2)
    rows = rng.normal(size=(n, 2)) @ truth.loadings.T + truth.mean
    rows += rng.normal(size=rows.shape) * np.sqrt(truth.noise)
    if patterns:
        rows[: n // 3, layout.columns(layout.names[0])] = np.nan
    return rows


def start(seed, q=2, layout=SMALL):
    return random_start(layout, q, np.ones(layout.n_views), np.random.default_rng(seed))


@examples(25)
@given(
    seed=st.integers(0, 2**31),
    accelerate=st.booleans(),
    patterns=st.booleans(),
    with_prior=st.booleans(),
    noise=st.sampled_from(["isotropic", "diagonal"]),
)
def test_objective_never_falls(seed, accelerate, patterns, with_prior, noise):
    rng = np.random.default_rng(seed)
    moments = reduce_rows(draw_rows(rng, int(rng.integers(12, 200)), SMALL, patterns), SMALL)
    prior = draw_prior(rng, SMALL, 2) if with_prior else None
    fit = fit_local(
        moments, SMALL, start(seed), prior, n_iterations=60, noise=noise, accelerate=accelerate, tolerance=-1
    )
    assert len(fit.objective) > 2
    assert np.diff(fit.objective).min() > -1e-7


def log_posterior(rows, parameters, prior, layout):
    value = multivariate_normal(parameters.mean, covariance_of(parameters)).logpdf(rows).sum()
    for k, name in enumerate(layout.names):
        own = layout.columns(name)
        W = parameters.loadings[own] - prior.loadings[own]
        value += norm(scale=np.sqrt(prior.loadings_variance[k])).logpdf(W).sum()
        away = parameters.mean[own] - prior.mean[own]
        value += norm(scale=np.sqrt(prior.mean_variance[k])).logpdf(away).sum()
        s = parameters.noise[layout.starts[k]]
        value += invgamma(prior.noise_shape[k], scale=prior.noise_scale[k]).logpdf(s)
    return value


@pytest.mark.slow
def test_objective_is_the_log_posterior_density_and_its_maximum_is_reached():
    rng = np.random.default_rng(5)
    prior = draw_prior(rng, SMALL, 2)
    centre = prior.centre(SMALL)
    rows = rng.normal(size=(40, 2)) @ centre.loadings.T + centre.mean + rng.normal(size=(40, 7)) * 0.5
    fit = fit_local(reduce_rows(rows, SMALL), SMALL, start(0), prior, n_iterations=1000, tolerance=-1)
    found = fit.parameters
    assert fit.objective[-1] == pytest.approx(log_posterior(rows, found, prior, SMALL), abs=1e-8)

    def loss(flat):
        noise = np.exp(flat[21:])[SMALL.view_of]
        return -log_posterior(rows, Parameters(flat[:14].reshape(7, 2), flat[14:21], noise), prior, SMALL)

    here = np.concatenate([found.loadings.ravel(), found.mean, np.log(found.noise[SMALL.starts])])
    best = minimize(loss, here, method="BFGS", options={"maxiter": 10})
    assert fit.objective[-1] == pytest.approx(-best.fun, abs=1e-5)


def test_view_by_view_mean_is_not_the_optimum():
    rng = np.random.default_rng(8)
    rows, prior = draw_rows(rng, 40, SMALL, False), draw_prior(rng, SMALL, 2)
    fit = fit_local(reduce_rows(rows, SMALL), SMALL, start(0), prior, n_iterations=200).parameters
    mean = fit.mean.copy()
    for k, name in enumerate(SMALL.names):
        own = SMALL.columns(name)
        marginal = fit.loadings[own] @ fit.loadings[own].T + np.diag(fit.noise[own])
        spread = 40 * prior.mean_variance[k] * np.eye(len(marginal))
        mean[own] = prior.mean[own] + spread @ np.linalg.solve(spread + marginal, (rows.mean(axis=0) - prior.mean)[own])
    other = Parameters(fit.loadings, mean, fit.noise)
    assert log_posterior(rows, other, prior, SMALL) < log_posterior(rows, fit, prior, SMALL) - 0.01


def test_flat_prior_is_maximum_likelihood():
    data = simulate(2)
    moments, begin = reduce_rows(data.rows, LAYOUT), start(0, 5, LAYOUT)
    free = fit_local(moments, LAYOUT, begin, n_iterations=30)
    flat = fit_local(moments, LAYOUT, begin, Prior.flat(begin, LAYOUT), n_iterations=30)
    assert flat.objective[-1] == pytest.approx(free.objective[-1], abs=1e-9)


def test_narrow_prior_holds_the_parameters():
    rng = np.random.default_rng(3)
    prior = draw_prior(rng, SMALL, 2)
    narrow, sharp = np.full(2, 1e-8), np.full(2, 1e7)
    tight = Prior(prior.loadings, prior.mean, narrow, narrow, sharp, 1e7 * prior.noise, prior.noise)
    moments = reduce_rows(draw_rows(rng, 50, SMALL, False), SMALL)
    fit = fit_local(moments, SMALL, start(1), tight, n_iterations=40).parameters
    assert fit.loadings == pytest.approx(prior.loadings, abs=1e-3)
    assert fit.mean == pytest.approx(prior.mean, abs=1e-3)
    assert fit.noise[SMALL.starts] == pytest.approx(prior.noise, rel=1e-3)


def test_group_step_saves_iterations():
    data, rng = simulate(2), np.random.default_rng(0)
    centre = data.truth
    prior = Prior(
        centre.loadings @ np.linalg.qr(rng.normal(size=(5, 5)))[0],
        centre.mean,
        np.full(3, 0.05),
        np.full(3, 0.05),
        np.full(3, 5.0),
        5 * centre.noise[LAYOUT.starts],
        centre.noise[LAYOUT.starts],
    )
    moments, begin = reduce_rows(data.rows, LAYOUT), start(0, 5, LAYOUT)
    quick = fit_local(moments, LAYOUT, begin, prior, n_iterations=15)
    slow = fit_local(moments, LAYOUT, begin, prior, n_iterations=200, accelerate=False)
    long = fit_local(moments, LAYOUT, quick.parameters, prior, n_iterations=300, tolerance=-1)
    assert long.objective[-1] - quick.objective[-1] < 0.01
    assert slow.objective[-1] < quick.objective[-1]


@pytest.mark.parametrize("wide", [False, True])
def test_posterior_spread_is_that_of_the_exact_gaussian(wide):
    """Mean: inverse of its Hessian, written with dense matrices; loadings: d_k tr (B/s + I/v)^-1."""
    layout = Layout(("a", "b"), (60, 5)) if wide else SMALL
    rng = np.random.default_rng(2)
    rows, prior = draw_rows(rng, 8, layout, False), draw_prior(rng, layout, 2)
    fit = fit_local(reduce_rows(rows, layout), layout, start(0, 2, layout), prior, n_iterations=30)
    precision = np.linalg.inv(covariance_of(fit.parameters)) * 8 + np.diag(1 / prior.mean_variance[layout.view_of])
    covariance = np.linalg.inv(precision)
    W, s = fit.parameters.loadings, fit.parameters.noise
    M = np.linalg.inv(np.eye(2) + W.T @ (W / s[:, None]))
    x = (rows - fit.parameters.mean) @ (W / s[:, None]) @ M
    B = 8 * M + x.T @ x
    for k, name in enumerate(layout.names):
        own, v = layout.columns(name), prior.mean_variance[k]
        free = np.eye(layout.sizes[k]) - covariance[own, own] / v
        assert fit.spread.mean[k] == pytest.approx(np.trace(covariance[own, own]), rel=1e-7)
        assert fit.spread.mean_information[k] == pytest.approx((free**2).sum(), rel=1e-6)
        inverse = np.linalg.inv(B / s[layout.starts[k]] + np.eye(2) / prior.loadings_variance[k])
        free = np.eye(2) - inverse / prior.loadings_variance[k]
        assert fit.spread.loadings[k] == pytest.approx(layout.sizes[k] * np.trace(inverse), rel=1e-7)
        assert fit.spread.loadings_information[k] == pytest.approx(layout.sizes[k] * (free**2).sum(), rel=1e-6)
        assert fit.spread.weight[k, :2, :2] == pytest.approx(free, abs=1e-9)
        assert fit.spread.weight[k, 2, 2] == pytest.approx(1 - fit.spread.mean[k] / (v * layout.sizes[k]), abs=1e-9)


def test_a_view_that_the_site_lacks_keeps_its_start():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(30, 7))
    rows[:, SMALL.columns("b")] = np.nan
    begin = random_parameters(rng, SMALL, 2)
    fit = fit_local(reduce_rows(rows, SMALL), SMALL, begin, draw_prior(rng, SMALL, 2))
    assert fit.views.tolist() == [True, False]
    assert (fit.parameters.loadings[4:] == begin.loadings[4:]).all()
    assert fit.spread.mean[1] == 0
    alone = Layout(("a",), (4,))
    direct = fit_local(reduce_rows(rows[:, :4], alone), alone, begin.restrict(SMALL.features_of(["a"])))
    part = fit_local(reduce_rows(rows, SMALL), SMALL, begin)
    assert part.parameters.loadings[:4] == pytest.approx(direct.parameters.loadings, abs=1e-12)


def test_order_of_features_and_views_does_not_matter():
    rng = np.random.default_rng(6)
    rows, begin, prior = draw_rows(rng, 60, SMALL, True), start(0), draw_prior(rng, SMALL, 2)
    order = np.array([5, 4, 6, 3, 0, 2, 1])
    turned = Layout(("b", "a"), (3, 4))
    moved = Prior(
        prior.loadings[order],
        prior.mean[order],
        prior.loadings_variance[::-1],
        prior.mean_variance[::-1],
        prior.noise_shape[::-1],
        prior.noise_scale[::-1],
        prior.noise[::-1],
    )
    there_start = Parameters(begin.loadings[order], begin.mean[order], begin.noise[order])
    here_rows, there_rows = reduce_rows(rows, SMALL), reduce_rows(rows[:, order], turned)
    options = {"n_iterations": 20, "tolerance": -1}
    for one, other, close in ((prior, moved, 1e-6), (None, None, 1e-9)):
        here = fit_local(here_rows, SMALL, begin, one, **options).parameters
        there = fit_local(there_rows, turned, there_start, other, **options).parameters
        assert covariance_of(there) == pytest.approx(covariance_of(here)[np.ix_(order, order)], abs=close)
        assert there.mean == pytest.approx(here.mean[order], abs=close)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("with_prior", [False, True])
def test_very_few_rows_stay_finite(n, with_prior):
    rng = np.random.default_rng(n)
    prior = draw_prior(rng, SMALL, 5) if with_prior else None
    fit = fit_local(reduce_rows(rng.normal(size=(n, 7)), SMALL), SMALL, start(0, 5), prior, n_iterations=50)
    assert np.isfinite(fit.objective).all()
    assert (fit.parameters.noise > 0).all()
    assert np.isfinite(fit.parameters.loadings).all()


@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
def test_constant_features_stay_finite(noise):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 7))
    rows[:, 2] = 3.0
    rows[:, 4:] = 1.0
    fit = fit_local(reduce_rows(rows, SMALL), SMALL, start(0), noise=noise, n_iterations=40)
    assert np.isfinite(fit.objective).all()
    assert (fit.parameters.noise > 0).all()


def test_a_site_without_rows_is_refused():
    with pytest.raises(DataError, match="at least one; got none"):
        fit_local([], SMALL, start(0))
