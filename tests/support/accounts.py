"""Commands under accounts of their own, where the tests run as root; accounts need no name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.waiting import GENEROUS_S

SERVICE, ANALYST, OTHER = 61001, 61002, 61003


def as_account(number: int, home: Path, *command: object) -> subprocess.Popen[str]:
    """Start a command of Python under an account."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join(["src", "tests", os.environ.get("PYTHONPATH", "")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        user=number,
        group=number,
        extra_groups=[],
        env=environment,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def outcome_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit status of a command and what it printed."""
    printed, _ = process.communicate(timeout=GENEROUS_S)
    return process.returncode, printed


def run_as(number: int, home: Path, *command: object) -> tuple[int, str]:
    """Run a command of Python under an account to its end."""
    return outcome_of(as_account(number, home, *command))


def give_to(number: int, *folders: Path) -> None:
    """Make folders and all that they hold an account's own."""
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, number, number)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Yield a folder with a short path that every account may enter; skip where there are no accounts to use."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("commands under two accounts need root")
    root = Path(tempfile.mkdtemp(prefix="mc-", dir="/tmp"))
    root.chmod(0o755)
    try:
        try:
            code, printed = run_as(ANALYST, root, "-c", "import multicentre")
        except PermissionError as error:
            code, printed = 1, str(error)
        if code:
            pytest.skip(f"other accounts cannot use this installation: {printed[-200:]}")
        yield root
    finally:
        shutil.rmtree(root)


def own_folder(parent: Path, name: str, number: int) -> Path:
    """Make a folder of an account."""
    folder = parent / name
    folder.mkdir(mode=0o755)
    give_to(number, folder)
    return folder
