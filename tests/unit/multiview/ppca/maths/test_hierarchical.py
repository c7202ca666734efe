import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.multiview.ppca.maths.groupstep import first_prior, regauge_prior
from multicentre.multiview.ppca.maths.invariant import answer_round, site_log_likelihood
from multicentre.multiview.ppca.maths.model import LatentLaw, Layout
from multicentre.multiview.ppca.maths.moments import reduce_rows
from multicentre.multiview.ppca.maths.prior import Prior
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
)
def test_objective_never_falls(seed, lacking, noise):
    rng = np.random.default_rng(seed)
    prior = draw_prior(rng)
    own = reduce_rows(draw_rows(rng, prior.centre(SMALL), int(rng.integers(8, 80)), lacking), SMALL)
    start = random_parameters(rng, SMALL, 2)
    fit, _, _ = fit_site(own, SMALL, start, LatentLaw.standard(2), prior, n_iterations=60, noise=noise)
    assert np.diff(fit.objective).min() > -1e-7
    assert fit.views.tolist() == [True, lacking != "all"]
    if lacking == "all":
        assert (fit.parameters.loadings[5:] == start.loadings[5:]).all()


@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
def test_posterior_spread_is_read_off_the_augmented_solve(noise):
    rng = np.random.default_rng(0)
    prior = draw_prior(rng)
    own = reduce_rows(draw_rows(rng, prior.centre(SMALL), 40, "some"), SMALL)
    fit, law, _ = fit_site(own, SMALL, prior.centre(SMALL), LatentLaw.standard(2), prior, noise=noise)
    sums, _ = answer_round(own, SMALL, fit.parameters, law, n_repetitions=0)
    expected, weight = np.zeros((4, 2)), np.zeros((2, 3, 3))
    for j, k in enumerate(SMALL.view_of):
        prior_precision = np.diag([*[1 / prior.loadings_variance[k]] * 2, 1 / prior.mean_variance[k]])
        covariance = np.linalg.inv(sums.second[k] / fit.parameters.noise[j] + prior_precision)
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


def test_gauge_moves_prior_and_sites_together():
    rng = np.random.default_rng(1)
    prior, root = draw_prior(rng), rng.normal(size=(2, 2))
    gauge = LatentLaw(rng.normal(size=2), root @ root.T + 0.2 * np.eye(2))
    own = reduce_rows(draw_rows(rng, prior.centre(SMALL), 30, "none"), SMALL)
    here, law = random_parameters(rng, SMALL, 2), LatentLaw(np.ones(2), np.diag([2.0, 0.5]))
    before = site_log_likelihood(own, here, law)
    assert site_log_likelihood(own, *regauge_site(here, law, gauge)) == pytest.approx(before, rel=1e-10)
    moved, _ = regauge_site(prior.centre(SMALL), law, gauge)
    assert regauge_prior(prior, SMALL, gauge).loadings == pytest.approx(moved.loadings)
    assert regauge_prior(prior, SMALL, gauge).mean == pytest.approx(moved.mean)


@pytest.fixture(scope="module")
def unlike_sites():
    """Six sites whose loadings differ by 0.1 and means by 0.2, and fresh rows of each."""
    rng = np.random.default_rng(3)
    W, mu, train, test = rng.normal(size=(33, 3)), rng.normal(size=33), [], []
    for _ in range(6):
        own, centre = W + 0.1 * rng.normal(size=W.shape), mu + 0.2 * rng.normal(size=33)
        noise = (0.3 * 20 / rng.gamma(20, size=3))[LAYOUT.view_of]
        rows = rng.normal(size=(460, 3)) @ own.T + centre + rng.normal(size=(460, 33)) * np.sqrt(noise)
        train.append(rows[:60])
        test.append(rows[60:])
    return reduce_sites(train), reduce_sites(test)


def test_between_site_spread_is_found_and_local_laws_predict_better(unlike_sites):
    train, test = unlike_sites
    start = start_shared(train, LAYOUT, 3)
    shared, laws, _ = fit_invariant(train, LAYOUT, start, n_rounds=10)
    prior, state = fit_hierarchical(train, LAYOUT, shared, laws, n_rounds=8, ddof=1)
    assert 0.08 < np.sqrt(prior.loadings_variance.mean()) < 0.13
    assert 0.15 < np.sqrt(prior.mean_variance.mean()) < 0.23
    alone = [fit_local(own, LAYOUT, start, n_iterations=40).parameters for own in train]

    def held_out(laws):
        return sum(site_log_likelihood(own, *law) for own, law in zip(test, laws, strict=True)) / 2400

    hierarchical = held_out(state)
    assert hierarchical > held_out([(own, LatentLaw.standard(3)) for own in alone]) + 0.2
    assert hierarchical > held_out([(shared, law) for law in laws]) + 0.5


def test_equal_sites_lose_little_against_the_shared_fit():
    data, fresh = hold_out(simulate(1, n=1200, n_shifted=750), 400)
    blocks = split_sites(data, 3, "G/K", np.random.default_rng(2))
    sites = reduce_sites(blocks)
    shared, laws, _ = fit_invariant(sites, LAYOUT, start_shared(sites, LAYOUT, 5), n_rounds=12)
    prior, _ = fit_hierarchical(sites, LAYOUT, shared, laws, n_rounds=10)
    rows = reduce_rows(fresh.rows, LAYOUT)
    loss = site_log_likelihood(rows, shared) - site_log_likelihood(rows, prior.centre(LAYOUT))
    assert abs(loss) / 800 < 0.03


def test_first_prior_surrounds_the_shared_fit():
    shared = simulate(0).truth
    prior = first_prior(shared, LAYOUT)
    assert (prior.loadings == shared.loadings).all()
    assert prior.noise == pytest.approx(shared.noise[LAYOUT.starts])
    assert (prior.loadings_variance < (shared.loadings**2).mean()).all()
