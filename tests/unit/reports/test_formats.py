import math

from hypothesis import given
from hypothesis import strategies as st

from multicentre.reports.formats import (
    format_bytes,
    format_column,
    format_count,
    format_number,
    format_seconds,
    format_total,
)

SUPERSCRIPT = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def value_of(text):
    plain = text.replace(",", "").replace("−", "-")
    mantissa, _, power = plain.partition(" × 10")
    return float(mantissa) * 10.0 ** int(power.translate(SUPERSCRIPT) or 0)


@given(st.floats(-1e15, 1e15))
def test_a_shown_number_is_within_half_a_percent(x):
    shown = value_of(format_number(x))
    assert math.isclose(shown, x, rel_tol=0.0051, abs_tol=1e-300)


@given(st.lists(st.floats(-1e5, 1e5), min_size=1))
def test_a_column_is_true_to_four_digits_of_its_largest(values):
    largest = max(map(abs, values))
    for value, text in zip(values, format_column(values), strict=True):
        assert abs(value_of(text) - value) <= 0.0051 * largest


@given(st.lists(st.one_of(st.none(), st.integers(0, 300)), min_size=1))
def test_no_small_count_can_be_worked_out_from_a_total(counts):
    shown = [format_count(count, 10) for count in counts]
    known = sum(count for count in counts if count is not None and (count == 0 or count >= 10))
    hidden = shown.count("<10")
    assert not any(text in {str(k) for k in range(1, 10)} for text in shown)
    assert format_total(counts, 10) == ("≥" if hidden else "") + format_number(known)


def test_what_is_not_a_number_is_a_dash():
    assert [format_number(x) for x in (math.nan, math.inf, None)] == ["–"] * 3
    assert format_column([math.nan, None]) == ["–", "–"]


def test_a_tiny_value_in_a_column_is_not_shown_as_zero():
    assert format_column([12.5, 1e-9]) == ["12.50", "1.00 × 10⁻⁹"]


def test_sizes_and_durations():
    assert format_bytes(0) == "0 B"
    assert format_bytes(5e15) == "5000.0 TB"
    assert format_seconds(59.96) == "60.0 s"
    assert format_seconds(3599.7) == "1 h 0 min"
