from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import DataError
from multicentre.phenotyping.scores import factor_match_score, null_match_score, permuted_match_score, stability
from support.examples import examples


def draw(seed, rank=4, sizes=(7, 9, 5)):
    random = np.random.default_rng(seed)
    return [random.random((size, rank)) for size in sizes]


def by_hand(reference, other):
    """The score by its definition: every matching in turn, one similarity at a time."""
    rank, n_other = reference[0].shape[1], other[0].shape[1]

    def similarity(r, s):
        if s >= n_other:
            return 0.0
        pairs = [(one[:, r], two[:, s]) for one, two in zip(reference, other, strict=True)]
        cosines = [one @ two / (np.linalg.norm(one) * np.linalg.norm(two)) for one, two in pairs]
        return np.prod(cosines)

    return max(
        np.mean([similarity(r, s) for r, s in enumerate(chosen)])
        for chosen in permutations(range(max(rank, n_other)), rank)
    )


@examples(25)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(2, 4))
def test_order_and_scale_do_not_matter(seed, rank, n_modes):
    random = np.random.default_rng(seed)
    factors = [random.standard_normal((random.integers(3, 9), rank)) for _ in range(n_modes)]
    order = random.permutation(rank)
    changed = [factor[:, order] * random.uniform(0.1, 10, rank) for factor in factors]
    match = factor_match_score(factors, changed)
    assert match.score == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(match.similarities, 1.0)
    if rank <= 3 or n_modes > 2:
        np.testing.assert_array_equal(order[match.partners], np.arange(rank))


@examples(25)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5))
def test_is_the_best_of_all_matchings(seed, rank, n_other):
    one, two = draw(seed, rank), draw(seed + 1, n_other)
    match = factor_match_score(one, two)
    assert match.score == pytest.approx(by_hand(one, two), abs=1e-12)
    assert match.score == pytest.approx(match.similarities.mean())


def test_a_greedy_matching_would_score_less():
    angle = np.deg2rad([0, 30, 40, 100])
    one = [np.vstack([np.cos(angle[:2]), np.sin(angle[:2])])]
    two = [np.vstack([np.cos(angle[2:]), np.sin(angle[2:])])]
    best = (np.cos(np.deg2rad(40)) + np.cos(np.deg2rad(70))) / 2
    assert factor_match_score(one, two).score == pytest.approx(best)
    assert factor_match_score(one, two).partners.tolist() == [0, 1]


def test_a_dead_component_counts_nothing():
    truth = draw(0)
    dead = [factor.copy() for factor in truth]
    dead[1][:, 2] = 0.0
    for match in (factor_match_score(truth, dead), factor_match_score(dead, truth)):
        assert match.score == pytest.approx(0.75)
        assert match.similarities[2] == 0.0
    assert factor_match_score(dead, dead).score == pytest.approx(0.75)


def test_the_score_is_the_reference_s():
    truth = draw(1)
    half = [factor[:, :2] for factor in truth]
    assert factor_match_score(half, truth).score == pytest.approx(1.0)
    missing = factor_match_score(truth, half)
    assert missing.score == pytest.approx(0.5)
    assert missing.partners.tolist() == [0, 1, -1, -1]


def test_modes_are_matched_by_name():
    first, second = draw(3, sizes=(6, 6))
    one = {"procedure": first, "diagnosis": second}
    assert factor_match_score(one, {"diagnosis": second, "procedure": first}).score == pytest.approx(1.0)
    assert factor_match_score([first, second], [second, first]).score < 0.95


def test_the_null_lines_of_dense_and_of_sparse_factors():
    assert null_match_score((300, 800), 50) == pytest.approx(0.588, abs=0.005)
    random = np.random.default_rng(4)
    sparse = [np.where(random.random((size, 50)) < 0.03, random.random((size, 50)), 0.0) for size in (300, 800)]
    assert 0 < permuted_match_score(sparse) < 0.05
    assert factor_match_score(sparse, sparse).score == pytest.approx(1.0)
    assert null_match_score((30, 80), 5, random_state=1) != null_match_score((30, 80), 5, random_state=2)


def test_permuting_keeps_each_column_s_entries():
    constant = [np.ones((50, 2)) * [1.0, -1.0]]
    assert permuted_match_score(constant) == pytest.approx(1.0)


def test_stability_is_the_mean_over_pairs():
    sets = [draw(seed) for seed in range(4)]
    compared = stability(sets)
    pairs = [factor_match_score(sets[i], sets[j]).score for i in range(4) for j in range(i)]
    assert compared.score == pytest.approx(np.mean(pairs))
    np.testing.assert_allclose(compared.scores, compared.scores.T)
    assert compared.by_component.mean() == pytest.approx((compared.scores[compared.most_central].sum() - 1) / 3)
    assert compared.scores.sum(axis=0).argmax() == compared.most_central


def test_stability_tells_the_component_that_moves():
    random = np.random.default_rng(5)
    truth = draw(6)
    sets, columns = [], []
    for _ in range(3):
        moved = [factor.copy() for factor in truth]
        moved[0][:, 1] = random.standard_normal(7)
        order = random.permutation(4)
        sets.append([factor[:, order] for factor in moved])
        columns.append(int(np.flatnonzero(order == 1)[0]))
    compared = stability(sets)
    assert compared.by_component.argmin() == columns[compared.most_central]
    np.testing.assert_allclose(np.sort(compared.by_component)[1:], 1.0)


@pytest.mark.parametrize(
    ("reference", "other"),
    [
        ({"a": np.ones((3, 2))}, {"b": np.ones((3, 2))}),
        ({"a": np.ones((3, 2))}, [np.ones((3, 2))]),
        ([np.ones((3, 2))], [np.ones((4, 2))]),
        ([np.ones((3, 2))], [np.ones((3, 2)), np.ones((3, 2))]),
        ([np.ones((3, 2)), np.ones((3, 1))], [np.ones((3, 2)), np.ones((3, 2))]),
        ([np.ones(3)], [np.ones(3)]),
        ([], []),
        ([np.ones((3, 0))], [np.ones((3, 0))]),
        ([np.array([[np.nan]])], [np.ones((1, 1))]),
    ],
)
def test_refuses_sets_that_do_not_fit(reference, other):
    with pytest.raises(DataError, match="factors"):
        factor_match_score(reference, other)


@pytest.mark.parametrize("sets", [[], [draw(0)], [draw(0), draw(1, rank=3)]])
def test_stability_refuses(sets):
    with pytest.raises(DataError, match="stability"):
        stability(sets)
