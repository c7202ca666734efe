"""A disk that fills up during a run: path and remedy are named, and no partial file is taken for a whole one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.namespaces import require_namespaces

# A private mount namespace with a small disk at FOLDER.
CONFINED = """
set -e
mount --make-rprivate /
mount -t tmpfs -o size=16m,mode=700 tmpfs "$FOLDER"
"$PYTHON" -c "$PROGRAM"
"""

RUN = """
import csv, json, os, sys
from pathlib import Path
from typer.testing import CliRunner
from multicentre.cli import app
from multicentre.estimator.registry import METHODS
from multicentre.privacy.ledger import TornLedger, read_ledger
from support.studies_toy import TOY, write_study

METHODS["toy"] = TOY
FOLDER = Path(os.environ["FOLDER"])
FILLING = FOLDER / "filling"
RUNS = FOLDER / "runs"

def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])

def fill(left):
    status = os.statvfs(FOLDER)
    with FILLING.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - left)

def check_whole(run):
    for path in run.rglob("*"):
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.name == "events.jsonl":
            assert path.read_bytes()[-1:] in (b"", b"\\n"), path.read_bytes()
            [json.loads(line) for line in path.read_text().splitlines()]
        elif path.suffix == ".jsonl":
            try:
                list(read_ledger(path))
            except TornLedger:
                torn.append(path)
        elif path.suffix == ".csv":
            rows = list(csv.reader(path.open()))
            assert rows and len({len(row) for row in rows}) == 1 and path.read_text().endswith(chr(10)), path
        elif path.suffix == ".html":
            assert "</html>" in path.read_text(), path

torn = []
study = write_study(FOLDER)
done = call("run", study, "--output", RUNS)
assert done.exit_code == 0, done.output
(first,) = RUNS.iterdir()
expected = {one.name: one.read_bytes() for one in (first / "results").glob("*.csv")}
size = sum(one.stat().st_size // 4096 * 4096 + 4096 for one in first.rglob("*") if one.is_file())
outcomes = []
for share in range(0, 11):
    fill(size * share // 10 // 4096 * 4096)
    before = set(RUNS.iterdir())
    done = call("run", study, "--output", RUNS)
    FILLING.unlink()
    outcomes.append(done.exit_code)
    said = done.output + (done.stderr if done.stderr_bytes is not None else "")
    assert "Traceback" not in said and "Internal error" not in said, said
    if done.exit_code:
        print(share, done.exit_code, " ".join(said.split())[-400:])
        assert "disk space" in said and str(FOLDER) in said, said
    for run in set(RUNS.iterdir()) - before:
        assert not run.name.startswith("."), run
        check_whole(run)
        for ledger in torn:
            assert call("ledger", "repair", ledger).exit_code == 0
        torn.clear()
        finished = json.loads((run / "run.json").read_text())["status"] == "finished"
        again = call(*(["report", run] if finished else ["run", "--resume", run]))
        print("end", again.exit_code, " ".join(again.output.split())[-300:])
        if done.exit_code and finished:
            assert "Write its report with: multicentre report" in said, said
        if again.exit_code == 0:
            assert {one.name: one.read_bytes() for one in (run / "results").glob("*.csv")} == expected
print("statuses", *outcomes)
"""

KERNEL = """
from multicentre.compilation import njit

@njit(cache=True)
def double(x):
    return 2 * x

@njit("float64(float64)", cache=True)
def half(x):
    return x / 2
"""

KERNELS = """
import os, subprocess, sys
from pathlib import Path

FOLDER = Path(os.environ["FOLDER"])
FILLING = FOLDER / "filling"
for left in (0, 4096, 8192, 12288, 2**20, 2**20):
    status = os.statvfs(FOLDER)
    with FILLING.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - left)
    words = [sys.executable, "-c", "import kernel; print(kernel.double(3), kernel.half(4.0))"]
    done = subprocess.run(words, capture_output=True, text=True)
    FILLING.unlink()
    partial = [path for path in FOLDER.rglob("*") if ".tmp." in path.name]
    print(left, done.returncode, done.stdout.strip(), partial, done.stderr.strip().replace(chr(10), " "), sep="|")
"""


def confined(tmp_path, program, **extra):
    """Run a program with a small disk; return its lines."""
    require_namespaces()
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", CONFINED],
        env={
            **os.environ,
            "FOLDER": str(folder),
            "PYTHON": sys.executable,
            "PROGRAM": program,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), str(tmp_path)]),
            "OMP_NUM_THREADS": "1",
            **extra,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if "permission denied" in done.stderr.lower() and "mount" in done.stderr:
        pytest.skip("this machine permits no small disk")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert list(folder.iterdir()) == []
    return done


@pytest.mark.slow
def test_a_run_on_a_disk_that_fills_up(tmp_path):
    *_, statuses = confined(tmp_path, RUN).stdout.splitlines()
    assert statuses.split()[-1] == "0"  # with as much room as a run needs
    assert len(set(statuses.split())) > 2


@pytest.mark.slow
def test_kernels_are_compiled_on_a_full_disk(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    done = confined(tmp_path, KERNELS, NUMBA_CACHE_DIR=str(tmp_path / "small" / "kernels"))
    lines = [line.split("|") for line in done.stdout.splitlines()]
    assert [line[1:4] for line in lines] == [["0", "6 2.0", "[]"]] * len(lines)
    notes = [line[4] for line in lines]
    assert "Compiled kernels cannot be stored (No space left on device" in notes[0]
    assert str(tmp_path / "small" / "kernels") in notes[0]
    assert "Free disk space" in notes[0]
    assert notes[-2:] == ["", ""]  # stored, and loaded
