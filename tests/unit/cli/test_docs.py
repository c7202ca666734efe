"""``multicentre docs``: pages that messages name are installed with the package."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from multicentre.cli import app
from multicentre.cli.docs import find_pages

ROOT = Path(__file__).resolve().parents[3]


def call(*arguments):
    return CliRunner().invoke(app, ["docs", *arguments])


def test_pages_are_listed_with_their_titles():
    assert {"name": "study-file", "title": "The study file"} in json.loads(call("--json").stdout)
    assert "fed-cox" in call().stdout


def test_a_page_is_printed_as_it_is():
    text = (ROOT / "docs" / "study-file.md").read_text(encoding="utf-8").strip()
    assert call("study-file").stdout.strip() == text
    assert json.loads(call("study-file", "--json").stdout)["text"] == text


def test_an_unknown_page_is_an_error_that_names_the_nearest():
    result = call("study-fil")
    assert result.exit_code == 3
    assert "Did you mean 'study-file'?" in result.stderr


def test_messages_name_pages_that_exist_and_no_path_of_the_repository():
    folders = (ROOT / "src", ROOT / "sites" / "src")
    sources = {path: path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")}
    named = {page for text in sources.values() for page in re.findall(r"multicentre docs ([a-z][a-z-]+)\b", text)}
    assert {"study-file", "small-sites", "deployment"} <= named - {"lists"}
    assert named - {"lists"} <= find_pages().keys()
    strings = {path: re.findall(r"\"[^\"\n]*\bdocs/[a-z-]+\.md[^\"\n]*\"", text) for path, text in sources.items()}
    assert {path: hits for path, hits in strings.items() if hits} == {}


@pytest.mark.slow
def test_the_wheel_holds_the_pages(tmp_path, monkeypatch):
    import zipfile

    build = pytest.importorskip("hatchling.build", reason="hatchling is not installed")
    monkeypatch.chdir(ROOT)
    with zipfile.ZipFile(tmp_path / build.build_wheel(str(tmp_path))) as wheel:
        names = set(wheel.namelist())
    assert {f"multicentre/docs/{page}.md" for page in ("study-file", "small-sites", "deployment")} <= names
    assert "multicentre/docs/methods/fed-cox.md" in names
    assert "multicentre/survival/cox/estimator.py" in names
