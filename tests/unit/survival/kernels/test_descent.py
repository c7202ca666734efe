import numpy as np

from multicentre.survival.kernels.descent import average_curves, average_numbers, find_leaves


def i4(*values):
    return np.array(values, dtype=np.int32)


# Two trees: one of three leaves, and one that is a leaf.
TREES = (
    i4(0, 5),
    i4(0, -1, 1, -1, -1, -1),
    np.array([0.0, 0.0, 2.0, 0.0, 0.0, 0.0]),
    i4(1, -1, 3, -1, -1, -1),
    i4(2, -1, 4, -1, -1, -1),
    i4(-1, 0, -1, 1, 2, 3),
)
X = np.array([[0.0, 9.0], [0.1, 2.0], [0.1, 2.1]])


def test_patients_go_left_up_to_the_threshold():
    assert find_leaves(X, *TREES).tolist() == [[0, 3], [1, 3], [2, 3]]


def test_averages_weigh_the_trees():
    shares, numbers = np.array([0.75, 0.25]), np.array([4.0, 8.0, 12.0, 0.0])
    assert average_numbers(X, *TREES, shares, numbers).tolist() == [3.0, 6.0, 9.0]
    curves = np.column_stack([numbers, numbers / 2])
    assert average_curves(X, *TREES, shares, curves).tolist() == [[3.0, 1.5], [6.0, 3.0], [9.0, 4.5]]
