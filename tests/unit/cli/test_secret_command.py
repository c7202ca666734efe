"""``multicentre secret`` makes and checks a key, and never shows it."""

import json
import os
import stat

import pytest
from typer.testing import CliRunner

from multicentre.cli import app
from multicentre.linkage.pseudonyms import PseudonymKey


def call(*arguments):
    return CliRunner().invoke(app, ["secret", *map(str, arguments)])


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "key.txt"
    assert call("new", path).exit_code == 0
    return path


def test_new_writes_a_key_that_others_cannot_read(path):
    assert isinstance(PseudonymKey.read(path), PseudonymKey)
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_keys_differ(path, tmp_path):
    call("new", tmp_path / "other.txt")
    assert PseudonymKey.read(path) != PseudonymKey.read(tmp_path / "other.txt")


def test_check_prints_the_fingerprint_and_nothing_else(path):
    key = PseudonymKey.read(path)
    assert call("check", path, "--study", "hips").stdout == f"{key.fingerprint('hips')}\n"
    assert call("check", path).stdout == f"{key.fingerprint('')}\n"
    assert call("check", path, "--study", "hips").stderr == ""


def test_json(path, tmp_path):
    new = tmp_path / "new.txt"
    assert json.loads(call("new", new, "--json").stdout) == {"path": str(new)}
    printed = json.loads(call("check", new, "--study", "hips", "--json").stdout)
    fingerprint = PseudonymKey.read(new).fingerprint("hips")
    assert printed == {"path": str(new), "study": "hips", "fingerprint": fingerprint}


def test_the_key_is_never_shown(path, tmp_path):
    digits = path.read_text().split()[3]
    other = tmp_path / "other.txt"
    results = [call("check", path), call("check", path, "--json"), call("new", path), call("new", other)]
    digits_of_other = other.read_text().split()[3]
    path.write_text(path.read_text().replace(digits[:4], "zz" if digits[:2] == "00" else "0000"))
    results += [call("check", path), call("check", path, "--json")]
    for result in results:
        assert digits[:8] not in result.output
        assert digits_of_other[:8] not in result.output


@pytest.mark.skipif(os.name != "posix", reason="rights of group and others are POSIX's")
def test_check_says_how_to_mend_rights(path):
    path.chmod(0o644)
    result = call("check", path, "--json")
    assert result.exit_code == 3
    error = json.loads(result.stdout)["error"]
    assert error["where"] == str(path)
    assert f"chmod 600 {path}" in error["hint"]


def test_errors_have_status_3(path, tmp_path):
    before = path.read_bytes()
    assert call("new", path).exit_code == 3
    assert path.read_bytes() == before
    assert call("check", tmp_path / "nothing.txt").exit_code == 3
    assert call("check").exit_code == 2


def test_both_commands_speak_json():
    for name in ("new", "check"):
        assert "--json" in call(name, "--help").stdout
