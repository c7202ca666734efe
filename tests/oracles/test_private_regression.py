"""Intervals of private fits cover the truth at their level, in simulations of the sums and their noise."""

import numpy as np
import pytest
from scipy.special import expit

from multicentre.regression.private import maths
from multicentre.regression.private.rounds import N_ROUNDS, plan_noise

LINEAR = np.array([0.1, 0.3, -0.2, 0.0])
LOGISTIC = np.array([-1.0, 1.5, -1.0, 0.0])


def draw(rng, n):
    return np.column_stack([np.ones(n), np.clip(rng.normal(0.0, 0.33, (n, 3)), -1, 1)])


def noised(values, sd, rng):
    return values + sd * rng.normal(size=values.shape)


def fit_linear(rng, n, epsilon):
    rows = draw(rng, n)
    outcome = np.clip(rows @ LINEAR + 0.15 * rng.normal(size=n), -1, 1)
    sd = plan_noise("gaussian", epsilon, 1e-5).releases[0].noise.multipliers["products"]
    packed = noised(maths.sum_moments(np.column_stack([rows, outcome])), sd, rng)
    return maths.fit_linear(maths.read_moments(packed, 5), sd / maths.row_unit(5) ** 2)


def fit_logistic(rng, n, epsilon):
    rows, unit = draw(rng, n), maths.row_unit(4)
    outcome = (rng.random(n) < expit(rows @ LOGISTIC)).astype(float)
    first, each = (planned.noise.multipliers for planned in plan_noise("binomial", epsilon, 1e-5).releases)
    packed = noised(maths.sum_moments(np.column_stack([rows, 2 * outcome - 1])), first["products"], rng)
    moments = maths.read_moments(packed, 5)
    point = maths.start_logistic(moments, first["products"] / maths.row_unit(5) ** 2)
    information_sd = each["information"] / (4 * unit**2)
    points, gradients, informations = [], [], []
    for _ in range(N_ROUNDS):
        sums = maths.sum_logistic(rows, outcome, point)
        read = maths.read_logistic(noised(sums[0], each["gradient"], rng), noised(sums[1], each["information"], rng))
        points.append(point)
        gradients.append(read[0])
        informations.append(read[1])
        point = maths.newton_step(point, *read, information_sd)
    return maths.fit_logistic(
        np.array(points[1:]),
        np.array(gradients[1:]),
        np.array(informations[1:]),
        each["gradient"] / unit,
        information_sd,
        float(moments[0, 0]),
    )


def coverage(fit, truth, n, epsilon, repeats):
    """Return the share of intervals that cover the truth, of usable fits, and the share of these."""
    rng, covered = np.random.default_rng(17), []
    for _ in range(repeats):
        found = fit(rng, n, epsilon)
        errors = np.sqrt(np.diagonal(found.sampling + found.noise))
        covered += [abs(found.coefficients - truth) < 1.96 * errors] if found.is_usable else []
    return float(np.mean(covered)), len(covered) / repeats


# The share of 95 % intervals of r repeats has a standard error of at most 0.22 / sqrt(r), less where the 4 coefficients
# are not alike: the limits are four of these.
@pytest.mark.parametrize(("fit", "truth"), [(fit_linear, LINEAR), (fit_logistic, LOGISTIC)])
def test_intervals_have_their_level(fit, truth):
    share, usable = coverage(fit, truth, 4000, 3.0, 60)
    assert usable > 0.9
    assert share == pytest.approx(0.95, abs=4 * 0.44 / np.sqrt(60 * usable) / 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fit", "truth", "n", "epsilon"),
    [
        (fit_linear, LINEAR, 5000, 1.0),
        (fit_linear, LINEAR, 30_000, 1.0),
        (fit_linear, LINEAR, 3000, 10.0),
        (fit_logistic, LOGISTIC, 10_000, 1.0),
        (fit_logistic, LOGISTIC, 10_000, 10.0),
    ],
)
def test_intervals_have_their_level_at_other_sizes(fit, truth, n, epsilon):
    share, usable = coverage(fit, truth, n, epsilon, 400)
    assert usable > 0.9
    assert share == pytest.approx(0.95, abs=4 * 0.44 / np.sqrt(400 * usable) / 2)


@pytest.mark.parametrize(("fit", "n"), [(fit_linear, 200), (fit_logistic, 600)])
def test_a_fit_that_the_noise_hides_is_called_so(fit, n):
    rng = np.random.default_rng(5)
    assert not any(fit(rng, n, 0.5).is_usable for _ in range(20))


def test_noise_of_the_sums_has_the_variance_of_the_theory():
    """The noise of a packed matrix, unpacked and multiplied by a vector, has the covariance of `product_noise`."""
    from multicentre.statistics.symmetric import unpack_symmetric

    vector = np.array([1.0, -0.5, 2.0])
    # A noise matrix is linear in the 6 packed numbers, which are independent.
    linear = np.array([(unpack_symmetric(one) @ vector)[:2] for one in np.eye(6)])
    assert 0.7**2 * linear.T @ linear == pytest.approx(maths.product_noise(vector, 0.7, 2), rel=1e-12)


def test_without_noise_the_fit_is_least_squares():
    rng = np.random.default_rng(3)
    rows = draw(rng, 500)
    outcome = np.clip(rows @ LINEAR + 0.1 * rng.normal(size=500), -1, 1)
    table = np.column_stack([rows, outcome])
    found = maths.fit_linear(table.T @ table, 0.0)
    best, squares, *_ = np.linalg.lstsq(rows, outcome, rcond=None)
    assert found.coefficients == pytest.approx(best, rel=1e-9)
    assert found.dispersion == pytest.approx(squares[0] / 496, rel=1e-9)
    assert found.sampling == pytest.approx(np.linalg.inv(rows.T @ rows) * squares[0] / 496, rel=1e-9)
