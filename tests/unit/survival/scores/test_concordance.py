"""Concordance is what a loop over all pairs counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import DataError
from multicentre.survival.scores.brier import Censoring
from multicentre.survival.scores.concordance import (
    concordance_index,
    concordance_with_error,
    share_of_pairs,
    uno_concordance,
)
from support.examples import examples

patients = st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 4)), min_size=2, max_size=25)


def count_all_pairs(time, event, risk):
    """Return each patient's won and comparable pairs, by the definition."""
    won, comparable = np.zeros(len(time)), np.zeros(len(time))
    for i in range(len(time)):
        for j in range(len(time)):
            if event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                share = 1.0 if risk[i] > risk[j] else 0.5 * (risk[i] == risk[j])
                for one in (i, j):
                    won[one] += share
                    comparable[one] += 1
    return won, comparable


@examples(150)
@given(patients)
def test_it_is_the_share_of_all_pairs(drawn):
    time, event, risk = (np.array(column) for column in zip(*drawn, strict=True))
    time, risk = time.astype(float), risk.astype(float)
    won, comparable = count_all_pairs(time, event, risk)
    if not comparable.any():
        with pytest.raises(DataError, match="at least two patients must be comparable"):
            concordance_index(time, event, risk)
        return
    share = won.sum() / comparable.sum()
    error = np.sqrt(((won - share * comparable) ** 2).sum()) / (comparable.sum() / 2)
    assert concordance_index(time, event, risk) == pytest.approx(share, abs=1e-14)
    assert concordance_with_error(time, event, risk) == pytest.approx((share, error), abs=1e-12)


def test_the_error_is_near_that_of_the_bootstrap():
    rng = np.random.default_rng(0)
    risk = rng.normal(size=300)
    time, event = rng.exponential(np.exp(-risk)), rng.random(300) < 0.7
    replicates = []
    for _ in range(200):
        rows = rng.integers(300, size=300)
        replicates.append(concordance_index(time[rows], event[rows], risk[rows]))
    assert concordance_with_error(time, event, risk)[1] == pytest.approx(np.std(replicates), rel=0.15)


def test_risks_that_differ_by_less_than_the_tolerance_are_tied():
    time, event, risk = np.array([1.0, 2.0]), np.array([True, True]), np.array([0.5, 0.6])
    assert concordance_index(time, event, risk) == 0.0
    assert concordance_index(time, event, risk, tied_tol=0.2) == 0.5


def test_reversed_risks_give_the_rest():
    rng = np.random.default_rng(1)
    time, event, risk = rng.random(50), rng.random(50) < 0.5, rng.random(50)
    assert concordance_index(time, event, risk) + concordance_index(time, event, -risk) == pytest.approx(1.0)


def test_without_censoring_uno_is_harrell():
    rng = np.random.default_rng(2)
    time, event, risk = rng.random(40), np.ones(40, dtype=bool), rng.random(40)
    known = Censoring.estimate(time, event)
    assert uno_concordance(time, event, risk, known) == pytest.approx(concordance_index(time, event, risk))


def test_uno_weighs_events_by_the_squared_chance_to_be_seen():
    time, event = np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, False, True, False])
    known = Censoring(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 0.5, 0.5, 0.5]))
    risk = np.array([0.0, 1.0, 2.0, 1.0])
    assert uno_concordance(time, event, risk, known) == pytest.approx((1 * 0 + 4 * 1) / (1 * 3 + 4 * 1))
    assert uno_concordance(time, event, risk, known, horizon=3.0) == 0.0


def test_no_pairs_have_no_share():
    assert np.isnan(share_of_pairs(0.0, 0.0, 0.0, 0.0, 0.0)).all()
