import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from multicentre.reports import render_report, write_report
from support.report_samples import SITES, make_comparison, make_disclosure, make_run, write_json, write_run

VOID = {"meta", "link", "br", "hr", "img", "input", "wbr", "col", "area", "base", "embed", "source", "track"}
HOSTILE = "<script>alert('x')</script>&\"$x$_"


class Outline(HTMLParser):
    """Checks that tags are balanced and gathers what a browser would see."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.ids, self.loads, self.text = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        self._note(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self._note(tag, attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def _note(self, tag, attributes):
        self.tags.append(tag)
        facts = dict(attributes)
        self.ids += [facts["id"]] if "id" in facts else []
        self.loads += [facts[key] for key in ("src", "href", "xlink:href", "data", "action") if key in facts]


def outline(page):
    seen = Outline()
    seen.feed(page)
    seen.close()
    assert not seen.open
    return seen


def svgs(page):
    return re.findall(r"<svg.*?</svg>", page, re.DOTALL)


def numbers_of(page, section):
    """Return the numbers of the tables of a section."""
    return re.findall(r'<td[^>]* class="number">([^<]+)</td>', page.partition(f". {section}</h2>")[2])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def page(folder):
    return render_report(folder)


@pytest.fixture
def bare(tmp_path):
    """A run folder without the optional files, quick to render."""
    folder = write_run(tmp_path)
    for name in ("figures.json", "comparison.json", "history.csv"):
        (folder / name).unlink()
    return folder


def test_the_page_has_every_section_once_and_in_order(page):
    sections = re.findall(r'<section id="(\w+)"', page)
    assert sections == [
        "result", "validation", "sites", "missing", "methods", "study", "fit", "disclosure", "environment", "verify",
        "fields",
    ]  # fmt: skip


def test_tags_are_balanced_and_headings_do_not_skip_a_level(page):
    seen = outline(page)
    levels = [int(tag[1]) for tag in seen.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_identifiers_are_unique_and_every_link_stays_in_the_page(page):
    seen = outline(page)
    assert len(seen.ids) == len(set(seen.ids))
    assert seen.loads
    assert all(link.startswith("#") and link[1:] in seen.ids for link in seen.loads)


def test_nothing_is_loaded_from_elsewhere(page):
    addresses = set(re.findall(r"https?://[^\"'\s<>)]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|<script|<link|<iframe|<image", page)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))
    assert "default-src 'none'" in page


def test_every_figure_is_valid_xml_with_a_text_alternative(page):
    found = svgs(page)
    assert len(found) == 8 + 6  # all but a large matrix and 30 panels are drawn for telephones too
    for svg in found:
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img"
        assert len(root.get("aria-label")) > 40
        targets = {element.get("id") for element in root.iter()}
        assert all(name in targets for name in re.findall(r"url\(#([^)]+)\)", svg))


def test_tables_have_captions_and_named_columns_and_rows(page):
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    assert tables
    for table in tables:
        assert table.count("<caption>") == 1
        assert 'scope="col"' in table
        assert table.count('scope="row"') == table.count('<tr role="row">') - 1
        labels = re.findall(r'scope="col"[^>]*>([^<]*)<', table)[1:]
        assert re.findall(r'<td[^>]* data-label="([^"]*)"', table) == labels * table.count('scope="row"')


def test_figures_and_tables_are_numbered_in_order(page):
    for kind in ("Figure", "Table"):
        numbers = [int(number) for number in re.findall(rf"<b>{kind} (\d+)\.</b>", page)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert numbers


def test_metrics_without_intervals_are_not_ranked(page):
    table = next(table for table in re.findall(r"<table.*?</table>", page, re.DOTALL) if "Federated" in table)
    assert "The metrics have no intervals" in table
    assert "◆" not in page
    assert "best" not in table
    assert "gain" not in table


@pytest.mark.slow
def test_small_counts_never_appear(tmp_path):
    folder = write_run(tmp_path)
    (folder / "figures.json").unlink()
    run = make_run()
    run["sites"] = [
        {"name": "lyon", "patients": 7, "parts": {"blood": 6}},
        {"name": "nice", "patients": 1234, "parts": {"blood": None}},
    ]
    write_json(folder, "run.json", run)
    text = render_report(folder)
    row = r'<th scope="row"[^>]*>(lyon|nice|All)</th>\s*<td[^>]*>([^<]+)</td>\s*<td[^>]*>([^<]+)<'
    assert re.findall(row, text)[:3] == [
        ("lyon", "&lt;10", "&lt;10"),
        ("nice", "1,234", "hidden"),
        ("All", "≥1,234", "≥0"),
    ]


def test_a_view_that_few_patients_lack_is_hidden_and_not_called_small(bare):
    run = make_run()
    run["sites"] = [
        {"name": "lyon", "patients": 102, "parts": {"blood": 99, "scan": None}},
        {"name": "nice", "patients": 80, "parts": {"blood": 80}},
    ]
    write_json(bare, "run.json", run)
    page = render_report(bare)
    assert numbers_of(page, "Sites")[:9] == [
        *("102", "hidden", "hidden"),
        *("80", "80", "0"),
        *("182", "≥80", "≥0"),
    ]


@pytest.mark.slow
def test_names_are_shown_as_text_wherever_they_come_from(tmp_path):
    names = (HOSTILE, *SITES[1:])
    folder = write_run(tmp_path, sites=names)
    figures = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    for metric in figures:
        metric["title"], metric["caption"] = HOSTILE, HOSTILE
        for key in ("x_label", "y_label", "unit"):
            if key in metric:
                metric[key] = HOSTILE
        if "columns" in metric:
            metric["columns"] = [HOSTILE, *metric["columns"][1:]]
        if isinstance(metric.get("series"), dict):
            metric["series"] = {"_" + HOSTILE: next(iter(metric["series"].values()))}
    write_json(folder, "figures.json", figures)
    run = make_run(names)
    run |= {"study": HOSTILE, "message": HOSTILE, "status": "failed"}
    write_json(folder, "run.json", run)
    page = render_report(folder)
    seen = outline(page)
    assert "script" not in seen.tags
    assert "<script" not in page
    assert HOSTILE in "".join(seen.text)
    assert all(ElementTree.fromstring(svg) is not None for svg in svgs(page))


@pytest.mark.slow
def test_the_same_folder_gives_the_same_bytes(folder, page, monkeypatch):
    import matplotlib

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path"}):
        assert write_report(folder).read_bytes() == page.encode()
    assert not list(folder.glob(".report*"))


def test_missing_optional_parts_are_said_to_be_missing(bare):
    page = render_report(bare)
    outline(page)
    assert not svgs(page)
    assert "holds no figures.json" in page
    assert "holds no comparison.json" in page
    assert "neither a history of its rounds nor figures" in page


@pytest.mark.slow
def test_without_figures_the_history_shows_convergence(tmp_path):
    copy = write_run(tmp_path)
    (copy / "figures.json").unlink()
    assert [re.search('aria-label="([^"]+?)\\.', svg)[1] for svg in svgs(render_report(copy))] == [
        *["log likelihood over the rounds"] * 2,
        *["change over the rounds"] * 2,
    ]


@pytest.mark.parametrize(("status", "words"), [("interrupted", "Interrupted run"), ("failed", "Failed run")])
def test_a_run_that_did_not_finish_says_so_at_the_top(bare, status, words):
    write_json(bare, "run.json", make_run() | {"status": status, "message": "Two sites were lost."})
    header = render_report(bare).partition("</header>")[0]
    assert words in header
    assert "Two sites were lost." in header


def test_an_interrupted_run_without_sites_ledgers_or_figures_can_be_shown(bare):
    empty = {"sites": [], "headline": [], "status": "interrupted", "seed": None, "quorum": None, "rounds": 0}
    write_json(bare, "run.json", make_run() | empty)
    write_json(bare, "disclosure.json", make_disclosure() | {"released": [], "refused": [], "ledgers": {}})
    write_json(bare, "comparison.json", {"metrics": []})
    outline(render_report(bare))


def test_lost_sites_are_named_at_the_top_with_what_is_known_of_the_loss(bare):
    losses = {"porto": "fit: porto: not reached since 06:38:13 UTC.", "oslo": "It came back."}
    write_json(bare, "run.json", make_run() | {"lost": ["ghent", "porto"], "losses": losses})
    header = render_report(bare).partition("</header>")[0]
    assert "ghent, porto" in header
    assert losses["porto"] in header
    assert losses["oslo"] not in header


def test_sites_that_the_fit_was_made_without_are_named_at_the_top_and_not_counted(bare):
    facts = make_run()
    names = [site["name"] for site in facts["sites"]]
    write_json(bare, "run.json", facts | {"left_out": dict.fromkeys(names[:2], "too few <patients>")})
    page = render_report(bare)
    header = page.partition("</header>")[0]
    assert f"Without 2 of {len(names)} sites, which refuse." in header
    assert f"{names[0]}, {names[1]}: too few &lt;patients&gt;. Nothing of these sites is in the result." in header
    assert f"{len(names) - 2} of {len(names)} sites" in header
    assert f"over {len(names) - 2} sites" in page
    assert "Without" not in render_report_of(bare, facts)


def render_report_of(folder, facts):
    """Return the header of a report of other facts."""
    write_json(folder, "run.json", facts)
    return render_report(folder).partition("</header>")[0]


def test_the_promise_is_the_card_s_and_counts_are_hidden_by_the_strictest_policy(bare):
    write_json(bare, "run.json", make_run() | {"min_patients": 25})
    page = render_report(bare)
    assert "only if at least 10 patients contributed to it" in page
    assert "One below 25 is shown" in page


def test_records_are_called_records_where_nobody_knows_whose_they_are(bare):
    told = make_disclosure()
    released = [row | {"records_min": 40, "patients_min": None} for row in told["released"]]
    write_json(bare, "disclosure.json", told | {"card": told["card"] | {"counted": "records"}, "released": released})
    run = make_run() | {"counted": "records", "n_patients": 120}
    run["sites"] = [{"name": "lyon", "patients": 120, "records": 120, "parts": {}}]
    write_json(bare, "run.json", run)
    page = render_report(bare)
    assert "only if at least 10 records contributed to it" in page
    assert "120 records" in page.partition("</header>")[0]
    assert "Fewest records" in page
    assert "Fewest patients" not in page
    assert ">40<" in page


def test_persons_with_several_records_are_counted_next_to_their_records(bare):
    run = make_run()
    run["sites"] = [
        {"name": "lyon", "patients": 24, "records": 240, "parts": {"blood": 235}},
        {"name": "nice", "patients": 80, "records": 80, "parts": {"blood": 60}},
    ]
    write_json(bare, "run.json", run)
    page = render_report(bare)
    assert "Patients and their records by site" in page
    assert numbers_of(page, "Sites")[:9] == [
        *("24", "240", "hidden"),
        *("80", "80", "60"),
        *("104", "320", "≥60"),
    ]


def test_a_note_on_several_figures_is_printed_once(bare):
    comparison = make_comparison()
    comparison["metrics"] = [metric | {"note": "ghent: too few patients"} for metric in comparison["metrics"]]
    write_json(bare, "comparison.json", comparison | {"patients_held_out": 140})
    page = render_report(bare)
    assert page.count("ghent: too few patients") == 1
    assert "assessed on 140 patients that no fit saw" in page


def test_a_comparison_that_failed_says_why(bare):
    write_json(bare, "comparison.json", {"metrics": [], "notes": {"comparison": "/tmp/a/b.csv: too few patients"}})
    page = render_report(bare)
    outline(page)
    assert '<p class="note">comparison: b.csv: too few patients</p>' in page
    assert "The metrics have no intervals" not in page


def test_patients_at_several_sites_are_counted_once_and_none_is_called_held_out(bare):
    write_json(bare, "run.json", make_run() | {"vertical": True, "patients_aligned": 131, "rounds": 0})
    write_json(bare, "comparison.json", make_comparison() | {"patients_held_out": None, "patients_of_all_fits": 120})
    page = render_report(bare)
    header = page.partition("</header>")[0]
    assert "131 patients aligned over the sites" in header
    assert "rounds" not in header
    assert "made without rounds" in page
    assert "looked at on the 120 patients who are at every site and took part in each fit" in page
    assert "by every site on its own views alone" in page
    assert "that no fit saw" not in page
    counts = next(table for table in re.findall(r"<table.*?</table>", page, re.DOTALL) if "Patients by site" in table)
    assert "do not add up" in counts
    assert ">All<" not in counts


def test_the_card_begins_with_its_caveat_its_sentences_and_its_letters(bare):
    card = render_report(bare).partition("What the method declares")[2].partition("What left each site")[0]
    told = make_disclosure()["card"]
    expected = [told["caveat"], *told["sentences"], "latent dimensions", "d x q array", "between rounds:"]
    places = [card.index(text) for text in expected]
    assert places == sorted(places)
    older = make_disclosure()
    older["card"] = {name: told[name] for name in told if name not in ("caveat", "sentences", "letters")}
    write_json(bare, "disclosure.json", older)
    assert "Caveat" not in render_report(bare)


def test_steps_that_tell_of_single_patients_are_no_part_of_the_promise(bare):
    told = make_disclosure()
    write_json(bare, "disclosure.json", told | {"card": told["card"] | {"individual": ["relate", "send_pseudonyms"]}})
    page = render_report(bare)
    assert page.count("except for those of relate, send_pseudonyms") == 1
    write_json(bare, "disclosure.json", told)
    assert "but for those" not in render_report(bare)


def test_figures_without_a_value_are_shown_as_a_dash(bare):
    comparison = make_comparison()
    comparison["metrics"][0] |= {"federated": None, "pooled": None, "site_alone": {"lyon": None}}
    write_json(bare, "comparison.json", comparison)
    row = re.search(r"held-out patients.*?</tr>", render_report(bare), re.DOTALL)[0]
    assert re.findall(r"<td[^>]*>([^<]*)</td>", row) == ["–"] * 3


def test_ledger_heads_and_file_hashes_are_printed(page, folder):
    from hashlib import sha256

    for head in make_disclosure()["ledgers"].values():
        assert head["hash"] in page
    assert sha256((folder / "run.json").read_bytes()).hexdigest() in page
    assert "multicentre ledger verify" in page


def test_a_relative_path_will_do(bare, monkeypatch):
    monkeypatch.chdir(bare.parent)
    assert write_report(Path(bare.name)).is_file()
