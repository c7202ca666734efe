import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.multiview.ppca.maths.acceleration import MAX_POINTS, Trail, extrapolate
from multicentre.multiview.ppca.maths.gauge import prior_units
from support.examples import examples


def contraction(rng, p):
    """Return a linear map with its fixed point; its slowest direction halves in 69 steps."""
    axes = np.linalg.qr(rng.normal(size=(p, p)))[0]
    matrix, fixed = axes @ np.diag(np.linspace(0.1, 0.99, p)) @ axes.T, rng.normal(size=p)
    return lambda x: fixed + matrix @ (x - fixed), fixed


def climb(image, objective, start, n_rounds):
    trail, point, values = Trail.begin(len(start)), start, []
    for _ in range(n_rounds):
        value = objective(point)
        trail = trail.accept(point, image(point), value) if trail.accepts(value) else trail.refuse()
        values.append(trail.best)
        point = trail.propose(np.ones(len(start)))
    return trail, np.array(values)


@examples(20)
@given(seed=st.integers(0, 2**31))
def test_a_slow_map_ends_in_tens_of_rounds_and_the_objective_never_falls(seed):
    rng = np.random.default_rng(seed)
    image, fixed = contraction(rng, 6)

    def objective(x):
        return -float((x - fixed) @ (x - image(x)))

    start = fixed + rng.normal(size=6)
    trail, values = climb(image, objective, start, 25)
    assert np.diff(values).min() >= -2e-6
    plain = start
    for _ in range(25):
        plain = image(plain)
    assert np.linalg.norm(trail.points[-1] - fixed) < 0.1 * np.linalg.norm(plain - fixed)


def test_a_map_that_lowers_the_objective_is_refused_and_the_best_point_stays():
    trail, values = climb(lambda x: 1.5 * x, lambda x: -float(x @ x), np.ones(3), 6)
    assert trail.refusals == 5
    assert (values == -3.0).all()
    assert trail.points.tolist() == [[1.0, 1.0, 1.0]]


def test_refused_points_give_way_to_the_image_the_plain_image_and_points_on_the_way_to_it():
    trail = Trail.begin(1).accept(np.zeros(1), np.full(1, 8.0), 0.0, plain=np.full(1, 4.0))
    proposed = []
    for _ in range(4):
        proposed.append(float(trail.propose(np.ones(1))[0]))
        trail = trail.refuse()
    assert proposed == [8.0, 8.0, 4.0, 2.0]


def test_few_points_are_kept_and_they_move_with_the_units():
    trail = Trail.begin(2)
    for number in range(30):
        trail = trail.accept(np.full(2, float(number)), np.full(2, number + 1.0), float(number))
    assert len(trail.points) == MAX_POINTS
    moved = trail.moved(lambda point: 2.0 * point)
    assert (moved.points == 2.0 * trail.points).all()
    assert (moved.images == 2.0 * trail.images).all()


def test_points_on_one_line_do_not_break_the_least_squares():
    points = np.outer(np.arange(5.0), np.ones(3))
    assert np.isfinite(extrapolate(points, points + 1.0, np.ones(3))).all()


@examples(30)
@given(seed=st.integers(0, 2**31), q=st.integers(1, 4))
def test_units_solve_their_equation_and_the_plain_step_raises_the_priors(seed, q):
    """Case mixes (n S + w)/(n + w) with a prior of weight w, and loadings with a Gaussian prior."""
    rng = np.random.default_rng(seed)
    n, w = rng.integers(20, 200, size=3).astype(float), float(rng.choice([10.0, 100.0, 1e6]))
    roots, wide = rng.normal(size=(3, q, q)), rng.normal(size=(6, q))
    seen, P = [root @ root.T + 0.2 * np.eye(q) for root in roots], 30 * wide.T @ wide

    def priors(S):
        """Log density of the latents and their priors at units S, with the case mixes at their best."""
        root = np.linalg.cholesky(S)
        value = -0.5 * np.trace(P @ S)
        for count, one in zip(n, seen, strict=True):
            inner = np.linalg.solve(root, np.linalg.solve(root, one).T)
            law = (count * inner + w * np.eye(q)) / (count + w)
            volume = np.linalg.slogdet(law)[1]
            value -= 0.5 * ((count + w) * volume + count * np.linalg.slogdet(S)[1] + w * np.trace(np.linalg.inv(law)))
            value -= 0.5 * count * np.trace(np.linalg.solve(law, inner))
        return value

    laws = [(count * one + w * np.eye(q)) / (count + w) for count, one in zip(n, seen, strict=True)]
    pull = sum(w * (np.eye(q) - np.linalg.inv(law)) for law in laws)
    S = prior_units(pull, n.sum(), P)
    assert n.sum() * S + S @ P @ S == pytest.approx(n.sum() * np.eye(q) + pull, rel=1e-6, abs=1e-6 * n.sum())
    assert priors(S) >= priors(np.eye(q)) - 1e-6 * abs(priors(S))
