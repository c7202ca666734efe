"""The case mix of a site at the maximum of the likelihood, against EM and numerical maximisation."""

import numpy as np
from scipy.optimize import minimize

from multicentre.multiview.ppca.maths.case_mix import maximise_law
from multicentre.multiview.ppca.maths.invariant import answer_round, site_log_likelihood
from multicentre.multiview.ppca.maths.model import LatentLaw, Layout, Parameters
from multicentre.multiview.ppca.maths.moments import reduce_rows

LAYOUT = Layout(("blood", "image"), (4, 3))


def rows_of(spread, seed=0, n=60):
    rng = np.random.default_rng(seed)
    shared = Parameters(rng.normal(size=(7, 2)), rng.normal(size=7), np.repeat([0.3, 0.5], [4, 3]))
    latents = np.array([1.0, -2.0]) + rng.normal(size=(n, 2)) * spread
    rows = latents @ shared.loadings.T + shared.mean + rng.normal(size=(n, 7)) * np.sqrt(shared.noise)
    return reduce_rows(rows, LAYOUT), shared


def test_the_closed_form_is_the_numerical_maximum():
    patterns, shared = rows_of([1.0, 0.5])
    sums, law = answer_round(patterns, LAYOUT, shared, LatentLaw.standard(2))

    def negative(values):
        root = np.array([[values[2], 0.0], [values[3], values[4]]])
        return -site_log_likelihood(patterns, shared, LatentLaw(values[:2], root @ root.T))

    best = minimize(negative, [0.0, 0.0, 1.0, 0.0, 1.0], tol=1e-12)
    np.testing.assert_allclose(sums.log_likelihood, -best.fun, atol=1e-6)
    np.testing.assert_allclose(law.mean, best.x[:2], atol=1e-3)


def test_a_variance_of_zero_is_reached_at_once_and_not_by_em():
    """EM with a hundred steps stays below the maximum; the closed form is the limit but for the least variance."""
    patterns, shared = rows_of([1.0, 0.0], seed=3)
    sums, law = answer_round(patterns, LAYOUT, shared, LatentLaw.standard(2))
    by_em, _ = answer_round(patterns, LAYOUT, shared, LatentLaw.standard(2), n_repetitions=100, case_mix_weight=1e-300)
    assert np.linalg.eigvalsh(law.covariance)[0] < 1e-4
    assert by_em.log_likelihood < sums.log_likelihood - 1e-3


def test_rows_without_information_on_a_direction_have_no_unique_maximum():
    assert maximise_law(np.diag([1.0, 0.0]), np.zeros(2), np.diag([1.0, 0.0])) is None
