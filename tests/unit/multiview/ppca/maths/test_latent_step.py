"""The step of the latents' origin and units raises the objective, and is the same in turned axes."""

import dataclasses
from functools import partial

import numpy as np
import pytest

from multicentre.multiview.ppca.maths.global_step import regauge_prior
from multicentre.multiview.ppca.maths.hierarchy import LatentSums, Site, expect_patterns, update_loadings
from multicentre.multiview.ppca.maths.latent_step import LatentSlopes, multiply_differences, step_latents
from multicentre.multiview.ppca.maths.model import LatentLaw, Parameters, square_root
from multicentre.multiview.ppca.maths.prior import Prior, site_contribution
from support.ppca_simulation import LAYOUT, fit_site, random_parameters, reduce_sites, simulate, split_sites

WEIGHT, FAR = 100.0, np.full(3, np.inf)


def first_sites():
    """Three sites, a global law away from their parameters, and their states."""
    rng = np.random.default_rng(0)
    data = simulate(0, shift="mild")
    sites = reduce_sites(split_sites(data, 3, "IID", rng))
    truth = data.truth
    prior = Prior(
        truth.loadings + 0.05 * rng.normal(size=truth.loadings.shape),
        truth.mean + 0.1 * rng.normal(size=truth.mean.shape),
        np.full(3, 0.01),
        np.full(3, 0.02),
        np.full(3, 5.0),
        5.0 * truth.noise[LAYOUT.starts],
        truth.noise[LAYOUT.starts],
    )
    return sites, prior, [(prior.centre(LAYOUT), LatentLaw.standard(5)) for _ in sites]


def fit_all(sites, prior, states):
    answers = [
        fit_site(own, LAYOUT, *state, prior, n_iterations=25, case_mix_weight=WEIGHT)
        for own, state in zip(sites, states, strict=True)
    ]
    parts = [site_contribution(fit, prior, LAYOUT) for fit, *_ in answers]
    laws = [law for _, _, law, _ in answers]
    counts = [latents.n_rows for *_, latents in answers]
    slopes = LatentSlopes(
        sum(multiply_differences(part.loadings, part.mean, LAYOUT) for part in parts),
        sum(law.pull(WEIGHT, on_mean=False) for law in laws),
        sum(WEIGHT * n / (WEIGHT + n) for n in counts),
    )
    after = [(state, law) for _, state, law, _ in answers]
    return sum(parts[1:], parts[0]), slopes, after, sum(fit.objective[-1] for fit, *_ in answers)


@pytest.mark.slow
def test_the_step_raises_the_objective_at_the_sites():
    """The global law and the sites' states move together, and the sites fit again around the moved law."""
    sites, prior, states = first_sites()
    sums, slopes, states, value = fit_all(sites, prior, states)
    gauge = step_latents(slopes, sums, prior, LAYOUT, centre_variance=FAR, reml=False)
    assert np.abs(gauge.covariance - np.eye(5)).max() > 0.01
    axes = square_root(gauge.covariance)
    inverse = np.linalg.inv(axes)
    turned = [
        (
            state.in_axes(gauge.mean, axes),
            LatentLaw(inverse @ (law.mean - gauge.mean), inverse @ law.covariance @ inverse.T),
        )
        for state, law in states
    ]
    stay = fit_all(sites, prior, states)[3]
    assert fit_all(sites, regauge_prior(prior, LAYOUT, gauge), turned)[3] > stay + 0.01 > value


def test_the_step_turns_with_the_latent_axes():
    sites, prior, states = first_sites()
    sums, slopes, *_ = fit_all(sites, prior, states)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    wide = np.eye(6)
    wide[:5, :5] = turn
    turned = dataclasses.replace(
        sums,
        loadings=sums.loadings @ turn,
        weight=wide.T @ sums.weight @ wide,
    )
    other = step_latents(
        LatentSlopes(wide.T @ slopes.products @ wide, turn.T @ slopes.latent_pull @ turn, slopes.latent_weight),
        turned,
        dataclasses.replace(prior, loadings=prior.loadings @ turn),
        LAYOUT,
        centre_variance=np.full(3, 0.5),
        reml=True,
    )
    one = step_latents(slopes, sums, prior, LAYOUT, centre_variance=np.full(3, 0.5), reml=True)
    np.testing.assert_allclose(other.mean, turn.T @ one.mean, atol=1e-9)
    np.testing.assert_allclose(other.covariance, turn.T @ one.covariance @ turn, atol=1e-9)


def test_sums_in_other_axes_give_the_same_rows_of_the_site():
    """With a flat prior the estimates move as the parameters do: W A and mu + W a."""
    rng = np.random.default_rng(2)
    data = simulate(1, shift="mild", n=100)
    (own,) = reduce_sites([data.rows])
    start = random_parameters(rng, LAYOUT, 5)
    law = LatentLaw.standard(5)
    prior = Prior.flat(start, LAYOUT)
    _, state, *_ = fit_site(own, LAYOUT, start, law, prior, n_iterations=3)
    assert isinstance(state, LatentSums)
    site = _site(own, prior)
    origin, axes = rng.normal(size=5), np.eye(5) + 0.2 * rng.normal(size=(5, 5))
    before, after = (update_loadings(site, each).parameters for each in (state, state.in_axes(origin, axes)))
    expected = Parameters(before.loadings @ axes, before.mean + before.loadings @ origin, before.noise)
    np.testing.assert_allclose(after.loadings, expected.loadings, atol=1e-8)
    np.testing.assert_allclose(after.mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(after.noise, expected.noise, rtol=1e-8)


def _site(own, prior):
    features = np.ones(LAYOUT.n_features, dtype=bool)
    return Site(partial(expect_patterns, own, LAYOUT), features, LAYOUT, prior, "isotropic", 0.0, FAR)
