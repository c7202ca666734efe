"""The example consortium does what the README says, and leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

from coordinators import processes_of

SCRIPT = Path(__file__).parents[3] / "examples" / "consortium" / "consortium.py"
pytestmark = pytest.mark.slow


def run(command, folder):
    told = [sys.executable, str(SCRIPT), command, "--folder", str(folder)]
    return subprocess.run(told, capture_output=True, text=True, timeout=400, check=False)


def test_it_starts_runs_the_study_and_stops_with_one_command_each(tmp_path):
    folder = tmp_path / "consortium"
    try:
        up = run("up", folder)
        assert up.returncode == 0, up.stdout + up.stderr
        assert "fit_shared" in up.stdout.rpartition("from its own ledger")[2]
        same, report, end = up.stdout.splitlines()[-3:]
        assert same == "The same numbers, bit by bit: yes"
        assert Path(report.removeprefix("Report: ")).is_file()
        assert end.endswith(f"down --folder {folder}")
        assert (folder / "runs" / "hospitals").is_dir()
    finally:
        down = run("down", folder)
    assert down.returncode == 0
    assert not folder.exists()
    assert not processes_of(folder)
    again = run("down", folder)
    assert (again.returncode, again.stdout.partition(":")[0]) == (0, "Nothing to end")


def test_a_folder_of_somebody_else_is_not_removed(tmp_path):
    (tmp_path / "letter.txt").write_text("keep me")
    assert run("down", tmp_path).returncode != 0
    assert (tmp_path / "letter.txt").exists()
