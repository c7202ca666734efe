"""The command line as a process: entry point, exit status, a real interrupt."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from multicentre import __version__
from studies_toy import STUDY, write_study

TESTS = Path(__file__).resolve().parents[1]
WITH_TOY = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from studies_toy import TOY
from multicentre.studies.methods import METHODS
METHODS["toy"] = TOY
from multicentre.cli import main
main()
"""


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
    )


def test_module_runs(tmp_path):
    with start("--version", cwd=tmp_path) as process:
        printed, _ = process.communicate(timeout=60)
    assert (process.returncode, printed) == (0, f"{__version__}\n")


def test_error_is_json_on_standard_output_and_text_on_the_other(tmp_path):
    with start("card", "no-such-method", "--json", cwd=tmp_path) as process:
        printed, message = process.communicate(timeout=60)
    assert process.returncode == 3
    assert json.loads(printed)["error"]["code"] == "MC301"
    assert "no method is called" in message
    assert "Traceback" not in message


def test_interrupt_by_signal_leaves_a_run_that_resumes(tmp_path):
    path = write_study(tmp_path, STUDY.replace("n_rounds = 6", "n_rounds = 1500"))
    with start("run", path, cwd=tmp_path, code=WITH_TOY) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("runs/*/checkpoints/*.0000[1-9]*.state")) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
    assert process.returncode == 130, message
    (folder,) = tmp_path.glob("runs/Ward*")
    assert f"multicentre run --resume {folder}" in message
    with start("run", "--resume", folder, "--json", cwd=tmp_path, code=WITH_TOY) as process:
        printed, message = process.communicate(timeout=60)
    assert process.returncode == 0, message
    assert json.loads(printed)["run"]["status"] == "finished"
