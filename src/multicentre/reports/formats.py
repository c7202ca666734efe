"""Formats of numbers, counts, sizes and times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from multicentre.core.published_counts import count_text, published
from multicentre.estimator.printing import p_cell

NOTHING = "–"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_number(value: float | None) -> str:
    """Return a number with up to four significant digits, whole numbers in full.

    >>> [format_number(x) for x in (1234567, 0.12345, -3, 0.0000123, None)]
    ['1,234,567', '0.1235', '−3', '1.23 × 10⁻⁵', '–']
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == int(value) and abs(value) < 1e12:
        return _with_minus(f"{int(value):,}")
    if 1e-3 <= abs(value) < 1e7:
        text = _format_fixed(value, _decimals(abs(value)))
        return text.rstrip("0").rstrip(".") if "." in text else text
    return _format_scientific(value)


def format_column(values: Sequence[float | None]) -> list[str]:
    """Return the numbers of a column, all with the same number of decimals.

    >>> format_column([0.5, 12.25, None])
    ['0.50', '12.25', '–']
    """
    sizes = [abs(value) for value in values if value is not None and math.isfinite(value)]
    if not sizes or all(value == int(value) for value in sizes) or max(sizes) >= 1e7 or max(sizes) < 1e-3:
        return [format_number(value) for value in values]
    decimals = _decimals(max(sizes))
    return [_format_aligned(value, decimals) for value in values]


def format_count(count: int | None, min_patients: int) -> str:
    """Return a number of patients; a suppressed count, or one that must be suppressed, is given as a bound.

    >>> [format_count(n, 10) for n in (None, 4, 0, 1200)]
    ['<10', '<10', '0', '1,200']
    """
    number = published(count, min_patients)
    return count_text(None, min_patients) if number is None else format_number(number)


def format_total(counts: Sequence[int | None], min_patients: int) -> str:
    """Return a sum of counts; if one is suppressed, a lower bound from which it cannot be derived.

    >>> format_total([40, None, 30], 10)
    '≥70'
    """
    exact_counts = [count for count in (published(count, min_patients) for count in counts) if count is not None]
    total = format_number(sum(exact_counts))
    return total if len(exact_counts) == len(counts) else f"≥{total}"


def format_p(value: float | None) -> str:
    """Return a p-value to three decimals.

    >>> [format_p(x) for x in (0.0342, 1e-9, 1.0, None)]
    ['0.034', '<0.001', '1.000', '–']
    """
    return p_cell(value, NOTHING)


def format_bytes(size: float) -> str:
    """Return a size in decimal units.

    >>> [format_bytes(n) for n in (812, 48_210, 3_400_000)]
    ['812 B', '48.2 kB', '3.4 MB']
    """
    if size < 1000:
        return f"{size:.0f} B"
    power = min(int(math.log10(size) // 3), 4)
    return f"{size / 1000**power:.1f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def format_seconds(seconds: float) -> str:
    """Return a duration.

    >>> [format_seconds(s) for s in (0.42, 75.0, 7260.0)]
    ['0.4 s', '1 min 15 s', '2 h 1 min']
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def format_instant(instant: datetime) -> str:
    """Return an instant in UTC to the minute.

    >>> format_instant(datetime(2026, 3, 1, 9, 30, tzinfo=UTC))
    '2026-03-01 09:30 UTC'
    """
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _decimals(size: float) -> int:
    return 0 if size == 0 else max(0, 3 - math.floor(math.log10(size)))


def _format_aligned(value: float | None, decimals: int) -> str:
    if value is None or not math.isfinite(value):
        return NOTHING
    if value != 0 and abs(value) < 0.5 * 10**-decimals:
        return _format_scientific(value)
    return _format_fixed(value, decimals)


def _format_fixed(value: float, decimals: int) -> str:
    return _with_minus(f"{value:,.{decimals}f}")


def _with_minus(text: str) -> str:
    return text.replace("-", "−")


def _format_scientific(value: float) -> str:
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa.replace('-', '−')} × 10{str(int(exponent)).translate(_SUPERSCRIPT)}"
