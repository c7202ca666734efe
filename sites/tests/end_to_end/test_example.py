"""The example consortium does what the README says, and leaves nothing behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from support.processes import addresses_listened_on, command_line, processes_of
from support.proxies import NGINX
from support.waiting import GENEROUS_S

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "examples" / "consortium" / "consortium.py"
TUTORIAL = ROOT / "docs" / "tutorials" / "first-study.md"
pytestmark = pytest.mark.slow


def path_of(proxy):
    """Return a PATH on which nginx is, or is not."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if proxy == "nginx":
        return os.pathsep.join([*folders, str(Path(NGINX).parent)])
    return os.pathsep.join(folder for folder in folders if not (Path(folder) / "nginx").exists())


def run(command, folder, proxy="none", *options):
    arguments = [sys.executable, str(SCRIPT), command, "--folder", str(folder), *options]
    environment = {**os.environ, "PATH": path_of(proxy)}
    limit_s = 3 * GENEROUS_S  # up runs a dozen commands, one after the other
    return subprocess.run(
        arguments,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


@pytest.mark.parametrize("proxy", ["nginx" if NGINX else "none"])
def test_it_starts_runs_the_study_and_stops_with_one_command_each(tmp_path, proxy):
    folder = tmp_path / "consortium"
    try:
        up = run("up", folder, proxy)
        assert up.returncode == 0, up.stdout + up.stderr
        log = (folder / "coordinator.log").read_text()
        assert ("there is no proxy" in up.stdout) == ("Warning: there is no proxy." in log) == (proxy == "none")
        assert any("nginx" in command_line(pid) for pid in processes_of(folder)) == (proxy == "nginx")
        if Path("/proc/net/tcp").exists():
            assert {address for address, _ in addresses_listened_on(processes_of(folder))} == {"127.0.0.1"}
        assert "REFUSED" not in up.stdout
        (sentence,) = re.findall(r"^Hazard ratio of arm=new.*$", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE)
        assert sentence in up.stdout
        methods = {"describe", "fed-cox", "fed-glm", "kaplan-meier"}
        assert methods <= set(up.stdout.rpartition("from its own ledger")[2].split())
        same, report, end = up.stdout.splitlines()[-3:]
        assert same == "The same numbers, bit by bit: yes"
        assert Path(report.removeprefix("Report: ")).is_file()
        assert end.endswith(f"down --folder {folder}")
        assert (folder / "runs" / "hospitals").is_dir()
    finally:
        down = run("down", folder)
    assert down.returncode == 0
    assert not processes_of(folder)
    ledgers = [folder / site / "ledgers" / "first-paper.jsonl" for site in ("lyon", "porto", "turin")]
    assert all(str(ledger) in down.stdout and ledger.is_file() for ledger in ledgers)
    assert run("down", folder, "none", "--delete").returncode == 0
    assert not folder.exists()
    again = run("down", folder)
    assert (again.returncode, again.stdout.partition(":")[0]) == (0, "Nothing to end")


def test_a_folder_of_somebody_else_is_not_removed(tmp_path):
    (tmp_path / "letter.txt").write_text("keep me")
    assert run("down", tmp_path).returncode != 0
    assert (tmp_path / "letter.txt").exists()
