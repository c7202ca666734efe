"""The figures of every method in the report."""

import re
from xml.etree import ElementTree

import pytest

from multicentre.reports import render_report
from support.method_cases import CASES, each_of
from support.report_samples import make_run, write_json, write_run
from support.toy_method import federate

pytestmark = [
    pytest.mark.dealt(3),
    pytest.mark.slow,
    each_of(name for name in CASES if name not in ("toy-mean", "suggest-stratifier")),
    pytest.mark.filterwarnings("ignore:.*site's lists:multicentre.errors.DisclosureWarning"),
    pytest.mark.filterwarnings("ignore:DPFactAsPublished minimises:UserWarning"),
]


def test_the_report_shows_the_figures_of_a_method(name, tmp_path):
    case, folder = CASES[name], write_run(tmp_path)
    sites = case.sites()
    with federate(sites, policy=case.policy, secure_sum=False) as federation:
        fitted = case.make().fit(federation)
        figures = fitted.figures(sites, dict.fromkeys(sites, ()))
    (folder / "comparison.json").unlink()
    (folder / "history.csv").unlink()
    write_json(folder, "figures.json", [figure.to_dict() for figure in figures])
    write_json(folder, "run.json", make_run() | {"answer": fitted.answer()})
    page = render_report(folder)
    assert all(figure.title.partition("\n")[0][:20] in page or figure.title.startswith("Table ") for figure in figures)
    assert all(ElementTree.fromstring(svg).get("aria-label") for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "nan" not in re.findall(r"<t[dh][^>]*>([^<]*)<", page)
