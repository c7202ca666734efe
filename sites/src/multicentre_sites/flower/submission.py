"""Flower commands, run exactly as logged and with a time limit."""

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

from multicentre.errors import ConfigurationError

_STOP_S = 120.0  # flwr takes seconds to import on an idle machine; a run that is not stopped stays in the SuperLink
_POLL_S = 0.2  # short for a person, and no measurable load
_MESSAGE_LENGTH = 240  # two lines of a terminal


class Commands:
    """Runs commands in an environment and reports each before it is run.

    Parameters
    ----------
    environment : mapping
        Variables that override those of this process; they are reported with each command.
    report : callable
        Receives each command.
    closed : threading.Event
        Ends a submission in progress once set.
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
            It fails, returns no run, or takes longer than `limit_s` seconds.
        """
        status, output = self._finish(command, limit_s, self._closed)
        answer = _last_object(output)
        run = str(answer.get("run-id", ""))
        if status == 0 and answer.get("success") and run.isdecimal():
            return int(run)
        reason = _last_lines(str(answer.get("error-message") or ""))
        raise ConfigurationError(
            "the coordinator's app could not be submitted to the SuperLink" + (f" ({reason})" if reason else ""),
            where=command[0],
            hint="Check that the SuperLink runs (multicentre coordinator up), and run the command above by hand.",
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
                    output, _ = process.communicate(timeout=_POLL_S)
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
                "Flower's command cannot be run",
                where=command[0],
                hint="Install multicentre-sites; in a clone: pip install ./sites.",
            ) from None

    def _as_typed(self, command: Sequence[str]) -> str:
        variables = [f"{name}={shlex.quote(value)}" for name, value in self._environment.items()]
        return " ".join([*variables, shlex.join(command)])


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a command that still runs and everything that it started; it leads a separate session."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _last_object(output: str) -> dict[str, object]:
    """Return the JSON object at the end of a command's output; empty if there is none."""
    for start in [at for at, character in enumerate(output) if character == "{"][:50]:
        with contextlib.suppress(ValueError):
            answer = json.loads(output[start:])
            return answer if isinstance(answer, dict) else {}
    return {}


def _last_lines(text: str) -> str:
    """Return the end of Flower's message in one line; warnings come first and the failure last."""
    lines: list[str] = []
    for line in reversed(text.split("\n")):
        if len(" ".join([line, *lines])) > _MESSAGE_LENGTH:
            break
        lines.insert(0, line)
    return " ".join(" ".join(lines).split()).rstrip(".")
