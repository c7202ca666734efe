"""Flower's own commands, run as a reader of the log could run them, and never waited for without a limit."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from multicentre.federation.errors import ConfigurationError

_STOP_S = 120.0  # flwr imports for seconds on an idle machine; what is not stopped stays in the SuperLink
_LOOK_S = 0.2
_SAID = 240


class Commands:
    """Runs commands in an environment, telling each before it is run.

    Parameters
    ----------
    environment : mapping
        Variables to put over this process's own; they are told with each command.
    report : callable
    closed : threading.Event
        Once it is set, a submission under way is ended.
    """

    def __init__(self, environment: Mapping[str, str], report: Callable[[str], None], closed: threading.Event) -> None:
        self._environment = dict(environment)
        self._report = report
        self._closed = closed

    def submit(self, command: Sequence[str], limit_s: float) -> int:
        """Run a command that submits an app with ``--format json``; return the run's number.

        Raises
        ------
        ConfigurationError
            It fails, tells no run, or takes longer than `limit_s` seconds.
        """
        status, output = self._finish(command, limit_s, self._closed)
        told = _last_object(output)
        run = str(told.get("run-id", ""))
        if status == 0 and told.get("success") and run.isdecimal():
            return int(run)
        why = _last_lines(str(told.get("error-message") or ""))
        raise ConfigurationError(
            "the coordinator's app could not be submitted to the SuperLink" + (f" ({why})" if why else ""),
            where=command[0],
            hint="See that the SuperLink runs (multicentre coordinator up), and run the command above by hand.",
        )

    def run(self, command: Sequence[str], limit_s: float = _STOP_S) -> bool:
        """Run a command; return whether it succeeded."""
        with contextlib.suppress(ConfigurationError):
            return self._finish(command, limit_s, None)[0] == 0
        return False

    def _finish(self, command: Sequence[str], limit_s: float, unless: threading.Event | None) -> tuple[int, str]:
        self._report(self._as_typed(command))
        process = self._start(command)
        end = time.monotonic() + limit_s
        try:
            while time.monotonic() < end and not (unless and unless.is_set()):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output, _ = process.communicate(timeout=_LOOK_S)
                    return process.returncode, output
            return -1, ""
        finally:
            _end(process)

    def _start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        try:
            return subprocess.Popen(
                command,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        except OSError:
            raise ConfigurationError(
                "a command of Flower cannot be run",
                where=command[0],
                hint="Install the extra: pip install multicentre[flower].",
            ) from None

    def _as_typed(self, command: Sequence[str]) -> str:
        own = [f"{name}={shlex.quote(value)}" for name, value in self._environment.items()]
        return " ".join([*own, shlex.join(command)])


def _end(process: subprocess.Popen[str]) -> None:
    """End a command that is still at work, and whatever it started; it has a session of its own."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _last_object(output: str) -> dict[str, object]:
    """Return the JSON object that ends what a command wrote; nothing where there is none."""
    for start in [at for at, character in enumerate(output) if character == "{"][:50]:
        with contextlib.suppress(ValueError):
            told = json.loads(output[start:])
            return told if isinstance(told, dict) else {}
    return {}


def _last_lines(text: str) -> str:
    """Return the end of what Flower says in one line: warnings stand first, the failure last."""
    lines: list[str] = []
    for line in reversed(text.split("\n")):
        if len(" ".join([line, *lines])) > _SAID:
            break
        lines.insert(0, line)
    return " ".join(" ".join(lines).split()).rstrip(".")
