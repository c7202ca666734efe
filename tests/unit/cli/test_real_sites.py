"""Commands of other distributions join the application; a missing distribution is named by its commands."""

import json
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from multicentre.cli import app, real_sites
from multicentre.cli.real_sites import COMMAND_GROUP, add_commands, function_of_sites
from multicentre.errors import MissingExtra


@pytest.fixture
def install(monkeypatch):
    """Return a function that makes entry points the only ones of the installation."""

    def make(**paths):
        entries = [EntryPoint(name, path, COMMAND_GROUP) for name, path in paths.items()]
        monkeypatch.setattr(real_sites, "entry_points", lambda *, group, name=None: entries)

    return make


def call(*words):
    fresh = typer.Typer()
    fresh.command("demo")(lambda: typer.echo("ours"))
    add_commands(fresh)
    return CliRunner().invoke(fresh, words)


def test_a_function_and_a_group_become_commands(install):
    install(version="multicentre.cli.docs:docs", keys="multicentre.cli.secret:app")
    assert "study-file" in call("version").stdout
    assert "fingerprint" in call("keys", "check", "--help").stdout


def test_a_command_of_the_library_cannot_be_replaced(install):
    install(demo="multicentre.cli.docs:docs")
    assert call("demo").stdout == "ours\n"


@pytest.mark.parametrize("name", ["analyst", "coordinator", "serve", "site", "study"])
@pytest.mark.parametrize("words", [(), ("--help",), ("up", "--folder", "lyon")], ids=" ".join)
def test_a_missing_command_names_the_distribution_that_has_it(install, name, words):
    install()
    result = call(name, *words)
    assert result.exit_code == 3
    assert f"multicentre {name} requires the package multicentre-sites" in result.stderr


def test_missing_commands_are_not_listed(install):
    install()
    assert "site" not in call("--help").stdout


def test_a_command_whose_module_lacks_a_package_names_that_package(install):
    install(tool="no_such_package.commands:app")
    result = call("tool")
    assert result.exit_code == 3
    assert "pip install no-such-package" in result.stderr


def test_a_missing_function_names_the_distribution_and_what_needs_it(monkeypatch):
    monkeypatch.setattr(real_sites, "entry_points", lambda *, group, name: [])
    with pytest.raises(MissingExtra, match="--coordinator requires the package multicentre-sites"):
        function_of_sites("run", "--coordinator")


def test_settings_of_a_real_site_name_the_missing_package(monkeypatch, tmp_path):
    monkeypatch.setattr(real_sites, "entry_points", lambda *, group, name: [])
    (tmp_path / "site.toml").write_text('[site]\nname = "lyon"\n', encoding="utf-8")
    result = CliRunner().invoke(app, ["budget", str(tmp_path / "site.toml"), "--json"])
    assert result.exit_code == 3
    assert "pip install ./sites" in json.loads(result.stdout)["error"]["hint"]
