from itertools import pairwise
from xml.etree import ElementTree

import pytest

from multicentre.estimator.drawing import COLOURS
from multicentre.estimator.figures import Bars, Cloud, Densities, HeatMap, Lines, Panel, Points, Table
from multicentre.reports.alt_texts import describe
from multicentre.reports.figures import draw
from multicentre.reports.method_tables import method_table
from multicentre.reports.parts import MAX_CELL_ROWS, MAX_PANELS, fit_to_pages
from multicentre.reports.svg import inline_svg, label

NAN = float("nan")
EDGE_CASES = [
    Lines("No curve", "", "fit", "x", "y", [], {}, {}),
    Lines("Gaps", "", "fit", "x", "y", [1, 2, 3], {"a": [1.0, NAN, 2.0], "b": [None, None, None]}, {"m": 2.5}),
    Lines("One point", "", "fit", "x", "y", [1], {"a": [1.0]}, {}),
    Lines("Many", "", "fit", "x", "y", [1, 2], {f"site {k}": [k, k] for k in range(20)}, {}),
    Points("No group", "", "model", "x", "y", [Cloud("lyon", "", [1.0], [2.0]), Cloud("nice", "", [1.0], [2.0])]),
    Points("Nothing", "", "model", "x", "y", []),
    Points("Letters", "", "model", "北京", "y", [Cloud("مستشفى", "_g", [1.0], [2.0]), Cloud("b", "h", [], [])]),
    HeatMap("Unknown", "", "model", ["a"], ["b"], [[None]], "unit", 0.0, 1.0),
    HeatMap("Below", "", "model", ["a"], ["b", "c"], [[-1.0, -0.2]], "unit", -1.0, 0.0),
    HeatMap("No cell", "", "model", [], [], [], "unit", 0.0, 1.0),
    Bars("One", "", "model", "y", ["a"], {"s": [1.0]}, {}),
    Bars("Gaps", "", "model", "y", ["a", "b"], {"s": [1.0, NAN], "t": [-1.0, None]}, {"t": [0.1, NAN]}),
    Densities("One", "", "model", [Panel("a", [0, 1, 2], [0.5, 0.5], [0, 2], [0.5, 0.5])]),
]


@pytest.mark.slow
@pytest.mark.parametrize("shown", EDGE_CASES, ids=lambda shown: f"{type(shown).__name__} {shown.title}")
def test_odd_figures_give_valid_figures_and_words(shown):
    svg = inline_svg(draw(shown), "figure1", describe(shown))
    assert ElementTree.fromstring(svg).get("aria-label").startswith(shown.title)


def test_points_are_told_apart_by_what_their_groups_and_centres_are():
    clouds = [Cloud(known, cluster, [1.0], [2.0]) for known, cluster in [("ill", "one"), ("", "one"), ("well", "two")]]
    shown = Points("P", "", "model", "x", "y", clouds, group_label="cluster", centre_label="known group")
    texts = "".join(ElementTree.fromstring(draw(shown)).itertext())
    assert all(word in texts for word in ("Cluster", "Known group", "no known group", "ill", "two"))
    assert "Site" not in texts
    assert describe(shown).endswith("3 points of known groups ill; well and clusters one; two.")
    usual = Points("P", "", "model", "x", "y", [Cloud("lyon", "", [1.0], [2.0])])
    assert describe(usual).endswith("1 points of sites lyon.")


def test_text_stays_text_and_is_not_read_as_mathematics():
    name = "cost_$in$ {€} <b>"
    svg = draw(Lines("T", "", "fit", name, "y", [1, 2], {"_a": [1, 2], "b": [2, 1]}, {}))
    texts = [
        "".join(element.itertext()) for element in ElementTree.fromstring(svg).iter() if element.tag[-5:] == "}text"
    ]
    assert name in texts
    assert "_a" in [text.strip() for text in texts]


def test_control_characters_do_not_reach_the_figure():
    svg = draw(Lines("T", "", "fit", "a\x00b\nc", "y", [1, 2], {"a": [1, 2]}, {}))
    assert "a b c" in "".join(ElementTree.fromstring(svg).itertext())


def test_long_names_are_cut_in_their_middle_so_that_their_ends_tell_them_apart():
    names = [label(f"a name that is too long for its place {k}", 20) for k in range(100)]
    assert len(set(names)) == 100
    assert max(map(len, names)) == 20


def test_identifiers_of_two_figures_do_not_meet():
    shown = Bars("B", "", "model", "y", ["a", "b"], {"s": [1.0, 2.0], "t": [1.0, 2.0]}, {})
    ids = [
        {element.get("id") for element in ElementTree.fromstring(inline_svg(draw(shown), name, "")).iter()} - {None}
        for name in ("figure1", "figure2")
    ]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_neighbouring_colours_differ_in_grey():
    def grey(colour):
        red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    shades = [grey(colour) for colour in COLOURS[:5]]
    assert min(abs(a - b) for a, b in pairwise(shades)) > 0.15


def test_a_tall_heat_map_is_cut_into_parts_that_hold_all_of_it():
    rows = [f"r{k}" for k in range(130)]
    parts = fit_to_pages(HeatMap("H", "", "model", rows, ["c"], [[float(k)] for k in range(130)], "u", 0.0, 130.0))
    assert [row for part in parts for row in part.rows] == rows
    assert [value for part in parts for value in part.values] == [[float(k)] for k in range(130)]
    assert max(len(part.rows) for part in parts) <= MAX_CELL_ROWS
    assert parts[0].title == f"H (1 of {len(parts)})"


def test_many_panels_and_bars_are_cut():
    panel = Panel("a", [0, 1], [1.0], [0, 1], [1.0, 1.0])
    assert [len(part.panels) for part in fit_to_pages(Densities("D", "", "model", [panel] * (MAX_PANELS + 2)))] == [
        16,
        16,
    ]
    names = [f"c{k}" for k in range(50)]
    values = [float(k) for k in range(50)]
    bars = fit_to_pages(Bars("B", "", "model", "y", names, {"s": values, "t": values}, {"s": values}))
    assert [name for part in bars for name in part.categories] == names
    assert [value for part in bars for value in part.spread["s"]] == values
    assert "t" not in bars[0].spread


def test_a_wide_table_is_cut_with_its_first_column_in_each_part():
    numbers = list(map(float, range(20)))
    whole = method_table(Table("T", "", "data", ["site", *map(str, range(20))], [["lyon", *numbers]]))
    assert len(whole.parts) > 1
    assert all(part.columns[0] == "site" and part.rows[0][0] == "lyon" for part in whole.parts)
    assert [cell for part in whole.parts for cell in part.rows[0][1:]] == list(whole.rows[0][1:])
    assert all(part.numeric == frozenset(range(1, len(part.columns))) for part in whole.parts)


@pytest.mark.parametrize("n_groups", [2, 5, 6, 12])
def test_every_part_of_a_wide_table_is_within_the_page(n_groups):
    cells = ["63.4 [55.9, 70.8]"] * n_groups
    columns = ["", "overall", *(f"hospital {place}" for place in range(n_groups)), "difference", "p"]
    table = method_table(Table("Table 1", "", "model", columns, [["age", "63.4 [55.9, 70.8]", *cells, "0.03", "0.6"]]))
    for part in table.parts:
        letters = [
            max(len(part.columns[place].split()[0]), len(part.rows[0][place])) for place in range(1, len(part.columns))
        ]
        assert part.name_width + sum(0.56 * number + 1.0 for number in letters) <= 57.3
