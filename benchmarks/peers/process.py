"""A separate process that runs named tasks in turns with this one.

The process receives one JSON list per line (a task and its arguments) and answers each with a line of its seconds and
its result. ``serve`` is the process's side.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from pairing import PeerFailed, Timed

HERE = Path(__file__).parent


class Peer:
    """A script of this folder as a separate process, which is started by its first task.

    Parameters
    ----------
    script : str
        File name of the script.
    arrays : mapping of str to array
        Data, which the process receives as a file.
    """

    def __init__(self, script: str, **arrays: np.ndarray) -> None:
        self._script, self._arrays = script, arrays
        self._folder = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()  # the process ends with its input
            try:
                self._process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._folder.cleanup()

    def run(self, task: str, *arguments: Any) -> Timed:
        """Return the seconds and the result of a task."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([task, *arguments]) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith("{"):  # other lines are messages of the package
                answer = json.loads(line)
                return Timed(answer["seconds"], answer["result"])
        raise PeerFailed(f"{self._script} ended with exit code {process.wait()}.")

    def _start(self) -> subprocess.Popen[str]:
        path = Path(self._folder.name) / "data.npz"
        np.savez(path, **self._arrays)
        return subprocess.Popen(
            [sys.executable, str(HERE / self._script), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        )


def serve(tasks: Mapping[str, Callable[..., Any]]) -> None:
    """Run the tasks that arrive until there are no more. A function that a task returns is called untimed."""
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        began = time.perf_counter()
        result = tasks[name](*arguments)
        seconds = time.perf_counter() - began
        result = result() if callable(result) else result
        print(json.dumps({"seconds": seconds, "result": result}), flush=True)
