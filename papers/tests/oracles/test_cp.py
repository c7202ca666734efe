"""CP-ALS beside pyttb from the same start, and CP-SGD beside a loop over entries in plain Python."""

import numpy as np
import pytest
import pyttb

from multicentre_papers.baselines.cp import CPALS, CPSGD
from multicentre_papers.entry_descent import draw_scaled
from support.event_sites import simulate_events

pytestmark = pytest.mark.filterwarnings("ignore:CPSGD minimises the error at positive entries only:UserWarning")


def start_of(tensor, rank, seed=3):
    generator = np.random.default_rng(seed)
    return {mode: generator.random((len(names), rank)) for mode, names in tensor.codes.items()}


def fit_of_pyttb(tensor, start, n_iterations, rank):
    sparse = pyttb.sptensor(tensor.coordinates.astype(int), tensor.counts[:, None], tensor.shape)
    init = pyttb.ktensor([np.ones((len(tensor), rank)), *(factor.copy() for factor in start.values())])
    model, _, found = pyttb.cp_als(sparse, rank, init=init, maxiters=n_iterations, stoptol=0.0, printitn=0)
    return model, found["fit"]


@pytest.mark.parametrize("n_iterations", [1, 2, 10])
@pytest.mark.parametrize("sizes", [(9, 12), (5, 6, 4)], ids=["three modes", "four modes"])
def test_als_has_the_fit_of_pyttb(sizes, n_iterations):
    tensor = simulate_events(80, sizes, rate=2.0).tensor
    start = start_of(tensor, 3)
    fit = CPALS(3, init=start, max_iter=n_iterations, tol=0.0).fit(tensor)
    model, expected = fit_of_pyttb(tensor, start, n_iterations, 3)
    assert fit.reconstruction_errors_.fit == pytest.approx(expected, abs=1e-10)
    assert fit.history_[-1]["rmse"] == pytest.approx(fit.reconstruction_errors_.rmse, rel=1e-9)
    rebuilt = np.einsum("r,r...->...", np.ones(3), np.stack([outer(fit, r) for r in range(3)]))
    np.testing.assert_allclose(rebuilt, model.full().data, atol=1e-7)


def outer(fit, component):
    columns = [fit.memberships_[:, component], *(factor[:, component] for factor in fit.factors_.values())]
    product = columns[0]
    for column in columns[1:]:
        product = np.multiply.outer(product, column)
    return product


def test_als_stops_where_pyttb_stops():
    tensor = simulate_events(80).tensor
    start = start_of(tensor, 3)
    fit = CPALS(3, init=start, tol=1e-5).fit(tensor)
    sparse = pyttb.sptensor(tensor.coordinates.astype(int), tensor.counts[:, None], tensor.shape)
    init = pyttb.ktensor([np.ones((len(tensor), 3)), *start.values()])
    _, _, found = pyttb.cp_als(sparse, 3, init=init, maxiters=100, stoptol=1e-5, printitn=0)
    assert fit.converged_
    assert fit.n_iter_ == found["iters"] + 1


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("shuffle", ["entries", "patients"])
def test_sgd_is_the_loop_over_entries(shuffle, nonnegative):
    tensor, step = simulate_events(20, (4, 5), rank=2, rate=0.5).tensor, 0.05
    fit = CPSGD(2, learning_rate=step, max_epochs=3, shuffle=shuffle, nonnegative=nonnegative).fit(tensor)
    generator = np.random.default_rng(0)
    factors, _ = draw_scaled(tensor.shape, 2, tensor.counts.mean(), generator)
    for _ in range(3):
        if shuffle == "entries":
            order = generator.permutation(tensor.nnz)
        else:
            turns = generator.permutation(20)
            patients = tensor.coordinates[:, 0]
            order = [e for turn in range(20) for e in range(tensor.nnz) if turns[patients[e]] == turn]
        for e in order:
            visit(factors, tensor.coordinates[e], tensor.counts[e], step, nonnegative)
    memberships = factors[0] * np.linalg.norm(factors[1], axis=0) * np.linalg.norm(factors[2], axis=0)
    heaviest = np.argsort(-np.linalg.norm(memberships, axis=0))
    np.testing.assert_allclose(fit.memberships_, memberships[:, heaviest], rtol=1e-10, atol=1e-12)
    for found, factor in zip(fit.factors_.values(), factors[1:], strict=True):
        unit = (factor / np.linalg.norm(factor, axis=0))[:, heaviest]
        np.testing.assert_allclose(found, unit, rtol=1e-10, atol=1e-12)


def visit(factors, place, count, step, nonnegative):
    for n in range(3):
        others = np.prod([factors[m][place[m]] for m in range(3) if m != n], axis=0)
        residual = factors[n][place[n]] @ others - count
        moved = factors[n][place[n]] - step * residual * others
        factors[n][place[n]] = np.maximum(moved, 0.0) if nonnegative else moved
