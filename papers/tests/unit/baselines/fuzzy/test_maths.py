"""The updates of fuzzy clustering: each is the minimiser that it claims to be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from multicentre_papers.baselines.fuzzy import maths
from multicentre_papers.baselines.fuzzy.maths import Rows, Sums

SIZES = (3, 4)
seeds = st.integers(0, 10_000)


def draw(seed=0, n=30, c=3, sizes=SIZES, lacking=0):
    rng = np.random.default_rng(seed)
    standard = rng.normal(size=(n, sum(sizes)))
    standard[:lacking, : sizes[0]] = np.nan
    return rng, Rows.of(standard, sizes), rng.normal(size=(c, sum(sizes)))


def value(distances, alpha, weights):
    return float(np.einsum("p,ij,pij->", alpha**2, weights, distances))


@pytest.mark.parametrize("plain", [False, True])
def test_distances_are_those_of_scipy_and_0_where_a_view_is_missing(plain):
    _, rows, centres = draw(lacking=2)
    found = maths.measure_distances(rows, centres, plain=plain)
    for view, at in enumerate(maths.view_columns(SIZES)):
        expected = cdist(rows.values[:, at], centres[:, at], "euclidean" if plain else "sqeuclidean")
        expected[rows.available[:, view] == 0] = 0
        assert np.allclose(found[view], expected, atol=1e-12)


def test_distances_of_a_patient_at_a_centre_are_not_negative():
    rows = Rows.of(np.full((1, 3), 1e8 / 3), (3,))
    assert maths.measure_distances(rows, rows.values.copy() * (1 + 1e-16), plain=True).min() >= 0


@given(seeds, st.floats(1.05, 4.0))
def test_no_other_memberships_have_a_lower_objective(seed, m):
    rng, rows, centres = draw(seed)
    alpha, distances = rng.dirichlet(np.ones(2)), maths.measure_distances(rows, centres, plain=False)
    u = maths.share_memberships(distances, alpha, m, plain=False)
    assert np.allclose(u.sum(axis=1), 1)
    others = 0.9 * u + 0.1 * rng.dirichlet(np.ones(3), size=len(u))
    assert value(distances, alpha, u**m) <= value(distances, alpha, others**m) * (1 + 1e-9)


def test_plain_distances_double_the_exponent():
    _, rows, centres = draw()
    distances = maths.measure_distances(rows, centres, plain=True)
    found = maths.share_memberships(distances, np.array([0.3, 0.7]), 1.5, plain=True)
    combined = 0.09 * distances[0] + 0.49 * distances[1]
    expected = combined ** (-2 / 0.5)
    assert np.allclose(found, expected / expected.sum(axis=1, keepdims=True))


def test_a_patient_at_a_centre_belongs_to_it_alone_and_one_at_two_to_both():
    rows, centres = Rows.of(np.zeros((1, 2)), (2,)), np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    distances = maths.measure_distances(rows, centres, plain=False)
    assert maths.share_memberships(distances, np.ones(1), 1.1, plain=False).tolist() == [[0.5, 0.0, 0.5]]


def test_who_lacks_a_view_is_judged_by_the_others():
    _, rows, centres = draw(lacking=4)
    alpha = np.array([0.8, 0.2])
    found = maths.share_memberships(maths.measure_distances(rows, centres, plain=False), alpha, 1.3, plain=False)
    second = Rows.of(rows.values[:4, 3:], (4,))
    alone = maths.measure_distances(second, centres[:, 3:], plain=False)
    assert np.allclose(found[:4], maths.share_memberships(alone, np.ones(1), 1.3, plain=False))


@given(seeds)
def test_no_other_centres_have_a_lower_objective_than_the_means(seed):
    rng, rows, centres = draw(seed, lacking=5)
    weights = rng.random((30, 3))
    sums = maths.add_up(rows, weights, maths.measure_distances(rows, centres, plain=False))
    best = maths.weighted_means(sums, centres, SIZES)
    for at, shown in zip(maths.view_columns(SIZES), rows.available.T, strict=True):
        means = [np.average(rows.values[:, at], axis=0, weights=each * shown) for each in weights.T]
        assert np.allclose(best[:, at], means)
    distances = [maths.measure_distances(rows, v, plain=False) for v in (best, best + rng.normal(size=best.shape))]
    assert value(distances[0], np.ones(2), weights) < value(distances[1], np.ones(2), weights)


@given(seeds, st.sampled_from([(3, 4), (5, 3)]))
def test_no_other_orthonormal_centres_have_a_lower_objective(seed, sizes):
    rng, rows, centres = draw(seed, sizes=sizes)
    weights = rng.random((30, 3))
    sums = maths.add_up(rows, weights, maths.measure_distances(rows, centres, plain=False))
    best = maths.orthonormal_centres(sums, centres, sizes)
    other = np.hstack([np.linalg.qr(rng.normal(size=(size, 3)))[0].T for size in sizes])
    for at in maths.view_columns(sizes):
        assert np.allclose(best[:, at] @ best[:, at].T, np.eye(3))
    values = [value(maths.measure_distances(rows, v, plain=False), np.ones(2), weights) for v in (best, other)]
    assert values[0] <= values[1]


def test_centres_without_patients_stay_where_they_were():
    sums, before = Sums(np.zeros((2, 3)), np.zeros((2, 1)), np.zeros(1)), np.arange(6.0).reshape(2, 3)
    assert np.array_equal(maths.weighted_means(sums, before, (3,)), before)
    assert np.array_equal(maths.orthonormal_centres(sums, before, (3,)), before)


def polar(M):
    left, _, right = np.linalg.svd(M, full_matrices=False)
    return left @ right


@pytest.mark.parametrize("latent", [3, 5, 9])
def test_the_published_latent_prototypes_change_nothing(latent):
    """W V is the polar factor of the weighted sums whatever V is, and the update of V gives V back."""
    rng, rows, centres = draw(3, sizes=(6, 10))
    weights = rng.random((30, 3))
    sums = maths.add_up(rows, weights, maths.measure_distances(rows, centres, plain=False))
    moments = [sums.moments[:, at].T for at in maths.view_columns((6, 10))]
    V, alpha = np.linalg.qr(rng.normal(size=(latent, 3)))[0], np.array([0.3, 0.7])
    W = [polar(M @ V.T) for M in moments]
    ours = maths.orthonormal_centres(sums, centres, (6, 10))
    for at, each in zip(maths.view_columns((6, 10)), W, strict=True):
        assert np.allclose((each @ V).T, ours[:, at])
    assert np.allclose(polar(sum(a**2 * each.T @ M for a, each, M in zip(alpha, W, moments, strict=True))), V)


def test_centres_of_fewer_directions_than_clusters_are_the_same_for_any_split_of_the_sums():
    rng = np.random.default_rng(0)
    moments = np.outer(rng.normal(size=4), rng.normal(size=6))
    found = maths.orthonormal_centres(Sums(moments, np.ones((4, 1)), np.ones(1)), np.zeros((4, 6)), (6,))
    assert np.allclose(found, moments / np.linalg.norm(moments))


@given(seeds)
def test_no_other_view_weights_have_a_lower_objective(seed):
    rng = np.random.default_rng(seed)
    dispersions, patients = rng.uniform(1, 50, 3), np.array([100.0, 60.0, 80.0])
    share = patients / patients.max()
    best = maths.weigh_views(dispersions, patients)
    other = rng.dirichlet(np.ones(3)) / share
    assert best @ share == pytest.approx(1) == other @ share
    assert maths.objective(dispersions, best) <= maths.objective(dispersions, other)


def test_a_view_without_dispersion_has_nearly_all_the_weight():
    found = maths.weigh_views(np.array([0.0, 3.0]), np.full(2, 10.0))
    assert np.isfinite(found).all()
    assert found[0] > 0.999


@pytest.mark.parametrize("update", [maths.weighted_means, maths.orthonormal_centres])
@pytest.mark.parametrize("lacking", [0, 12])
def test_the_objective_never_rises(update, lacking):
    _, rows, _ = draw(5, n=120, c=3, lacking=lacking)
    centres, alpha = maths.draw_centres(3, SIZES, np.random.default_rng(1)), np.full(2, 0.5)
    patients, found = rows.available.sum(axis=0), []
    alpha /= alpha @ patients / patients.max()
    for _ in range(15):
        distances = maths.measure_distances(rows, centres, plain=False)
        weights = maths.share_memberships(distances, alpha, 1.2, plain=False) ** 1.2
        sums = maths.add_up(rows, weights, distances)
        found.append(maths.objective(sums.dispersions, alpha))
        centres, alpha = update(sums, centres, SIZES), maths.weigh_views(sums.dispersions, patients)
    assert (np.diff(found) <= 1e-12 * np.array(found[:-1])).all()
    assert found[-1] < 0.999 * found[0]
