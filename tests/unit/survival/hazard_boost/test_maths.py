"""Intervals, the start, and the best split against all splits tried one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.survival.hazard_boost.maths import (
    MAX_STEP,
    UNIT,
    empirical_logits,
    find_splits,
    first_cells,
    last_intervals,
    leaf_values,
)
from multicentre.survival.times import to_bins
from support.examples import examples

GRID = np.array([1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("time", "happened", "last"),
    [
        (0.0, True, 0),
        (0.0, False, -1),
        (0.49, False, -1),
        (0.5, False, 0),
        (1.0, False, 0),
        (2.9, False, 1),
        (3.0, False, 2),
        (2.1, True, 2),
        (4.0, True, 2),
        (4.1, False, 2),
        (99.0, False, 2),
    ],
)
def test_a_censored_interval_counts_after_half_of_it(time, happened, last):
    times = np.array([time])
    found = last_intervals(to_bins(times, GRID), np.array([happened]), times, GRID)
    assert found.tolist() == [last]


def test_the_start_is_near_the_logit_of_events_over_patients_at_risk():
    events, leaving = np.array([300.0, 200.0]), np.array([1000.0, 2000.0])
    hazards = 1 / (1 + np.exp(-empirical_logits(events, leaving)))
    np.testing.assert_allclose(hazards, events / np.array([3000.0, 2000.0]), rtol=3e-3)


@examples(60)
@given(st.integers(0, 10_000), st.floats(0.0, 3.0), st.floats(0.2, 3.0))
def test_no_allowed_split_gains_more(seed, l2_regularization, least):
    rng = np.random.default_rng(seed)
    first = first_cells(np.array([3, 1, 4]), 2)
    joint = rng.integers(0, 3, size=(2, 3, 4, 2))
    slopes, curvatures = rng.normal(size=joint.shape) * joint, rng.random(joint.shape) * joint
    whole = [np.rint(UNIT * each).astype(np.int64) for each in (slopes, curvatures)]
    cells = [
        np.concatenate([each.sum((2, 3)), each.sum((1, 2, 3))[:, None], each.sum((1, 3)), each.sum((1, 2))], axis=1)
        for each in whole
    ]
    found = find_splits(np.stack(cells, axis=-1), first, l2_regularization, least)
    for node in range(2):
        best, where = 0.0, None
        for column in range(4):
            for cut in range(first[column], first[column + 1] - 1):
                inside = slice(first[column], cut + 1), slice(cut + 1, first[column + 1])
                (gl, gr), (hl, hr) = ([c[node, part].sum() / UNIT for part in inside] for c in cells)
                if min(hl, hr) >= least:
                    gain = (
                        gl**2 / (hl + l2_regularization)
                        + gr**2 / (hr + l2_regularization)
                        - (gl + gr) ** 2 / (hl + hr + l2_regularization)
                    )
                    if gain > best + 1e-12:
                        best, where = gain, (cut, gl, gr)
        assert found.gain[node] == pytest.approx(best, abs=1e-9)
        if where:
            assert first[found.column[node]] + found.cut[node] == where[0]
            np.testing.assert_allclose([found.left[node, 0] / UNIT, found.right[node, 0] / UNIT], where[1:])


def test_a_leaf_moves_by_the_newton_step_but_not_far():
    sums = np.array([[-6, 2], [10**6, 1], [0, 0]]) * int(UNIT)
    assert leaf_values(sums, 1.0, 0.5).tolist() == [1.0, -MAX_STEP, 0.0]
