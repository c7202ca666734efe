"""Packed counts and their log-rank splits against plain counting and plain formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.survival.kernels.logrank_sums import WORD, best_splits, count_patients, n_words
from support.examples import examples

I4 = np.int32
K, N_BINS = 4, np.array([3, 5, 2])
TREE = [np.array(each, dtype=I4) for each in ([1, -1, -1], [2, -1, -1], [1, -1, -1], [2, -1, -1])]
ROW = np.array([-1, 1, 0], dtype=I4)


def patients(n, seed):
    rng = np.random.default_rng(seed)
    binned = np.asfortranarray(np.column_stack([rng.integers(0, b, n) for b in N_BINS]).astype(np.uint8))
    bins = rng.integers(0, K + 1, n)
    return binned, bins, (rng.random(n) < 0.7) & (bins < K), rng.poisson(1.0, n).astype(np.uint8)


def pack(given_, bits, tried=((0, 1), (2, 0))):
    tried, bits = np.array(tried, dtype=I4), np.array(bits, dtype=I4)
    width = np.array([n_words(K, int(b)) for b in bits])
    start = np.concatenate([[0], np.cumsum(N_BINS[tried].sum(axis=1) * width)])
    words = np.zeros(start[-1], dtype=np.int64)
    count_patients(words, *given_, *TREE, ROW, tried, N_BINS, start[:-1], bits, K)
    return words, tried, start[:-1], bits


def counts_of(binned, bins, happened, drawn, inside):
    """Return the 2 K + 3 counts of some patients."""
    inside = inside & (drawn > 0)
    weights = drawn[inside].astype(int)
    events = np.bincount(bins[inside & happened], weights=drawn[inside & happened], minlength=K)[:K]
    leaving = np.bincount(bins[inside], weights=weights, minlength=K + 1)
    return np.concatenate([events, leaving, [inside.sum(), (inside & happened).sum()]]).astype(int)


def log_rank(left, whole):
    """Return the statistic by its definition."""
    numerator, variance = 0.0, 0.0
    for k in range(K):
        d1, d = left[k], whole[k]
        y1, y = left[K + k : 2 * K + 1].sum(), whole[K + k : 2 * K + 1].sum()
        if y > 0:
            numerator += d1 - y1 * d / y
        if y > 1:
            variance += y1 * (y - y1) * d * (y - d) / (y**2 * (y - 1))
    return numerator**2 / variance if variance > 1e-9 else 0.0


@examples(40)
@given(st.integers(0, 10_000), st.sampled_from([9, 10, 13, 17, 26, WORD]))
def test_fields_of_words_are_the_counts_and_add_up_over_sites(seed, bits):
    given_ = patients(60, seed)
    binned, *others = given_
    words, tried, start, all_bits = pack(given_, [bits, 13])
    halves = [tuple(each[part] for each in given_) for part in (slice(0, 25), slice(25, None))]
    assert np.array_equal(sum(pack(half, [bits, 13])[0] for half in halves), words)
    for slot, side in ((0, binned[:, 1] > 2), (1, binned[:, 1] <= 2)):
        own_bits, cell = int(all_bits[slot]), start[slot]
        fields, width = WORD // own_bits, n_words(K, own_bits)
        for column in tried[slot]:
            for own in range(N_BINS[column]):
                expected = counts_of(binned, *others, side & (binned[:, column] == own))
                found = [
                    int(words[cell + f // fields]) >> (f % fields * own_bits) & (1 << own_bits) - 1
                    for f in range(2 * K + 3)
                ]
                assert found == expected.tolist()
                cell += width


@examples(60)
@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 4))
def test_no_allowed_cut_has_a_larger_log_rank_statistic(seed, min_samples_leaf, min_events_leaf):
    given_ = patients(70, seed)
    binned, *others = given_
    words, tried, start, bits = pack(given_, [9, 13])
    column, cut, statistic, sides = best_splits(words, tried, N_BINS, start, bits, K, min_samples_leaf, min_events_leaf)
    for slot, side in ((0, binned[:, 1] > 2), (1, binned[:, 1] <= 2)):
        whole = counts_of(binned, *others, side)
        allowed = {}
        for own in tried[slot]:
            for at in range(N_BINS[own] - 1):
                left = counts_of(binned, *others, side & (binned[:, own] <= at))
                right = whole - left
                if min(left[-2], right[-2]) >= min_samples_leaf and min(left[-1], right[-1]) >= min_events_leaf:
                    allowed[int(own), at] = log_rank(left, whole)
        best = max(allowed.values(), default=0.0)
        if best <= 1e-9:
            assert column[slot] == -1
            continue
        assert statistic[slot] == pytest.approx(best)
        assert allowed[int(column[slot]), int(cut[slot])] == pytest.approx(best)
        left = counts_of(binned, *others, side & (binned[:, column[slot]] <= cut[slot]))
        assert np.array_equal(sides[slot], [left, whole - left])
