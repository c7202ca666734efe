from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh

from multicentre.clustering.metrics import clustering_scores
from multicentre.clustering.partition import partition_rows
from multicentre.datasets import list_datasets
from multicentre.errors import ConfigurationError
from multicentre_papers.published.fedmsgl.maths import graph as g
from multicentre_papers.published.fedmsgl.maths import local
from multicentre_papers.published.fedmsgl.maths import variants as p
from support.examples import examples

PAPER, RUN = p.VARIANTS["paper"], p.VARIANTS["as_published"]
AT_HAND = {status.name for status in list_datasets() if status.available}


def cluster(views, n_clusters, seed, variant, terms=None):
    """All rounds over pooled views; returns labels, G, F and A."""
    terms = terms or p.PublishedTerms()
    n = len(views[0])
    operators = [p.prepare_operators(view, terms, variant) for view in views]
    starts = [p.start(n, np.random.default_rng([seed, k]), identity=variant.identity) for k in range(len(views))]
    parts = [(C, U) for C, U, _ in starts]
    G, F = starts[0][2], np.zeros((n, n_clusters))
    for _ in range(terms.n_rounds):
        parts = [p.local_round(held, C, U, terms, variant) for held, (C, U) in zip(operators, parts, strict=True)]
        distances = np.array([p.measure_distance(C, G) for C, _ in parts])
        shares, total = p.weigh_distances(distances, variant)
        mean_C = sum(share * C for share, (C, _) in zip(shares, parts, strict=True))
        mean_U = sum(U for _, U in parts) / len(parts)
        G, F, A = p.central_round(mean_C, mean_U, total, G, F, terms, variant)
        parts = [(G, U) for _, U in parts]
    return partition_rows(F, n_clusters, n_init=1, random_state=seed), G, F, A


def simulated(n=60, seed=0):
    """Three groups around different centres in two views, and the group of each sample."""
    generator = np.random.default_rng(seed)
    group = np.arange(n) % 3
    return [generator.random((3, d))[group] + 0.05 * generator.random((n, d)) for d in (12, 90)], group


@pytest.fixture
def view():
    return np.random.default_rng(1).random((9, 4))


@pytest.mark.parametrize("d", [3, 7, 20])
def test_the_operators_are_the_printed_inverses(d):
    X = np.random.default_rng(d).random((9, d))
    terms = p.PublishedTerms(lambda_3=0.02)
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    M = distances / distances.sum(axis=1, keepdims=True)
    K, v, eye = X @ X.T, np.diag(M @ M), np.eye(9)
    np.testing.assert_allclose(local.measure_crowding(X), v, rtol=1e-12)
    np.testing.assert_allclose(local.measure_crowding(X), np.diag(M.T @ M.T), rtol=1e-12)
    expected = {
        "samples": np.linalg.solve(K + 0.7 * eye + 3.0 * np.diag(v), K),
        "rows": np.linalg.solve(K + 0.7 * eye + 3.0 * v[:, None], K),
        "specific": np.linalg.solve(K + 0.02 * eye, K),
    }
    found = {
        "samples": local.penalise_samples(X, 0.7, 3.0),
        "rows": local.penalise_rows(X, 0.7, 3.0),
        "specific": p.prepare_operators(X, terms, PAPER).specific,
    }
    for name, operator in found.items():
        assert len(operator) == (2 if d == 3 else 1)
        product = operator[0] if len(operator) == 1 else operator[0] @ operator[1]
        np.testing.assert_allclose(product, expected[name], atol=1e-10, err_msg=name)


@pytest.mark.parametrize("name", p.VARIANTS)
def test_a_local_round_follows_the_formulas_entry_by_entry(view, name):
    variant, terms = p.VARIANTS[name], p.PublishedTerms(lambda_1=0.5, lambda_3=0.1, n_local=3)
    operators = p.prepare_operators(view, terms, variant)
    C, U, _ = p.start(9, np.random.default_rng(0))
    C = C + 0.1
    found = p.local_round(operators, C, U, terms, variant)
    first, second = (
        np.linalg.multi_dot((*factors, np.eye(9))) for factors in (operators.consistent, operators.specific)
    )

    def move(solution, last, other):
        moved = np.zeros((9, 9))
        for i in range(9):
            read = solution[i] if name == "paper" else last[i]
            phi = (1.0 - sum(read[j] + other[i, j] for j in range(9))) / 9
            for j in range(9):
                moved[i, j] = max(solution[i, j] + phi, 0.0) if i != j else 0.0
        return moved

    for _ in range(3):
        C = move(first @ (np.eye(9) - U), C, U)
        U = move(second @ (np.eye(9) - C), U, C)
    np.testing.assert_allclose(found[0], C, atol=1e-12)
    np.testing.assert_allclose(found[1], U, atol=1e-12)


def test_the_consensus_as_a_start_changes_nothing_in_the_printed_update(view):
    terms = p.PublishedTerms(n_local=2)
    C, U, G = p.start(9, np.random.default_rng(0))
    for variant, same in ((PAPER, True), (RUN, False)):
        operators = p.prepare_operators(view, terms, variant)
        one, other = (p.local_round(operators, begun, U, terms, variant)[0] for begun in (C, G))
        assert np.array_equal(one, other) is same


def test_nearest_hyperedges_carry_the_weights_of_other_memberships():
    A = np.random.default_rng(2).random((12, 12))
    A = A + A.T
    k, n = 4, 12
    order, flat = [], []
    for i in range(n):
        distances = np.linalg.norm(A[i] - A, axis=1)
        nearest = np.argsort(distances)[:k]
        order.append(nearest)
        flat.extend(distances[nearest])
    kernel = np.exp(-(np.array(flat) ** 2) / np.mean(flat) ** 2)
    H, w = np.zeros((n, n)), np.zeros(n)
    for j in range(n):
        assert order[j][0] == j
        H[order[j], j] = 1.0
        w[j] = sum(kernel[i] for i in order[j])
    degrees = np.diag(1 / np.sqrt(H @ w))
    B = g.link_nearest(A, k).toarray()
    np.testing.assert_allclose(B @ B.T, degrees @ H @ np.diag(w) @ H.T @ degrees / k, atol=1e-12)
    members, distances = g.find_nearest(A, k)
    assert not np.allclose(g.weigh_misplaced(members, distances), g.weigh_members(distances).sum(axis=1))


def test_printed_hyperedges_hold_the_largest_affinities_with_weight_one():
    A = np.random.default_rng(3).normal(size=(10, 10))
    A = A + A.T
    H = np.zeros((10, 10))
    for j in range(10):
        others = sorted(set(range(10)) - {j}, key=lambda i: -A[i, j])
        H[[j, *others[:3]], j] = 1.0
    degrees = np.diag(1 / np.sqrt(H.sum(axis=1)))
    B = g.link_similar(A, 4).toarray()
    np.testing.assert_allclose(B @ B.T, degrees @ H @ H.T @ degrees / 4, atol=1e-12)


@given(st.integers(3, 20), st.integers(2, 30), st.integers(0, 2**16))
@examples(30)
def test_hypergraphs_are_normalised_whatever_ties_they_hold(n, k, seed):
    A = np.random.default_rng(seed).integers(0, 3, (n, n)).astype(float)
    A = A + A.T
    for link in (g.link_nearest, g.link_similar):
        B = link(A, k).toarray()
        members = (B > 0).sum(axis=0)
        assert (members == min(k, n)).all()
        assert (np.diag(B) > 0).all()
        assert np.linalg.norm(B, 2) == pytest.approx(1.0)


@pytest.mark.parametrize(("name", "sign"), [("paper", -1.0), ("as_published", 1.0)])
def test_weights_of_views_are_those_of_the_exponential_within_its_range(name, sign):
    d = np.array([0.5, 2.0, 1.0])
    shares, total = p.weigh_distances(d, p.VARIANTS[name])
    np.testing.assert_allclose(shares * total, 0.5 * np.exp(sign * d))
    assert shares.sum() == pytest.approx(1.0)
    shares, total = p.weigh_distances(np.array([800.0, 1e6]), p.VARIANTS[name])
    np.testing.assert_allclose(shares, 0.5)
    assert total == pytest.approx(np.exp(sign * 30.0))


@pytest.mark.parametrize("name", p.VARIANTS)
def test_a_central_round_is_the_printed_alternation_from_sums_alone(name):
    variant, terms = p.VARIANTS[name], p.PublishedTerms(n_neighbours=4, n_central=3, beta=2.0)
    generator = np.random.default_rng(5)
    C, U = generator.random((2, 20, 20)), generator.random((2, 20, 20))
    theta, G, F = np.array([0.3, 0.9]), np.eye(20), np.zeros((20, 3))
    found = p.central_round(np.tensordot(theta / 1.2, C, 1), U.mean(axis=0), 1.2, G, F, terms, variant)

    def solve_consensus(F):
        Z = ((F[:, None] - F) ** 2).sum(axis=2)
        G = (theta[0] * C[0] + theta[1] * C[1] - 2.0 * Z / 4) / theta.sum()
        return np.maximum(G, 0.0) if name == "as_published" else G

    def solve_embedding(G):
        A = sum((G + G.T + part + part.T) / 2 for part in U) / 2
        B = variant.link(A, 4).toarray()
        return eigh(np.eye(20) - B @ B.T)[1][:, :3], A

    for _ in range(3):
        if name == "paper":
            G = solve_consensus(F)
        F, A = solve_embedding(G)
        if name == "as_published":
            G = solve_consensus(F)
    np.testing.assert_allclose(found[0], G, atol=1e-9)
    np.testing.assert_allclose(found[1] @ found[1].T, F @ F.T, atol=1e-9)
    np.testing.assert_allclose(found[2], A, atol=1e-9)


@pytest.mark.parametrize("name", p.VARIANTS)
def test_simulated_groups_are_found(name):
    views, group = simulated()
    terms = p.PublishedTerms(beta=0.01, n_neighbours=8, n_rounds=2)
    labels, _, F, A = cluster(views, 3, 0, p.VARIANTS[name], terms)
    np.testing.assert_allclose(F.T @ F, np.eye(3), atol=1e-8)
    np.testing.assert_array_equal(A, A.T)
    assert clustering_scores(group, labels)["acc"] > 0.95


@pytest.mark.parametrize("name", p.VARIANTS)
@pytest.mark.parametrize("kind", ["constant", "duplicates", "one feature", "zeros", "large"])
def test_degenerate_views_give_finite_parts(name, kind):
    views, _ = simulated(n=12)
    first = {
        "constant": np.where(np.arange(12)[:, None] < 4, 3.0, views[0]),
        "duplicates": views[0][np.arange(12) // 4],
        "one feature": views[0][:, :1],
        "zeros": np.zeros((12, 3)),
        "large": 1e8 * views[0],
    }[kind]
    with np.errstate(all="raise", under="ignore"):
        labels, *parts = cluster([first, views[1]], 2, 0, p.VARIANTS[name], p.PublishedTerms(n_rounds=2))
    assert all(np.isfinite(part).all() for part in parts)
    assert len(labels) == 12


@pytest.mark.parametrize(
    "given",
    [
        {"lambda_1": 0.0},
        {"lambda_3": np.inf},
        {"lambda_2": -1.0},
        {"beta": np.nan},
        {"n_neighbours": 1},
        {"n_local": 0},
    ],
)
def test_terms_outside_their_range_are_refused(given):
    with pytest.raises(ConfigurationError) as caught:
        p.PublishedTerms(**given)
    assert next(iter(given)) in str(caught.value)


@pytest.mark.slow
@pytest.mark.skipif("bbcsport" not in AT_HAND, reason="MULTICENTRE_DATA names no folder that holds bbcsport")
def test_the_variant_as_published_reaches_the_printed_table():
    from multicentre.datasets import load_bbcsport

    loaded = load_bbcsport()
    views = [loaded.data.array(name) for name in loaded.data.views]
    terms = p.PublishedTerms(n_rounds=2)
    labels = cluster(views, 5, 0, RUN, terms)[0]
    scores = clustering_scores(loaded.labels, labels)
    assert scores["acc"] >= 0.88
    assert scores["purity"] >= 0.88
    assert scores["nmi"] >= 0.71


@pytest.mark.slow
@pytest.mark.skipif("bbcsport" not in AT_HAND, reason="MULTICENTRE_DATA names no folder that holds bbcsport")
def test_the_printed_weights_of_views_lose_the_printed_table():
    from multicentre.datasets import load_bbcsport

    loaded = load_bbcsport()
    views = [loaded.data.array(name) for name in loaded.data.views]
    labels = cluster(views, 5, 0, replace(RUN, weigh=p.weigh_near), p.PublishedTerms(n_rounds=2))[0]
    assert clustering_scores(loaded.labels, labels)["acc"] < 0.8


def test_the_printed_weights_let_the_hypergraph_drown_easy_groups():
    views, group = simulated()
    found = {}
    for beta in (0.01, 1.0):
        terms = p.PublishedTerms(beta=beta, n_neighbours=8)
        found[beta] = clustering_scores(group, cluster(views, 3, 0, PAPER, terms)[0])["acc"]
    assert found[0.01] > 0.95
    assert found[1.0] < 0.8
