import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from multicentre.errors import DataError
from multicentre.multiview.ppca.maths.invariant import (
    answer_round,
    centre_intercepts,
    site_log_likelihood,
    update_intercept_variance,
)
from multicentre.multiview.ppca.maths.model import (
    LatentLaw,
    Layout,
    Parameters,
    absorb_law,
    change_axes,
    square_root,
)
from multicentre.multiview.ppca.maths.moments import reduce_rows
from multicentre.multiview.ppca.maths.rows import sum_entries_around
from multicentre.multiview.ppca.maths.start import (
    draw_directions,
    group_unlinked_views,
    multiply_second_moments,
    next_directions,
    scale_directions,
    start_from_covariance,
    start_from_products,
    sum_first_moments,
)
from multicentre_papers.published.ppca.em import random_start
from support.examples import examples
from support.ppca_simulation import (
    LAYOUT,
    change_gauge,
    covariance_of,
    fit_invariant,
    maximise_shared,
    random_parameters,
    reduce_sites,
    simulate,
    split_sites,
    start_shared,
)

SMALL = Layout(("a", "b", "c"), (4, 1, 3))


def draw_law(rng, q):
    root = rng.normal(size=(q, q))
    return LatentLaw(rng.normal(size=q), root @ root.T + 0.1 * np.eye(q))


def draw_sites(rng, n_sites=3, layout=SMALL, q=2):
    truth = random_parameters(rng, layout, q)
    blocks = []
    for index in range(n_sites):
        law, n = draw_law(rng, q), int(rng.integers(20, 60))
        x = rng.multivariate_normal(law.mean, law.covariance, size=n)
        rows = x @ truth.loadings.T + truth.mean + rng.normal(size=(n, layout.n_features)) * np.sqrt(truth.noise)
        if index:
            rows[: n // 2, layout.columns(layout.names[index % layout.n_views])] = np.nan
        blocks.append(rows)
    return blocks


def test_sums_are_those_of_the_rows():
    """Row by row: E-step with the site's law, then sums about the broadcast mean."""
    rng = np.random.default_rng(0)
    rows, shared, law = draw_sites(rng)[1], random_parameters(rng, SMALL, 2), draw_law(rng, 2)
    sums, kept = answer_round(reduce_rows(rows, SMALL), SMALL, shared, law, n_repetitions=0)
    assert kept is law
    cross, second, total = np.zeros((8, 3)), np.zeros((3, 3, 3)), np.zeros((3, 3))
    for row in rows:
        seen = ~np.isnan(row)
        P = shared.loadings[seen] / shared.noise[seen, None]
        M = np.linalg.inv(np.linalg.inv(law.covariance) + shared.loadings[seen].T @ P)
        x = M @ (np.linalg.solve(law.covariance, law.mean) + P.T @ (row - shared.mean)[seen])
        z = np.append(x, 1)
        zz = np.outer(z, z)
        zz[:2, :2] += M
        cross[seen] += np.outer((row - shared.mean)[seen], z)
        second[seen[SMALL.starts]] += zz
        total += zz
    assert sums.cross == pytest.approx(cross, abs=1e-9)
    assert sums.second == pytest.approx(second, abs=1e-9)
    assert sums.squares == pytest.approx(np.nansum((rows - shared.mean) ** 2, axis=0))
    assert sums.latent_second == pytest.approx(total[:2, :2])
    assert sums.latent_first == pytest.approx(total[:2, 2])
    assert sums.n_rows == len(rows)


def test_a_view_that_the_site_lacks_is_zeros():
    rng = np.random.default_rng(1)
    rows = draw_sites(rng)[0]
    rows[:, SMALL.columns("c")] = np.nan
    sums, _ = answer_round(reduce_rows(rows, SMALL), SMALL, random_parameters(rng, SMALL, 2), draw_law(rng, 2))
    assert not sums.cross[5:].any()
    assert not sums.second[2].any()
    assert not sums.squares[5:].any()


@examples(20)
@given(seed=st.integers(0, 2**31), repetitions=st.integers(1, 6), noise=st.sampled_from(["isotropic", "diagonal"]))
def test_log_likelihood_never_falls(seed, repetitions, noise):
    rng = np.random.default_rng(seed)
    sites = reduce_sites(draw_sites(rng), SMALL)
    start = random_start(SMALL, 2, np.ones(3), rng)
    _, _, trace = fit_invariant(sites, SMALL, start, n_rounds=40, n_repetitions=repetitions, noise=noise)
    assert np.diff(trace).min() > -1e-7


def test_repetitions_raise_the_likelihood_at_the_same_parameters():
    rng = np.random.default_rng(3)
    own, shared, law = reduce_rows(draw_sites(rng)[1], SMALL), random_parameters(rng, SMALL, 2), draw_law(rng, 2)
    values = [site_log_likelihood(own, shared, law)]
    for repetitions in (1, 2, 5, 20):
        _, better = answer_round(own, SMALL, shared, law, n_repetitions=repetitions)
        values.append(site_log_likelihood(own, shared, better))
    assert (np.diff(values) > 0).all()


def test_gauge_leaves_every_site_s_law_of_rows_as_it_is():
    rng = np.random.default_rng(4)
    shared, law, gauge = random_parameters(rng, SMALL, 3), draw_law(rng, 3), draw_law(rng, 3)
    own = reduce_rows(rng.normal(size=(30, 8)), SMALL)
    moved = site_log_likelihood(own, absorb_law(shared, gauge), change_gauge(law, gauge))
    assert moved == pytest.approx(site_log_likelihood(own, shared, law), rel=1e-10)


def test_average_case_mix_is_standard_after_every_round():
    rng = np.random.default_rng(5)
    blocks = draw_sites(rng)
    sites = reduce_sites(blocks, SMALL)
    _, laws, _ = fit_invariant(sites, SMALL, start_shared(sites, SMALL, 2), n_rounds=60, n_repetitions=1)
    counts = np.array([len(rows) for rows in blocks], dtype=float)
    means = np.stack([law.mean for law in laws])
    average = counts @ means / counts.sum()
    second = sum(n * (law.covariance + np.outer(law.mean, law.mean)) for n, law in zip(counts, laws, strict=True))
    assert average == pytest.approx(np.zeros(2), abs=1e-8)
    assert second / counts.sum() == pytest.approx(np.eye(2), abs=1e-8)


def test_sums_per_feature_and_sums_per_view_give_the_same_update():
    rng = np.random.default_rng(6)
    own, shared = reduce_rows(draw_sites(rng)[1], SMALL), random_parameters(rng, SMALL, 2)
    sums, _ = answer_round(own, SMALL, shared, draw_law(rng, 2))
    wide = replace(sums, second=sums.second[SMALL.view_of])
    for noise in ("isotropic", "diagonal"):
        one, _ = maximise_shared(sums, shared, SMALL, noise=noise)
        other, _ = maximise_shared(wide, shared, SMALL, noise=noise)
        for field in ("loadings", "mean", "noise"):
            assert getattr(other, field) == pytest.approx(getattr(one, field), abs=1e-10)


def test_a_view_that_no_site_has_this_round_stays():
    rng = np.random.default_rng(7)
    rows, shared = draw_sites(rng)[0], random_parameters(rng, SMALL, 2)
    rows[:, SMALL.columns("c")] = np.nan
    sums, _ = answer_round(reduce_rows(rows, SMALL), SMALL, shared, LatentLaw.standard(2))
    fitted, gauge = maximise_shared(sums, shared, SMALL)
    kept = absorb_law(shared, gauge)
    assert fitted.loadings[5:] == pytest.approx(kept.loadings[5:])
    assert fitted.mean[5:] == pytest.approx(kept.mean[5:])
    assert (fitted.noise[5:] == shared.noise[5:]).all()
    assert np.abs(fitted.loadings[:5] - kept.loadings[:5]).max() > 1e-3


def test_order_of_sites_features_and_views_does_not_matter():
    blocks = draw_sites(np.random.default_rng(8))
    order, turned = np.array([7, 5, 6, 4, 2, 0, 3, 1]), Layout(("c", "b", "a"), (3, 1, 4))
    sites = reduce_sites(blocks, SMALL)
    start = start_shared(sites, SMALL, 2)
    one, _, trace = fit_invariant(sites, SMALL, start, n_rounds=15)
    other, _, _ = fit_invariant(sites[::-1], SMALL, start, n_rounds=15)
    assert covariance_of(other) == pytest.approx(covariance_of(one), abs=1e-9)
    moved = reduce_sites([rows[:, order] for rows in blocks], turned)
    begin = Parameters(start.loadings[order], start.mean[order], start.noise[order])
    third, _, again = fit_invariant(moved, turned, begin, n_rounds=15)
    assert covariance_of(third) == pytest.approx(covariance_of(one)[np.ix_(order, order)], abs=1e-9)
    assert again == pytest.approx(trace, abs=1e-7)


def test_rotated_start_gives_the_same_law():
    rng = np.random.default_rng(9)
    sites = reduce_sites(draw_sites(rng), SMALL)
    start = start_shared(sites, SMALL, 2)
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    turned = replace(start, loadings=(start.loadings @ turn)[:, ::-1] * [1, -1])
    one, _, _ = fit_invariant(sites, SMALL, start, n_rounds=15)
    other, _, _ = fit_invariant(sites, SMALL, turned, n_rounds=15)
    assert covariance_of(other) == pytest.approx(covariance_of(one), abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2])
def test_a_site_with_very_few_rows_does_no_harm(n):
    rng = np.random.default_rng(10)
    sites = reduce_sites([*draw_sites(rng), rng.normal(size=(n, 8))], SMALL)
    shared, laws, trace = fit_invariant(sites, SMALL, start_shared(sites, SMALL, 2), n_rounds=60)
    assert np.isfinite(trace).all()
    assert np.isfinite(shared.loadings).all()
    assert (np.linalg.eigvalsh(laws[-1].covariance) > 0).all()


def test_start_covariance_pairs_the_rows_that_show_both_views():
    rng = np.random.default_rng(11)
    rows = draw_sites(rng)[1]
    own = reduce_rows(rows, SMALL)
    sums = sum_first_moments(own, SMALL)
    seen = ~np.isnan(rows)
    assert sums.pairs[1, 0] == (seen[:, 0] & seen[:, 4]).sum()
    assert sums.total == pytest.approx(np.nansum(rows, axis=0))
    centred = np.where(seen, rows - np.nanmean(rows, axis=0), 0.0)
    expected = centred.T @ centred / (seen.T.astype(float) @ seen)
    assert multiply_second_moments(own, SMALL, np.eye(8), sums.pairs) == pytest.approx(expected, abs=1e-10)
    assert sums.variances == pytest.approx((centred**2).sum(axis=0))


def test_subspace_iteration_finds_the_start_of_the_whole_covariance():
    data, rng = simulate(5), np.random.default_rng(0)
    sites = reduce_sites(split_sites(data, 3, "K", rng))
    sums = sum([sum_first_moments(own, LAYOUT) for own in sites[1:]], sum_first_moments(sites[0], LAYOUT))

    def multiply(given):
        return sum(multiply_second_moments(own, LAYOUT, given, sums.pairs) for own in sites)

    whole = start_from_covariance(sums, multiply(np.eye(33)), LAYOUT, 5)
    directions = draw_directions(LAYOUT, 5, rng)
    for _ in range(6):
        directions = next_directions(sums, LAYOUT, multiply(scale_directions(sums, LAYOUT, directions)))
    products = multiply(scale_directions(sums, LAYOUT, directions))
    quick = start_from_products(sums, LAYOUT, directions, products, 5)
    assert quick.loadings @ quick.loadings.T == pytest.approx(whole.loadings @ whole.loadings.T, abs=1e-4)
    assert quick.noise == pytest.approx(whole.noise, rel=1e-3)


def test_start_does_not_depend_on_the_units_of_a_view():
    blocks = draw_sites(np.random.default_rng(12))
    factor = np.array([100.0, 1.0, 0.01])[SMALL.view_of]
    one = start_shared(reduce_sites(blocks, SMALL), SMALL, 2)
    other = start_shared(reduce_sites([rows * factor for rows in blocks], SMALL), SMALL, 2)
    law = covariance_of(one) * np.outer(factor, factor)
    assert covariance_of(other) == pytest.approx(law, rel=1e-6)


def test_a_view_that_no_site_has_cannot_start():
    rows = np.random.default_rng(13).normal(size=(20, 8))
    rows[:, SMALL.columns("b")] = np.nan
    with pytest.raises(DataError, match="each view must be held by at least one site; got no site with b"):
        start_shared(reduce_sites([rows], SMALL), SMALL, 2)


def test_views_never_seen_together_are_named():
    pairs = np.array([[9, 0, 4], [0, 5, 0], [4, 0, 8]])
    assert group_unlinked_views(pairs, ("a", "b", "c")) == [("a", "c"), ("b",)]


# --- intercepts of the sites ----------------------------------------------------------------------------------------


def brute_force(rows, shared, law, variance):
    """Joint Gaussian of a site's stacked rows and its intercepts."""
    n, d = rows.shape
    within = shared.loadings @ law.covariance @ shared.loadings.T + np.diag(shared.noise)
    joint = np.kron(np.eye(n), within) + np.kron(np.ones((n, n)), np.diag(variance))
    deviations = (rows - shared.mean - shared.loadings @ law.mean).ravel()
    gain = np.kron(np.ones((1, n)), np.diag(variance)) @ np.linalg.inv(joint)
    posterior = np.diag(variance) - gain @ np.kron(np.ones((n, 1)), np.diag(variance))
    likelihood = multivariate_normal(np.zeros(n * d), joint).logpdf(deviations)
    return gain @ deviations, posterior, likelihood


@pytest.fixture
def site_with_offsets():
    rng = np.random.default_rng(4)
    shared, law = random_parameters(rng, SMALL, 2), draw_law(rng, 2)
    d = SMALL.n_features
    rows = rng.standard_normal((7, d)) + 2 * rng.standard_normal(d)
    return rows, shared, law, rng.uniform(0.2, 2.0, d)


def test_a_sites_likelihood_integrates_its_intercepts_out(site_with_offsets):
    rows, shared, law, variance = site_with_offsets
    patterns = reduce_rows(rows, SMALL)
    sums, _ = answer_round(patterns, SMALL, shared, law, n_repetitions=0, intercept_variance=variance)
    mean, posterior, likelihood = brute_force(rows, shared, law, variance)
    assert sums.log_likelihood == pytest.approx(likelihood, abs=1e-8)
    np.testing.assert_allclose(variance * sums.intercept_total, mean, atol=1e-9)
    np.testing.assert_allclose(variance * sums.intercept_information, 1 - np.diag(posterior) / variance, atol=1e-9)


def test_sums_take_the_intercepts_posterior_into_account(site_with_offsets):
    rows, shared, law, variance = site_with_offsets
    sums, _ = answer_round(reduce_rows(rows, SMALL), SMALL, shared, law, n_repetitions=0, intercept_variance=variance)
    mean, posterior, _ = brute_force(rows, shared, law, variance)
    W = shared.loadings
    precision = np.linalg.inv(law.covariance)
    covariance = np.linalg.inv(precision + W.T @ (W / shared.noise[:, None]))
    project = covariance @ (W / shared.noise[:, None]).T
    residual = rows - shared.mean - mean
    latents = covariance @ precision @ law.mean + residual @ project.T
    spread = project @ posterior @ project.T
    cross = residual.T @ np.hstack([latents, np.ones((len(rows), 1))])
    cross[:, :2] += len(rows) * posterior @ project.T
    np.testing.assert_allclose(sums.cross, cross, atol=1e-8)
    np.testing.assert_allclose(sums.squares, (residual**2).sum(axis=0) + len(rows) * np.diag(posterior), atol=1e-8)
    np.testing.assert_allclose(sums.latent_second, latents.T @ latents + len(rows) * (covariance + spread), atol=1e-8)


def test_rows_that_lack_views_share_the_sites_intercepts(site_with_offsets):
    rows, shared, law, variance = site_with_offsets
    rows[:3, SMALL.columns(SMALL.names[0])] = np.nan
    held, n = ~np.isnan(rows), len(rows)
    within = shared.loadings @ law.covariance @ shared.loadings.T + np.diag(shared.noise)
    joint = (np.kron(np.eye(n), within) + np.kron(np.ones((n, n)), np.diag(variance)))[
        np.ix_(held.ravel(), held.ravel())
    ]
    deviations = (rows - shared.mean - shared.loadings @ law.mean)[held]
    sums, _ = answer_round(reduce_rows(rows, SMALL), SMALL, shared, law, n_repetitions=0, intercept_variance=variance)
    expected = multivariate_normal(np.zeros(len(deviations)), joint).logpdf(deviations)
    assert sums.log_likelihood == pytest.approx(expected, abs=1e-8)


def test_intercepts_of_rows_with_missing_entries_settle_where_the_exact_ones_are(site_with_offsets):
    """A product of Gaussians has the means of the joint one; the bound is below its likelihood."""
    rows, shared, law, variance = site_with_offsets
    moved = law
    for _ in range(200):
        sums, moved = sum_entries_around(rows, shared, moved, variance)
    mean, _, likelihood = brute_force(rows, shared, moved, variance)
    assert sums.log_likelihood < likelihood
    np.testing.assert_allclose(variance * sums.intercept_total, mean, atol=0.1)


@pytest.mark.parametrize(("deviation", "low", "high"), [(0.0, 0.0, 0.06), (0.7, 0.6, 0.8)])
def test_the_variance_of_intercepts_is_recovered(deviation, low, high):
    rng = np.random.default_rng(6)
    d, q, n = SMALL.n_features, 2, 60
    truth = random_parameters(rng, SMALL, q)
    sites = []
    for _ in range(16):
        offset = deviation * rng.standard_normal(d)
        latents = rng.standard_normal((n, q))
        rows = truth.mean + offset + latents @ truth.loadings.T + np.sqrt(truth.noise) * rng.standard_normal((n, d))
        sites.append(reduce_rows(rows, SMALL))
    shared, variance = truth, np.full(d, 0.1)
    laws = [LatentLaw.standard(q) for _ in sites]
    for _ in range(15):
        answers = [
            answer_round(site, SMALL, shared, law, intercept_variance=variance)
            for site, law in zip(sites, laws, strict=True)
        ]
        total = functools.reduce(lambda a, b: a + b, (sums for sums, _ in answers))
        shared, gauge = maximise_shared(total, centre_intercepts(total, shared, variance), SMALL)
        variance = update_intercept_variance(total, variance, SMALL, noise="isotropic")
        laws = [change_axes(law, gauge.mean, square_root(gauge.covariance)) for _, law in answers]
    assert low <= np.sqrt(variance.mean()) <= high
