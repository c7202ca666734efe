"""Properties depend neither on the speed of a machine nor, in the quick profile, on luck."""

import re
from pathlib import Path

from hypothesis import settings

from support.examples import examples

TESTS = Path(__file__).parents[1]


def test_no_profile_has_a_deadline_and_the_quick_one_draws_the_same_examples():
    quick, full = settings.get_profile("quick"), settings.get_profile("full")
    assert quick.deadline is full.deadline is None
    assert quick.print_blob
    assert full.print_blob
    assert quick.derandomize
    assert quick.max_examples < full.max_examples


def test_no_property_sets_a_deadline_or_a_number_of_examples_past_the_profile():
    own = re.compile(r"\b(deadline|max_examples|derandomize)=")
    files = [file for file in TESTS.rglob("*.py") if file.name not in ("examples.py", Path(__file__).name)]
    assert len(files) > 100
    assert [str(file) for file in files if own.search(file.read_text(encoding="utf-8"))] == []


def test_a_number_of_examples_is_scaled_to_the_profile():
    share = settings().max_examples / settings.get_profile("full").max_examples
    assert examples(300).max_examples == round(300 * share)
    assert examples(1).max_examples == 2
