"""A site as a hospital's IT runs it: read-only system, small disk, no home, no temporary folder, compiled kernels."""

import os
import subprocess
import sys

import pytest

from support.namespaces import READ_ONLY, require_namespaces

# A private mount namespace imitates ProtectSystem=strict of systemd with one writable folder of 256 MiB.
CONFINED = f"""
{READ_ONLY}
set -e
mount --make-rprivate /
mount -t tmpfs -o size=256m,mode=700 tmpfs "$FOLDER"
read_only_but "$FOLDER"
cd /
"$PYTHON" -c "$PROGRAM"
"""
PROGRAM = """
import importlib, os, pkgutil, subprocess, sys, tempfile
from pathlib import Path
import multicentre
from multicentre.core.disk import use_folder

def command(*words):
    done = subprocess.run([sys.executable, "-m", "multicentre", *words], capture_output=True, text=True)
    print(words[1], done.returncode, done.stderr.strip()[-300:])

folder = Path(os.environ["FOLDER"]) / "lyon"
command("site", "keygen", "lyon", "--folder", str(folder))
use_folder(folder)
with tempfile.TemporaryFile():
    print("temporary files", tempfile.gettempdir().startswith(str(folder)))
for module in pkgutil.walk_packages(multicentre.__path__, "multicentre."):
    if ".kernels." in module.name:
        importlib.import_module(module.name)
        print("kernel", module.name)
import numpy as np
from multicentre.trees.kernels.shape import place_children
nodes = np.zeros(1, dtype=np.int32)
place_children(nodes, nodes - 1)
print("compiled")
command("site", "check", "--folder", str(folder), "--offline", "--json")
"""


@pytest.mark.slow
def test_a_site_works_on_a_read_only_system_without_home_and_temporary_folder(tmp_path):
    require_namespaces()
    folder = tmp_path / "srv"
    folder.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "FOLDER": str(folder),
        "PYTHON": sys.executable,
        "PROGRAM": PROGRAM,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", CONFINED], env=environment, capture_output=True, text=True, check=False
    )
    if "SKIP:" in done.stdout:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert "temporary files True" in lines
    assert "compiled" in lines
    assert sum(line.startswith("kernel ") for line in lines) > 5
    assert next(line for line in lines if line.startswith("keygen")).startswith("keygen 0")
    # Nothing is approved, and the certificate of the authority is missing: faults of the configuration, no crash.
    assert next(line for line in lines if line.startswith("check")).startswith("check 3")
    assert list(folder.iterdir()) == []  # everything was written to the small disk of the namespace
