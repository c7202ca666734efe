"""Codes of doubles, cells and joined groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from multicentre.statistics.quantiles.maths import (
    between,
    coarsen,
    count_in_cells,
    decode_doubles,
    encode_doubles,
    split_cells,
    up_to_float32,
)

DOUBLES = arrays(np.float64, st.integers(1, 40), elements=st.floats(allow_nan=False, allow_infinity=False))
TINY = np.finfo(np.float64).tiny
SINGLES = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(DOUBLES)
def test_codes_are_in_the_order_of_the_values_and_lead_back(values: np.ndarray) -> None:
    codes, settled = encode_doubles(values), np.where(np.abs(values) < TINY, 0.0, values)
    assert (codes[:, None] < codes).tolist() == (settled[:, None] < settled).tolist()
    assert (decode_doubles(codes) == settled).all()


@given(DOUBLES, st.integers(13, 48), st.integers(0, 39))
def test_coarse_values_are_on_the_same_side_of_every_border_and_tell_nothing_within(
    values: np.ndarray, digits: int, one: int
) -> None:
    values = np.where(np.abs(values) < TINY, 0.0, values)
    coarse, shift = coarsen(values, digits), np.uint64(64 - digits)
    cell, least = encode_doubles(values) >> shift, encode_doubles(np.array([-np.finfo(float).max])) >> shift
    assert ((encode_doubles(coarse) >> shift) == cell).all()
    border = decode_doubles(np.maximum((cell[one % len(cell)] << shift) - np.uint64(1), least << shift))
    if np.isfinite(border):
        assert ((coarse <= border) == (values <= border)).all()
    assert len(np.unique(coarse)) == len(np.unique(cell))
    assert np.isnan(coarsen(np.full(2, np.nan), digits)).all()


def test_signed_zeros_and_subnormals_have_one_code() -> None:
    zeros = encode_doubles(np.array([-np.nextafter(TINY, 0), -5e-324, -0.0, 0.0, 5e-324, np.nextafter(TINY, 0)]))
    below, above, most, infinite = encode_doubles(np.array([-TINY, TINY, np.finfo(float).max, np.inf]))
    assert len(np.unique(zeros)) == 1
    assert below < zeros[0] < above < most < infinite


NEAR_ZERO = np.array(
    [-1.0, -TINY, -np.nextafter(TINY, 0), -5e-324, -0.0, 0.0, 5e-324, np.nextafter(TINY, 0), TINY, 1.0]
)


@given(st.sampled_from(NEAR_ZERO), st.sampled_from(NEAR_ZERO), st.integers(0, 2**52), st.integers(0, 2**52))
def test_every_subnormal_is_on_the_side_of_a_threshold_on_which_0_is(
    one: float, other: float, after: int, before: int
) -> None:
    low, high = np.unique(encode_doubles(np.array([one, other])))[[0, -1]]
    if low < high:
        first = min(low + np.uint64(1 + after), high)
        last = max(high - np.uint64(before), first)
        (threshold,) = between(np.array([first]), np.array([last]))
        codes = encode_doubles(NEAR_ZERO)
        outside = (codes <= low) | (codes >= high)
        assert (NEAR_ZERO[outside] <= threshold).tolist() == (codes[outside] <= low).tolist()


def test_no_round_number_lies_on_the_border_of_a_coarse_cell() -> None:
    round_numbers = np.concatenate(
        [np.arange(-20000.0, 20001.0), np.arange(-2000, 2001) / 10, 2.0 ** np.arange(-99, 99)]
    )
    codes = encode_doubles(round_numbers)
    coarse = np.uint64(2**20 - 1)
    assert (codes & coarse).all()
    assert ((codes + np.uint64(1)) & coarse).all()


@given(DOUBLES, st.sampled_from([1, 2, 4, 8]), st.data())
def test_counts_in_cells_are_those_of_a_direct_comparison(values: np.ndarray, bits: int, data: st.DataObject) -> None:
    codes = np.sort(encode_doubles(values))
    level = data.draw(st.integers(0, 64 // bits - 1))
    one = data.draw(st.sampled_from(codes.tolist()))
    prefix = one >> (64 - level * bits)
    starts = split_cells(np.array([prefix], dtype=np.uint64), level, bits)
    width = 2 ** (64 - (level + 1) * bits)
    low = prefix << (64 - level * bits)
    expected = [sum(low <= code < low + (k + 1) * width for code in codes.tolist()) for k in range(2**bits)]
    assert count_in_cells(codes, starts, level, bits)[0].tolist() == expected


@given(SINGLES, SINGLES)
def test_a_threshold_in_single_precision_parts_as_the_double_did(one: float, other: float) -> None:
    low, high = sorted([one, other])
    if low < high:
        codes = encode_doubles(np.array([low, high]))
        threshold = between(codes[:1] + np.uint64(1), codes[1:])
        assert low <= threshold[0] < high
        assert np.float32(low) < up_to_float32(threshold)[0] <= np.float32(high)


def test_a_threshold_is_a_short_number_within_a_gap_even_between_the_largest_doubles() -> None:
    most = np.finfo(float).max
    border = encode_doubles(np.array([-most, most, 2.0, 5.0]))
    assert between(border[[0, 2]], border[[1, 3]]).tolist() == [0.0, 4.0]
    assert between(border[2:3], border[2:3])[0] == pytest.approx(2.0, rel=1e-15)
    assert between(border[2:3], border[2:3])[0] < 2.0
