"""Files of results: no formula for a spreadsheet, and no mark that moves a cursor or turns the direction of text."""

import csv
import re

import numpy as np
import pandas as pd
import pytest

from multicentre.data import TableData
from multicentre.reports import write_report
from multicentre.studies.result_files import to_csv
from multicentre.studies.runner import run_study
from multicentre.studies.serialisation import to_json
from multicentre.studies.site_patients import SiteData
from multicentre.studies.study_file import study_from_mapping

MARKS = re.compile("[\x1b\u202a-\u202e\u2066-\u2069]")
NUMBER = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?")
EVIL = "esc\x1b[31mRED\u202e"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("=2+2", "'=2+2"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\t=1", "' =1"),
        ("-1.5", "-1.5"),
        ("-", "-"),
        ("-1.2 (0.4)", "'-1.2 (0.4)"),
        ("-1+cmd()", "'-1+cmd()"),
        (-1.5, "-1.5"),
        (EVIL, "esc [31mRED "),
    ],
)
def test_a_cell_of_a_table_is_no_formula_and_moves_nothing(cell, text):
    frame = pd.DataFrame({"value": [cell]}, index=["+a"])
    assert list(csv.reader(to_csv(frame).splitlines())) == [["name", "value"], ["'+a", text]]


def test_json_escapes_marks_of_direction_without_changing_the_value():
    import json

    assert not MARKS.search(to_json({EVIL: EVIL}))
    assert json.loads(to_json({EVIL: EVIL})) == {EVIL: EVIL}


@pytest.mark.slow
def test_every_text_file_of_a_run_is_inert(tmp_path):
    rng = np.random.default_rng(0)
    sites = {}
    for name in ("lyon", "porto", "turin"):
        frame = pd.DataFrame({"+1+1": rng.normal(-6, 3, 60).round(), EVIL: rng.normal(size=60)})
        frame["sex"], frame["y"] = rng.choice(["f", "=2+2"], 60), rng.choice(["@SUM(1)", "no"], 60)
        levels = {"sex": ["f", "=2+2"]}
        columns = ["+1+1", EVIL, "sex"]
        data = TableData.from_frame(frame, outcome="y", classes=["@SUM(1)", "no"], columns=columns, categories=levels)
        sites[name] = SiteData(data)
    about = {"name": "evil", "method": "describe", "output": str(tmp_path)}
    table = {"outcome": "y", "columns": columns, "classes": ["@SUM(1)", "no"], "categories": levels}
    content = {"study": about, "parameters": {"by": "y", "histograms": True}, "data": {"table": table}}
    folder = run_study(study_from_mapping({**content, "sites": {name: {} for name in sites}}), sites=sites)
    write_report(folder.path)
    texts = [file for file in folder.path.rglob("*") if file.suffix in (".csv", ".html", ".json", ".svg", ".toml")]
    assert len(texts) > 8
    assert [file.name for file in texts if MARKS.search(file.read_text(encoding="utf-8"))] == []
    cells = [
        cell
        for file in texts
        if file.suffix == ".csv"
        for row in csv.reader(file.read_text(encoding="utf-8").splitlines())
        for cell in row
    ]
    assert [cell for cell in cells if cell[:1] in "=+-@" and cell not in ("", "-") and not NUMBER.fullmatch(cell)] == []
