from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import orthogonal_procrustes
from scipy.stats import invgamma

from multicentre.multiview.ppca.maths.global_step import step_prior
from multicentre.multiview.ppca.maths.model import Layout, Parameters
from multicentre.multiview.ppca.maths.prior import (
    LocalFit,
    PosteriorSpread,
    Prior,
    PriorSums,
    fit_inverse_gamma,
    site_contribution,
)
from multicentre_papers.published.ppca.em import fit_local
from multicentre_papers.published.ppca.rounds import maximise_prior
from support.examples import examples
from support.ppca_simulation import (
    LAYOUT,
    fit_hierarchical,
    fit_invariant,
    random_parameters,
    reduce_sites,
    start_shared,
)

SMALL = Layout(("a", "b"), (4, 3))


def local(parameters, views=(True, True), spread=0.0, layout=SMALL):
    each = np.full(layout.n_views, spread)
    sizes = np.array(layout.sizes, dtype=float)
    weight = np.stack([np.eye(parameters.n_components + 1)] * layout.n_views)
    doubt = PosteriorSpread(each, each, sizes * parameters.n_components, sizes, weight)
    return LocalFit(parameters, np.array(views), np.zeros(1), doubt)


def collect(fits, previous, layout=SMALL, **options):
    sums = [site_contribution(fit, previous, layout, **options) for fit in fits]
    return sum(sums[1:], sums[0])


def draw(n_sites, seed=0):
    rng = np.random.default_rng(seed)
    return [random_parameters(rng, SMALL, 2) for _ in range(n_sites)]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "scale"), [(2.5, 1.0), (30.0, 7.0), (0.6, 0.1)])
def test_inverse_gamma_is_recovered(shape, scale):
    draws = invgamma(shape, scale=scale).rvs(200_000, random_state=1)
    a, b = fit_inverse_gamma(np.array([(1 / draws).mean()]), np.array([np.log(draws).mean()]))
    assert a[0] == pytest.approx(shape, rel=0.01)
    assert b[0] == pytest.approx(scale, rel=0.01)
    reference, _, reference_scale = invgamma.fit(draws[:3000], floc=0)
    a, b = fit_inverse_gamma(np.array([(1 / draws[:3000]).mean()]), np.array([np.log(draws[:3000]).mean()]))
    assert (a[0], b[0]) == pytest.approx((reference, reference_scale), rel=1e-3)


@examples(50)
@given(st.lists(st.floats(1e-8, 1e8), min_size=1, max_size=6))
def test_inverse_gamma_is_finite_whatever_the_variances(values):
    s = np.array(values)
    a, b = fit_inverse_gamma(np.array([(1 / s).mean()]), np.array([np.log(s).mean()]))
    assert 0 < a[0] <= 1e4
    assert 0 < b[0] < np.inf


def test_without_posterior_variance_the_sums_give_the_plain_moments():
    sites, previous = draw(5), Prior.flat(draw(1, 9)[0], SMALL)
    prior = maximise_prior(collect([local(p) for p in sites], previous, posterior_variance=False), previous, SMALL)
    W, mu = np.stack([p.loadings for p in sites]), np.stack([p.mean for p in sites])
    s = np.stack([p.noise[SMALL.starts] for p in sites])
    assert prior.loadings == pytest.approx(W.mean(axis=0))
    assert prior.mean == pytest.approx(mu.mean(axis=0))
    assert prior.noise == pytest.approx(s.mean(axis=0))
    assert prior.noise_scale / prior.noise_shape == pytest.approx(1 / (1 / s).mean(axis=0))
    for k, name in enumerate(SMALL.names):
        own = SMALL.columns(name)
        assert prior.loadings_variance[k] == pytest.approx(W[:, own].var(axis=0).mean())
        assert prior.mean_variance[k] == pytest.approx(mu[:, own].var(axis=0).mean())
    unbiased = maximise_prior(
        collect([local(p) for p in sites], previous, posterior_variance=False), previous, SMALL, ddof=1
    )
    assert unbiased.mean_variance == pytest.approx(prior.mean_variance * 5 / 4)


def test_diagonal_noise_pools_the_features_of_a_view():
    rng = np.random.default_rng(3)
    sites = [replace(p, noise=rng.uniform(0.1, 3, 7)) for p in draw(4)]
    previous = Prior.flat(sites[0], SMALL, diagonal=True)
    prior = maximise_prior(collect([local(p) for p in sites], previous), previous, SMALL)
    s = np.stack([p.noise for p in sites])
    assert prior.noise == pytest.approx(s.mean(axis=0))
    assert prior.centre(SMALL).noise == pytest.approx(s.mean(axis=0))
    shape, scale = fit_inverse_gamma(np.array([(1 / s[:, :4]).mean()]), np.array([np.log(s[:, :4]).mean()]))
    assert (prior.noise_shape[0], prior.noise_scale[0]) == pytest.approx((shape[0], scale[0]))


def test_a_view_of_one_site_has_a_flat_prior_and_one_of_none_keeps_its_own():
    previous = maximise_prior(
        collect([local(p) for p in draw(4)], Prior.flat(draw(1, 9)[0], SMALL)), Prior.flat(draw(1, 9)[0], SMALL), SMALL
    )
    only = draw(1, 5)[0]
    prior = maximise_prior(collect([local(only, (True, False))], previous), previous, SMALL)
    assert prior.loadings[:4] == pytest.approx(only.loadings[:4])
    assert prior.loadings_variance.tolist() == [np.inf, previous.loadings_variance[1]]
    assert prior.mean_variance.tolist() == [np.inf, previous.mean_variance[1]]
    assert prior.noise_shape.tolist() == [-1, previous.noise_shape[1]]
    assert prior.noise_scale[0] == 0
    assert (prior.loadings[4:] == previous.loadings[4:]).all()
    assert prior.noise[1] == previous.noise[1]


def test_equal_sites_give_a_finite_prior():
    site, previous = draw(1)[0], Prior.flat(draw(1, 9)[0], SMALL)
    prior = maximise_prior(collect([local(site)] * 3, previous), previous, SMALL)
    assert prior.noise_shape == pytest.approx([1e4, 1e4])
    assert (prior.loadings_variance > 0).all()
    assert (prior.mean_variance > 0).all()
    assert all(np.isfinite(getattr(prior, field.name)).all() for field in fields(prior))


def test_views_that_a_site_lacks_are_zeros_in_its_sums():
    sums = site_contribution(local(draw(1)[0], (True, False), 0.3), Prior.flat(draw(1, 9)[0], SMALL), SMALL)
    for field in fields(PriorSums):
        value = getattr(sums, field.name)
        lacking = value[4:] if len(value) == 7 else value[1:]
        assert not np.any(lacking), field.name


def test_order_of_sites_does_not_matter():
    sites, previous = [local(p) for p in draw(5)], Prior.flat(draw(1, 9)[0], SMALL)
    one = maximise_prior(collect(sites, previous), previous, SMALL)
    other = maximise_prior(collect(sites[::-1], previous), previous, SMALL)
    for field in fields(Prior):
        assert getattr(one, field.name) == pytest.approx(getattr(other, field.name), rel=1e-9)


def test_sites_count_for_the_centre_by_their_precision():
    """Shrunk estimates of sites with unlike sampling laws give the generalised least-squares mean in one step."""
    rng, layout = np.random.default_rng(4), Layout(("a",), (30,))
    prior = Prior(rng.normal(size=(30, 2)), rng.normal(size=30), *(np.array([x]) for x in (0.2, 0.5, 2.0, 1.0, 0.5)))
    between, fits = np.diag([0.2, 0.2, 0.5]), []
    left, right = np.zeros((30, 3)), np.zeros((3, 3))
    centre = np.column_stack([prior.loadings, prior.mean])
    for _ in range(3):
        root, own = rng.normal(size=(3, 3)), centre + rng.normal(size=(30, 3))
        sampling = root @ root.T
        precision = np.linalg.inv(sampling + between)
        left, right = left + own @ precision, right + precision
        doubt = np.linalg.inv(np.linalg.inv(sampling) + np.linalg.inv(between))
        weight = np.eye(3) - np.linalg.solve(between, doubt)
        shrunk = centre + (own - centre) @ weight
        spread = PosteriorSpread(*(np.ones(1) for _ in range(4)), weight[None])
        parameters = Parameters(shrunk[:, :2], shrunk[:, 2], np.full(30, 0.5))
        fits.append(LocalFit(parameters, np.array([True]), np.zeros(1), spread))
    sums = collect(fits, prior, layout)
    for variance, expected in ((np.inf, left @ np.linalg.inv(right)), (4.0, None)):
        found = step_prior(sums, prior, layout, centre_variance=np.array([variance]), reml=False, plain=False)
        if expected is None:
            expected = left @ np.linalg.inv(right + np.diag([0.25, 0.25, 0.0]))
        assert np.column_stack([found.loadings, found.mean]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("reml", [False, True])
def test_fixed_point_of_the_mean_variance_is_the_excess_over_sampling_variance(reml):
    """Known sampling variance t: sites report shrunk means and posterior variances; v must become V - t, or 0."""
    rng, layout = np.random.default_rng(0), Layout(("a",), (2000,))
    for true, sampling in ((0.5, 0.3), (0.0, 0.3)):
        estimates = rng.normal(size=(4, 2000)) * np.sqrt(true + sampling)
        one = np.ones(1)
        prior = Prior(np.zeros((2000, 1)), np.zeros(2000), one, 0.3 * one, one, one, one)
        for _ in range(12):
            v = prior.mean_variance[0]
            keep = v / (v + sampling)
            numbers = (2000 * prior.loadings_variance[0], 2000 * keep * sampling, 0.0, 2000 * keep**2)
            doubt = PosteriorSpread(*(np.array([x]) for x in numbers), np.diag([0.0, keep])[None])
            fits = [
                LocalFit(
                    Parameters(prior.loadings, prior.mean + keep * (e - prior.mean), np.ones(2000)),
                    np.array([True]),
                    np.zeros(1),
                    doubt,
                )
                for e in estimates
            ]
            sums = collect(fits, prior, layout)
            prior = step_prior(sums, prior, layout, centre_variance=np.ones(1), reml=reml, plain=False)
        observed = estimates.var(axis=0, ddof=int(reml)).mean()
        assert prior.mean_variance[0] == pytest.approx(max(observed - sampling, 0.0), rel=1e-3, abs=2e-6)


def simulate_sites(sd_loadings, sd_mean, rng, n_sites=6, n=60):
    W, mu, blocks = rng.normal(size=(33, 3)), rng.normal(size=33), []
    for _ in range(n_sites):
        own, centre = W + sd_loadings * rng.normal(size=W.shape), mu + sd_mean * rng.normal(size=33)
        noise = (0.3 * 20 / rng.gamma(20, size=3))[LAYOUT.view_of]
        blocks.append(rng.normal(size=(n, 3)) @ own.T + centre + rng.normal(size=(n, 33)) * np.sqrt(noise))
    return reduce_sites(blocks)


def alternate(sites, n_rounds):
    """Return the global law of the paper's alternation, in which sites report estimates without posterior variances."""
    begin = start_shared(sites, LAYOUT, 3)
    prior, given, current = Prior.flat(begin, LAYOUT), None, [begin] * len(sites)
    for _ in range(n_rounds):
        fits = [fit_local(own, LAYOUT, mine, given) for own, mine in zip(sites, current, strict=True)]
        if given is None:
            turned = []
            for fit in fits:
                own = fit.parameters
                turn = orthogonal_procrustes(own.loadings / own.noise[:, None], begin.loadings)[0]
                turned.append(replace(fit, parameters=replace(own, loadings=own.loadings @ turn)))
            fits = turned
        given = prior = maximise_prior(collect(fits, prior, LAYOUT, posterior_variance=False), prior, LAYOUT)
        current = [fit.parameters for fit in fits]
    return prior


def fit_hierarchy(sites, n_rounds):
    shared, laws, _ = fit_invariant(sites, LAYOUT, start_shared(sites, LAYOUT, 3), n_rounds=10)
    return fit_hierarchical(sites, LAYOUT, shared, laws, n_rounds=n_rounds, reml=True)[0]


@pytest.mark.slow
def test_posterior_variances_keep_the_prior_from_collapsing():
    sites = simulate_sites(0.1, 0.2, np.random.default_rng(1))
    honest = fit_hierarchy(sites, 12)
    assert 0.08 < np.sqrt(honest.loadings_variance.mean()) < 0.13
    assert 0.15 < np.sqrt(honest.mean_variance.mean()) < 0.23
    paper = alternate(sites, 12)
    assert (np.sqrt(paper.loadings_variance) < 0.03).all()


def test_loadings_equal_at_all_sites_are_found_so_in_few_rounds():
    prior = fit_hierarchy(simulate_sites(0.0, 0.0, np.random.default_rng(2)), 12)
    assert (np.sqrt(prior.loadings_variance) < 0.02).all()
    assert (np.sqrt(prior.mean_variance) < 0.02).all()


def test_fixed_point_sums_move_the_prior_by_less_than_a_millionth():
    sites, previous = [local(p, spread=0.2) for p in draw(5)], Prior.flat(draw(1, 9)[0], SMALL)

    def quantise(sums):
        return PriorSums(*(np.rint(getattr(sums, f.name) * 2**24) / 2**24 for f in fields(PriorSums)))

    exact = collect(sites, previous)
    parts = [quantise(site_contribution(site, previous, SMALL)) for site in sites]
    one, other = maximise_prior(exact, previous, SMALL), maximise_prior(sum(parts[1:], parts[0]), previous, SMALL)
    assert np.abs(one.loadings - other.loadings).max() < 1e-6
    assert one.loadings_variance == pytest.approx(other.loadings_variance, rel=2e-4)
    assert one.noise_shape == pytest.approx(other.noise_shape, rel=1e-5)
