"""What ``flower.py`` measures: a coordinator, its proxy, sites and Flower's own loop as processes of this machine.

Every process leads a group of its own, and leaving the deployment ends them all.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from flower_site import STUDY

import multicentre as mc
from multicentre_sites.deployment.approvals import approve
from multicentre_sites.deployment.bundle import sign_app
from multicentre_sites.deployment.coordinator_folder import CONNECTION, Consortium
from multicentre_sites.deployment.enrolment import Enrolment
from multicentre_sites.deployment.flower_commands import ask, flower_settings, program
from multicentre_sites.deployment.new_coordinator_folder import ConsortiumOptions, create_consortium
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.process import end_process_groups
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.site_connection import connect_sites
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.site_service import card_of

HERE = Path(__file__).resolve().parent
PROXY = "nginx" if shutil.which("nginx") else "none"
CONNECTED = {"fast": "Connected with", "standard": "SuperNode ID", "flower": "SuperNode ID"}
_STARTED_WITHIN_S, _ROUND_WITHIN_S, _STOPPED_WITHIN_S, _LOOK_S = 180.0, 600.0, 20.0, 0.02


class Deployment(contextlib.ExitStack):
    """A coordinator and its sites; ``began`` holds seconds that starts took, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.began: dict[str, float] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        self.folder = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="mc-flower-")))
        inner, bundles, outer = _free_ports(3)
        port = outer if PROXY == "nginx" else inner
        founding = ConsortiumOptions(
            "localhost", port, f"127.0.0.1:{outer}", superlink_port=inner, bundles_port=bundles
        )
        self.consortium = create_consortium(self.folder / "coordinator", founding)
        try:
            command = [sys.executable, "-m", "multicentre", "coordinator", "up", "--proxy", PROXY]
            self._start("coordinator", [*command, "--folder", str(self.consortium.folder)])
            self.began["coordinator up, until it is ready"] = self._await("coordinator", "Ready")
            sign_app(self.consortium, _quiet)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def add_sites(self, mode: str, n_sites: int) -> list[str]:
        """Make, register and start sites of a mode; return their names."""
        names = [f"{mode}-{number}" for number in range(n_sites)]
        for name in names:
            self._enrol(name)
        for name in names:
            if mode == "flower":
                self._start(name, *self._plain_supernode(name))
            else:
                self._start(name, [sys.executable, str(HERE / "flower_site.py"), str(self.folder / name), mode])
        printed = dict.fromkeys(names, "flower.log" if mode == "standard" else "")
        seconds = [self._await(name, CONNECTED[mode], printed[name]) for name in names]
        what = {"fast": "fast mode", "standard": "standard mode", "flower": "Flower's SuperNodes"}[mode]
        self.began[f"{n_sites} sites up at once ({what}), until all are connected"] = max(seconds)
        return names

    def federate(self, names: Sequence[str]) -> mc.Federation:
        """Return the federation of some sites, as ``multicentre run --coordinator`` makes it."""
        federation = mc.Federation.over(connect_sites(self.consortium.folder, names, _quiet), study=STUDY)
        self.callback(federation.close)
        return federation

    def start_loop(self, names: Sequence[str]) -> Loop:
        """Submit Flower's own loop."""
        return self.enter_context(Loop(self.consortium, self.folder / "orders", names))

    @property
    def superlink(self) -> int:
        """The number of the SuperLink's process."""
        noted = map(int, (self.consortium.state / "processes").read_text().split())
        return next((pid for pid in noted if "flower-superlink" in _command_of(pid)), 0)

    def _enrol(self, name: str) -> None:
        made = make_site(name, self.folder / name, self._address)
        shutil.copy(self.consortium.superlink_ca, made.folder / "ca.crt")
        Enrolment(self.consortium, _quiet).add(made.card)
        site = read_site(made.folder)
        for public in ("bundle.toml", "release.pub", "roster.toml"):
            approve(site.approved, recognise(str(self.consortium.public / public)), card_of(site))

    @property
    def _address(self) -> str:
        return self.consortium.address if PROXY == "nginx" else self.consortium.superlink_address

    def _plain_supernode(self, name: str) -> tuple[list[str], dict[str, str]]:
        """Return a stock SuperNode's command with every default that TLS and authentication leave."""
        site = read_site(self.folder / name)
        (port,) = _free_ports(1)
        command = [program("flower-supernode"), "--superlink", site.address, "--root-certificates", str(site.ca)]
        command += ["--auth-supernode-private-key", str(site.keys.node), "--host", "127.0.0.1", "--port", str(port)]
        return command, flower_settings(self.folder / name / "flower")

    def _start(self, name: str, command: Sequence[str], settings: dict[str, str] | None = None) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, **(settings or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes[name] = process
        self._started = time.perf_counter()
        self.callback(end_process_groups, [process], _STOPPED_WITHIN_S)

    def _await(self, name: str, word: str, log: str = "") -> float:
        """Wait until a word stands in a process's log; return the seconds since the last start."""
        path = self.folder / name / log if log else self.folder / f"{name}.log"

        def said() -> bool:
            return path.exists() and word in path.read_text(errors="replace")

        _wait(lambda: said() or self.processes[name].poll() is not None, f"{name} did not say {word!r}")
        if not said():
            sys.exit(f"{name} ended:\n{path.read_text(errors='replace') if path.exists() else ''}")
        return time.perf_counter() - self._started


class Loop(contextlib.ExitStack):
    """Flower's own minimal loop, submitted by ``flwr run``; ``submitted_s`` is how long it took until it was there."""

    def __init__(self, consortium: Consortium, path: Path, names: Sequence[str]) -> None:
        super().__init__()
        listener = self.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX)))
        listener.bind(str(path))
        listener.listen(1)
        listener.settimeout(_STARTED_WITHIN_S)
        config = f'orders="{path}" sites="{",".join(names)}"'
        began = time.perf_counter()
        told = ask(
            consortium.command(
                "flwr", "run", str(HERE / "flower_loop"), CONNECTION, "--format", "json", "--run-config", config
            )
        )
        if not told.get("success"):
            sys.exit(f"Flower's loop was not taken: {told.get('error-message')}")
        connection = self.enter_context(contextlib.closing(listener.accept()[0]))
        connection.settimeout(_ROUND_WITHIN_S)
        self._orders = self.enter_context(connection.makefile("rw"))
        self.submitted_s = time.perf_counter() - began

    def round(self, n_bytes: int) -> float:
        """Return the seconds of a round."""
        self._orders.write(f"{n_bytes}\n")
        self._orders.flush()
        said = self._orders.readline()
        if not said:
            sys.exit("Flower's loop ended.")
        return float(said)


class Usage:
    """What a process uses from now on: memory at its most, and processor time; nan where the system does not tell."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        with contextlib.suppress(OSError):
            (self._folder / "clear_refs").write_text("5")
        self._began_s = self._used_s()

    @property
    def peak_mb(self) -> float:
        with contextlib.suppress(OSError):
            told = re.search(r"VmHWM:\s*(\d+) kB", (self._folder / "status").read_text())
            return int(told[1]) * 1024 / 1e6 if told else float("nan")
        return float("nan")

    @property
    def processor_s(self) -> float:
        return self._used_s() - self._began_s

    def _used_s(self) -> float:
        with contextlib.suppress(OSError):
            told = (self._folder / "stat").read_text().rpartition(")")[2].split()
            return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")
        return float("nan")


def _command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def _wait(happened: Callable[[], Any], otherwise: str) -> None:
    end = time.monotonic() + _STARTED_WITHIN_S
    while not happened():
        if time.monotonic() > end:
            sys.exit(otherwise)
        time.sleep(_LOOK_S)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]


def _quiet(line: str) -> None:
    pass
