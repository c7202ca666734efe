"""Analysts and coordinators read runs in the browser as the commands print them."""

import json
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from multicentre.cli import app
from multicentre.errors import ConfigurationError
from multicentre.estimator.registry import METHODS
from multicentre.reports import write_report
from multicentre.studies import read_study, run_study
from multicentre.studies.file_card import card_of_file
from multicentre.studies.run_events import EVENTS
from multicentre_sites.serve.application import make_application
from multicentre_sites.serve.door import Access
from multicentre_sites.serve.run_lists import list_runs
from support.steward_pages import client_of
from support.studies_toy import STUDY, TOY, Interrupts, write_study

TERMS = "\n[run]\ncompare = false\n"


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)


@pytest.fixture
def run(tmp_path):
    path = write_study(tmp_path, STUDY + TERMS)
    folder = run_study(read_study(path).with_output(tmp_path / "runs"))
    write_report(folder.path)
    return folder


def test_pages_of_a_finished_run(run, tmp_path):
    client = client_of(tmp_path)
    name = f"runs/{run.path.name}"
    assert name in client.get().words
    page = client.get(f"run?name={quote(name)}")
    for words in ("finished", "Ward 7", "fit 6", "lyon answers", "residuals", "Nothing was refused", "Disclosure card"):
        assert words in page.words, words
    released = run.read("disclosure.json")["released"]
    numbers = sum(row["numbers"] for row in released if row["step"] == "residuals")
    assert f"{numbers:,}" in page.words
    assert client.get(f"report?name={quote(name)}").text == (run.path / "report.html").read_text(encoding="utf-8")
    _, card = card_of_file(tmp_path / "study.toml")
    for page in (client.get("study?name=study.toml"), client.get(f"study?run={quote(name)}")):
        assert all(" ".join(sentence.split()) in page.words for sentence in (*card.sentences, *card.warnings))
    assert "study.toml Ward 7 toy lyon, oslo, porto" in client.get("studies").words


def test_a_folder_above_that_of_the_files_says_where_the_pages_look(tmp_path):
    write_study(tmp_path / "deeper")
    client = client_of(tmp_path)
    runs, studies = client.get().words, client.get("studies").words
    assert "No runs. Runs are listed from the folder itself and from *, runs/* and state/runs/*/*/* in it." in runs
    assert (
        "contains no study file. Study files are listed from *.toml in the folder, not from its subfolders." in studies
    )
    for words in (runs, studies):
        assert "start multicentre serve with that folder" in words
        assert "deeper" not in words


def test_verification_is_that_of_the_command(run, tmp_path):
    client = client_of(tmp_path)
    verified = json.loads(CliRunner().invoke(app, ["ledger", "verify", str(run.path), "--json"]).stdout)
    page = client.get("ledgers")
    assert page.words.count("intact,") == 3
    assert all(one["hash"] in page.words for one in verified.values())
    ledger = client.get(f"ledger?name={quote('runs/' + run.path.name)}&site=lyon")
    assert f"{verified['lyon']['entries']} entries" in ledger.words
    assert client.get(f"ledgers?name={quote('runs/' + run.path.name)}").words.count("intact,") == 3
    path = run.path / "sites" / "lyon" / "ledger.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert "NOT INTACT" in client.get("ledgers").words


def test_an_interrupted_run_shows_its_rounds(tmp_path):
    study = read_study(write_study(tmp_path, STUDY + TERMS)).with_output(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, listener=Interrupts(2))
    client = client_of(tmp_path)
    (name,) = list_runs(tmp_path)
    page = client.get(f"run?name={quote(name)}")
    assert "interrupted" in page.words
    assert "2 of at most 6" in page.words


def test_a_run_in_progress_offers_its_present_state(run, tmp_path):
    lines = (run.path / EVENTS).read_text().splitlines(keepends=True)
    (run.path / EVENTS).write_text("".join(lines[:4]))
    (run.path / "run.lock").unlink()
    run.update(status="running")
    client = client_of(tmp_path)
    page = client.get(f"run?name={quote('runs/' + run.path.name)}")
    assert "Load the present state" in page.words
    assert "verified when the run has ended" in client.get("ledgers").words


def test_damaged_folders_do_not_hide_the_others(run, tmp_path):
    broken = tmp_path / "runs" / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("[")
    (tmp_path / "bad.toml").write_text("[study]\nname = 3\n")
    client = client_of(tmp_path)
    assert run.path.name in client.get().words
    assert client.get(f"run?name={quote('runs/broken')}").status == 200
    assert "cannot be read" in client.get("studies").words


def test_one_run_folder_can_be_served(run):
    client = client_of(run.path)
    assert client.get(f"run?name={quote(run.path.name)}").status == 200


def test_budgets_of_the_policies_of_studies(tmp_path):
    (tmp_path / "policy.toml").write_text("epsilon = 2.0\n")
    write_study(tmp_path, STUDY + '\n[privacy]\npolicy = "policy.toml"\n')
    page = client_of(tmp_path).get("budgets")
    assert "of 2.0" in page.words
    assert "Nothing has been spent" in page.words


def test_pages_of_a_coordinator(tmp_path):
    from multicentre_sites.deployment.new_coordinator_folder import ConsortiumOptions, create_consortium

    create_consortium(tmp_path / "c", ConsortiumOptions("hub.example.org", 443, None, 18000, 18300, None, None, None))
    client = client_of(tmp_path / "c")
    page = client.get("consortium")
    assert page.status == 200
    assert "hub.example.org:443" in page.words
    assert "No site is registered" in page.words
    assert "Coordinator" in page.words


def test_folder_must_exist(tmp_path):
    with pytest.raises(ConfigurationError, match="must be a folder"):
        make_application(tmp_path / "nothing", Access(1))


def test_a_used_port_is_named(tmp_path):
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = CliRunner().invoke(app, ["serve", str(tmp_path), "--port", str(port)])
    assert result.exit_code == 3
    assert f"127.0.0.1:{port}" in result.stderr
