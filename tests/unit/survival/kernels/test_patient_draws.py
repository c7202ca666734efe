"""Draws that go with the patient: the same in any order and any company."""

import numpy as np
from scipy.stats import kstest, poisson

from multicentre.survival.kernels.pairs import draw_poisson, draw_uniform, patient_keys


def records(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X[rng.random((n, 3)) < 0.1] = np.nan
    return X, rng.exponential(size=n), rng.integers(0, 2, n).astype(np.int8)


def test_keys_follow_the_record_whatever_the_order():
    X, time, event = records()
    keys = patient_keys(X, time, event, None)
    order = np.random.default_rng(1).permutation(len(time))
    assert np.array_equal(patient_keys(X[order], time[order], event[order], None), keys[order])
    assert len(np.unique(keys)) == len(time)


def test_keys_do_not_see_how_a_gap_or_a_zero_is_written():
    one = np.array([[0.0, np.nan]])
    other = np.array([[-0.0, -np.nan]])
    same = [patient_keys(X, np.ones(1), np.ones(1, dtype=np.int8), None)[0] for X in (one, other)]
    assert same[0] == same[1]


def test_keys_of_identifiers_do_not_depend_on_the_longest_of_a_site():
    X, time, event = records(3)
    alone = patient_keys(X[:1], time[:1], event[:1], np.array(["p1"]))
    together = patient_keys(X, time, event, np.array(["p1", "p2", "a much longer name"]))
    assert alone[0] == together[0]
    assert len(set(together.tolist())) == 3


def test_draws_are_uniform_and_differ_between_seeds_and_purposes():
    keys = patient_keys(*records(5000), None)
    draws = [draw_uniform(keys, seed, number) for seed in (0, 1) for number in (0, 1)]
    assert all(kstest(each, "uniform").pvalue > 1e-3 for each in draws)
    assert np.abs(np.corrcoef(draws)[np.triu_indices(4, 1)]).max() < 0.05


def test_counts_are_poisson():
    counts = draw_poisson(np.arange(200_000, dtype=np.uint64), 3, 5)
    shares = np.bincount(counts, minlength=6)[:6] / len(counts)
    np.testing.assert_allclose(shares, poisson.pmf(np.arange(6), 1.0), atol=5e-3)
