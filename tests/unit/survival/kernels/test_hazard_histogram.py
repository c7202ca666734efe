"""Histograms against sums over every patient and interval, and what joining bins keeps."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from multicentre.survival.kernels.hazard_histogram import CHUNK, join_bins, sum_by_bin

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


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.integers(2, 15))
def test_joined_bins_rest_on_enough_patients_and_keep_the_sums(seed, least):
    given_ = example(60, seed)
    first = np.array([0, 4, 8, 13])
    row = np.array([-1, -1, 2, 0, 1], dtype=I4)
    total, curved, patients = sum_by_bin(*given_, *tree(), row, first)
    before = total.copy(), curved.copy(), patients.copy()
    join_bins(total, curved, patients, first, least)
    assert ((patients == 0) | (patients >= least)).all()
    assert (total[patients == 0] == 0).all()
    assert (curved[patients == 0] == 0).all()
    for start, stop in itertools.pairwise(first):
        enough = (patients[:, start:stop] > 0).any(axis=1)
        for now, then in ((total, before[0]), (curved, before[1])):
            np.testing.assert_array_equal(now[enough, start:stop].sum(axis=1), then[enough, start:stop].sum(axis=1))
        known = before[2][:, start:stop]
        reached = known.max(axis=1) if start == first[2] else known.sum(axis=1)
        np.testing.assert_array_equal(enough, reached >= least)
