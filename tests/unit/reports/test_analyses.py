"""The report of a study with several analyses, and what begins every report."""

import json
import re

import pytest

from multicentre.errors import ConfigurationError
from multicentre.estimator.figures import Forest, Table
from multicentre.reports import render_report
from multicentre.reports.citation import references_of
from multicentre.reports.machine_paths import toml_without_folders, value_without_folders, without_folders
from support.report_samples import make_run, write_json, write_run

RATIOS = ["column", "hazard ratio", "lower", "upper", "p-value"]
ENTRIES = [
    {
        "name": "one",
        "title": "The patients",
        "question": "Who were they?",
        "method": "describe",
        "n_patients": 300,
        "answer": "Many.",
    },
    {
        "name": "hazard",
        "title": "Hazard",
        "question": "What shortens life?",
        "method": "fed-cox",
        "answer": "Age: 1.02 (95 % interval 1.01 to 1.03). 9 events after the horizon (4.5 years) do not count.",
        "model": "Cox regression; stratified by site; robust standard errors. "
        "9 events after the horizon (4.5 years) do not count.",
        "n_patients": 291,
        "n_events": 80,
        "missing": "9 of 300 records left out.",
        "rounds": 4,
    },
    {
        "name": "late",
        "title": "Late deaths",
        "method": "fed-cox",
        "status": "refused",
        "message": "Too few at /a/b/c.csv",
    },
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_run(tmp_path_factory.mktemp("several"))
    for name in ("figures.json", "comparison.json", "history.csv"):
        (folder / name).unlink()
    study = (folder / "study.toml").read_text(encoding="utf-8")
    block = '[[analysis]]\nname = "hazard"\nmethod = "fed-cox"\n[analysis.parameters]\nerrors = "HC0"\n'
    (folder / "study.toml").write_text(
        f'{study}\n{block}[sites.x]\nfile = "/home/ana/x y/lyon.csv"\n'.replace("[sites]\nnames", "[listed]\nnames"),
        encoding="utf-8",
    )
    entries = [{"folder": f"analyses/{entry['name']}", "status": "finished", **entry} for entry in ENTRIES]
    write_json(folder, "run.json", make_run() | {"analyses": entries, "headline": [], "message": ""})
    forest = Forest("By site", "", "model", "hazard ratio", ["lyon", "all"], [2, 2], [1, 1], [3, 3], 1, 1.0)
    figures = {
        "one": [Table("Table 1", "Left out below 5.", "model", ["", "all"], [["n", "300"]])],
        "hazard": [
            Table("Missing values", "9 of 300 records left out.", "data", ["column", "missing"], [["dose", 9]]),
            Table("Hazard ratios", "Per unit.", "model", RATIOS, [["age", 1.02, 1.01, 1.03, 0.0001]]),
            forest,
        ],
    }
    for name, shown in figures.items():
        place = folder / "analyses" / name
        place.mkdir(parents=True)
        write_json(place, "figures.json", [figure.to_dict() for figure in shown])
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return render_report(folder)


def sections(page):
    """Return the text of each section by its identifier, of the header under "header"."""
    parts = {"header": page.partition("<body>")[2].partition("</header>")[0]}
    return parts | dict(re.findall(r'<section id="(\w+)"[^>]*>(.*?)</section>', page, re.DOTALL))


def test_report_begins_with_questions_patients_sites_and_answers(page):
    header = sections(page)["header"]
    texts = [
        "Patients",
        "Sites",
        "Who were they?",
        "Many.",
        "What shortens life?",
        "Age: 1.02 (95 % interval",
        "refused",
    ]
    places = [header.index(text) for text in texts]
    assert places == sorted(places)


def test_table_1_the_result_sites_and_missing_values_follow_in_this_order(page):
    parts = sections(page)
    order = ["header", "patients", "result", "sites", "missing", "methods", "study"]
    assert list(parts)[:7] == order
    assert "Table 1.</b> Left out below 5." in parts["patients"]
    assert "1.020 (1.010 to 1.030)" in parts["result"]
    assert "By site" in parts["sites"]
    assert "Missing values. 9 of 300" in parts["missing"]
    assert "shows nothing" not in page


def test_an_answer_and_its_horizon_are_stated_once_before_the_annex_and_the_methods(page):
    results = page.partition('id="methods"')[0]
    assert results.count("Age: 1.02 (95 % interval") == 1
    assert results.count("9 events after the horizon") == 1
    assert results.count("Cox regression; stratified by site; robust standard errors.") == 1


def test_links_of_the_answers_lead_to_their_results(page):
    for number, words in ((1, "Left out below 5."), (2, "Hazard ratios"), (3, "No result: refused")):
        assert f'<a href="#analysis-{number}">' in page
        assert words in page.partition(f'id="analysis-{number}"')[2]


def test_methods_name_parameters_and_sources_with_an_entry_each(page):
    methods = sections(page)["methods"]
    assert "We analysed 300 patients of" in methods
    model = "Hazard: Cox regression; stratified by site; robust standard errors. 9 events after the horizon"
    assert model in methods
    assert "(FedCox; 291 patients, 80 events) [" in methods
    assert "Late deaths: The sites refused the analysis (Too few at c.csv)." in methods
    assert methods.count("FedCox") == 1
    assert "duan2020" not in methods
    for reference in references_of("fed-cox", {"errors": "HC0"}):
        assert reference.key in methods.partition("</blockquote>")[0]
        assert methods.count(f"{{{reference.key},") == 1
    assert "@software{multicentre," in methods


def test_no_folder_of_a_machine_is_named(page):
    assert "/home/ana" not in page
    assert "/a/b" not in page
    assert "lyon.csv" in page


def test_hashes_are_printed_of_the_files_of_every_analysis(page):
    assert "analyses/one/figures.json" in page
    assert "analyses/hazard/figures.json" in page


def test_a_folder_outside_the_run_is_refused(folder, tmp_path):
    for file in ("study.toml", "environment.json", "disclosure.json"):
        (tmp_path / file).write_bytes((folder / file).read_bytes())
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    run["analyses"][0]["folder"] = "../elsewhere"
    write_json(tmp_path, "run.json", run)
    with pytest.raises(ConfigurationError, match="must be within the run's folder"):
        render_report(tmp_path)


@pytest.mark.parametrize(
    ("text", "shortened"),
    [
        ("/home/ana/lyon.csv: a column is missing", "lyon.csv: a column is missing"),
        ("read 'C:\\Users\\ana\\lyon.csv'", "read 'lyon.csv'"),
        ("mg/l and 1/2, deaths/year", "mg/l and 1/2, deaths/year"),
        ("see https://example.org/a/b", "see https://example.org/a/b"),
    ],
)
def test_sentences_name_files_without_their_folders(text, shortened):
    assert without_folders(text) == shortened


def test_values_and_files_of_a_study_lose_their_folders_and_nothing_else():
    study = {"a": "/my data/x.csv", "b": "C:\\my data\\x.csv", "c": ["/a/b", 3], "unit": "/min", "ok": True}
    assert value_without_folders(study) == {"a": "x.csv", "b": "x.csv", "c": ["b", 3], "unit": "/min", "ok": True}
    text = 'a = "/my data/x.csv"\nb = \'C:\\my data\\x.csv\'\nd = "C:\\\\my data\\\\x.csv"\nunit = "mg/l"'
    assert toml_without_folders(text) == 'a = "x.csv"\nb = \'x.csv\'\nd = "x.csv"\nunit = "mg/l"'
