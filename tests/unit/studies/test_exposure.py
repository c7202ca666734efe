"""The exposure of a study: first in rows, answers and forests, and part of the terms."""

import re

import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError
from multicentre.studies import read_study
from multicentre.studies.runner import run_study
from multicentre.studies.study import make_estimator
from multicentre.studies.study_file import study_from_mapping
from multicentre.studies.terms import digest_of
from support.several_analyses import DATA, write_patients


def study_of(**about):
    data = {"survival": {"columns": ["age", "sex", "arm"], "event": "died"}}
    return study_from_mapping(
        {"study": {"name": "s", "method": "fed-cox", **about}, "data": data, "sites": {"lyon": {}}}
    )


def test_the_exposure_is_the_first_column_and_a_term_of_the_study():
    plain, study = study_of(), study_of(exposure="arm", outcome="died")
    assert plain.data.survival.columns == ("age", "sex", "arm")
    assert study.data.survival.columns == ("arm", "age", "sex")
    assert make_estimator(study).exposure == "arm"
    assert len({digest_of(one) for one in (plain, study, study_of(exposure="sex"), study_of(exposure="arm"))}) == 4


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"exposure": "amr"}, r"study.exposure: exposure must be one of .* got 'amr'. Did you mean 'arm'"),
        ({"exposure": "died"}, "study.exposure: exposure must be"),
        ({"outcome": "age"}, "study.outcome: outcome must be one of the study's event or outcome .* They are died"),
    ],
)
def test_exposure_and_outcome_must_be_variables_of_the_study(about, message):
    with pytest.raises(ConfigurationError, match=message):
        study_of(**about)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["arm=new", "age", "sex=m"], "adjusted for 2 other variables."),
        (["arm=new", "stage=II", "stage=III", "stage=IV"], "adjusted for 1 other variable."),
        (["arm=new", "age", "missing_age"], "adjusted for 1 other variable."),
        (["arm=new", "ns(age, df=3)[1]", "ns(age, df=3)[2]", "sex=m", "age:sex=m"], "adjusted for"),
        (["arm=new", "arm=old"], "p < 0.001."),
    ],
)
def test_variables_are_counted_and_not_columns(columns, text):
    from multicentre.estimator.presentation import effect_text

    assert text in effect_text("hazard ratio", ("arm=new", 2.0, 1.5, 3.0), 1e-5, 0.95, columns)


def test_the_first_variable_answers_without_an_exposure_however_significant_others_are():
    sites = {name: mc.datasets.simulate_survival(120, random_state=seed) for seed, name in enumerate("abc")}
    model = mc.survival.FedCox().fit(mc.Federation.in_process(sites))
    names, last = model.feature_names_in_, model.feature_names_in_[-1]
    assert f"Hazard ratio of {names[0]}:" in model.answer()
    model.exposure = last
    assert f"Hazard ratio of {last}:" in model.answer()


@pytest.mark.slow
def test_the_report_begins_with_the_exposure(tmp_path):
    from multicentre.reports import write_report

    blocks = '[[analysis]]\nname = "cox"\nmethod = "fed-cox"\n[[analysis]]\nname = "relapse"\n'
    blocks += 'method = "fed-logistic-regression"\n[analysis.parameters]\nformula = "age + arm"\n'
    about = f'[study]\nname = "s"\noutput = "{tmp_path}"\nexposure = "arm"\noutcome = "died"\n'
    (tmp_path / "study.toml").write_text(about + blocks + DATA + write_patients(tmp_path))
    folder = run_study(read_study(tmp_path / "study.toml"))
    answers = [entry["answer"] for entry in folder.metadata["analyses"]]
    assert ["ratio of arm" in answer for answer in answers] == [True, True]
    rows = (folder.path / "analyses/cox/results/hazard-ratios.csv").read_text().splitlines()
    assert rows[1].startswith("arm,")
    page = write_report(folder.path).read_text()
    table = page[page.index("Coefficients. Per unit") :]
    names = re.findall(r'rowheader"[^>]*>([^<]*)</th>', table[: table.index("</table>")])
    assert names == ["(intercept)", "arm", "age"]
    assert "<dt>Exposure</dt><dd>arm</dd>" in page
    assert "<dt>Outcome</dt><dd>died</dd>" in page
