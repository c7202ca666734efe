"""Studies with several analyses: terms, cards, budgets, runs, refusals and resumed runs."""

import html
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from multicentre.cli import app
from multicentre.cli.results import describe_results
from multicentre.cli.summary import describe_run
from multicentre.core.calls import Call
from multicentre.data import SurvivalAndTable, SurvivalData, TableData
from multicentre.errors import (
    AnalysisWarning,
    ConfigurationError,
    DataError,
    DisclosureRefused,
    QuorumLost,
    RefusedByPolicy,
)
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre.privacy.ledger import read_ledger
from multicentre.privacy.policy import Policy
from multicentre.regression.site import RegressionSite
from multicentre.reports import render_report
from multicentre.studies import analyses, read_study, resume_run, run_study
from multicentre.studies.disclosure_cards import study_card
from multicentre.studies.policy_conflicts import check_budgets, study_objections
from multicentre.studies.study_file import study_from_mapping
from multicentre.studies.terms import digest_of, study_terms
from multicentre.survival import FedCox
from multicentre_sites.deployment.site_check import card_at
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.study_permissions import permissions_of
from support.real_sites import Hospitals, set_terms
from support.remote_sites import ByHand
from support.several_analyses import BLOCKS, SITES, write_patients, write_several, write_single

ONLY_DESCRIBE_AND_COX = 'min_patients = 10\nmethods = ["describe", "fed-cox"]\n'


def text_of(folder, place):
    return (folder.path / place).read_text()


def entries(folder):
    return {entry["name"]: entry for entry in folder.metadata["analyses"]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of the study in one process."""
    return run_study(read_study(write_several(tmp_path_factory.mktemp("several"))))


def test_each_analysis_has_the_files_of_a_run_and_common_files_are_at_the_top(finished):
    names = {path.relative_to(finished.path).as_posix() for path in finished.path.rglob("*") if path.is_file()}
    for name in ("table-1", "test", "cox", "relapse"):
        place = f"analyses/{name}/"
        assert {f"{place}model/model.json", f"{place}figures.json", f"{place}history.csv"} <= names
        assert f"{place}figures/result.svg" in names
        assert any(one.startswith(f"{place}results/") for one in names)
    assert {"study.toml", "run.json", "environment.json", "disclosure.json", "sites/lyon/ledger.jsonl"} <= names
    assert not {"model/model.json", "figures.json", "history.csv"} & names
    listed = [(entry["name"], entry["title"], entry["method"], entry["folder"]) for entry in entries(finished).values()]
    assert listed[0] == ("table-1", "Patients", "describe", "analyses/table-1")
    assert [entry["status"] for entry in entries(finished).values()] == ["finished"] * 4
    assert entries(finished)["cox"]["question"] == "Does age shorten survival?"


def test_an_analysis_has_the_result_of_a_study_of_it_alone(finished, tmp_path):
    alone = run_study(read_study(write_single(tmp_path, "fed-cox")))
    assert text_of(alone, "results/hazard-ratios.csv") == text_of(finished, "analyses/cox/results/hazard-ratios.csv")
    assert alone.metadata["answer"] == entries(finished)["cox"]["answer"]
    assert alone.metadata["answer"].startswith("Hazard ratio of age: 1.0")


def test_one_ledger_holds_the_releases_of_all_analyses(finished):
    methods = {entry["method"] for entry in read_ledger(finished.path / "sites/lyon/ledger.jsonl") if "method" in entry}
    assert {"describe", "log-rank", "fed-cox", "fed-glm"} <= methods


@pytest.mark.slow
def test_what_analyses_have_in_common_is_requested_once(tmp_path):
    blocks = "".join(
        f'[[analysis]]\nname = "{name}"\nmethod = "{method}"\n'
        for name, method in (("curves", "kaplan-meier"), ("incidence", "aalen-johansen"), ("cox", "fed-cox"))
    )
    folder = run_study(read_study(write_several(tmp_path, blocks)))
    steps = [entry.get("step") for entry in read_ledger(folder.path / "sites/lyon/ledger.jsonl")]
    assert {name: steps.count(name) for name in ("describe", "count_times", "compare_units")} == {
        "describe": 1,
        "count_times": 1,
        "compare_units": 1,
    }
    assert steps.count("sum_table") == 2
    for name in ("kaplan-meier", "fed-cox"):
        alone = run_study(read_study(write_single(tmp_path, name)))
        place = "curves" if name == "kaplan-meier" else "cox"
        for table in alone.metadata["tables"]:
            file = f"results/{table}.csv"
            assert text_of(alone, file) == text_of(folder, f"analyses/{place}/{file}")


def test_an_answer_about_other_records_is_requested_again(tmp_path):
    blocks = "".join(
        f'[[analysis]]\nname = "{missing}"\nmethod = "fed-cox"\nparameters = {{ missing = "{missing}" }}\n'
        for missing in ("complete", "mean")
    )
    path = write_several(tmp_path, blocks)
    for name in SITES:
        patients = pd.read_csv(tmp_path / f"{name}.csv")
        patients.loc[::9, "age"] = np.nan
        patients.to_csv(tmp_path / f"{name}.csv", index=False)
    folder = run_study(read_study(path))
    steps = [entry.get("step") for entry in read_ledger(folder.path / "sites/lyon/ledger.jsonl")]
    assert (steps.count("describe"), steps.count("count_times")) == (1, 2)
    assert "left out" in entries(folder)["complete"]["missing"]


def test_the_frozen_study_has_the_same_terms(finished):
    assert digest_of(finished.study) == digest_of(read_study(finished.path / "study.toml"))
    assert [one["name"] for one in study_terms(finished.study)["analyses"]] == ["table-1", "test", "cox", "relapse"]


def test_every_block_is_part_of_the_terms_with_the_question_that_a_steward_reads(tmp_path):
    agreed = digest_of(read_study(write_several(tmp_path)))
    for old, new, is_same in (
        ('"Patients"', '"Table 1"', False),
        ("shorten survival", "matter", False),
        ('by = "arm"\n', "", False),
        ('"fed-cox"', '"fed-rsf"', False),
        ('name = "cox"', 'name = "hazards"', False),
    ):
        assert old in BLOCKS
        changed = digest_of(read_study(write_several(tmp_path, BLOCKS.replace(old, new))))
        assert (changed == agreed) == is_same, new


def test_a_single_analysis_keeps_its_terms(tmp_path):
    assert "analyses" not in study_terms(read_study(write_single(tmp_path, "fed-cox")))


def test_the_card_names_every_analysis_with_its_steps(tmp_path):
    card = study_card(read_study(write_several(tmp_path)))
    notes = [note for note in card.notes if note.startswith("analysis ")]
    assert [note.split(":")[0] for note in notes] == [f"analysis {n}" for n in ("table-1", "test", "cox", "relapse")]
    assert "parameters: group = arm" in notes[1]
    steps = {line.step for line in card.lines}
    assert {"count_groups", "sum_scores", "sum_baseline", "sum_products"} <= steps
    assert all(step in notes[0] for step in ("count_groups", "sum_squares"))


def test_every_field_of_the_card_names_its_analysis(tmp_path):
    card = study_card(read_study(write_several(tmp_path)))
    by_step = {}
    for line in card.lines:
        by_step.setdefault(line.step, set()).add(line.analysis)
    assert by_step["describe"] == {"table-1", "test", "cox", "relapse"}
    assert by_step["count_groups"] == {"table-1"}
    assert by_step["sum_derivatives"] == {"cox", "relapse"}
    _head, *rows = str(card).partition("analysis  step")[2].partition("\n\n")[0].splitlines()
    assert len(rows) == len(card.lines)
    assert [row.split()[:2] for row in rows] == [[line.analysis, line.step] for line in card.lines]
    assert "  cox, sum_derivatives.gradient: " in str(card)
    assert {line["analysis"] for line in card.to_dict()["lines"]} == {"table-1", "test", "cox", "relapse"}


def test_the_report_has_the_purpose_of_each_analysis_step(finished):
    page = html.unescape(render_report(finished.path))
    card = page.partition("What the method declares")[2].partition("What left each site")[0]
    purposes = {line.purpose for line in study_card(finished.study).lines if line.step == "sum_derivatives"}
    assert len(purposes) > 1
    for analysis in ("cox", "relapse"):
        assert f"<b>{analysis}: sum_derivatives</b>" in card
    assert all(purpose in card for purpose in purposes)


def test_the_card_of_a_single_analysis_has_no_column_of_analyses(tmp_path):
    card = study_card(read_study(write_single(tmp_path, "fed-cox")))
    assert {line.analysis for line in card.lines} == {""}
    assert "\nanalysis" not in str(card)


def test_a_policy_objects_to_the_analysis_that_it_refuses(tmp_path):
    study = read_study(write_several(tmp_path))
    objections = study_objections(study, Policy(methods=("describe", "fed-cox", "log-rank")))
    assert [one.reason for one in objections] == ["analysis relapse: the method fed-glm is not allowed"]


def private_study(epsilon, budget, *, secure_sum=True):
    parameters = {"n_components": 1, "epsilon": epsilon, "reference": {"blood": {"centre": [0, 0], "spread": [1, 1]}}}
    blocks = [{"name": name, "method": "fed-mv-ppca", "parameters": parameters} for name in ("one", "two")]
    return study_from_mapping(
        {
            "study": {"name": "private"},
            "analysis": blocks,
            "data": {"one_row_per_patient": True},
            "sites": {"lyon": {}, "oslo": {}},
            "privacy": {"policy": {"epsilon": budget}, "secure_sum": secure_sum},
        }
    )


def test_the_budget_covers_the_sum_of_the_analyses():
    check_budgets(private_study(1.0, 3.0))
    study = private_study(1.0, 1.2)  # each analysis alone fits
    with pytest.raises(RefusedByPolicy, match=r"its 2 analyses with noise cost epsilon 1\.\d+ together .* is 1\.2"):
        check_budgets(study)
    (reason,) = (one.reason for one in study_objections(study, study.policies["lyon"]))
    assert "2 analyses" in reason
    assert any(note.startswith("all 2 analyses with noise together: epsilon 1.") for note in study_card(study).notes)


def test_noise_is_waived_only_for_the_steps_of_the_analysis_without_noise():
    private = private_study(1.0, 3.0, secure_sum=False)
    only_open = {"parameters": {"n_components": 1}}
    mixed = private.model_copy(
        update={"analyses": (private.analyses[0], private.analyses[1].model_copy(update=only_open))}
    )
    strict, loose = permissions_of(private), permissions_of(mixed)
    noised = {name for fit in strict.fits for name in fit.steps}
    open_steps = next(fit.steps for fit in loose.fits if fit.plan is None)
    for one in MvPPCASite.steps().values():
        if not one.releases.tells_of_patients() or one.name not in noised | open_steps:
            continue
        call = Call("private", "0.1.1", 0, one, None, ("lyon", "oslo"))
        refused = loose.objection(call)[0] == "study, plan of noise"
        assert refused == (one.name not in open_steps and one.name in noised), one.name
    assert noised - open_steps


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"study": {"name": "x", "method": "fed-cox"}}, "study.method must be omitted in a study with blocks"),
        ({"parameters": {"ties": "efron"}}, "parameters must be omitted in a study with blocks"),
        ({"validation": {"folds": 3}}, "validation must be omitted in a study with blocks"),
        ({"analysis": [{"name": "a", "method": "fed-cox"}] * 2}, "analyses must have different names"),
        ({"analysis": [{"name": "a/b", "method": "fed-cox"}]}, "analysis.1.name: the value must match pattern"),
        ({"analysis": [{"name": "a", "method": "fed-cox", "parameter": {}}]}, "'parameter'.*Did you mean 'parameters'"),
        ({"analysis": [{"name": "a", "method": "fed-msgl"}]}, "must be a separate study"),
        ({"analysis": []}, "study.method: the key must be given"),
    ],
)
def test_blocks_are_checked(change, said):
    content = {
        "study": {"name": "x"},
        "analysis": [{"name": "cox", "method": "fed-cox"}],
        "data": {"survival": {}},
        "sites": {"lyon": {}},
    }
    with pytest.raises(ConfigurationError, match=said):
        study_from_mapping({**content, **change})


def test_analyses_must_work_on_data_of_one_site(tmp_path):
    blocks = '[[analysis]]\nname = "cox"\nmethod = "fed-cox"\n[[analysis]]\nname = "pca"\nmethod = "fed-mv-ppca"\n'
    with pytest.raises(ConfigurationError, match="must work on one kind of data"):
        run_study(read_study(write_several(tmp_path, blocks)))


@pytest.mark.parametrize(
    ("method", "parameter", "said"),
    [
        ("fed-cox", "tie", "analysis cox, .*Did you mean 'ties'"),
        ("survival-evaluation", "model", "analysis cox, parameters.model: the value must be"),
    ],
)
def test_an_unfit_parameter_is_located_in_its_block(tmp_path, method, parameter, said):
    blocks = f'[[analysis]]\nname = "cox"\nmethod = "{method}"\nparameters = {{ {parameter} = 3 }}\n'
    with pytest.raises(ConfigurationError, match=said):
        run_study(read_study(write_several(tmp_path, blocks)))


def test_survival_and_table_must_be_of_the_same_patients():
    survival = SurvivalData([[61.0], [64.0]], [12.0, 30.0], [1, 0])
    with pytest.raises(DataError, match="must be of the same patients"):
        SurvivalAndTable(survival, TableData([[61.0]], [0], classes=["no", "yes"]))
    both = SurvivalAndTable(survival, TableData([[61.0], [np.nan]], [0, 1]))
    assert both.of_type(object) is survival
    assert both.columns_below(2) == {"": ("x0",)} or both.columns_below(2) == {"": ("x1",)}


def test_a_refused_analysis_is_marked_and_the_others_go_on(tmp_path):
    (tmp_path / "strict.toml").write_text(ONLY_DESCRIBE_AND_COX)
    path = write_several(tmp_path, more='[privacy.sites]\noslo = "strict.toml"\n')
    with pytest.warns(AnalysisWarning, match="analysis (test|relapse) has no result"):
        folder = run_study(read_study(path))
    ends = {name: entry["status"] for name, entry in entries(folder).items()}
    assert ends == {"table-1": "finished", "test": "refused", "cox": "finished", "relapse": "refused"}
    assert folder.metadata["status"] == "finished"
    printed = describe_results(folder.path, folder.metadata)
    assert printed.count("REFUSED: ") == 2
    assert "does not permit the method log-rank" in printed
    assert "Hazard ratio of age" in printed
    assert not (folder.path / "analyses/test").exists()
    assert {row["site"] for row in folder.read("disclosure.json")["refused"]} == {"oslo"}


def test_a_refusal_by_min_difference_names_both_analyses(tmp_path):
    blocks = '[[analysis]]\nname = "arms"\nmethod = "log-rank"\nparameters = {group = "arm"}\n'
    path = write_several(tmp_path, blocks + '[[analysis]]\nname = "model"\nmethod = "fed-cox"\n')
    frame = pd.read_csv(tmp_path / "lyon.csv")
    frame.loc[:1, "age"] = np.nan
    frame.to_csv(tmp_path / "lyon.csv", index=False)
    with pytest.warns(
        AnalysisWarning,
        match=r"analysis model has no result: lyon.*by fewer from that of log-rank, \w+ of analysis arms",
    ):
        folder = run_study(read_study(path))
    assert "of analysis arms" in entries(folder)["model"]["message"]


def test_a_refused_validation_leaves_the_fit_its_result(tmp_path, monkeypatch):
    def refuse(*_):
        raise DisclosureRefused(
            "the answer must have at least 10 patients behind it; got fewer", hint="Use fewer folds."
        )

    monkeypatch.setattr(analyses, "cross_validate_study", refuse)
    block = TABLE + '[[analysis]]\nname = "cox"\nmethod = "fed-cox"\n[analysis.validation]\nperson_key = "identifier"\n'
    with pytest.warns(AnalysisWarning, match="cox: No held-out validation: the answer must have at least 10 patients"):
        folder = run_study(read_study(write_several(tmp_path, block)))
    entry = entries(folder)["cox"]
    assert entry["status"] == "finished"
    assert entry["answer"].startswith("Hazard ratio of age")
    assert "No held-out validation" in describe_results(folder.path, folder.metadata)
    page = render_report(folder.path)
    assert "Hazard ratio of age" in page
    assert (
        "No held-out validation: the answer must have at least 10 patients behind it; got fewer. Use fewer folds"
        in page
    )
    assert "REAL SITES MAY REFUSE" in describe_run(folder)


EXACT = '[[analysis]]\nname = "exact"\nmethod = "fed-cox"\nparameters = { times = "exact" }\n'
TABLE = '[[analysis]]\nname = "table"\nmethod = "describe"\nparameters = { quartiles = false }\n'
ONLY_OSLO_PERMITS = "[privacy.sites]\noslo = { exact_times = true }\n"


def write_refused(folder, blocks=EXACT + TABLE):
    path = write_several(folder, blocks, more=ONLY_OSLO_PERMITS)
    path.write_text(path.read_text().replace("[run]", '[run]\nrefusing_sites = "leave_out"'))
    return path


def discover_refusals_in_rounds(monkeypatch):
    """Let sites refuse during the rounds, as real sites do, instead of before the first request."""
    monkeypatch.setattr("multicentre.studies.runner.planned_refusals", lambda *_: {})


@pytest.mark.filterwarnings("ignore::multicentre.errors.AnalysisWarning")
@pytest.mark.parametrize(("in_rounds", "needed"), [(False, 2), (True, 3)])
def test_too_few_willing_sites_refuse_the_analysis_and_the_others_go_on(tmp_path, monkeypatch, in_rounds, needed):
    if in_rounds:
        discover_refusals_in_rounds(monkeypatch)
    folder = run_study(read_study(write_refused(tmp_path)))
    exact, table = entries(folder).values()
    assert (exact["status"], table["status"], folder.metadata["status"]) == ("refused", "finished", "finished")
    assert exact["message"].startswith(f"lyon, porto: 1 of 3 sites answered, the study needs {needed}; tell_times")
    assert "must have exact_times = true" in exact["message"]
    assert "Bring the site back" not in exact["message"]
    assert folder.metadata["losses"] == {}
    assert "exact (fed-cox)\n===============\nREFUSED: lyon, porto" in describe_results(folder.path, folder.metadata)
    requested = {entry.get("method") for entry in read_ledger(folder.path / "sites/lyon/ledger.jsonl")}
    assert ("fed-cox" in requested) == in_rounds


@pytest.mark.filterwarnings("ignore::multicentre.errors.AnalysisWarning")
def test_a_resumed_run_of_refused_analyses_has_no_result_either(tmp_path, monkeypatch):
    discover_refusals_in_rounds(monkeypatch)
    study = read_study(write_refused(tmp_path, EXACT))
    with pytest.raises(RefusedByPolicy, match="refused by 2 of 3 sites"):
        run_study(study)
    (folder,) = study.about.output.glob("several-*")
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    with pytest.raises(ConfigurationError, match="all of them ended without one"):
        resume_run(folder)


@pytest.mark.filterwarnings("ignore::multicentre.errors.AnalysisWarning")
def test_a_lost_site_interrupts_the_run_and_a_resumed_run_finishes(tmp_path, monkeypatch):
    study = read_study(write_several(tmp_path, TABLE + EXACT.replace("exact", "stratified")))
    with monkeypatch.context() as patch:
        patch.setattr(FedCox, "_fit", lambda *_: (_ for _ in ()).throw(QuorumLost("no answer", where="oslo")))
        with pytest.raises(QuorumLost):
            run_study(study)
    (path,) = study.about.output.glob("several-*")
    run = json.loads((path / "run.json").read_text())
    assert (run["status"], [one["status"] for one in run["analyses"]]) == ("interrupted", ["finished", "waiting"])
    assert [one["status"] for one in entries(resume_run(path)).values()] == ["finished", "finished"]


@pytest.mark.parametrize("method", ["fed-cox", "fed-mixed-cox", "kaplan-meier", "log-rank"])
def test_exact_times_are_compared_with_the_policies_before_the_first_request(tmp_path, method):
    of_method = 'stratify_by_site = false\ngroup = "age"\n' if method == "log-rank" else ""
    study = read_study(write_single(tmp_path, method, f'times = "exact"\n{of_method}'))
    (objection,) = study_objections(study, Policy())
    assert "tell_times, EventTimes.times: the site's policy must have exact_times = true" in objection.reason
    assert study_objections(study, Policy(exact_times=True)) == []
    with pytest.raises(RefusedByPolicy, match="refused by 3 of 3 sites"):
        run_study(study)
    assert not list(study.about.output.glob("several-*"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::multicentre.errors.AnalysisWarning")
def test_a_run_whose_analyses_are_all_refused_fails(tmp_path):
    (tmp_path / "strict.toml").write_text('methods = ["kaplan-meier"]\n')
    path = write_several(tmp_path, more='[privacy]\npolicy = "strict.toml"\n')
    with pytest.raises(RefusedByPolicy, match="does not permit the method describe"):
        run_study(read_study(path))


@pytest.mark.slow
def test_one_analysis_may_be_cross_validated(tmp_path):
    validation = '[analysis.validation]\nfolds = 3\nperson_key = "identifier"\n'
    blocks = BLOCKS.replace('method = "fed-cox"\n', f'method = "fed-cox"\n{validation}')
    study = read_study(write_several(tmp_path, blocks))
    folder = run_study(study)
    result = folder.read("analyses/cox/cross-validation.json")
    assert len(result["records"]) == 3
    assert sum(result["records"]) == 180
    assert not (folder.path / "analyses/relapse/cross-validation.json").exists()
    assert [entry["status"] for entry in entries(folder).values()] == ["finished"] * 4
    assert "cox: Cross-validated on 3 folds" in describe_run(folder)
    assert any("hashed-folds" in part.method for part in permissions_of(study).steps)


@pytest.mark.slow
def test_the_command_prints_every_result(tmp_path):
    printed = CliRunner().invoke(app, ["run", str(write_several(tmp_path))]).stdout
    order = [
        "Patients (describe)\n===================",
        "180 patients",
        "test (log-rank)",
        "Test of equal survival in 2 groups of arm, stratified by site: chi-square",
        "cox (fed-cox)",
        "Hazard ratio of age",
        "relapse (fed-logistic-regression)",
        "Odds ratio of age",
        "Released by the 3 sites",
    ]
    places = [printed.find(text) for text in order]
    assert -1 not in places
    assert places == sorted(places)


def interrupted_in(monkeypatch, path, name):
    """Run a study that is interrupted when an analysis is finished, and return its folder."""
    whole = analyses.finish_analysis

    def interrupt(analysis, *others):
        if analysis.name == name:
            raise KeyboardInterrupt
        return whole(analysis, *others)

    with monkeypatch.context() as patch:
        patch.setattr("multicentre.studies.runner.finish_analysis", interrupt)
        study = read_study(path)
        with pytest.raises(KeyboardInterrupt):
            run_study(study)
    (folder,) = study.about.output.glob("several-*")
    return folder


@pytest.mark.slow
def test_a_resumed_run_repeats_no_finished_analysis(finished, tmp_path, monkeypatch):
    folder = interrupted_in(monkeypatch, write_several(tmp_path), "cox")
    states = [entry["status"] for entry in json.loads((folder / "run.json").read_text())["analyses"]]
    assert states == ["finished", "finished", "waiting", "waiting"]
    resumed = resume_run(folder)
    for name in ("test/results/test.csv", "cox/results/hazard-ratios.csv", "relapse/results/coefficients.csv"):
        assert text_of(resumed, f"analyses/{name}") == text_of(finished, f"analyses/{name}")
    steps = [entry.get("step") for entry in read_ledger(folder / "sites/lyon/ledger.jsonl")]
    assert steps.count("count_groups") == 1
    assert steps.count("sum_scores") == 1


@pytest.mark.slow
def test_the_example_of_the_page_runs(tmp_path):
    page = (Path(__file__).resolve().parents[3] / "docs" / "study-file.md").read_text(encoding="utf-8")
    (example,) = (block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[[analysis]]" in block)
    write_patients(tmp_path, 120)
    for place, name in (("lyon", "lyon"), ("turin", "porto")):
        patients = pd.read_csv(tmp_path / f"{name}.csv").assign(sex=["f", "m", "m"] * 40)
        (tmp_path / place).mkdir()
        patients.to_csv(tmp_path / place / "patients.csv", index=False)
    (tmp_path / "study.toml").write_text(f"{example}\n[run]\ncompare = false\n")
    folder = run_study(read_study(tmp_path / "study.toml"))
    assert [entry["status"] for entry in entries(folder).values()] == ["finished"] * 5
    times = pd.read_csv(folder.path / "analyses/survival/results/survival-at-times.csv")
    assert times["time"].tolist() == [6, 12, 24] * 2


@pytest.mark.slow
def test_remote_sites_carry_out_all_analyses(finished, tmp_path):
    path = write_several(tmp_path)
    hospitals = Hospitals(tmp_path / "hospitals", path, SITES)
    remote = run_study(
        read_study(path).with_output(tmp_path / "remote"),
        connect=lambda: ByHand({name: partial(hospitals.answer, name) for name in SITES}),
    )
    for name in ("table-1/results/table-1.csv", "test/results/test.csv", "cox/results/hazard-ratios.csv"):
        assert text_of(remote, f"analyses/{name}") == text_of(finished, f"analyses/{name}")
    assert not remote.ledgers()
    assert RegressionSite.method in {fit.part.method for fit in permissions_of(read_study(path)).fits}


@pytest.mark.slow
def test_a_remote_site_may_refuse_one_analysis(tmp_path):
    path = write_several(tmp_path)
    hospitals = Hospitals(tmp_path / "hospitals", path, SITES)
    set_terms(tmp_path / "hospitals" / "oslo", "[policy]", '[policy]\nmethods = ["describe", "log-rank", "fed-cox"]')
    with pytest.warns(AnalysisWarning, match="analysis relapse has no result"):
        folder = run_study(
            read_study(path).with_output(tmp_path / "remote"),
            connect=lambda: ByHand({name: partial(hospitals.answer, name) for name in SITES}),
        )
    assert {name: entry["status"] for name, entry in entries(folder).items()}["relapse"] == "refused"
    assert "oslo" in entries(folder)["relapse"]["message"]
    assert entries(folder)["cox"]["status"] == "finished"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::multicentre.errors.AnalysisWarning")
def test_too_few_willing_remote_sites_refuse_the_analysis_and_the_others_go_on(tmp_path):
    path = write_refused(tmp_path)
    hospitals = Hospitals(tmp_path / "hospitals", path, SITES)
    set_terms(tmp_path / "hospitals" / "oslo", "exact_times = false", "exact_times = true")
    folder = run_study(
        read_study(path).with_output(tmp_path / "remote"),
        connect=lambda: ByHand({name: partial(hospitals.answer, name) for name in SITES}),
    )
    assert [entry["status"] for entry in entries(folder).values()] == ["refused", "finished"]
    assert entries(folder)["exact"]["message"].startswith("lyon, porto: 1 of 3 sites answered")
    assert folder.metadata["losses"] == {}


def test_a_real_site_objects_before_it_approves(tmp_path):
    path = write_several(tmp_path)
    Hospitals(tmp_path / "hospitals", path, SITES)
    set_terms(tmp_path / "hospitals" / "oslo", "[policy]", '[policy]\nmethods = ["describe", "log-rank", "fed-cox"]')
    site = read_site(tmp_path / "hospitals" / "oslo")
    notes = card_at(site, read_study(path)).notes
    assert "this site's policy refuses this study: analysis relapse: the method fed-glm is not allowed." in notes
