import numpy as np

from multicentre.survival.kernels.logrank import _draw, grow_tree


def grow(binned, bins, happened, weights=None, **changes):
    limits = {"max_depth": 9, "min_samples_leaf": 1, "min_events_leaf": 1, "n_columns": 9, "seed": 0, **changes}
    binned = np.array(np.transpose(binned), dtype=np.uint8, order="C")
    n_bins = binned.max(axis=1).astype(np.int64) + 1
    weights = np.ones(len(bins)) if weights is None else weights
    *nodes, curves, fewest = grow_tree(
        binned, n_bins, np.array(bins), np.array(happened, dtype=np.bool_), weights, 4, *limits.values()
    )
    return nodes, curves, fewest


def test_of_equal_splits_the_first_column_is_taken_whatever_the_draw():
    binned = np.array([[0, 1], [0, 1], [1, 0], [1, 0]])
    chosen = {grow(binned, [0, 1, 2, 3], [1] * 4, min_samples_leaf=2, seed=seed)[0][0][0] for seed in range(8)}
    assert chosen == {0}


def test_constant_columns_do_not_count_among_those_tried():
    binned = np.column_stack([np.ones((4, 5), dtype=int), [0, 0, 1, 1]])
    for seed in range(8):
        (column, *_), _, _ = grow(binned, [0, 1, 2, 3], [1] * 4, n_columns=1, seed=seed)
        assert column[0] == 5


def test_where_constant_columns_abound_the_others_are_still_compared():
    weak, strong = [0, 0, 1, 0, 1, 1], [0, 0, 0, 1, 1, 1]
    binned = np.column_stack([np.ones((6, 9), dtype=int), weak, strong])
    for seed in range(30):
        (column, *_), _, _ = grow(binned, [0, 0, 0, 3, 3, 3], [1] * 6, n_columns=2, seed=seed)
        assert column[0] == 10


def test_too_few_patients_or_events_give_no_tree():
    for changes in ({"min_samples_leaf": 5}, {"min_events_leaf": 3}):
        nodes, curves, fewest = grow([[0], [0], [1], [1]], [0, 1, 2, 3], [1, 1, 0, 0], **changes)
        assert fewest == 0
        assert len(curves) == 0
        assert all(len(each) == 0 for each in nodes)


def test_without_depth_the_tree_is_a_leaf():
    (column, _, _, _, leaf), curves, fewest = grow([[0], [0], [1], [1]], [0, 1, 2, 3], [1] * 4, max_depth=0)
    assert column.tolist() == [-1]
    assert leaf.tolist() == [0]
    assert fewest == 4
    assert curves.tolist() == [[0.75, 0.5, 0.25, 0.0]]


def test_patients_without_weight_take_no_part():
    weights = np.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    with_them = grow([[0], [0], [1], [1], [0], [1]], [0, 1, 2, 3, 0, 0], [1] * 6, weights)
    without = grow([[0], [0], [1], [1]], [0, 1, 2, 3], [1] * 4)
    assert with_them[1].tolist() == without[1].tolist()
    assert with_them[2] == without[2]


def test_draws_are_those_of_splitmix():
    state = np.array([1234567], dtype=np.uint64)
    drawn = [_draw(state, 2**62) for _ in range(2)]
    assert drawn == [6457827717110365317 % 2**62, 3203168211198807973 % 2**62]
