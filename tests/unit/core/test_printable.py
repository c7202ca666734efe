"""Texts of other parties: nothing moves the cursor, no cell is a formula, and escapes leave the value unchanged."""

import json
import tomllib

import pytest

from multicentre.core.printable import escaped, harmless, inert, restored

ESC, BEL, RIGHT_TO_LEFT, ZERO_WIDTH = "\x1b", "\x07", "\u202e", "\u200b"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", ""),
        ("approved by Zoë, 3 < 4", "approved by Zoë, 3 < 4"),
        ("one\n\ttwo", "one\n\ttwo"),
        (f"approved{ESC}[2K{ESC}[1A", "approved [2K [1A"),
        (f"bell{BEL}", "bell "),
        ("over\rwritten", "over written"),
        (f"{RIGHT_TO_LEFT}evil", " evil"),
        (f"a{ZERO_WIDTH}b", "a b"),
        ("a\u2028b\u2029c", "a b c"),
        ("lone \ud800 half", "lone   half"),
    ],
)
def test_characters_that_move_the_cursor_are_printed_as_blanks(text, printed):
    assert harmless(text) == printed


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\u2212"])
def test_a_cell_that_a_spreadsheet_would_calculate_gets_an_apostrophe(start):
    assert inert(f"{start}cmd") == f"'{start}cmd"
    assert inert(f"  {start}cmd") == f"'  {start}cmd"
    assert inert(f"a{start}b") == f"a{start}b"


@pytest.mark.parametrize("number", ["-1", "-1.5", "-.5", "-2.", "1e5", "-1.5e-07", "-1E+3", "-"])
def test_numbers_and_a_lone_dash_are_unchanged(number):
    assert inert(number) == number


@pytest.mark.parametrize("formula", ["-1+1", "--1", "-1e", "-e5", "-1.2.3", "+1", "- 1", "-."])
def test_what_only_resembles_a_number_gets_an_apostrophe(formula):
    assert inert(formula) == f"'{formula}"


@pytest.mark.parametrize("value", [-1.5, 0, None, True])
def test_values_of_other_types_are_unchanged(value):
    assert inert(value) is value
    assert restored(value) is value


def test_a_cell_stays_one_cell():
    assert inert("porto;=1+1") == "porto,=1+1"
    assert inert("porto\n=1+1") == "porto =1+1"
    assert inert(f"a\tb\r{RIGHT_TO_LEFT}c") == "a b  c"
    assert inert("\n=1") == "' =1"


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("'-0.1 (1.0)", "-0.1 (1.0)"),
        ("'=1", "=1"),
        ("'quoted'", "'quoted'"),
        ("plain", "plain"),
        ("''", "''"),
        ("'a;b", "'a;b"),
        ("", ""),
    ],
)
def test_only_an_apostrophe_that_was_added_is_taken_off_for_a_terminal(cell, shown):
    assert restored(cell) == shown


@pytest.mark.parametrize("text", ["-0.1 (1.0)", "=1+1", "  @x", "-3", "-", "lyon", "-1.5e-07"])
def test_restoring_returns_the_text_that_was_made_inert(text):
    assert restored(inert(text)) == text


@pytest.mark.parametrize("mark", ["\x7f", "\x9f", "\u061c", "\u200e", "\u200f", "\u2028", "\u202e", "\u2066", "\u2069"])
def test_escapes_stand_for_the_same_text_in_json_and_toml(mark):
    text = f"left {mark} right"
    as_json = escaped(json.dumps([text], ensure_ascii=False))
    as_toml = escaped(f'x = "{text}"')
    assert mark not in as_json + as_toml
    assert json.loads(as_json) == [text]
    assert tomllib.loads(as_toml) == {"x": text}
    assert escaped(f"{mark}") == f"\\u{ord(mark):04x}"


@pytest.mark.parametrize("text", ["Zoë\n\t", "\u200d\u2027\u202f\u2065\u206a~ ", "日本"])
def test_other_characters_are_not_escaped(text):
    assert escaped(text) == text
