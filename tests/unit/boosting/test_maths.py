"""The search for splits beside a search by hand, and which of equal splits is taken."""

import itertools

import numpy as np
import pytest

from multicentre.boosting.maths import Penalty, find_splits, newton_steps
from support import boosted_splits

PLAIN = Penalty(1.0, 0.0, 0.0, 1.0, 0, 0.0, 1.0, 1.0)
FIRST = np.array([0, 4, 7])


def draw_sums(seed, missing=True):
    """Return sums of two columns of three and two bins that agree on the total."""
    rng = np.random.default_rng(seed)
    records = rng.normal(scale=4, size=(60, 1)).round()
    bins = np.column_stack([rng.integers(0, 4 if missing else 3, 60), rng.integers(0, 3 if missing else 2, 60)])
    sums = np.zeros((1, 7, 3), dtype=np.int64)
    for record, places in zip(records[:, 0], bins, strict=True):
        for column, place in enumerate(places):
            sums[0, FIRST[column] + place] += [int(record), 1, 1]
    return sums


def search_by_hand(sums, penalty):
    """Return gain, column and left sums of the best split of all."""
    best = (-np.inf, -1, None)
    for column, (start, end) in enumerate(itertools.pairwise(FIRST.tolist())):
        bins, missing = sums[start : end - 1], sums[end - 1]
        total = sums[start:end].sum(axis=0)
        for cut, default_left in itertools.product(range(len(bins) + 1), (False, True)):
            left = bins[:cut].sum(axis=0) + default_left * missing
            right = total - left
            if min(left[1], right[1]) < penalty.min_child_weight or min(left[2], right[2]) < penalty.least_records:
                continue
            gain = sum(side[0] ** 2 / (side[1] + penalty.reg_lambda) for side in (left, right))
            gain -= total[0] ** 2 / (total[1] + penalty.reg_lambda)
            if gain > best[0] + 1e-9:
                best = (gain, column, left.tolist())
    return best


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("least", [0, 25])
def test_the_split_is_the_best_of_all(seed, least):
    penalty = Penalty(1.0, 0.0, 0.0, 1.0, least, 0.0, 1.0, 1.0)
    sums = draw_sums(seed)
    gain, column, left = search_by_hand(sums[0], penalty)
    found = find_splits(sums, FIRST, penalty)
    if gain < 1e-6:
        assert found.column[0] == -1
        return
    np.testing.assert_allclose(found.gain[0], gain, rtol=1e-5)
    assert found.column[0] == column
    assert left in (found.left[0].tolist(), found.right[0].tolist())


def test_of_equal_splits_the_first_column_and_the_lowest_cut_are_taken_and_missing_values_go_right():
    same = np.array([[-4, 4, 4], [0, 0, 0], [4, 4, 4], [0, 0, 0]])
    sums = np.concatenate([same, same[[0, 2, 3]]])[None]
    found = find_splits(sums, FIRST, PLAIN)
    assert (found.column[0], found.cut[0], bool(found.default_left[0])) == (0, 0, False)


def test_missing_values_by_themselves_make_a_split_of_either_kind():
    sums = np.array([[[0, 4, 4], [0, 4, 4], [0, 4, 4], [9, 4, 4], [0, 8, 8], [0, 4, 4], [9, 4, 4]]])
    found = find_splits(sums, FIRST, PLAIN)
    assert (found.column[0], found.cut[0], bool(found.default_left[0])) == (0, 2, False)


@pytest.mark.parametrize(("gamma", "made"), [(0.0, True), (1e6, False)])
def test_a_split_that_gains_too_little_is_not_made(gamma, made):
    found = find_splits(draw_sums(1), FIRST, Penalty(1.0, 0.0, gamma, 1.0, 0, 0.0, 1.0, 1.0))
    assert (found.column[0] >= 0) == made


def test_a_node_without_curvature_takes_no_step_and_gains_nothing():
    none = np.array([[5, 0]])
    free = Penalty(0.0, 0.0, 0.0, 0.0, 0, 0.0, 1.0, 1.0)
    assert newton_steps(none, free).tolist() == [0.0]
    splits = find_splits(np.array([[[5, 0], [-5, 0], [0, 0]]]), np.array([0, 3]), free)
    assert (splits.column[0], splits.gain[0]) == (-1, 0.0)


@pytest.mark.parametrize("seed", range(40))
def test_the_compiled_search_equals_plain_numpy_bit_for_bit(seed):
    rng = np.random.default_rng(seed)
    n_bins, n_sums, n_nodes = rng.integers(1, 9, rng.integers(1, 6)), 2 + seed % 2, int(rng.integers(1, 5))
    first, scale = np.append(0, np.cumsum(n_bins + 1)), 10 ** int(rng.integers(0, 10))
    sums = np.zeros((n_nodes, first[-1], n_sums), dtype=np.int64)
    for node, _ in np.ndindex(n_nodes, int(rng.integers(2, 60))):
        record = [int(rng.integers(-scale, scale + 1)), int(rng.integers(0, scale + 1)), 1][:n_sums]
        for column, size in enumerate(n_bins):
            sums[node, first[column] + rng.integers(0, size + seed % 3 % 2)] += record
    monotone = tuple(rng.integers(-1, 2, len(n_bins)).tolist()) if seed % 5 == 0 else ()
    bounds = np.sort(rng.normal(size=(n_nodes, 2)), axis=1).astype(np.float32) if monotone else None
    permitted = rng.random((n_nodes, len(n_bins))) < 0.6 if seed % 7 == 0 else None
    free, small = float(rng.choice([0.0, 0.3, 1.0])), float(rng.choice([0.0, 0.01 * scale]))
    penalty = Penalty(free, 1.0 - free, 0.0, small, 5 * (seed % 2), 0.7 * (seed % 4 == 0), 0.5, 0.125, monotone)
    with np.errstate(over="ignore"):
        expected = boosted_splits.find_splits(sums, first, penalty, permitted=permitted, bounds=bounds)
    splits = find_splits(sums, first, penalty, permitted=permitted, bounds=bounds)
    made = expected.column >= 0
    assert splits.gain.tobytes() == expected.gain.tobytes()
    assert ((splits.column >= 0) == made).all()
    for name in ("column", "cut", "default_left", "left", "right"):
        assert (getattr(splits, name)[made] == getattr(expected, name)[made]).all(), name
    steps = newton_steps(sums[:, 0].copy(), penalty, bounds)
    assert steps.tobytes() == boosted_splits.newton_steps(sums[:, 0], penalty, bounds).tobytes()


def test_the_penalty_of_magnitude_and_the_largest_step():
    assert newton_steps(np.array([[-6, 2]]), Penalty(1.0, 3.0, 0.0, 1.0, 0, 0.0, 1.0, 1.0)).tolist() == [1.0]
    assert newton_steps(np.array([[6, 2]]), Penalty(1.0, 0.0, 0.0, 1.0, 0, 0.5, 1.0, 1.0)).tolist() == [-0.5]
