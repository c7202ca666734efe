import numpy as np
import pytest
from scipy.linalg import solve_sylvester

from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre_papers.baselines.trip.maths import (
    MAX_PENALTY,
    Local,
    Settings,
    agree_on_factors,
    penalty_of_round,
    solve_distinct,
    update_site,
)

SHAPE, RANK = (15, 6, 7), 3
LETTERS = "ijk"


@pytest.fixture
def site():
    rng = np.random.default_rng(0)
    dense = rng.poisson(0.4, SHAPE).astype(float)
    places = np.argwhere(dense > 0)
    return dense, SparseTensor(places, dense[tuple(places.T)], SHAPE), rng


def lagrangian(dense, local, consensus, multipliers, penalty, distinct=0.0, frozen=None):
    rebuilt = np.einsum("ir,jr,kr->ijk", local.memberships, *local.factors)
    total = ((dense - rebuilt) ** 2).sum()
    for target, multiplier, factor in zip(consensus, multipliers, local.factors, strict=True):
        total += (multiplier * (target - factor)).sum() + penalty / 2 * ((target - factor) ** 2).sum()
    if distinct:
        total += distinct * ((frozen.T @ local.factors[0] - np.eye(RANK)) ** 2).sum()
    return total


def drawn(rng, scale=1.0):
    return [scale * rng.normal(size=(size, RANK)) for size in SHAPE[1:]]


@pytest.mark.parametrize("distinct", [0.0, 0.7])
def test_each_update_minimises_the_augmented_lagrangian(site, distinct):
    dense, tensor, rng = site
    consensus, factors, multipliers = drawn(rng), drawn(rng), drawn(rng)
    start = Local(np.ones((SHAPE[0], RANK)), factors, multipliers)
    found = update_site(tensor, start, consensus, 1.3, Settings(distinct, nonnegative=False, n_sweeps=1))
    for n in range(2):
        held = [found.factors[0] if n or m == 0 else factors[m] for m in range(2)]
        held[n] = found.factors[n]

        def value(factor, n=n, held=held):
            moved = Local(found.memberships, [factor if m == n else held[m] for m in range(2)], multipliers)
            weight = distinct if n == 0 else 0.0
            return lagrangian(dense, moved, consensus, multipliers, 1.3, weight, factors[0])

        best = value(found.factors[n])
        for _ in range(20):
            away = 1e-3 * rng.normal(size=found.factors[n].shape)
            ahead, behind = value(found.factors[n] + away), value(found.factors[n] - away)
            assert min(ahead, behind) > best
            assert ahead - behind == pytest.approx(0.0, abs=1e-9 * best)


def test_memberships_solve_the_normal_equations_or_are_nonnegative(site):
    dense, tensor, rng = site
    factors = [np.abs(factor) for factor in drawn(rng)]
    start = Local(np.ones((SHAPE[0], RANK)), factors, drawn(rng, 0.0))
    free = update_site(tensor, start, factors, 1.0, Settings(0.0, nonnegative=False, n_sweeps=1))
    others = np.einsum("jr,kr->jkr", *factors).reshape(-1, RANK)
    expected = np.linalg.lstsq(others, dense.reshape(SHAPE[0], -1).T, rcond=None)[0].T
    np.testing.assert_allclose(free.memberships, expected, atol=1e-10)
    bound = update_site(tensor, start, factors, 1.0, Settings(0.0, nonnegative=True, n_sweeps=50))
    assert free.memberships.min() < 0 <= bound.memberships.min()


def test_multipliers_move_by_what_is_left_apart(site):
    _, tensor, rng = site
    consensus, multipliers = drawn(rng), drawn(rng)
    start = Local(np.ones((SHAPE[0], RANK)), drawn(rng), multipliers)
    found = update_site(tensor, start, consensus, 2.0, Settings(0.0, nonnegative=False, n_sweeps=1))
    for n in range(2):
        moved = found.multipliers[n] - multipliers[n]
        np.testing.assert_allclose(moved, 2.0 * (consensus[n] - found.factors[n]), rtol=1e-12)


def test_the_sylvester_equation_is_solved(site):
    *_, rng = site
    right, frozen = rng.normal(size=(9, RANK)), rng.normal(size=(9, RANK))
    root = rng.normal(size=(RANK, RANK))
    gram = root @ root.T + np.eye(RANK)
    expected = solve_sylvester(0.4 * frozen @ frozen.T, gram, right)
    np.testing.assert_allclose(solve_distinct(right, gram, frozen, 0.4), expected, atol=1e-12)
    np.testing.assert_allclose(solve_distinct(right, gram, 0 * frozen, 0.4) @ gram, right, atol=1e-12)


def test_the_consensus_minimises_what_the_sites_add():
    rng = np.random.default_rng(1)
    factors, multipliers = rng.normal(size=(4, 5, RANK)), rng.normal(size=(4, 5, RANK))
    sums = {"a": factors.sum(axis=0)}, {"a": multipliers.sum(axis=0)}
    free = agree_on_factors(*sums, 4, 0.6, nonnegative=False)["a"]
    slope = (multipliers + 0.6 * (free - factors)).sum(axis=0)
    np.testing.assert_allclose(slope, 0.0, atol=1e-12)
    bound = agree_on_factors(*sums, 4, 0.6, nonnegative=True)["a"]
    slope = (multipliers + 0.6 * (bound - factors)).sum(axis=0)
    assert np.abs(slope[bound > 0]).max() < 1e-12
    assert (slope[bound == 0] > 0).all()


def test_the_penalty_grows_up_to_its_limit():
    assert [penalty_of_round(3.0, 1.1, number) for number in (1, 2)] == pytest.approx([3.0, 3.3])
    assert penalty_of_round(3.0, 1.1, 10**6) == MAX_PENALTY
    assert penalty_of_round(7.0, 1.0, 10**6) == 7.0
