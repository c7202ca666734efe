"""The command line as a process: entry point, exit status, a real interrupt."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from multicentre import __version__
from support.studies_toy import STUDY, write_study
from support.waiting import GENEROUS_S, wait_for

TESTS = Path(__file__).resolve().parents[1]
# Holds the run up in round 20, so that it has not ended when it is interrupted.
HELD = """
import time
from multicentre.core.rounds import Rounds

record = Rounds.record

def record_and_wait(rounds, **figures):
    record(rounds, **figures)
    while len(rounds.history) >= 20:
        time.sleep(0.1)

Rounds.record = record_and_wait
"""
WITH_TOY = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from support.studies_toy import TOY
from multicentre.estimator.registry import METHODS
METHODS["toy"] = TOY
from multicentre.cli import main
main()
"""


def heed_interrupts():
    """Undo what a shell does to its background: there, processes and all that they start ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*arguments, cwd, code=None):
    program = ["-m", "multicentre"] if code is None else ["-c", code, str(TESTS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
    return subprocess.Popen(
        [sys.executable, *program, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )


def test_module_runs(tmp_path):
    with start("--version", cwd=tmp_path) as process:
        printed, _ = process.communicate(timeout=GENEROUS_S)
    assert (process.returncode, printed) == (0, f"{__version__}\n")


def test_error_is_json_on_standard_output_and_text_on_the_other(tmp_path):
    with start("card", "no-such-method", "--json", cwd=tmp_path) as process:
        printed, message = process.communicate(timeout=GENEROUS_S)
    assert process.returncode == 3
    assert json.loads(printed)["error"]["code"] == "MC301"
    assert "must be an installed method" in message
    assert "Traceback" not in message


def test_interrupt_by_signal_leaves_a_run_that_resumes(tmp_path):
    path = write_study(tmp_path, STUDY.replace("n_rounds = 6", "n_rounds = 40"))
    with start("run", path, cwd=tmp_path, code=HELD + WITH_TOY) as process:
        checkpoints = "runs/*/checkpoints/*.0000[1-9]*.state"
        wait_for(lambda: list(tmp_path.glob(checkpoints)) or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=GENEROUS_S)
    assert process.returncode == 130, message
    (folder,) = tmp_path.glob("runs/Ward*")
    assert f"multicentre run --resume {folder}" in message
    with start("run", "--resume", folder, "--json", cwd=tmp_path, code=WITH_TOY) as process:
        printed, message = process.communicate(timeout=GENEROUS_S)
    assert process.returncode == 0, message
    assert json.loads(printed)["run"]["status"] == "finished"
