"""Counts that readers receive: from 1 to four patients are hidden, 0 and the minimum itself are not."""

import numpy as np
import pytest

from multicentre.core.published_counts import MIN_PUBLISHED, count_text, is_small, published


@pytest.mark.parametrize(("least", "small"), [(5, [1, 2, 3, 4]), (3, [1, 2]), (2, [1]), (1, []), (0, [])])
def test_counts_below_the_minimum_are_small_except_zero(least, small):
    counts = np.arange(8)
    flags = is_small(counts, least)
    assert flags.dtype == np.bool_
    assert counts[flags].tolist() == small
    assert [count for count in counts.tolist() if published(count, least) is None] == small


def test_the_minimum_is_five_unless_another_is_stated():
    assert MIN_PUBLISHED == 5
    assert [published(count) for count in (0, 1, 4, 5, 6)] == [0, None, None, 5, 6]
    assert [count_text(count) for count in (0, 1, 4, 5, 6)] == ["0", "<5", "<5", "5", "6"]


def test_a_published_count_is_a_whole_number():
    """Sums of masked counts and weighted counts are real numbers."""
    assert published(12.000001) == 12
    assert type(published(12.000001)) is int
    assert published(4.999999) is None
    assert published(None) is None


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999, "999"), (1325, "1,325"), (1325.4, "1,325"), (2_000_000, "2,000,000")]
)
def test_thousands_are_grouped_by_commas(count, text):
    assert count_text(count) == text


@pytest.mark.parametrize(
    ("count", "least", "text"),
    [(None, 5, "<5"), (9, 10, "<10"), (10, 10, "10"), (2, 3, "<3"), (1, 2, "-"), (None, 2, "-"), (1, 1, "1")],
)
def test_a_mark_is_written_only_where_it_stands_for_several_numbers(count, least, text):
    """ "<2" would disclose 1."""
    assert count_text(count, least) == text


@pytest.mark.parametrize(
    ("count", "is_hidden", "text"),
    [(12, True, "-"), (0, True, "-"), (3, True, "<5"), (None, True, "<5"), (3, False, "3"), (12, False, "12")],
)
def test_a_count_is_hidden_to_protect_others_or_shown_by_decision(count, is_hidden, text):
    assert count_text(count, is_hidden=is_hidden) == text


def test_no_count_that_is_shown_by_decision_is_zero():
    assert count_text(None, is_hidden=False) == "0"
