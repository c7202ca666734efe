"""From the files of departments with different views of the same patients to a report, by the command line."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from multicentre.cli import app
from multicentre.cli.summary import describe_run
from multicentre.errors import RefusedByPolicy
from multicentre.reports import render_report, write_report
from multicentre.studies import RunFolder, read_study, resume_run, run_study
from support.studies_toy import Interrupts
from support.vertical_studies import SITES, STUDY, write_departments

ROUNDS = STUDY.replace("n_clusters = 3", "n_clusters = 3\nmax_iter = 2")


def call(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    path = write_departments(tmp_path_factory.mktemp("vertical"))
    result = call("run", path, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def page(ran):
    return Path(ran["report"]).read_text(encoding="utf-8")


def plain(page):
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


@pytest.mark.slow
def test_run_finds_the_groups_and_tells_what_the_other_views_are_worth(ran):
    assert ran["run"]["status"] == "finished"
    assert (ran["run"]["vertical"], ran["run"]["patients_aligned"]) == (True, 87)
    metrics = {row["name"]: row for row in ran["comparison"]["metrics"]}
    assert metrics["acc"]["federated"] == metrics["acc"]["pooled"] > 0.9
    assert metrics["acc"]["site_alone"].keys() == set(SITES)
    assert np.mean(list(metrics["ari"]["site_alone"].values())) < metrics["ari"]["federated"]
    assert metrics["agreement"]["federated"] == 1.0
    assert [one["name"] for one in ran["run"]["headline"]] == ["Accuracy", "Purity", "NMI", "NMI (mean)"]


def test_table_on_screen_says_whom_it_is_about(ran):
    shown = describe_run(RunFolder.open(ran["folder"]))
    assert "On the 87 patients of all fits (rows can be pooled in simulations only" in shown


def test_only_masked_sums_of_relations_left(ran):
    by_step = {(row["step"], row["protection"]) for row in ran["released"]}
    assert ("relate", "masked") in by_step
    assert not any(step in ("list_relations", "refine", "profile") for step, _ in by_step)


def test_report_speaks_of_patients_who_are_at_several_sites(page):
    words = plain(page)
    assert "87 patients aligned over the sites" in words
    assert "the counts do not add up to a number of patients" in words
    assert "looked at on the 87 patients who are at every site and took part in each fit" in words
    assert "views of all sites joined at one place" in words
    assert "except for those of send_pseudonyms, agree, relate" in words
    assert "no fit saw" not in words
    assert "pooled rows" not in words
    assert "0 rounds" not in words
    assert "Fewest patients behind a value, steps about single patients apart" in words
    assert "sites_per_patient" not in words.partition("Annex")[0]
    assert "holdout" not in words.partition("Annex")[0]
    assert words.count("Drawn from the sites&#39; files, which only a simulation has") == 5
    assert words.count("over real sites a profile needs relations = &#34;listed&#34;.") == 3
    for text in (
        "Alignment",
        "similarities of patients",
        "alignment, fed-msgl",
        "Affinity",
        "Profile of image at radiology",
    ):
        assert text in words


@pytest.mark.slow
def test_report_without_a_finished_fit_counts_nobody(ran, tmp_path):
    folder = Path(ran["folder"])
    for file in folder.rglob("*.*"):
        if file.is_file() and file.suffix in (".json", ".toml", ".csv"):
            target = tmp_path / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    RunFolder.open(tmp_path).update(patients_aligned=None)
    assert "different views of the same patients" in plain(render_report(tmp_path))


def test_ledgers_are_intact_and_hold_the_alignment(ran):
    result = call("ledger", "verify", ran["folder"])
    assert result.exit_code == 0
    assert all(f"{site}: intact" in result.stdout for site in SITES)
    shown = [line.split()[2:4] for line in call("ledger", "show", ran["folder"], "--site", "lab").stdout.splitlines()]
    assert ["alignment", "agree"] in shown
    assert ["secure-sum", "agree"] in shown
    for ledger in RunFolder.open(ran["folder"]).ledgers().values():
        entries = [json.loads(line) for line in ledger.read_text().splitlines()]
        assert {entry["method"] for entry in entries if "method" in entry} >= {"alignment", "fed-msgl"}


def test_cards_of_study_and_method(tmp_path):
    path = write_departments(tmp_path)
    result = call("card", path)
    assert result.exit_code == 0, result.output
    assert "VALUES ABOUT SINGLE PATIENTS" in result.stdout
    caveats = [line for line in result.stdout.splitlines() if line.startswith("Caveat: ")]
    assert caveats[0].startswith("Caveat: values about single patients leave (send_pseudonyms,")
    result = call("card", path, "--fields")
    assert "similarities of patients" in result.stdout
    assert "refuses this study" not in result.stdout
    path.write_text(
        STUDY + '\n[privacy.sites.ward]\nmethods = ["fed-msgl"]\n\n[privacy.sites.lab]\nrelations = "none"\n'
    )
    told = call("card", path).stdout
    assert "ward's policy refuses this study: the method alignment is not allowed." in told
    assert 'lab\'s policy refuses this study: it would have to say relations = "summed".' in told
    assert "send_pseudonyms" in call("card", "alignment").stdout
    assert "rotation" in call("card", "fed-msgl").stdout


def test_a_site_whose_policy_lets_nothing_out_about_single_patients_refuses(tmp_path):
    path = write_departments(tmp_path, text=f'{STUDY}\n[privacy.sites.lab]\nrelations = "none"\n')
    with pytest.raises(RefusedByPolicy, match='relations = "summed"'):
        run_study(read_study(path))
    path.write_text(STUDY.replace("secure_sum = true", "secure_sum = false"))
    with pytest.raises(RefusedByPolicy, match=r'lab, policy, relations: .* relations = "listed"'):
        run_study(read_study(path))
    result = call("run", path)
    assert result.exit_code == 4
    assert "ward, policy, relations" in result.stderr
    assert not (tmp_path / "runs").exists()


def test_a_key_that_is_not_there_is_missed_by_card_and_run(tmp_path):
    path = write_departments(tmp_path, text=f'{STUDY}pseudonym_key = "departments.key"\n')
    told = {command: call(command, path) for command in ("card", "run")}
    assert {result.exit_code for result in told.values()} == {3}
    assert told["card"].stderr == told["run"].stderr
    assert "departments.key" in told["card"].stderr


@pytest.mark.slow
def test_interrupted_run_resumes_to_the_same_clusters(tmp_path):
    whole = run_study(read_study(write_departments(tmp_path / "whole", text=ROUNDS)))
    study = read_study(write_departments(tmp_path / "broken", text=ROUNDS))
    with pytest.raises(KeyboardInterrupt):
        run_study(study, listener=Interrupts(1))
    (path,) = (tmp_path / "broken" / "runs").glob("departments-*")
    resumed = resume_run(path)
    with np.load(whole.path / "model" / "model.npz") as left, np.load(path / "model" / "model.npz") as right:
        assert left.files == right.files
        assert all(np.array_equal(left[name], right[name]) for name in left.files)
    assert resumed.metadata["status"] == "finished"
    assert resumed.read("comparison.json") == whole.read("comparison.json")
    assert resumed.read("figures.json") == whole.read("figures.json")
    assert "objective over the rounds" in write_report(path).read_text(encoding="utf-8")
    told = " ".join(resumed.read("disclosure.json")["card"]["warnings"])
    assert "refine sends every site, of all patients of all sites" in told
