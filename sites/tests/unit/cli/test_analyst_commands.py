"""Analysts on the command line: their keys, who admits them, who approves them, and how they ask."""

import json
import socket
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from multicentre.cli import app
from multicentre.core.requester import Requester, answering, requester_facts
from multicentre.estimator.registry import METHODS
from multicentre.privacy.ledger import Ledger
from multicentre_sites.deployment.site_folder import read_site
from support.coordinators import make_consortium
from support.studies_toy import TOY, write_study


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)
    monkeypatch.delenv("MULTICENTRE_ANALYST", raising=False)


def call(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture
def card(tmp_path):
    made = call("analyst", "keygen", "ada", "--folder", tmp_path / "ada", "--json")
    assert made.exit_code == 0, made.output
    return Path(json.loads(made.stdout)["card"])


@pytest.fixture
def fingerprint(card):
    return card.read_text().split('"')[-2]


@pytest.fixture
def site(tmp_path):
    assert call("site", "keygen", "lyon", "--folder", tmp_path / "lyon").exit_code == 0
    return tmp_path / "lyon"


def test_keygen_prints_the_fingerprint_and_no_secret(tmp_path, fingerprint):
    secret = (tmp_path / "ada" / "key").read_text().split()[3]
    second = call("analyst", "keygen", "ada", "--folder", tmp_path / "ada")
    assert second.exit_code == 3
    plain = call("analyst", "keygen", "bea", "--folder", tmp_path / "bea")
    assert [line.split()[0] for line in plain.stdout.splitlines()] == ["folder", "card", "fingerprint"]
    assert secret not in plain.output
    assert len(fingerprint.split("-")) == 10


def test_an_administrator_admits_lists_and_removes(tmp_path, card, fingerprint):
    folder = make_consortium(tmp_path / "coordinator").folder
    assert "No analyst" in call("coordinator", "analysts", "--folder", folder).stdout
    admitted = call("coordinator", "admit-analyst", card, "--folder", folder)
    assert fingerprint in admitted.stdout
    assert fingerprint in call("coordinator", "analysts", "--folder", folder).stdout
    listed = json.loads(call("coordinator", "analysts", "--folder", folder, "--json").stdout)
    assert listed == [{"name": "ada", "fingerprint": fingerprint}]
    assert call("coordinator", "remove-analyst", "ada", "--folder", folder).exit_code == 0
    assert call("coordinator", "remove-analyst", "ada", "--folder", folder).exit_code == 3


def test_a_steward_sees_who_may_run_a_study_before_it_is_approved(tmp_path, site, card, fingerprint):
    study = write_study(tmp_path)
    anybody = call("site", "approve", study, "--folder", site, "--yes")
    assert "requests need no signature" in anybody.stderr
    approved = call("site", "approve", study, "--for", card, "--folder", site, "--yes", "--json")
    assert approved.exit_code == 0, approved.output
    told = json.loads(approved.stdout)
    assert told["analysts"] == {fingerprint: "ada"}
    assert told["studies"]["Ward 7"]["analysts"] == [fingerprint]
    for said in (f"analyst ada\n  fingerprint {fingerprint}", f"run by these analysts only: ada ({fingerprint})"):
        assert said in approved.stderr
    every = call("site", "approve", study, "--folder", site, "--yes")
    assert f"run by every approved analyst: ada ({fingerprint})" in every.stderr
    assert f"analyst ada  {fingerprint}" in every.stdout
    assert call("site", "approve", "--revoke", fingerprint, "--folder", site).exit_code == 0
    wrong = call("site", "approve", study, "--for", study, "--folder", site, "--yes")
    assert wrong.exit_code == 3
    assert "--for must name an analyst's card" in wrong.stderr


def test_an_approval_names_the_analysts_whose_permission_it_ends(tmp_path, site, card, fingerprint):
    study = write_study(tmp_path)
    call("analyst", "keygen", "bob", "--folder", tmp_path / "bob")
    bob = tmp_path / "bob" / "bob.analyst.toml"
    first = call("site", "approve", study, "--for", card, "--folder", site, "--yes")
    both = call("site", "approve", study, "--for", card, "--for", bob, "--folder", site, "--yes")
    second = call("site", "approve", study, "--for", bob, "--folder", site, "--yes")
    assert "ends the permission" not in first.stderr + both.stderr
    assert f"this ends the permission of ada ({fingerprint})" in second.stderr
    every = call("site", "approve", study, "--folder", site, "--yes")
    again = call("site", "approve", study, "--for", bob, "--folder", site, "--yes")
    assert "ends the permission" not in every.stderr
    assert f"this ends the permission of ada ({fingerprint})" in again.stderr


def test_another_key_under_an_approved_name_is_refused(tmp_path, site, card, fingerprint):
    assert call("site", "approve", card, "--folder", site, "--yes").exit_code == 0
    assert call("site", "approve", card, "--folder", site, "--yes").exit_code == 0
    call("analyst", "keygen", "ada", "--folder", tmp_path / "false")
    false = call("site", "approve", tmp_path / "false" / "ada.analyst.toml", "--folder", site, "--yes")
    assert false.exit_code == 3
    assert f"--revoke {fingerprint}" in false.stderr


def test_a_service_is_asked_by_an_analyst(tmp_path):
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    study = write_study(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        asked = call("run", study, "--coordinator", folder / "socket")
    assert asked.exit_code == 3
    assert "multicentre analyst keygen" in asked.stderr
    (folder / "socket").unlink()
    folder.rmdir()


def test_a_ledger_shows_who_asked(site, fingerprint):
    ledger = Ledger(read_site(site).ledger_of("hips"), signer=read_site(site).identity, study="hips")
    for requester in (Requester("ada", fingerprint), Requester("coordinator", None)):
        with answering(requester):
            ledger.append("refusal", {"step": "fit", "reason": "too few", "study": "hips", **requester_facts()})
    shown = call("site", "log", "--folder", site).stdout
    assert "asked by" in shown
    assert f"ada, {fingerprint[:19]}" in shown
    assert "coordinator, not signed" in shown
