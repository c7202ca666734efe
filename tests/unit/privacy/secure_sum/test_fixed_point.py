"""Fixed point holds every sum of values within their declared ranges, and says its error."""

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from multicentre.core.messages import array, count, number
from multicentre.core.noise_plan import Noise
from multicentre.core.steps import Release
from multicentre.errors import ConfigurationError, DisclosureRefused, IntegrityError, MessageError
from multicentre.privacy.secure_sum.fixed_point import (
    Grid,
    check_values,
    decode_release,
    encode_release,
    from_ring,
    plan_grids,
    rounding,
    sum_terms,
    to_ring,
)
from support.mixed_method import Mixed, mixed

BOUNDS = st.floats(2.0**-500, 2.0**500)


def release(bound, **more):
    @dataclass(frozen=True)
    class One(Release):
        values: np.ndarray = array("x", ("d",), bound=bound, **more)

    return One


def ring(values, grid):
    vector = np.empty(len(values), np.uint64)
    to_ring(np.asarray(values), grid, vector)
    return vector


@given(BOUNDS, st.integers(1, 10_000))
@example(2.0**36, 2)
@example(1.0, 1)
def test_the_grid_is_the_finest_that_no_sum_can_overflow(bound, n_sites):
    bits = plan_grids(release(bound), n_sites)["values"].fraction_bits
    largest = Fraction(bound) * Fraction(2) ** bits
    assert n_sites * math.ceil(largest) < 2**63
    assert n_sites * math.ceil(2 * largest) >= 2**63 or bits == 1000


@given(BOUNDS, st.integers(2, 50), st.floats(0, 1))
def test_no_sum_within_the_range_overflows(bound, n_sites, part):
    grid = plan_grids(release(bound), n_sites)["values"]
    for value in (bound, -bound, part * bound, -part * bound):
        (summand,) = ring([value], grid).view(np.int64).tolist()
        assert abs(n_sites * summand) < 2**63
        assert abs(Fraction(summand) / Fraction(2) ** grid.fraction_bits - Fraction(value)) <= Fraction(
            rounding(grid, 1)
        )


@given(
    npst.arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(0, 8)), elements=st.floats(-5e9, 5e9, width=64))
)
def test_the_ring_sum_is_the_plain_one_to_the_declared_error(rows):
    n_sites, grid = len(rows), plan_grids(release(5e9), len(rows))["values"]
    total = from_ring(np.add.reduce([ring(row, grid) for row in rows]), grid)
    exact = [sum(map(Fraction, column)) for column in rows.T.tolist()]
    spacing = np.spacing(np.abs(total)) / 2
    for found, value, gap in zip(total.tolist(), exact, spacing.tolist(), strict=True):
        assert abs(Fraction(found) - value) <= Fraction(rounding(grid, n_sites)) + Fraction(gap)


@pytest.mark.parametrize("value", [1.0000001e9, -1.0000001e9, 1e300, np.inf, -np.inf, np.nan])
def test_a_value_beyond_its_range_is_refused(value):
    kind = release(1e9)
    with pytest.raises(
        DisclosureRefused, match=r"^lyon, One\.values: values must be within the declared range of 1e\+09"
    ):
        check_values(kind(np.array([0.0, value])), plan_grids(kind, 3), "lyon")
    check_values(kind(np.array([1e9, -1e9])), plan_grids(kind, 3), "lyon")
    check_values(kind(np.empty(0)), plan_grids(kind, 3), "lyon")


@pytest.mark.parametrize("value", [2**56 + 1, -(2**56) - 1, 2**62])
def test_whole_numbers_are_held_against_their_range_exactly(value):
    kind = release(2.0**56, dtype="i8")
    with pytest.raises(DisclosureRefused):
        check_values(kind(np.array([value])), plan_grids(kind, 3), "lyon")


def test_whole_numbers_that_do_not_fit_are_said_before_the_run():
    kind = release(2.0**61, dtype="i8")
    assert plan_grids(kind, 3)["values"] == Grid(2.0**61, 0, is_whole=True)
    with pytest.raises(ConfigurationError, match=r"^One\.values: the sum over 4 sites must fit 64 bits.*smaller bound"):
        plan_grids(kind, 4)


@pytest.mark.parametrize(("mechanism", "scales"), [("gaussian", 16), ("laplace", 50)])
def test_noise_has_room(mechanism, scales):
    kind = release(8.0, sensitivity=0.5, norm="l1")
    grids = plan_grids(kind, 4, Noise(mechanism, {"values": 3.0}))
    assert grids["values"].capacity == 8.0 + scales * 3.0 * 0.5
    check_values(kind(np.array([8.0 + scales * 1.5])), grids, "lyon")
    assert grids["values"].fraction_bits < plan_grids(kind, 4)["values"].fraction_bits


def test_noise_that_is_too_large_for_whole_numbers_is_said_before_the_run():
    kind = release(10.0, dtype="i8", sensitivity=1.0)
    with pytest.raises(ConfigurationError, match="plan less noise"):
        plan_grids(kind, 2, Noise("gaussian", {"values": 1e18}))
    with pytest.raises(ConfigurationError, match="plan less noise"):
        plan_grids(release(10.0, sensitivity=1e150), 2, Noise("gaussian", {"values": 1e300}))


def test_the_terms_of_a_sum_can_be_printed():
    terms = sum_terms(Mixed, 3)
    assert terms["n"].rounding == terms["short"].rounding == terms["long"].rounding == 0.0
    assert (terms["square"].capacity, terms["square"].rounding) == (1e10, 3 * 2.0**-29)


def test_every_kind_of_field_comes_back():
    grids = plan_grids(Mixed, 2)
    vector, layout = encode_release(mixed(), grids, "lyon")
    back, behind = decode_release(Mixed, vector, layout, grids)
    assert (vector.dtype, len(vector), vector[-1], behind) == (np.uint64, 10 + 1, 0, {})
    assert len(layout) < 90
    assert (back.square.tolist(), back.long.tolist()) == ([[1.5, -2.25]], [2**55 + 1, -7])
    assert (back.short.tolist(), back.short.dtype) == ([3], np.dtype("i4"))
    assert (float(back.single), back.single.shape, back.single.dtype) == (0.5, (), np.dtype("f4"))
    assert {name: view.tolist() for name, view in back.views.items()} == {"a|b": [1e5, -1.0], "c": []}
    assert (back.n, type(back.n), back.amount, back.perhaps) == (30, int, -0.125, None)
    assert encode_release(back, grids, "lyon")[0].tobytes() == vector.tobytes()


def test_the_order_of_names_does_not_matter():
    grids = plan_grids(Mixed, 2)
    turned = mixed(views=dict(reversed(mixed().views.items())))
    one, other = (encode_release(answer, grids, "lyon") for answer in (mixed(), turned))
    assert (one[0].tobytes(), one[1]) == (other[0].tobytes(), other[1])


@pytest.mark.parametrize(
    "changes",
    [{"perhaps": 0.5}, {"square": np.ones((1, 3))}, {"views": {}}, {"views": {"c": np.ones(1), "a|b": np.ones(1)}}],
)
def test_other_shapes_and_names_have_another_layout(changes):
    grids = plan_grids(Mixed, 2)
    assert encode_release(mixed(), grids, "")[1] != encode_release(mixed(**changes), grids, "")[1]


def test_what_the_declaration_fixes_does_not_travel():
    @dataclass(frozen=True)
    class Fixed(Release):
        pair: np.ndarray = array("x", (2,), bound=1.0)
        n: int = count("x")
        share: float = number("x", bound=1.0)

    grids = plan_grids(Fixed, 2)
    vector, layout = encode_release(Fixed(np.array([0.25, 1.0]), 3, 0.5), grids, "")
    assert layout == "{}"
    assert decode_release(Fixed, vector, layout, grids)[0].pair.tolist() == [0.25, 1.0]


@pytest.mark.parametrize(
    "layout",
    [
        "",
        "[]",
        "{}",
        '{"sides":{"a":1,"b":-2,"c":2},"names":{"views":{}}}',
        '{"sides":{"a":1,"b":2,"c":2},"names":{"views":{"a":[1.0]}}}',
        '{"sides":{"a":1,"b":2,"c":200},"names":{"views":{}}}',
        '{"sides":{"a":1,"b":2,"c":2},"names":{"views":7}}',
        '{"sides":{"a":1,"b":2,"c":2},"names":{"views":{"a|b":[2],"c":[0]}},"absent":["n"]}',
    ],
)
def test_a_layout_that_does_not_fit_is_refused(layout):
    grids = plan_grids(Mixed, 2)
    vector, _ = encode_release(mixed(), grids, "")
    with pytest.raises(MessageError):
        decode_release(Mixed, vector, layout, grids)


def test_patients_are_counted_value_by_value():
    grids = plan_grids(Mixed, 2)
    by_name = dict.fromkeys(Mixed.declarations(), 30) | {"a|b": 7, "c": 0, "n": 12}
    told = dataclasses.replace(mixed(), patients=by_name)
    vector, layout = encode_release(told, grids, "", counted=True)
    other, _ = encode_release(mixed(), grids, "", counted=True)
    assert len(vector) == 10 + 1 + 8
    total, behind = decode_release(Mixed, vector + other, layout, grids, counted=True)
    assert (total.n, behind["views", "a|b"], behind["views", "c"], behind["n", ""]) == (60, 37, 30, 42)
    assert {behind[name, ""] for name in ("square", "short", "long", "single", "amount")} == {60}
    assert encode_release(told, grids, "")[0].tobytes() == vector[:11].tobytes()


@pytest.mark.parametrize("counted", [False, True])
def test_a_sum_that_still_wears_masks_is_no_sum(counted):
    grids = plan_grids(Mixed, 2)
    vector, layout = encode_release(mixed(), grids, "", counted=counted)
    vector += np.random.default_rng(5).integers(0, 2**64, len(vector), np.uint64)
    with pytest.raises(IntegrityError, match=r"^Mixed: the masks of the sites must cancel in the sum; they do not"):
        decode_release(Mixed, vector, layout, grids, counted=counted)


@pytest.mark.parametrize("counted", [False, True])
def test_patients_that_were_not_to_be_counted_or_are_missing_are_refused(counted):
    grids = plan_grids(Mixed, 2)
    vector, layout = encode_release(mixed(), grids, "", counted=not counted)
    with pytest.raises(MessageError, match="the layout must have"):
        decode_release(Mixed, vector, layout, grids, counted=counted)


def test_a_sum_beyond_its_type_is_said():
    grids = plan_grids(Mixed, 2)
    vector, layout = encode_release(mixed(short=np.array([2**31 - 1], "i4")), grids, "")
    with pytest.raises(MessageError, match=r"Mixed\.short: a sum must be within the range of dtype i4"):
        decode_release(Mixed, vector + vector, layout, grids)
