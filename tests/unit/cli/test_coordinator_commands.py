import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from coordinators import found, make_card
from multicentre.cli import app
from multicentre.deployment.register import Register


def call(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_init_makes_a_folder_and_tells_where_it_is(tmp_path):
    told = call("study", "init", tmp_path / "new", "--host", "fl.example.org", "--port", "8443", "--json")
    assert told.exit_code == 0, told.stderr
    assert json.loads(told.stdout) == {
        "folder": str(tmp_path / "new"),
        "address": "fl.example.org:8443",
        "public": str(tmp_path / "new" / "public"),
    }
    again = call("study", "init", tmp_path / "new", "--host", "fl.example.org", "--json")
    assert again.exit_code == 3
    assert json.loads(again.stdout)["error"]["code"] == "MC301"


def test_init_needs_all_of_a_certificate_from_elsewhere(tmp_path):
    told = call("study", "init", tmp_path / "new", "--host", "fl.example.org", "--ca", tmp_path / "ca.crt")
    assert told.exit_code == 3
    assert "go together" in told.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", [["up"], ["sites"], ["roster"], ["remove-site", "lyon"], ["sign-app"]])
def test_folder_that_is_none_is_named(tmp_path, verb):
    told = call("coordinator", *verb, "--folder", tmp_path)
    assert told.exit_code == 3
    assert "no coordinator.toml here" in told.stderr


def test_roster_is_written_without_a_running_coordinator(tmp_path):
    consortium, card = found(tmp_path / "new"), make_card("lyon")
    Register().adding(card).registered("lyon", 1).adding(make_card("bern")).write(consortium.register)
    told = call("coordinator", "roster", "--folder", consortium.folder, "--json")
    assert json.loads(told.stdout)["sites"] == [
        {"name": "lyon", "identity": card.identity, "fingerprint": card.fingerprint}
    ]
    told = call("coordinator", "roster", "--folder", consortium.folder)
    assert told.stdout.strip() == (consortium.public / "roster.toml").read_text().strip()


def test_sites_need_a_running_coordinator(tmp_path):
    pytest.importorskip("flwr")
    told = call("coordinator", "sites", "--folder", found(tmp_path / "new").folder, "--json")
    assert told.exit_code == 3
    assert "not up" in json.loads(told.stdout)["error"]["what"]


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
    told = subprocess.run([sys.executable, "-c", code, group], capture_output=True, text=True, check=True, timeout=60)
    assert told.stderr.strip() == "[]"
