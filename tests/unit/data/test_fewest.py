"""How few patients an unmasked answer would rest on."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.data.records import fewest_alike, fewest_different

entries = st.sampled_from([0.0, 1.0, 2.5, np.nan])


@given(st.lists(st.tuples(entries, entries), min_size=1, max_size=30))
def test_alike_are_those_with_one_row(rows):
    groups = Counter(tuple(repr(value) for value in row) for row in rows)
    assert fewest_alike(np.array(rows)) == min(groups.values())


@given(st.lists(st.lists(entries, min_size=4, max_size=4), min_size=1, max_size=30))
def test_those_who_stand_out_are_the_smallest_group_of_a_column(rows):
    sizes = [len(rows)]
    for column in zip(*rows, strict=True):
        known = [value for value in column if not np.isnan(value)]
        common = max(Counter(known).values(), default=0)
        sizes += [size for size in (len(known), len(column) - len(known), len(known) - common) if size]
    assert fewest_different(np.array(rows)) == min(sizes)


@pytest.mark.parametrize("weigh", [np.exp, np.square, lambda x: np.where(x > 0.5, x, 0.0)])
def test_no_weights_by_rows_rest_on_fewer_than_the_alike(weigh):
    rng = np.random.default_rng(0)
    for _ in range(50):
        rows = np.repeat(rng.normal(size=(8, 3)), rng.integers(3, 9, 8), axis=0)
        weights = weigh(rows @ rng.normal(size=3))
        if weights.any():
            assert weights.sum() ** 2 / np.square(weights).sum() >= fewest_alike(rows) - 1e-9


def test_no_patients_have_no_groups():
    assert fewest_alike(np.zeros((0, 3))) == fewest_different(np.zeros((0, 3))) == 0
    assert fewest_alike(np.zeros((4, 0))) == 4
