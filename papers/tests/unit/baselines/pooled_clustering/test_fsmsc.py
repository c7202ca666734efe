"""FSMSC: exact steps, an objective that never rises, and clusters of its weights."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from multicentre.errors import ConfigurationError, DataError
from multicentre_papers.baselines.pooled_clustering.base import standardise
from multicentre_papers.baselines.pooled_clustering.fsmsc import (
    FSMSC,
    Problem,
    fit_guide,
    fit_joint_weights,
    fit_weights,
    improve,
    objective,
    rotated_coordinates,
    start_from,
)

TRUTH = np.repeat([0, 1, 2], 20)


def views(spread=1.0, widths=(6, 40, 150), seed=0):
    rng = np.random.default_rng(seed)
    return {f"view {d}": 3.0 * rng.normal(size=(3, d))[TRUTH] + spread * rng.normal(size=(60, d)) for d in widths}


def problem(ridge=1.0, tau=0.1, guide=5.0, m=3, widths=(6, 40, 150)):
    standardised = [standardise(X) for X in views(2.0, widths).values()]
    turned = tuple(rotated_coordinates(X, m) for X in standardised)
    return Problem(
        turned, rotated_coordinates(np.hstack(standardised), m), guide=guide, shrink=2.0, tau=tau, ridge=ridge
    )


def state_of(given, m=3, rounds=2):
    state = start_from(np.arange(m) * 20, given)
    for _ in range(rounds):
        state = improve(state, given)
    return state


@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize(("guide", "tau"), [(500.0, 1e-3), (1.0, 1.0), (0.01, 10.0)])
@pytest.mark.parametrize(("m", "widths"), [(3, (6, 40, 150)), (5, (2, 3)), (3, (1,))])
def test_the_objective_never_rises(ridge, guide, tau, m, widths):
    given = problem(ridge, tau, guide, m, widths)
    state = improve(start_from(np.arange(m), given), given)
    trace = [objective(state, given)]
    for _ in range(15):
        state = improve(state, given)
        trace.append(objective(state, given))
    assert np.diff(trace).max() <= 1e-10 * trace[0]
    assert trace[-1] < trace[0]


@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_the_weights_are_the_solution_of_the_quadratic_programme(ridge):
    given = problem(ridge, guide=100.0)
    state = state_of(given)
    Z = fit_weights(state, given)
    assert np.mean((Z > 0.01) & (Z < 0.99)) > 0.5
    for i in (0, 25, 59):

        def value(z, i=i):
            moved = state.Z.copy()
            moved[i] = z
            return objective(replace(state, Z=moved), given)

        found = minimize(
            value,
            np.full(3, 1 / 3),
            bounds=[(0, 1)] * 3,
            constraints={"type": "eq", "fun": lambda z: z.sum() - 1},
            tol=1e-13,
        )
        np.testing.assert_allclose(Z[i], found.x, rtol=0, atol=1e-4)
    np.testing.assert_allclose(Z.sum(axis=1), 1.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize(("block", "step"), [("Q", fit_guide), ("J", fit_joint_weights)])
def test_the_free_blocks_are_stationary(ridge, block, step):
    given = problem(ridge)
    state = state_of(given)
    state = replace(state, **{block: step(state, given)})
    best, rng = objective(state, given), np.random.default_rng(0)
    for _ in range(5):
        direction = rng.normal(size=getattr(state, block).shape)
        ahead, behind = (
            objective(replace(state, **{block: getattr(state, block) + sign * 1e-3 * direction}), given)
            for sign in (1, -1)
        )
        assert ahead > best
        assert ahead == pytest.approx(behind, abs=1e-3 * (ahead - best))


def test_maps_and_anchors_are_orthonormal():
    state = state_of(problem(widths=(2, 40, 150)))
    for matrix in (*state.W, state.A, state.D):
        np.testing.assert_allclose(matrix.T @ matrix, np.eye(3), rtol=0, atol=1e-12)


def test_fewer_coordinates_give_the_same_objective():
    standardised = tuple(standardise(X) for X in views(2.0).values())
    joint = np.hstack(standardised)
    whole = Problem(standardised, joint, guide=5.0, shrink=2.0, tau=0.1, ridge=1.0)
    turned = problem()
    assert [X.shape[1] for X in turned.views] == [6, 40, 60]
    a, b = state_of(whole, rounds=12), state_of(turned, rounds=12)
    np.testing.assert_allclose(a.Z, b.Z, rtol=0, atol=1e-8)
    assert objective(a, whole) == pytest.approx(objective(b, turned), rel=1e-10)


@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_separate_groups_are_found(ridge):
    model = FSMSC(3, ridge=ridge, random_state=0).fit(views())
    assert adjusted_rand_score(TRUTH, model.labels_) > 0.94
    assert model.weights_.shape == model.embedding_.shape == (60, 3)
    assert model.weights_.min() >= 0
    np.testing.assert_allclose(model.weights_.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert len(model.objective_) == 20
    assert np.diff(model.objective_).max() < 0


def test_the_order_of_samples_does_not_count_and_a_seed_repeats_a_fit():
    data = views()
    order = np.random.default_rng(1).permutation(60)
    model = FSMSC(3, random_state=0).fit(data)
    moved = clone(model).fit({view: X[order] for view, X in data.items()})
    assert adjusted_rand_score(model.labels_[order], moved.labels_) == 1.0
    again = clone(model).fit(data)
    np.testing.assert_array_equal(model.labels_, again.labels_)
    np.testing.assert_array_equal(model.objective_, again.objective_)


@pytest.mark.parametrize("n_clusters", [2, 6])
def test_constant_views_few_samples_and_as_many_clusters_do_no_harm(n_clusters):
    data = {"a": np.random.default_rng(0).normal(size=(6, 2)), "constant": np.ones((6, 1))}
    model = FSMSC(n_clusters, random_state=0).fit(data)
    assert len(model.labels_) == 6
    assert np.isfinite(model.embedding_).all()
    assert np.isfinite(model.objective_).all()


def test_samples_that_are_all_the_same_are_stood():
    model = FSMSC(2, random_state=0).fit({"a": np.ones((5, 3))})
    assert np.isfinite(model.weights_).all()
    assert len(model.labels_) == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [("guide", 0.0), ("shrink", -1.0), ("tau", np.nan), ("ridge", -1.0), ("n_iterations", 0), ("n_init", 1.5)],
)
def test_parameters_that_cannot_be_used_are_refused(name, value):
    with pytest.raises(ConfigurationError) as refused:
        FSMSC(2, **{name: value}).fit(views())
    assert refused.value.where == name


def test_missing_entries_are_refused():
    data = views()
    data["view 6"][3, 1] = np.nan
    with pytest.raises(DataError, match=r"view 'view 6'.*missing"):
        FSMSC(3).fit(data)
