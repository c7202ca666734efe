"""Curves with bands and numbers at risk, as figures."""

from xml.etree import ElementTree

import pytest

from multicentre.estimator.figures import Band, Curves, read_figure
from multicentre.reports.alt_texts import describe
from multicentre.reports.figures import draw
from multicentre.reports.svg import inline_svg

NAN = float("nan")
TWO = [
    Band("arm 0", [0, 2, 5], [1, 0.8, 0.5], [1, 0.7, 0.4], [1, 0.9, 0.6]),
    Band("_b", [0, 3], [1, 0.2], [1, 0], [1, 0.4]),
]


def shown(bands=TWO, steps=True, positions=(0, 4), at_risk=None):
    return Curves("Survival", "", "model", "time", "share", bands, steps, list(positions), at_risk or {})


def texts(svg):
    return [
        " ".join("".join(e.itertext()).split()) for e in ElementTree.fromstring(svg).iter() if e.tag[-5:] == "}text"
    ]


@pytest.mark.parametrize(
    "figure",
    [
        shown(),
        shown(steps=False),
        shown(bands=[]),
        shown(bands=[Band("a", [0], [1], [1], [1])], at_risk={"a": [0.0, None]}),
        shown(bands=[Band("gaps", [0, 1, 2], [1, NAN, None], [1, None, 0.2], [1, None, 0.4])]),
        shown(bands=[Band(f"group {k}", [0, 1], [1, 0.5], [1, 0.4], [1, 0.6]) for k in range(12)]),
    ],
    ids=["steps", "lines", "none", "a point", "gaps", "many"],
)
def test_odd_curves_give_valid_figures_and_words(figure):
    svg = inline_svg(draw(figure), "figure1", describe(figure))
    assert ElementTree.fromstring(svg).get("aria-label").startswith("Survival. Curves of share over time")
    assert read_figure(figure.to_dict()) == figure


def test_numbers_at_risk_stand_below_and_few_are_not_told():
    words = texts(draw(shown(at_risk={"arm 0": [120.0, 33.0], "_b": [90.0, None]})))
    assert {"at risk", "arm 0", "120", "33", "90", "<5"} <= set(words)


@pytest.mark.slow
def test_steps_and_lines_are_drawn_otherwise():
    assert draw(shown(steps=True)) != draw(shown(steps=False))
    assert draw(shown()) == draw(shown())
