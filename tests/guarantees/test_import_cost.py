"""Importing the package and asking for help load nothing heavy."""

import json
import subprocess
import sys

import pytest

HEAVY = {"flwr", "matplotlib", "pandas", "polars", "pyarrow", "scipy", "sklearn", "torch"}
REPORT = """
import atexit, json, sys, time
atexit.register(lambda: print(json.dumps([time.process_time(), sorted(sys.modules)]), file=sys.stderr))
"""
HELP = "sys.argv = ['multicentre', '--help']; from multicentre.cli import main; main()"


@pytest.mark.parametrize("code", ["import multicentre", HELP], ids=["import", "help"])
def test_nothing_heavy_is_imported(code: str) -> None:
    run = subprocess.run([sys.executable, "-c", REPORT + code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    cpu_seconds, modules = json.loads(run.stderr.splitlines()[-1])
    print(f"{cpu_seconds:.2f} s of processor time")
    assert "multicentre" in modules
    assert HEAVY.isdisjoint(modules)
