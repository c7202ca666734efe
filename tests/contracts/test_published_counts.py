"""Contract: one rule for a published count, in every file of a run that a reader receives.

Small counts from 1 to 4 are planted among missing values, levels, events per group and bins.
"""

import csv
import json
import re

import numpy as np
import pandas as pd
import pytest

from multicentre.cli.summary import describe_run
from multicentre.reports import write_report
from multicentre.studies import read_study
from multicentre.studies.runner import run_study

pytestmark = pytest.mark.slow
SITES = ("lyon", "porto", "turin")
COLUMNS = """
columns = ["age", "creatinine", "stage", "arm"]
categories = {stage = ["one", "two", "rare"], arm = ["a", "b", "c"]}
references = {stage = "one", arm = "a"}
"""
STUDY = f"""
[study]
name = "planted"
[[analysis]]
name = "patients"
method = "describe"
parameters = {{by = "arm", histograms = true}}
[[analysis]]
name = "curves"
method = "kaplan-meier"
parameters = {{group = "arm", at = [1, 4]}}
[[analysis]]
name = "test"
method = "log-rank"
parameters = {{group = "arm", stratify_by_site = false}}
[[analysis]]
name = "cox"
method = "fed-cox"
parameters = {{missing = "mean"}}
[[analysis]]
name = "logistic"
method = "fed-logistic-regression"
parameters = {{missing = "mean"}}
[run]
compare = false
[data]
id_column = "pid"
[data.survival]
time = "time"
event = "dead"
unit = "years"
{COLUMNS}
[data.table]
outcome = "ill"
{COLUMNS}
"""
N_WITHOUT, N_RARE, N_EVENTS = 3, 4, 2  # patients without creatinine, of the rare stage, with an event in arm c


def write_patients(folder):
    lines = []
    for number, site in enumerate(SITES):
        rng, n = np.random.default_rng(number), 150
        frame = pd.DataFrame({"pid": [f"{site}{row}" for row in range(n)], "age": rng.normal(60, 9, n).round()})
        frame["creatinine"], frame["stage"] = rng.normal(1, 0.2, n).round(2), rng.choice(["one", "two"], n)
        frame["arm"], frame["time"] = rng.choice(["a", "b"], n), rng.exponential(2, n).round(3) + 0.001
        frame["dead"], frame["ill"] = (rng.random(n) < 0.7) * 1, (rng.random(n) < 0.4) * 1
        if site == "turin":
            frame.loc[: N_WITHOUT - 1, "creatinine"] = np.nan
            frame.loc[20 : 19 + N_RARE, "stage"] = "rare"
            frame.loc[30:49, "arm"], frame.loc[30:49, "dead"] = "c", [1] * N_EVENTS + [0] * (20 - N_EVENTS)
        frame.to_csv(folder / f"{site}.csv", index=False)
        lines.append(f'[sites.{site}]\nfile = "{site}.csv"\n')
    (folder / "study.toml").write_text(STUDY + "".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    write_patients(folder)
    run = run_study(read_study(folder / "study.toml").with_output(folder / "runs"))
    write_report(run.path)
    return run


def small_numbers(text):
    return [int(n) for n in re.findall(r"(?<![\d.,<])[1-4](?![\d.,])", text)]


def test_texts_state_the_mark_in_place_of_the_count(run):
    page = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", (run.path / "report.html").read_text(encoding="utf-8")))
    texts = {"page": page.replace("&lt;", "<"), "terminal": describe_run(run), "run.json": json.dumps(run.metadata)}
    for name, text in texts.items():
        assert re.search(r"creatinine \((<|\\u003c)5\)", text), name
        assert not re.search(rf"creatinine\W{{0,4}}{N_WITHOUT}(?![\d.])|\b{N_WITHOUT} of 450", text), name
    assert re.search(r"rare, n \(%\) <5", texts["page"])


@pytest.mark.parametrize(
    ("analysis", "columns"),
    [
        ("curves", ("patients", "events", "at_risk")),
        ("test", ("observed",)),
        ("patients", ("overall", "a", "b", "c")),
    ],
)
def test_no_table_of_results_has_a_small_count(run, analysis, columns):
    cells = [
        row[name]
        for file in (run.path / "analyses" / analysis / "results").glob("*.csv")
        for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines())
        for name in columns
        if name in row
    ]
    assert cells
    assert [cell for cell in cells if re.fullmatch(r"[1-4](\.0)?( \(.*\))?", cell)] == []


@pytest.mark.parametrize("analysis", ["patients", "test", "cox", "logistic"])
def test_no_saved_model_has_a_small_count(run, analysis):
    model = run.path / "analyses" / analysis / "model"
    with np.load(model / "model.npz") as arrays:
        counts = {name: arrays[name] for name in arrays.files if arrays[name].dtype.kind in "iuf"}
    names = ("count", "level", "present", "missing", "events", "leaving", "patients")
    small = [name for name, value in counts.items() if any(word in name for word in names)]
    assert [name for name in small if ((counts[name] > 0) & (counts[name] < 5)).any()] == []
    facts = json.loads((model / "model.json").read_text(encoding="utf-8"))
    missing = facts.get("missing") or {}
    assert not {1, 2, 3, 4} & {missing.get("n_incomplete"), *missing.get("entries", [])}
    for counts in facts["facts"].get("published_", {}).get("histograms", {}).values():
        assert not {1.0, 2.0, 3.0, 4.0} & {n for row in counts[1] for n in row}


def test_figures_and_tables_of_the_report_have_no_small_count(run):
    for file in run.path.glob("analyses/*/figures.json"):
        for figure in json.loads(file.read_text(encoding="utf-8")):
            if figure["kind"] == "Curves":
                numbers = [n for row in figure["at_risk"].values() for n in row]
                assert not {1, 2, 3, 4} & set(numbers)
            if figure["title"] in ("Survival by group", "Missing values", "Table 1"):
                cells = [str(cell) for row in figure["rows"] for cell in row[1:3]]
                assert [cell for cell in cells if re.fullmatch(r"[1-4](\.0)?( \(.*\))?", cell)] == []


def test_a_loaded_table_prints_what_the_fitted_one_printed(run):
    from multicentre.analytics import Describe

    loaded = Describe.load(run.path / "analyses" / "patients" / "model")
    table = pd.read_csv(run.path / "analyses" / "patients" / "results" / "table-1.csv", index_col=0, dtype=str)
    assert loaded.to_frame().fillna("").to_numpy().tolist() == table.fillna("").to_numpy().tolist()
    assert loaded.n_patients_ == 450
    assert not hasattr(loaded, "counts_")
