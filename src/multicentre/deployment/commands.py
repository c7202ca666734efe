"""Flower's commands as processes: with which programme, in which environment, and how they are shown."""

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

from multicentre.federation.errors import ConfigurationError, MissingExtra

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
LOOPBACK_NAMES = ("127.0.0.1", "localhost")
_PATIENCE_S = 300.0  # flwr imports for seconds on an idle machine, for minutes on a busy one
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True)
class Command:
    """A Flower command exactly as it runs.

    Parameters
    ----------
    arguments : tuple of str
        Programme and arguments.
    settings : mapping of str to str
        The environment variables that matter to it.
    """

    arguments: tuple[str, ...]
    settings: Mapping[str, str]

    def as_typed(self) -> str:
        """Return the line that a shell would take.

        Examples
        --------
        >>> print(Command(("flwr", "build"), {"FLWR_HOME": "/srv/my flower"}).as_typed())
        FLWR_HOME='/srv/my flower' flwr build
        """
        settings = [f"{key}={_shown(key, value)}" for key, value in self.settings.items()]
        return " ".join([*settings, shlex.join(self.arguments)])

    def environment(self) -> dict[str, str]:
        """Return the whole environment: the caller's without its own Flower settings, and then `settings`."""
        kept = {key: value for key, value in os.environ.items() if not key.upper().startswith("FLWR_")}
        return kept | dict(self.settings)


def flower_settings(home: Path, **more: str) -> dict[str, str]:
    """Return what every Flower process is told: no telemetry, no update check, no installs, a private home.

    Where the environment names a proxy for the way out, it is kept, and left out for this machine itself.
    """
    path = os.pathsep.join([str(programs()), os.environ.get("PATH", os.defpath)])
    return {**QUIET, "FLWR_HOME": str(home), **more, **_past_the_proxy(), "PATH": path}


def _past_the_proxy() -> dict[str, str]:
    if not any(os.environ.get(name) for proxy in _PROXIES for name in (proxy, proxy.upper())):
        return {}
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    named = [one.strip() for one in given.split(",") if one.strip()]
    every = ",".join([*named, *(one for one in LOOPBACK_NAMES if one not in named)])
    return {"NO_PROXY": every, "no_proxy": every}


def programs() -> Path:
    """Return the folder of this interpreter's programmes; Flower finds its own there by name."""
    return Path(sys.executable).absolute().parent


def program(name: str) -> str:
    """Return the full path of one of Flower's programmes.

    Raises
    ------
    MissingExtra
        Flower is not installed beside this package.
    """
    path = programs() / name
    if not path.exists():
        raise MissingExtra(
            f"{name} is not installed here", where=str(path.parent), hint="pip install 'multicentre[flower]'"
        )
    return str(path)


def ask(command: Command, patience_s: float = _PATIENCE_S) -> dict[str, Any]:
    """Run a ``flwr ... --format json`` command and return its answer, ``{"success": false, ...}`` included.

    Raises
    ------
    ConfigurationError
        It gave no answer in time, or one that is not JSON.
    """
    try:
        ended = subprocess.run(
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
            f"no answer within {patience_s:g} s", where=_named(command.arguments), hint="Is the coordinator up?"
        ) from None
    answer = _last_json(ended.stdout)
    if answer is None:
        said = (ended.stderr.strip() or ended.stdout.strip() or "nothing").splitlines()[-1]
        raise ConfigurationError(
            f"Flower ended with status {ended.returncode} and said: {said}", where=_named(command.arguments)
        )
    return answer


def _last_json(printed: str) -> dict[str, Any] | None:
    """Return the JSON object that ends what was printed; some versions print lines for people before it."""
    lines = printed.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("{")]
    for start in starts:
        try:
            found = json.loads("\n".join(lines[start:]))
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return None


def _shown(key: str, value: str) -> str:
    """Return a value for a shell; of PATH only what was put before the caller's own."""
    first, _, rest = value.partition(os.pathsep)
    if key == "PATH" and rest == os.environ.get("PATH", os.defpath):
        return f'{shlex.quote(first)}{os.pathsep}"$PATH"'
    return shlex.quote(value)


def _named(arguments: Sequence[str]) -> str:
    return " ".join([Path(arguments[0]).name, *arguments[1:3]])
