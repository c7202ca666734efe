"""Processes of the coordinator: SuperLink, SuperExec, bundle server and proxy."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from multicentre.core.storage import FolderInUse, held, write_atomically
from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.analyst_link import check_folder
from multicentre_sites.deployment.analyst_service import AnalystService
from multicentre_sites.deployment.bundle_server import BundleServer
from multicentre_sites.deployment.certificates import RENEWED_BEFORE_DAYS, days_left
from multicentre_sites.deployment.connectivity import AddressUnreachable, check_public_routes, is_healthy
from multicentre_sites.deployment.coordinator_files import check_files
from multicentre_sites.deployment.coordinator_folder import LOOPBACK, SETTINGS, Consortium
from multicentre_sites.deployment.enrolment import Enrolment
from multicentre_sites.deployment.flower_commands import LOOPBACK_NAMES, Command
from multicentre_sites.deployment.new_coordinator_folder import renew_certificate
from multicentre_sites.deployment.private_files import database, nothing_for_others
from multicentre_sites.deployment.process import (
    ManagedProcess,
    check_port_free,
    command_line,
    end_recorded_processes,
    record_processes,
    rotate_running_log,
    stop_processes,
)
from multicentre_sites.deployment.proxy import nginx_command, write_proxy

Proxy = Literal["nginx", "none", "external"]
Report = Callable[[str], None]
STOPPED_WITHIN_S = 8.0  # below the 10 s after which Docker kills a container
# Processes that end are noticed at once; the limit is for those that hang, also on a very busy machine.
_READY_WITHIN_S = 600.0
_REACHED_WITHIN_S = 20.0  # a proxy starts in milliseconds, and an administrator's is already up
_CHECKED_EVERY_S = 300.0  # 25 requests per check; the first check is before the start completes
_POLL_S = 0.2  # short for a person, and no measurable load
_NO_PROXY = (
    "Warning: there is no proxy. Only this machine can connect, but every account on it can register sites and submit "
    "runs. Use --proxy none for a trial, never with real hospitals, and never forward port {port} to other machines."
)


def superlink_command(consortium: Consortium) -> Command:
    """Return the SuperLink's command: on loopback, with TLS, with authenticated sites, without installs."""
    return consortium.command(
        "flower-superlink",
        *("--host", LOOPBACK),
        *("--port", str(consortium.settings.loopback.superlink)),
        *("--ssl-ca-certfile", str(consortium.superlink_ca)),
        *("--ssl-certfile", str(consortium.superlink_certificate)),
        *("--ssl-keyfile", str(consortium.superlink_key)),
        "--enable-supernode-auth",
        *("--isolation", "process"),
        *("--superexec-auth-secret-file", str(consortium.superexec_secret)),
        *("--database", str(database(consortium))),
        "--disable-runtime-dependency-installation",
    )


def superexec_command(consortium: Consortium) -> Command:
    """Return the command of the SuperExec, which starts the coordinator's apps next to the SuperLink."""
    return consortium.command(
        "flower-superexec",
        *("--runtime-api-address", consortium.superlink_address),
        *("--root-certificates", str(consortium.superlink_ca)),
        *("--superexec-auth-secret-file", str(consortium.superexec_secret)),
        *("--parent-pid", str(os.getpid())),
    )


def wipe_freed(path: Path) -> None:
    """Rewrite a closed database without its freed pages, which still contain messages of sites."""
    if path.exists():
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM")


class Coordinator:
    """Running coordinator of a consortium.

    Parameters
    ----------
    consortium : Consortium
    proxy : {"nginx", "none", "external"}
        ``"nginx"`` starts nginx, and ``"external"`` relies on a proxy that an administrator runs. ``"none"`` opens no
        port to other machines: sites must run on this machine, and every account on it can register sites and submit
        runs.
    report : callable
        Receives lines for the administrator.
    """

    def __init__(self, consortium: Consortium, proxy: Proxy, report: Report) -> None:
        self._consortium = consortium
        self._proxy = proxy
        self._report = report
        self._stopping = threading.Event()
        self._record = consortium.state / "processes"
        logs = consortium.logs
        self._superlink = ManagedProcess("SuperLink", superlink_command(consortium), logs / "superlink.log")
        self._superexec = ManagedProcess("SuperExec", superexec_command(consortium), logs / "superexec.log")
        self._nginx = (
            ManagedProcess("nginx", nginx_command(consortium), logs / "nginx.log") if proxy == "nginx" else None
        )

    def run(self) -> None:
        """Start all processes, check the public address, and keep them running until SIGINT or SIGTERM.

        Raises
        ------
        ConfigurationError
            Another coordinator runs here, another account has rights to a key or the database, a port is in use, a
            process does not start, or the public address is the SuperLink's port or answers a forbidden route.
        """
        _check_public_address(self._consortium)
        with self._exclusive(), self._signals(), nothing_for_others():
            end_recorded_processes(self._record, [str(self._consortium.folder)])
            self._prepare()
            bundle_server, analysts = BundleServer.of(self._consortium), None
            try:
                self._start()
                analysts = self._listen()
                self._supervise()
            finally:
                self._report("Stopping.")
                if analysts is not None:
                    analysts.close(STOPPED_WITHIN_S)
                stop_processes(self._processes, STOPPED_WITHIN_S)
                bundle_server.close()
                wipe_freed(database(self._consortium))
                self._record.unlink(missing_ok=True)

    @property
    def _processes(self) -> list[ManagedProcess]:
        return [one for one in (self._superexec, self._nginx, self._superlink) if one is not None]

    def _prepare(self) -> None:
        consortium = self._consortium
        check_files(consortium)
        renew_certificate(consortium, self._report)
        left = days_left(consortium.settings.tls.certificate)
        if left < RENEWED_BEFORE_DAYS:
            self._report(f"{consortium.settings.tls.certificate} expires in {left:.0f} days: install a new one.")
        if consortium.settings.analysts.socket is not None:
            check_folder(consortium.settings.analysts.socket.parent)
        consortium.write_connection()
        write_proxy(consortium)
        wipe_freed(database(consortium))
        check_port_free(consortium.settings.loopback.superlink, "coordinator.toml, loopback.superlink")
        if self._nginx is not None:
            address, _, port = consortium.settings.listen.rpartition(":")
            check_port_free(int(port), "the proxy: coordinator.toml, listen", address)

    def _start(self) -> None:
        self._begin(self._superlink)
        self._await_health()
        Enrolment(self._consortium, self._report).restore()
        self._begin(self._superexec)
        if self._nginx is not None:
            self._begin(self._nginx)
        self._await_reach()
        if not self._stopping.is_set():
            if self._proxy == "none":
                self._report(_NO_PROXY.format(port=self._consortium.settings.loopback.superlink))
            self._report(f"Ready: {self._place()}.")

    def _listen(self) -> AnalystService | None:
        """Start the service for analysts if the settings name a socket."""
        path = self._consortium.settings.analysts.socket
        if path is None or self._stopping.is_set():
            return None
        service = AnalystService(self._consortium, path, self._report)
        self._report(f"Analysts ask for runs at {path}.")
        return service

    def _place(self) -> str:
        if self._proxy == "none":
            address, ca = self._consortium.superlink_address, self._consortium.superlink_ca
            return f"sites on this machine connect to {address} and trust {ca}"
        return f"sites connect to {self._consortium.address}"

    def _begin(self, one: ManagedProcess) -> None:
        if self._stopping.is_set():
            return
        self._report(one.command.as_typed())
        one.start()
        record_processes(self._record, self._processes)

    def _await_health(self) -> None:
        port = self._consortium.settings.loopback.superlink
        deadline = time.monotonic() + _READY_WITHIN_S
        while not self._stopping.is_set() and not is_healthy(LOOPBACK, port, self._consortium.superlink_ca):
            self._check_runs(self._superlink)
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"the process must be ready within {_READY_WITHIN_S:g} s; it was not",
                    where="SuperLink",
                    hint=f"See {self._superlink.log}.",
                )
            self._stopping.wait(_POLL_S)

    def _await_reach(self) -> None:
        """Check the public address; without a proxy, nothing has to answer there."""
        deadline = time.monotonic() + (0.0 if self._proxy == "none" else _REACHED_WITHIN_S)
        while not self._stopping.is_set():
            try:
                return self._check_from_outside()
            except AddressUnreachable:
                if self._nginx is not None:
                    self._check_runs(self._nginx)
                if time.monotonic() < deadline:
                    self._stopping.wait(_POLL_S)
                elif self._proxy == "none":
                    return None
                else:
                    raise
        return None

    def _check_from_outside(self) -> None:
        settings = self._consortium.settings
        check_public_routes(settings.host, settings.port, settings.tls.ca)

    def _check_runs(self, one: ManagedProcess) -> None:
        status = one.exit_status()
        if status is not None:
            raise ConfigurationError(
                f"the process ended with status {status}; last line of its log: {one.last_log_line()}",
                where=one.name,
                hint=f"See {one.log}.",
            )

    def _supervise(self) -> None:
        """Restart processes that end, and check the public address regularly; a forbidden answer ends everything."""
        checked = time.monotonic()
        while not self._stopping.wait(_POLL_S):
            for one in self._processes:
                before = one.pid
                one.restart_if_ended(self._report)
                if one.pid != before:
                    record_processes(self._record, self._processes)
            for log in self._consortium.logs.glob("*.log"):
                rotate_running_log(log)
            if time.monotonic() - checked > _CHECKED_EVERY_S:
                checked = time.monotonic()
                try:
                    self._check_from_outside()
                except AddressUnreachable as error:
                    if self._proxy != "none":
                        self._report(str(error))

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the lock of the folder and write the process number, for the message of a second coordinator."""
        number = self._consortium.state / "coordinator.pid"
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(held(self._consortium.state / "coordinator.lock"))
            except FolderInUse:
                raise self._up_already(number) from None
            write_atomically(number, str(os.getpid()).encode())
            stack.callback(number.unlink, missing_ok=True)
            yield

    def _up_already(self, number: Path) -> ConfigurationError:
        pid = number.read_text(encoding="ascii") if number.exists() else ""
        is_coordinator = pid.isdecimal() and "coordinator" in command_line(
            int(pid)
        )  # a container numbers its processes itself
        ways = [
            "Ctrl-C in its terminal",
            *([f"kill {pid}"] if is_coordinator else []),
            "systemctl stop or docker compose stop",
        ]
        return ConfigurationError(
            "a folder must have one running coordinator; this one is up already",
            where=str(self._consortium.folder),
            hint=f"To stop it: {', '.join(ways)} where it is a service.",
        )

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, lambda *_: self._stopping.set()) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _check_public_address(consortium: Consortium) -> None:
    """Raise ConfigurationError if sites would connect directly to the SuperLink, which serves every route."""
    settings = consortium.settings
    if settings.host in LOOPBACK_NAMES and settings.port == settings.loopback.superlink:
        raise ConfigurationError(
            f"port must differ from loopback.superlink on this machine; got {settings.port} for both",
            where=SETTINGS,
            hint="Name another port. With --proxy none, sites on this machine connect to "
            f"{consortium.superlink_address} whatever the port is.",
        )
