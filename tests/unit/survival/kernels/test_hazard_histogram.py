"""Histograms against sums over every patient and interval."""

import numpy as np

from multicentre.survival.kernels.hazard import CHUNK, sum_by_bin

I4 = np.int32
STUMP = [np.array(each, dtype=I4) for each in ([2, 0, -1, -1, -1], [1, 2, -1, -1, -1], [1, 3, -1, -1, -1])]


def example(n, seed=0):
    rng = np.random.default_rng(seed)
    binned = np.asfortranarray(rng.integers(0, 4, size=(n, 2)).astype(np.uint8))
    last = rng.integers(-1, 5, n).astype(I4)
    slopes, curvatures = (rng.integers(-1000, 1000, size=(n, 5)).astype(I4) for _ in range(2))
    return binned, last, slopes, curvatures


def tree():
    """Intervals 0 and 1 go left, where the first column splits at bin 2; later intervals go right."""
    column, cut, left = STUMP
    right = np.array([2, 4, -1, -1, -1], dtype=I4)
    return column, cut.astype(float), left, right


def expected(binned, last, slopes, curvatures, first):
    sums = np.zeros((3, 3, first[-1]), dtype=np.int64)
    for i in range(len(binned)):
        seen = set()
        for j in range(last[i] + 1):
            slot = 2 if j > 1 else int(binned[i, 0] > 2)
            cells = [first[0] + binned[i, 0], first[1] + binned[i, 1], first[2] + j]
            sums[0, slot, cells] += slopes[i, j]
            sums[1, slot, cells] += curvatures[i, j]
            sums[2, slot, cells[2]] += 1
            if slot not in seen:
                sums[2, slot, cells[:2]] += 1
            seen.add(slot)
    return sums


def test_sums_by_bin_are_sums_over_patients_and_intervals():
    first = np.array([0, 4, 8, 13])
    row = np.array([-1, -1, 2, 0, 1], dtype=I4)
    for n in (1, 50, CHUNK + 7):
        given_ = example(n)
        np.testing.assert_array_equal(sum_by_bin(*given_, *tree(), row, first), expected(*given_, first))


def test_leaves_that_are_not_wanted_are_left_out():
    first = np.array([0, 4, 8, 13])
    given_ = example(80)
    row = np.array([-1, -1, 0, -1, -1], dtype=I4)
    np.testing.assert_array_equal(sum_by_bin(*given_, *tree(), row, first)[0], expected(*given_, first)[0, 2:])
