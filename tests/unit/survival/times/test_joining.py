"""Joining of neighbouring times, for the models that one site fits alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from multicentre.survival.times import find_places, joined_bins

rows_of_counts = st.lists(st.integers(0, 30), min_size=1, max_size=40)


@given(rows_of_counts, st.integers(2, 25))
def test_places_are_ends_of_halves_or_cells_of_enough(counts, least):
    places = find_places(np.array([counts]), least)
    for place in set(places[np.array(counts) > 0].tolist()) - {-1}:
        assert counts[place] >= least or place % 2 == 1 or place == len(counts) - 1


def test_a_few_late_ones_do_not_move_the_many():
    counts = np.zeros(256)
    counts[40:60], counts[255] = 5.0, 1.0
    places = find_places(counts[None], 10)
    assert abs(places[40:60] - np.arange(40, 60)).max() <= 3
    assert places[255] == places[59]


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=60), st.integers(0, 12))
def test_joined_patients_leave_in_company(patients, least):
    bins = np.array([place for place, _ in patients], dtype=np.int64)
    happened = np.array([event for _, event in patients], dtype=np.bool_) & (bins < 12)
    moved, kept = joined_bins(bins, happened, 12, least)
    leaving, events = np.bincount(moved, minlength=13), np.bincount(moved[kept], minlength=13)
    if least > 1:
        assert not ((leaving[:12] > 0) & (leaving[:12] < least)).any()
        assert not ((events > 0) & (events < least)).any()
    assert events[12] == 0
    assert (kept <= happened).all()
