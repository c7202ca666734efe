"""Flower's commands: programs, environment and display."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multicentre.errors import ConfigurationError, MissingExtra

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
LOOPBACK_NAMES = ("127.0.0.1", "localhost")
_TIMEOUT_S = 300.0  # flwr takes seconds to import on an idle machine, and minutes on a busy one
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True)
class Command:
    """A Flower command exactly as it runs.

    Parameters
    ----------
    arguments : tuple of str
        Program and arguments.
    settings : mapping of str to str
        Environment variables that the command requires.
    """

    arguments: tuple[str, ...]
    settings: Mapping[str, str]

    def as_typed(self) -> str:
        """Return the command as a line for a shell.

        Examples
        --------
        >>> print(Command(("flwr", "build"), {"FLWR_HOME": "/srv/my flower"}).as_typed())
        FLWR_HOME='/srv/my flower' flwr build
        """
        settings = [f"{key}={_shell_value(key, value)}" for key, value in self.settings.items()]
        return " ".join([*settings, shlex.join(self.arguments)])

    def environment(self) -> dict[str, str]:
        """Return the environment: that of this process without Flower's variables, and `settings`."""
        environment = {key: value for key, value in os.environ.items() if not key.upper().startswith("FLWR_")}
        return environment | dict(self.settings)


def flower_settings(home: Path, **more: str) -> dict[str, str]:
    """Return the variables of every Flower process: no telemetry, no update check, no installs, a private home.

    A proxy of the environment stays in use, except for addresses of this machine.
    """
    path = os.pathsep.join([str(programs()), os.environ.get("PATH", os.defpath)])
    return {**QUIET, "FLWR_HOME": str(home), **more, **_past_the_proxy(), "PATH": path}


def _past_the_proxy() -> dict[str, str]:
    if not any(os.environ.get(name) for proxy in _PROXIES for name in (proxy, proxy.upper())):
        return {}
    exceptions = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    names = [one.strip() for one in exceptions.split(",") if one.strip()]
    all_names = ",".join([*names, *(one for one in LOOPBACK_NAMES if one not in names)])
    return {"NO_PROXY": all_names, "no_proxy": all_names}


def programs() -> Path:
    """Return the folder of this interpreter's programs, in which Flower finds its own."""
    return Path(sys.executable).absolute().parent


def program(name: str) -> str:
    """Return the full path of one of Flower's programs.

    Raises
    ------
    MissingExtra
        Flower is not installed in this environment.
    """
    path = programs() / name
    if not path.exists():
        raise MissingExtra(
            f"{name} must be installed; it was not found",
            where=str(path.parent),
            hint="Install multicentre-sites; in a clone: pip install ./sites.",
        )
    return str(path)


def ask(command: Command, patience_s: float = _TIMEOUT_S) -> dict[str, Any]:
    """Run a ``flwr ... --format json`` command and return its answer, ``{"success": false, ...}`` included.

    Raises
    ------
    ConfigurationError
        The command gave no answer in time, or one that is not JSON.
    """
    try:
        process = subprocess.run(
            command.arguments,
            env=command.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            f"no answer within {patience_s:g} s",
            where=_short_name(command.arguments),
            hint="Check that the coordinator runs.",
        ) from None
    answer = _last_json(process.stdout)
    if answer is None:
        message = (process.stderr.strip() or process.stdout.strip() or "nothing").splitlines()[-1]
        raise ConfigurationError(
            f"Flower process with status {process.returncode} and the message: {message}",
            where=_short_name(command.arguments),
        )
    return answer


def _last_json(output: str) -> dict[str, Any] | None:
    """Return the JSON object at the end of an output; some versions print other lines before it."""
    lines = output.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("{")]
    for start in starts:
        try:
            answer = json.loads("\n".join(lines[start:]))
        except ValueError:
            continue
        if isinstance(answer, dict):
            return answer
    return None


def _shell_value(key: str, value: str) -> str:
    """Return a value for a shell; of PATH only the part in front of the caller's PATH."""
    first, _, rest = value.partition(os.pathsep)
    if key == "PATH" and rest == os.environ.get("PATH", os.defpath):
        return f'{shlex.quote(first)}{os.pathsep}"$PATH"'
    return shlex.quote(value)


def _short_name(arguments: Sequence[str]) -> str:
    return " ".join([Path(arguments[0]).name, *arguments[1:3]])
