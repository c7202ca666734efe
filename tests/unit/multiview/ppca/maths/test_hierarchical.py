from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import invgamma, norm

from multicentre.multiview.ppca.maths.global_step import first_prior, log_prior_of_centre, regauge_prior, step_prior
from multicentre.multiview.ppca.maths.hierarchy import Loadings, expect_entries, expect_patterns
from multicentre.multiview.ppca.maths.invariant import site_log_likelihood
from multicentre.multiview.ppca.maths.model import LatentLaw, Layout
from multicentre.multiview.ppca.maths.moments import reduce_rows
from multicentre.multiview.ppca.maths.prior import Prior, site_contribution
from multicentre_papers.published.ppca.em import fit_local
from support.examples import examples
from support.ppca_simulation import (
    LAYOUT,
    fit_hierarchical,
    fit_invariant,
    fit_site,
    hold_out,
    random_parameters,
    reduce_sites,
    regauge_site,
    simulate,
    split_sites,
    start_shared,
)

SMALL = Layout(("a", "b"), (5, 4))


def draw_prior(rng, q=2):
    centre, wide = random_parameters(rng, SMALL, q), 10 ** rng.uniform(-3, 0.5, size=(2, 2))
    noise = centre.noise[SMALL.starts]
    return Prior(centre.loadings, centre.mean, wide[0], wide[1], rng.uniform(0.5, 30, 2), rng.uniform(0.1, 5, 2), noise)


def draw_rows(rng, centre, n, lacking):
    x = rng.normal(size=(n, 2)) * [1.5, 0.4] + [2, -1]
    rows = x @ centre.loadings.T + centre.mean + rng.normal(size=(n, 9)) * np.sqrt(centre.noise)
    rows[: n // 2 if lacking == "some" else n * (lacking == "all"), SMALL.columns("b")] = np.nan
    return rows


@examples(25)
@given(
    seed=st.integers(0, 2**31),
    lacking=st.sampled_from(["none", "some", "all"]),
    noise=st.sampled_from(["isotropic", "diagonal"]),
    weight=st.sampled_from([0.0, 100.0]),
)
def test_a_site_never_lowers_its_term_of_the_objective(seed, lacking, noise, weight):
    rng = np.random.default_rng(seed)
    prior = draw_prior(rng)
    own = reduce_rows(draw_rows(rng, prior.centre(SMALL), int(rng.integers(8, 80)), lacking), SMALL)
    start, law = random_parameters(rng, SMALL, 2), LatentLaw.standard(2)
    options = {"n_iterations": 40, "noise": noise, "case_mix_weight": weight}
    fit, *_ = fit_site(own, SMALL, start, law, prior, **options)
    assert np.diff(fit.objective).min() > -1e-7
    assert fit.views.tolist() == [True, lacking != "all"]


def test_sums_from_entries_are_those_from_moments():
    rng = np.random.default_rng(7)
    prior = draw_prior(rng)
    rows = draw_rows(rng, prior.centre(SMALL), 40, "some")
    start, law = random_parameters(rng, SMALL, 2), LatentLaw(rng.normal(size=2), np.diag([2.0, 0.5]))
    root = rng.normal(size=(9, 3, 3))
    loadings = Loadings(start, root @ root.transpose(0, 2, 1), np.log(start.noise) - 0.1)
    one = expect_patterns(reduce_rows(rows, SMALL), SMALL, loadings, law)
    other = expect_entries(rows, loadings, law)
    assert other.second == pytest.approx(one.second[SMALL.view_of])
    for name in ("cross", "squares", "latent_first", "latent_second", "n_rows", "log_normaliser"):
        assert getattr(other, name) == pytest.approx(getattr(one, name)), name


def test_without_uncertainty_the_bound_is_the_log_likelihood():
    rng = np.random.default_rng(8)
    start, law = random_parameters(rng, SMALL, 2), LatentLaw(rng.normal(size=2), np.diag([2.0, 0.5]))
    own = reduce_rows(draw_rows(rng, start, 40, "some"), SMALL)
    point = Loadings(start, np.zeros((9, 3, 3)), np.log(start.noise))
    found = expect_patterns(own, SMALL, point, law).log_normaliser
    assert found == pytest.approx(site_log_likelihood(own, start, law), rel=1e-10)


def test_the_bound_is_below_the_evidence_and_near_it_with_many_rows():
    """One column without latent structure of note: the evidence is that of a normal mean, by quadrature."""
    rng, layout = np.random.default_rng(9), Layout(("a",), (1,))
    rows = 0.7 + rng.normal(size=(400, 1))
    tiny = np.array([1e-12])
    prior = Prior(np.zeros((1, 1)), np.zeros(1), tiny, np.array([2.0]), np.array([3.0]), np.array([2.0]), np.ones(1))
    fit, *_ = fit_site(reduce_rows(rows, layout), layout, prior.centre(layout), LatentLaw.standard(1), prior)

    means, variances = np.linspace(0.4, 1.0, 121)[:, None], np.linspace(0.6, 1.5, 121)
    squares = rows.var() + (rows.mean() - means) ** 2
    grid = -200 * (np.log(2 * np.pi * variances) + squares / variances)
    grid = grid + norm(0, np.sqrt(2)).logpdf(means) + invgamma(3.0, scale=2.0).logpdf(variances)
    evidence = grid.max() + np.log(np.exp(grid - grid.max()).sum() * 0.6 * 0.9 / 120**2)
    assert evidence - 0.02 < fit.objective[-1] <= evidence + 1e-4


@pytest.mark.parametrize("reml", [False, True])
def test_plain_rounds_never_lower_the_objective(unlike_sites, reml):
    train, _ = unlike_sites
    shared, laws, _ = fit_invariant(train, LAYOUT, start_shared(train, LAYOUT, 3), n_rounds=5)
    _, _, trace = fit_hierarchical(train, LAYOUT, shared, laws, n_rounds=12, reml=reml, plain=True)
    assert np.diff(trace).min() > -1e-6


def test_posterior_spread_is_that_of_the_loadings():
    rng = np.random.default_rng(0)
    prior = draw_prior(rng)
    own = reduce_rows(draw_rows(rng, prior.centre(SMALL), 40, "some"), SMALL)
    fit, after, *_ = fit_site(own, SMALL, prior.centre(SMALL), LatentLaw.standard(2), prior)
    expected, weight = np.zeros((4, 2)), np.zeros((2, 3, 3))
    for j, k in enumerate(SMALL.view_of):
        prior_precision = np.diag([*[1 / prior.loadings_variance[k]] * 2, 1 / prior.mean_variance[k]])
        covariance = np.linalg.inv(after.second[k] / after.noise[j] + prior_precision)
        free = np.eye(3) - prior_precision @ covariance
        weight[k] += free / SMALL.sizes[k]
        pieces = (np.trace(covariance[:2, :2]), covariance[2, 2], (free[:2, :2] ** 2).sum(), free[2, 2] ** 2)
        expected[:, k] += pieces
    found = fit.spread
    assert found.loadings == pytest.approx(expected[0])
    assert found.mean == pytest.approx(expected[1])
    assert found.loadings_information == pytest.approx(expected[2])
    assert found.mean_information == pytest.approx(expected[3])
    assert found.weight == pytest.approx(weight)


def test_scoring_ends_where_the_objective_is_level_in_the_variances(unlike_sites):
    """Slopes by differences, given the moments of the latents, at the start and after 30 steps."""
    train, _ = unlike_sites
    shared, laws, _ = fit_invariant(train, LAYOUT, start_shared(train, LAYOUT, 3), n_rounds=5)
    prior, far = first_prior(shared, LAYOUT), np.full(3, np.inf)
    states = [fit_site(own, LAYOUT, shared, law, prior)[1:3] for own, law in zip(train, laws, strict=True)]

    def collapsed(prior):
        fits = [
            fit_site(own, LAYOUT, state, law, prior, n_iterations=0)
            for own, (state, law) in zip(train, states, strict=True)
        ]
        parts = [site_contribution(fit, prior, LAYOUT) for fit, *_ in fits]
        sums = sum(parts[1:], parts[0])
        value = log_prior_of_centre(sums, prior, LAYOUT, centre_variance=far, reml=True)
        return value + sum(fit.objective[-1] for fit, *_ in fits), sums

    best = prior
    for _ in range(30):
        _, sums = collapsed(best)
        best = step_prior(sums, best, LAYOUT, centre_variance=far, reml=True, plain=False)

    def slope(at, name):
        factors = (np.array([1.01, 1.0, 1.0]), np.array([0.99, 1.0, 1.0]))
        high, low = (collapsed(replace(at, **{name: getattr(at, name) * factor}))[0] for factor in factors)
        return high - low

    for name in ("loadings_variance", "mean_variance"):
        assert abs(slope(prior, name)) > 0.1
        assert abs(slope(best, name)) < 0.02


def test_gauge_moves_the_centre_of_the_prior():
    rng = np.random.default_rng(1)
    prior, root = draw_prior(rng), rng.normal(size=(2, 2))
    gauge = LatentLaw(rng.normal(size=2), root @ root.T + 0.2 * np.eye(2))
    moved, _ = regauge_site(prior.centre(SMALL), LatentLaw.standard(2), gauge)
    found = regauge_prior(prior, SMALL, gauge)
    assert found.loadings == pytest.approx(moved.loadings)
    assert found.mean == pytest.approx(moved.mean)
    assert found.loadings_variance == pytest.approx(prior.loadings_variance * np.trace(gauge.covariance) / 2)


@pytest.fixture(scope="module")
def unlike_sites():
    return draw_unlike_sites()


def draw_unlike_sites(q=3):
    """Six sites whose loadings differ by 0.1 and means by 0.2, and fresh rows of each."""
    rng = np.random.default_rng(3)
    W, mu, train, test = rng.normal(size=(33, q)), rng.normal(size=33), [], []
    for _ in range(6):
        own, centre = W + 0.1 * rng.normal(size=W.shape), mu + 0.2 * rng.normal(size=33)
        noise = (0.3 * 20 / rng.gamma(20, size=3))[LAYOUT.view_of]
        rows = rng.normal(size=(460, q)) @ own.T + centre + rng.normal(size=(460, 33)) * np.sqrt(noise)
        train.append(rows[:60])
        test.append(rows[60:])
    return reduce_sites(train), reduce_sites(test)


def test_between_site_spread_is_found_and_local_laws_predict_better(unlike_sites):
    train, test = unlike_sites
    start = start_shared(train, LAYOUT, 3)
    shared, laws, _ = fit_invariant(train, LAYOUT, start, n_rounds=10)
    prior, state, _ = fit_hierarchical(train, LAYOUT, shared, laws, n_rounds=8, reml=True)
    assert 0.08 < np.sqrt(prior.loadings_variance.mean()) < 0.13
    assert 0.15 < np.sqrt(prior.mean_variance.mean()) < 0.23
    alone = [fit_local(own, LAYOUT, start, n_iterations=40).parameters for own in train]

    def held_out(laws):
        return sum(site_log_likelihood(own, *law) for own, law in zip(test, laws, strict=True)) / 2400

    hierarchical = held_out(state)
    assert hierarchical > held_out([(own, LatentLaw.standard(3)) for own in alone]) + 0.2
    assert hierarchical > held_out([(shared, law) for law in laws]) + 0.5


@pytest.mark.slow
def test_five_dimensions_of_sixty_patients_gain_half_a_nat_from_the_other_sites():
    """Held-out patients of each site, against maximum likelihood at that site."""
    train, test = draw_unlike_sites(5)
    start = start_shared(train, LAYOUT, 5)
    shared, laws, _ = fit_invariant(train, LAYOUT, start, n_rounds=10)
    _, state, _ = fit_hierarchical(train, LAYOUT, shared, laws, n_rounds=12, reml=True)
    alone = [fit_local(own, LAYOUT, start, n_iterations=60).parameters for own in train]
    around, local = (
        sum(site_log_likelihood(own, *law) for own, law in zip(test, each, strict=True)) / 2400
        for each in (state, [(own, LatentLaw.standard(5)) for own in alone])
    )
    assert around > local + 0.5


def test_equal_sites_lose_little_against_the_shared_fit():
    data, fresh = hold_out(simulate(1, n=1200, n_shifted=750), 400)
    blocks = split_sites(data, 3, "G/K", np.random.default_rng(2))
    sites = reduce_sites(blocks)
    shared, laws, _ = fit_invariant(sites, LAYOUT, start_shared(sites, LAYOUT, 5), n_rounds=12)
    prior, *_ = fit_hierarchical(sites, LAYOUT, shared, laws, n_rounds=10)
    rows = reduce_rows(fresh.rows, LAYOUT)
    loss = site_log_likelihood(rows, shared) - site_log_likelihood(rows, prior.centre(LAYOUT))
    assert abs(loss) / 800 < 0.03


def test_first_prior_surrounds_the_shared_fit():
    shared = simulate(0).truth
    prior = first_prior(shared, LAYOUT)
    assert (prior.loadings == shared.loadings).all()
    assert prior.noise == pytest.approx(shared.noise[LAYOUT.starts])
    assert (prior.loadings_variance < (shared.loadings**2).mean()).all()
