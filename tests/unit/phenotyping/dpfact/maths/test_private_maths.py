"""What single patients add to the noised sums of DPFact, and what is made of the sums."""

import numpy as np
import pytest
from scipy.optimize import nnls

from multicentre.phenotyping.dpfact.maths import local as noised
from multicentre.phenotyping.dpfact.maths import private
from multicentre.phenotyping.dpfact.maths.cooccurrence import flatten_marginals, split_marginals
from multicentre.phenotyping.kernels.clipped import unpack_gram
from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre.phenotyping.kernels.patients import cooccurrence
from support.event_sites import simulate_events

BOUNDS = (0.1, 0.1)
by_modes = pytest.mark.parametrize("sizes", [(5, 6), (3, 4, 3)], ids=["two modes", "three modes"])


def tensor_of(sizes, n=40, seed=0):
    drawn = simulate_events(n, sizes, rank=2, seed=seed, rate=2.0).tensor
    return SparseTensor(drawn.coordinates, drawn.counts, drawn.shape)


def take(tensor, patients):
    """Return the patients in this order."""
    place = np.full(tensor.shape[0], -1)
    place[patients] = np.arange(len(patients))
    moved = place[tensor.coordinates[:, 0]]
    order = np.argsort(moved, kind="stable")
    order = order[moved[order] >= 0]
    coordinates = tensor.coordinates[order].copy()
    coordinates[:, 0] = moved[order]
    return SparseTensor(coordinates, tensor.counts[order], (len(patients), *tensor.shape[1:]))


def public_factors(sizes, rank=3, seed=1):
    random = np.random.default_rng(seed)
    return [private.shorten_columns(random.random((size, rank))) for size in sizes]


def products(tensor, factors, axis):
    return private.sum_clipped_products(tensor, factors, axis, bounds=BOUNDS, n_sweeps=5)


def descend(tensor, factors, axis, *, n_passes=1, step=0.3, largest_product=0.5):
    return private.descend_clipped(
        tensor, factors, axis, n_passes=n_passes, step=step, largest_product=largest_product, n_sweeps=5, seed=3
    )


# --- every patient adds what the patient's own record says ----------------------------------------------------------


@by_modes
def test_a_sum_is_that_of_every_patient_alone_to_the_last_bit(sizes):
    tensor, factors = tensor_of(sizes), public_factors(sizes)
    alone = [take(tensor, [i]) for i in range(tensor.shape[0])]
    assert np.array_equal(
        flatten_marginals(cooccurrence(tensor)), sum(flatten_marginals(cooccurrence(one)) for one in alone)
    )
    for axis in range(1, len(sizes) + 1):
        for whole, parts in zip(
            products(tensor, factors, axis),
            zip(*(products(one, factors, axis) for one in alone), strict=True),
            strict=True,
        ):
            assert np.array_equal(whole, sum(parts))
            assert np.any(whole)


@by_modes
@pytest.mark.parametrize("place", [0, 17, 40])
def test_a_patient_more_leaves_memberships_and_order_of_the_others(sizes, place):
    tensor, factors = tensor_of(sizes), public_factors(sizes)
    others = take(tensor, np.setdiff1d(np.arange(40), [min(place, 39)]))
    more = take(tensor, np.insert(np.setdiff1d(np.arange(40), [min(place, 39)]), min(place, 39), min(place, 39)))
    rows = [private.fit_publicly(private.scale_patients(one), factors, 5) for one in (others, more)]
    assert np.array_equal(rows[0], np.delete(rows[1], min(place, 39), axis=0))
    orders = [private.order_patients(one, 7, 1).tolist() for one in (others, more)]
    kept = [i - (i > min(place, 39)) for i in orders[1] if i != min(place, 39)]
    assert orders[0] == kept


def test_patients_are_scrambled_anew_by_every_public_number():
    tensor = tensor_of((5, 6), n=60)
    orders = [tuple(private.order_patients(tensor, *purpose)) for purpose in ((0, 0), (0, 1), (1, 0))]
    assert len({*orders, tuple(range(60))}) == 4
    assert all(sorted(order) == list(range(60)) for order in orders)


def test_a_patients_counts_have_length_one_whatever_they_are():
    counts = np.array([1e308, 1e308, 3.0, 4.0, 1e-320])
    tensor = SparseTensor([[0, 0, 0], [0, 1, 1], [1, 0, 0], [1, 1, 0], [3, 0, 0]], counts, (4, 2, 2))
    scaled = private.scale_patients(tensor).counts
    np.testing.assert_allclose(scaled[2:4], [0.6, 0.8])
    assert np.all(np.isfinite(scaled))
    assert np.all((scaled >= 0) & (scaled <= 1))


# --- bounds ----------------------------------------------------------------------------------------------------------


def hostile_patients(sizes, random, n):
    """Single patients with few or many entries, of any size."""
    for _ in range(n):
        cells = np.argwhere(random.random(sizes) < random.choice([0.05, 0.3, 1.0]))
        if len(cells):
            counts = 10.0 ** random.uniform(-3, 3, len(cells)) * 10.0 ** random.uniform(-100, 100)
            yield SparseTensor(np.column_stack([np.zeros(len(cells), int), cells]), counts, (1, *sizes))


@by_modes
def test_products_and_gram_together_stay_within_the_joint_bound_and_reach_it(sizes):
    random, kappa, reached = np.random.default_rng(0), 0.2, 0.0
    for patient in hostile_patients(sizes, random, 200):
        factors = [random.gamma(0.3, size=(size, 3)) * 10.0 ** random.uniform(-3, 3) for size in sizes]
        moved, gram = products(patient, factors, int(random.integers(1, len(sizes) + 1)))
        assert max(np.linalg.norm(moved), np.linalg.norm(gram)) <= 1
        assert np.linalg.norm(unpack_gram(gram)) == pytest.approx(np.linalg.norm(gram))
        reached = max(reached, np.hypot(np.linalg.norm(moved), kappa * np.linalg.norm(gram)) / np.hypot(1, kappa))
    assert 0.9 < reached <= 1


@by_modes
def test_one_patient_moves_a_descent_within_its_reach_and_comes_near(sizes):
    random, reached = np.random.default_rng(1), 0.0
    tensor = tensor_of(sizes, n=12)
    for patient in hostile_patients(sizes, random, 120):
        factors = [random.gamma(0.3, size=(size, 2)) for size in sizes]
        axis, n_passes = int(random.integers(1, len(sizes) + 1)), int(random.integers(1, 4))
        step, largest = float(random.choice([0.001, 0.1, 1.0])), float(random.choice([0.01, 0.1, 1.0]))
        place = int(random.integers(0, 13))
        coordinates, at = tensor.coordinates.copy(), patient.coordinates + place * np.eye(1, 1 + len(sizes), dtype=int)
        coordinates[coordinates[:, 0] >= place, 0] += 1
        both, counts = np.vstack([coordinates, at]), np.concatenate([tensor.counts, patient.counts])
        order = np.argsort(both[:, 0], kind="stable")
        more = SparseTensor(both[order], counts[order], (13, *sizes))
        how = {"n_passes": n_passes, "step": step, "largest_product": largest}
        moved = np.linalg.norm(descend(more, factors, axis, **how) - descend(tensor, factors, axis, **how))
        reached = max(reached, moved / private.reach_of_descent(n_passes, step, largest, (sizes[axis - 1], 2)))
    assert 0.3 < reached <= 1


@by_modes
def test_the_descent_is_the_loop_over_patients(sizes):
    tensor, factors = tensor_of(sizes, n=15), public_factors(sizes)
    axis, step, bound = 2, 0.3, 0.2
    scaled = private.scale_patients(tensor)
    memberships = private.fit_publicly(scaled, factors, 5)
    dense = np.zeros(scaled.shape)
    dense[tuple(scaled.coordinates.T)] = scaled.counts
    letters = "jkl"[: len(sizes)]
    others = [factor for place, factor in enumerate(factors, start=1) if place != axis]
    gram = np.prod([other.T @ other for other in others], axis=0)
    expected = factors[axis - 1].copy()
    for i in private.order_patients(tensor, 3, 0):
        a = memberships[i] / max(memberships[i].sum(), 1.0)
        terms = ",".join(f"{letter}r" for letter in letters if letter != letters[axis - 1])
        product = np.einsum(f"{letters},{terms}->{letters[axis - 1]}r", dense[i], *others) * a
        product *= min(1.0, bound / max(np.linalg.norm(product), 1e-300))
        expected = np.maximum(expected - step * (expected @ (np.outer(a, a) * gram) - product), 0.0)
        expected /= np.maximum(np.linalg.norm(expected, axis=0), 1.0)
    found = descend(tensor, factors, axis, step=step, largest_product=bound)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert np.linalg.norm(found - factors[axis - 1]) > 0.05


def test_rounding_is_part_of_the_reach():
    assert private.reach_of_descent(3, 0.1, 0.5, (9, 4)) > 3 * 0.1 * np.hypot(1, 0.5)
    assert private.reach_of_descent(1, 1e-3, 0.1, (316, 20)) < 1.01 * 1e-3 * np.hypot(1, 0.1)


# --- what is made of noised sums -------------------------------------------------------------------------------------


def test_the_update_solves_its_least_squares_problem():
    random = np.random.default_rng(0)
    factors = [private.shorten_columns(random.random((size, 3))) for size in (7, 5)]
    memberships = random.random((30, 3))
    products_, gram, threshold = random.normal(1.0, 1.0, (5, 3)), memberships.T @ memberships, 0.4
    found = noised.update_from_noised(products_, gram, factors, 2, threshold)
    curvature = gram * (factors[0].T @ factors[0])
    curvature += noised.RIDGE * np.trace(curvature) / 3 * np.eye(3)
    root = np.linalg.cholesky(curvature).T
    rows = [nnls(root, np.linalg.solve(root.T, row - threshold))[0] for row in products_]
    np.testing.assert_allclose(found, rows / np.linalg.norm(rows, axis=0), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), 1.0)


def test_a_gram_matrix_that_noise_made_indefinite_is_of_no_harm():
    gram = np.array([[1.0, 3.0], [3.0, 1.0]])
    assert np.linalg.eigvalsh(noised.positive_part(gram)).min() > -1e-12
    found = noised.update_from_noised(np.array([[5.0, 1.0], [0.1, 2.0]]), gram, [np.eye(2), np.eye(2)], 1, 0.5)
    assert np.all(np.isfinite(found))


def test_what_is_below_the_noise_becomes_zero_and_dead_columns_come_back():
    found = noised.update_from_noised(np.array([[9.0, 0.3], [0.2, 0.4]]), np.eye(2), [np.eye(2), np.eye(2)], 1, 0.5)
    np.testing.assert_array_equal(found, [[1.0, 0.0], [0.0, 0.0]])
    revived = noised.revive(found, np.random.default_rng(0))
    np.testing.assert_array_equal(revived[:, 0], found[:, 0])
    assert np.linalg.norm(revived[:, 1]) == pytest.approx(1.0)


@by_modes
def test_weights_are_those_of_the_pairwise_marginals(sizes):
    random = np.random.default_rng(0)
    factors, weights = [private.shorten_columns(random.random((size, 3))) for size in sizes], np.array([5.0, 0.0, 2.0])
    pairs = [(m, n) for m in range(len(sizes)) for n in range(m + 1, len(sizes))]
    flat = np.concatenate([((factors[m] * weights) @ factors[n].T).ravel() for m, n in pairs])
    np.testing.assert_allclose(noised.weigh(split_marginals(flat, sizes), factors, pairs), weights, atol=0.05)
