import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from multicentre.cli import app
from multicentre.privacy.site_cards import write_card
from multicentre_sites.deployment.bundle import Bundle
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.site_register import SiteRegister
from support.coordinators import make_card, make_consortium
from support.waiting import GENEROUS_S


def call(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_init_makes_a_folder_and_tells_where_it_is(tmp_path):
    told = call("study", "init", tmp_path / "new", "--host", "fl.example.org", "--port", "8443", "--json")
    assert told.exit_code == 0, told.stderr
    said = json.loads(told.stdout)
    fingerprints = said.pop("fingerprints")
    assert said == {
        "folder": str(tmp_path / "new"),
        "address": "fl.example.org:8443",
        "public": str(tmp_path / "new" / "public"),
    }
    assert set(fingerprints) == {"authority", "release_key", "bundle", "roster"}
    again = call("study", "init", tmp_path / "new", "--host", "fl.example.org", "--json")
    assert again.exit_code == 3
    assert json.loads(again.stdout)["error"]["code"] == "MC301"


def test_init_needs_all_of_a_certificate_from_elsewhere(tmp_path):
    told = call("study", "init", tmp_path / "new", "--host", "fl.example.org", "--ca", tmp_path / "ca.crt")
    assert told.exit_code == 3
    assert "must be given together" in told.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", [["up"], ["sites"], ["roster"], ["remove-site", "lyon"], ["sign-app"]])
def test_folder_that_is_none_is_named(tmp_path, verb):
    told = call("coordinator", *verb, "--folder", tmp_path)
    assert told.exit_code == 3
    assert "must contain coordinator.toml" in told.stderr


def test_roster_is_written_without_a_running_coordinator(tmp_path):
    consortium, card = make_consortium(tmp_path / "new"), make_card("lyon")
    SiteRegister().adding(card).registered("lyon", 1).adding(make_card("bern")).write(consortium.register)
    told = call("coordinator", "roster", "--folder", consortium.folder, "--json")
    assert json.loads(told.stdout)["sites"] == [
        {"name": "lyon", "identity": card.identity, "fingerprint": card.fingerprint}
    ]
    told = call("coordinator", "roster", "--folder", consortium.folder)
    assert told.stdout.strip() == (consortium.public / "roster.toml").read_text().strip()


@pytest.fixture
def superlink(monkeypatch):
    """A SuperLink that takes every site and lists what it took."""
    nodes = []

    def request(command):
        if command.arguments[2] == "register":
            nodes.append({"node-id": str(len(nodes)), "status": "registered"})
            return {"success": True, "node-id": nodes[-1]["node-id"]}
        if command.arguments[2] == "unregister":
            nodes[int(command.arguments[3])]["status"] = "unregistered"
        return {"success": True, "nodes": nodes}

    monkeypatch.setattr("multicentre_sites.deployment.enrolment.ask", request)
    monkeypatch.setattr("multicentre_sites.deployment.enrolment.is_healthy", lambda *_: True)
    monkeypatch.setattr("multicentre_sites.deployment.coordinator_folder.program", lambda name: name)


def test_what_sites_approve_is_printed_wherever_it_changes(tmp_path, superlink, monkeypatch):
    monkeypatch.setattr("multicentre_sites.deployment.bundle.build", lambda *_: Bundle("1.2.3", b"bundle"))
    folder = tmp_path / "new"
    told = [call("study", "init", folder, "--host", "fl.example.org").stdout]
    told.append(call("coordinator", "sign-app", "--folder", folder).stdout)
    card = write_card(make_card("lyon"), tmp_path)
    told.append(call("coordinator", "add-site", card, "--folder", folder).stdout)
    for printed, names in zip(told, (["release.pub"], ["bundle.toml"], ["roster.toml", "bundle.toml"]), strict=True):
        for name in ("release.pub", *names):
            assert recognise(str(folder / "public" / name)).fingerprint in printed
    printed = call("coordinator", "roster", "--folder", folder)
    assert recognise(str(folder / "public" / "roster.toml")).fingerprint in printed.stderr
    removed = json.loads(call("coordinator", "remove-site", "lyon", "--folder", folder, "--json").stdout)
    assert removed["fingerprints"]["roster"] is None


def test_site_that_is_added_twice_was_registered_already(tmp_path, superlink):
    consortium, card = make_consortium(tmp_path / "new"), write_card(make_card("lyon"), tmp_path)
    first, second = (call("coordinator", "add-site", card, "--folder", consortium.folder) for _ in range(2))
    assert "lyon is registered." in first.stdout
    assert "lyon was already registered" in second.stdout
    assert "The roster is unchanged." in second.stderr
    as_json = json.loads(call("coordinator", "add-site", card, "--folder", consortium.folder, "--json").stdout)
    assert (as_json["name"], as_json["already"]) == ("lyon", True)


def test_sites_need_a_running_coordinator(tmp_path):
    pytest.importorskip("flwr")
    told = call("coordinator", "sites", "--folder", make_consortium(tmp_path / "new").folder, "--json")
    assert told.exit_code == 3
    assert "must be running" in json.loads(told.stdout)["error"]["what"]


def test_no_option_switches_tls_or_authentication_off():
    for verb in (["study", "init"], ["coordinator", "up"]):
        assert "insecure" not in call(*verb, "--help").stdout.lower()


@pytest.mark.parametrize("group", ["study", "coordinator"])
def test_help_imports_nothing_heavy(group):
    code = (
        "import sys; from multicentre.cli import app; sys.argv = ['multicentre', sys.argv[1], '--help']\n"
        "heavy = {'cryptography', 'numpy', 'pydantic', 'flwr'}\n"
        "try: app()\nfinally: print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, group]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GENEROUS_S)
    assert told.stderr.strip() == "[]"
