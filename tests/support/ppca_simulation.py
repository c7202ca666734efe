"""Simulated multi-view centres after Balelli et al. (2021, section 4.1), and loops that play coordinator and sites."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from multicentre.multiview.ppca.maths.global_step import first_prior, log_prior_of_centre, regauge_prior, step_prior
from multicentre.multiview.ppca.maths.hierarchy import LatentSums, Site, expect_patterns, fit_around
from multicentre.multiview.ppca.maths.invariant import (
    answer_round,
    average_law,
    site_log_likelihood,
    update_shared,
)
from multicentre.multiview.ppca.maths.model import LatentLaw, Layout, Parameters, absorb_law, change_axes, square_root
from multicentre.multiview.ppca.maths.moments import reduce_rows
from multicentre.multiview.ppca.maths.prior import site_contribution
from multicentre.multiview.ppca.maths.start import (
    multiply_second_moments,
    start_from_covariance,
    sum_first_moments,
)

LAYOUT = Layout(("first", "second", "third"), (15, 8, 10))
SPREADS, NOISE_VARIANCES, N_COMPONENTS = (10.0, 5.0, 15.0), (2.0, 1.0, 3.0), 5


@dataclass(frozen=True)
class Simulated:
    rows: np.ndarray
    group: np.ndarray
    truth: Parameters


def simulate(seed, *, shift="paper", n=400, n_shifted=250, scale="view"):
    """Draw rows of two groups; `scale` brings every view by one number, or every feature, to the unit interval."""
    rng = np.random.default_rng(seed)
    d = LAYOUT.n_features
    reach = np.array(SPREADS)[LAYOUT.view_of]
    loadings = rng.uniform(-1, 1, size=(d, N_COMPONENTS)) * reach[:, None]
    mean = rng.uniform(-1, 1, size=d) * reach
    noise = np.array(NOISE_VARIANCES)[LAYOUT.view_of]
    direction = rng.uniform(-10, 10, size=N_COMPONENTS)
    if shift == "mild":
        direction *= 2 / np.linalg.norm(direction)
    group = np.zeros(n, dtype=int)
    group[rng.permutation(n)[:n_shifted]] = 1
    latents = rng.normal(size=(n, N_COMPONENTS)) + group[:, None] * direction
    rows = latents @ loadings.T + mean + rng.normal(size=(n, d)) * np.sqrt(noise)
    unit, low = scale_of(rows, scale)
    truth = Parameters(loadings / unit[:, None], (mean - low) / unit, noise / unit**2)
    return Simulated((rows - low) / unit, group, truth)


def hold_out(data, n):
    """Cut the simulated rows, whose order is random, into the first n and the rest."""
    first = Simulated(data.rows[:n], data.group[:n], data.truth)
    return first, Simulated(data.rows[n:], data.group[n:], data.truth)


def scale_of(rows, scale):
    d = rows.shape[1]
    if scale == "feature":
        return np.ptp(rows, axis=0), rows.min(axis=0)
    if scale == "view":
        spread = np.array([rows[:, LAYOUT.columns(name)].std(axis=0).mean() for name in LAYOUT.names])
        return spread[LAYOUT.view_of], np.zeros(d)
    return np.ones(d), np.zeros(d)


def split_sites(data, n_sites, scenario, rng):
    """Split rows as in Table 1: IID, G (groups apart), K (views missing), G/K."""
    sites = [[] for _ in range(n_sites)]
    third = n_sites // 3
    for value in (0, 1):
        members = rng.permutation(np.flatnonzero(data.group == value))
        homes = list(range(n_sites))
        if scenario.startswith("G"):
            homes = list(range(third)) + list(range((1 + value) * third, (2 + value) * third))
        for i, home in enumerate(homes):
            sites[home].extend(members[i :: len(homes)])
    blocks = []
    for index, own in enumerate(sites):
        rows = data.rows[np.array(own)].copy()
        if scenario.endswith("K") and index >= third:
            rows[:, LAYOUT.columns("second" if index < 2 * third else "third")] = np.nan
        blocks.append(rows)
    return blocks


def start_shared(sites, layout, n_components):
    sums = sum([sum_first_moments(own, layout) for own in sites[1:]], sum_first_moments(sites[0], layout))
    identity = np.eye(layout.n_features)
    covariance = sum(multiply_second_moments(own, layout, identity, sums.pairs) for own in sites)
    return start_from_covariance(sums, covariance, layout, n_components)


def maximise_shared(sums, previous, layout, *, noise="isotropic"):
    """M-step, then the latents in units where the average case mix is N(0, I); the average is the second result."""
    gauge = average_law(sums)
    return absorb_law(update_shared(sums, previous, layout, noise=noise), gauge), gauge


def fit_invariant(sites, layout, start, *, n_rounds=30, n_repetitions=5, noise="isotropic", fixed_law=False):
    """Return the shared parameters, the sites' laws and the log-likelihood before every round and at the end."""
    laws = [LatentLaw.standard(start.n_components) for _ in sites]
    shared, trace = start, []
    for _ in range(n_rounds):
        answers = [
            answer_round(own, layout, shared, law, n_repetitions=0 if fixed_law else n_repetitions)
            for own, law in zip(sites, laws, strict=True)
        ]
        sums = sum([answer[0] for answer in answers[1:]], answers[0][0])
        shared, gauge = maximise_shared(sums, shared, layout, noise=noise)
        if not fixed_law:
            laws = [change_gauge(answer[1], gauge) for answer in answers]
        trace.append(sums.log_likelihood)
    trace.append(sum(site_log_likelihood(own, shared, law) for own, law in zip(sites, laws, strict=True)))
    return shared, laws, np.array(trace)


def change_gauge(law, gauge):
    """Bring a site's latent law into units of `gauge`, as sites do."""
    return change_axes(law, gauge.mean, square_root(gauge.covariance))


def regauge_site(parameters, law, gauge):
    return absorb_law(parameters, gauge), change_gauge(law, gauge)


def fit_site(patterns, layout, start, law, prior, *, n_iterations=5, noise="isotropic", case_mix_weight=0.0):
    """Fit one site around the prior, from its moments; return the fit, its state, the case mix and the last E-step."""
    features = np.logical_or.reduce([pattern.features for pattern in patterns])
    expect = partial(expect_patterns, patterns, layout)
    far = np.full(layout.n_views, np.inf)
    site = Site(expect, features, layout, prior, noise, case_mix_weight, far)
    state = start if isinstance(start, LatentSums) else site.start(start, law)
    return fit_around(site, state, law, n_iterations=n_iterations)


def fit_hierarchical(sites, layout, shared, laws, *, n_rounds=20, n_iterations=5, reml=False, plain=False):
    """Return the global law, the sites' parameters and case mixes, and the objective of each round."""
    prior, far = first_prior(shared, layout), np.full(layout.n_views, np.inf)
    state, trace = [(shared, law) for law in laws], []
    for _ in range(n_rounds):
        answers = [
            fit_site(own, layout, *mine, prior, n_iterations=n_iterations)
            for own, mine in zip(sites, state, strict=True)
        ]
        parts = [site_contribution(fit, prior, layout) for fit, *_ in answers]
        sums = sum(parts[1:], parts[0])
        value = log_prior_of_centre(sums, prior, layout, centre_variance=far, reml=reml)
        trace.append(value + sum(fit.objective[-1] for fit, *_ in answers))
        prior = step_prior(sums, prior, layout, centre_variance=far, reml=reml, plain=plain)
        state = [(after, law) for _, after, law, _ in answers]
    found = [(fit.parameters, law) for fit, _, law, _ in answers]
    average = sum([latents for *_, latents in answers[1:]], answers[0][3]).law
    return regauge_prior(prior, layout, average), found, np.array(trace)


def covariance_of(parameters):
    return parameters.loadings @ parameters.loadings.T + np.diag(parameters.noise)


def relative_error(estimate, truth):
    return np.linalg.norm(estimate - truth) / np.linalg.norm(truth)


def largest_angle(one, other):
    """Largest principal angle between two column spaces, in degrees, exact for small ones."""
    a, b = np.linalg.qr(one)[0], np.linalg.qr(other)[0]
    return np.degrees(np.arcsin(min(1.0, np.linalg.norm(b - a @ (a.T @ b), ord=2))))


def reduce_sites(blocks, layout=LAYOUT):
    return [reduce_rows(rows, layout) for rows in blocks]


def random_parameters(rng, layout, q, *, noise=0.3):
    d = layout.n_features
    return Parameters(
        rng.normal(size=(d, q)), rng.normal(size=d), (noise * rng.uniform(0.5, 2, layout.n_views))[layout.view_of]
    )
