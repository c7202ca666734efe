"""The forest plot of a report."""

from xml.etree import ElementTree

import pytest

from multicentre.estimator.figures import Forest
from multicentre.reports.alt_texts import describe
from multicentre.reports.curves import REFERENCE
from multicentre.reports.figures import draw
from multicentre.reports.svg import NARROW, inline_svg


def forest(estimates, lower, upper, *, n_pooled=1, reference=1.0):
    rows = [f"row {place}" for place in range(len(estimates))]
    return Forest("Ratios", "", "model", "hazard ratio", rows, estimates, lower, upper, n_pooled, reference)


def texts_of(shown):
    root = ElementTree.fromstring(inline_svg(draw(shown), "figure1", describe(shown)))
    return [text for element in root.iter() if element.tag.endswith("text") for text in element.itertext()]


def test_rows_and_their_numbers_are_written():
    texts = texts_of(forest([0.5, 2.0, 1.25], [0.25, 1.0, 1.1], [1.0, 4.0, 1.5]))
    for text in ("row 0", "row 2", "0.500 (0.250 to 1.000)", "1.250 (1.100 to 1.500)", "hazard ratio"):
        assert text in texts


@pytest.mark.slow
def test_what_was_put_together_is_drawn_otherwise():
    own, pooled = (draw(forest([0.5, 2.0], [0.25, 1.0], [1.0, 4.0], n_pooled=number)) for number in (0, 1))
    assert own.count("#D55E00".lower()) == 0
    assert pooled.lower().count("#d55e00") > 0


@pytest.mark.parametrize(
    "shown",
    [
        forest([], [], []),
        forest([None], [None], [None]),
        forest([1.0, None], [1.0, None], [1.0, None]),
        forest([-0.5, 0.2], [-1.0, -0.1], [0.0, 0.5], reference=0.0),
        forest([1.0, 1e6], [1e-9, 1e5], [1e9, 1e7], n_pooled=0),
    ],
)
def test_odd_numbers_give_a_valid_figure_and_words(shown):
    assert ElementTree.fromstring(draw(shown)).tag.endswith("svg")
    assert describe(shown).startswith("Ratios. Forest plot of hazard ratio")


def test_an_unknown_row_says_so():
    shown = forest([0.5, None], [0.25, None], [1.0, None])
    assert "not estimated" in texts_of(shown)
    assert describe(shown) == "Ratios. Forest plot of hazard ratio, 2 rows. row 0 0.5 (0.25 to 1); row 1 unknown."


def test_a_narrow_forest_marks_its_reference_below_the_whole_name():
    rows = [f"Treatment: standard care{REFERENCE}", "age"]
    drawing = draw(Forest("", "", "model", "hazard ratio", rows, [1, 2], [None, 1.5], [None, 3], 0, 1.0), NARROW)
    assert "Treatment: standard care" in drawing
    assert "1.000 (reference)" in drawing
