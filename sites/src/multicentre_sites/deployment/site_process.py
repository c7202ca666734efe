"""Long-running process of a site: holds data, keys and state, and answers the coordinator's requests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from multicentre.core.storage import FolderInUse, held, write_atomically
from multicentre.engines.remote.request_handler import RequestHandler
from multicentre.engines.remote.socket import serve_socket
from multicentre.errors import ConfigurationError
from multicentre.studies.listeners import site_log
from multicentre_sites.deployment.approvals import Approvals, WatchedApprovals
from multicentre_sites.deployment.flower_commands import flower_settings
from multicentre_sites.deployment.site_folder import Site
from multicentre_sites.deployment.site_service import DeployedSiteService
from multicentre_sites.deployment.supernode import explain_end, services_of, socket_of
from multicentre_sites.deployment.supervisor import Service, Supervisor

Mode = Literal["standard", "fast"]
RequestedMode = Literal["standard", "fast", "auto"]
Report = Callable[[str], None]


@dataclass(frozen=True)
class AvailableModes:
    """Modes that a site can run in.

    Parameters
    ----------
    standard, fast : str
        Reason against the mode; empty if it is available.
    """

    standard: str
    fast: str

    def choose(self, requested: RequestedMode) -> tuple[Mode, str]:
        """Return the mode to run in, and the reason against the fast mode.

        Raises
        ------
        ConfigurationError
            Neither the requested mode nor its fallback is available.
        """
        if requested != "standard" and not self.fast:
            return "fast", ""
        if not self.standard:
            return "standard", "" if requested == "standard" else self.fast
        obstacles = self.standard if requested == "standard" else f"fast: {self.fast}; standard: {self.standard}"
        raise ConfigurationError(
            f"the site cannot run ({obstacles})",
            where=f"mode {requested}",
            hint="multicentre site check lists what to fix.",
        )


def find_modes(approvals: Approvals) -> AvailableModes:
    """Return the modes that are available with the installed software and the approvals."""
    try:
        from multicentre_sites.flower.internal import self_test
    except ImportError:
        obstacle = "Flower is not installed. In a clone: pip install ./sites"
        return AvailableModes(obstacle, obstacle)
    standard = "" if approvals.release_keys else "no release key is approved"
    fast = self_test() or ("" if approvals.apps else "no bundle is approved")
    return AvailableModes(standard, fast)


def serve(
    site: Site,
    requested: RequestedMode,
    *,
    report: Report,
    stop: threading.Event,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests until `stop` is set; then leave no process behind.

    Parameters
    ----------
    site : Site
    requested : {"standard", "fast", "auto"}
        ``"auto"`` is ``"fast"`` if available. The standard mode replaces an unavailable fast mode.
    report : callable
        Receives lines for the steward.
    stop : threading.Event
    ready : callable, optional
        Called once no other process can serve the site; its exceptions prevent the start.

    Raises
    ------
    ConfigurationError
        The site cannot run, another process serves the same folder, or the site's key is not registered.
    """
    with site_lock(site):
        ready()
        site.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ.update(flower_settings(site.running / "flower"))
        with site_log(site.log):
            _serve(site, requested, report, stop)


@contextmanager
def site_lock(site: Site) -> Iterator[None]:
    """Hold the lock of a site and write the process number, for the message of a second process."""
    number = site.running / "pid"
    try:
        site.running.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"the folder cannot be made ({error.strerror})", where=str(site.running)) from None
    with ExitStack() as stack:
        try:
            stack.enter_context(held(site.running / "lock"))
        except FolderInUse:
            raise _already_running(site, number) from None
        write_atomically(number, f"{os.getpid()}\n".encode(), mode=0o600)
        stack.callback(number.unlink, missing_ok=True)
        yield


def _already_running(site: Site, number: Path) -> ConfigurationError:
    try:
        pid = str(int(number.read_bytes()))
    except (OSError, ValueError):
        pid = ""
    by = f" (process {pid})" if pid else ""
    stop = f"kill {pid}" if pid else "kill and its number"
    return ConfigurationError(
        f"the site must be served by one process; it is already up{by}",
        where=str(site.folder),
        hint=f"To stop it: Ctrl-C where it runs, {stop}, or stop the service or container that started it.",
    )


def _serve(site: Site, requested: RequestedMode, report: Report, stop: threading.Event) -> None:
    site.log.touch(mode=0o600)
    watched = WatchedApprovals(site.approved)
    mode, obstacle = find_modes(watched.now()).choose(requested)
    if obstacle:
        report(f"The fast mode is not available ({obstacle}); the site runs in the standard mode.")
    handler = RequestHandler(site.name, DeployedSiteService(site), site.state, site.vault_key)
    if mode == "fast":
        _serve_fast(site, handler, watched, report, stop)
    else:
        _serve_standard(site, handler, watched, report, stop)


def _serve_fast(
    site: Site, handler: RequestHandler, watched: WatchedApprovals, report: Report, stop: threading.Event
) -> None:
    from multicentre_sites.flower.agent import Agent

    report(f"The agent of this process polls {site.address} for requests; no Flower command is run.")
    agent = Agent(
        site.address,
        root_certificates=site.ca,
        private_key=site.keys.node,
        handle=handler.handle,
        refuse=handler.refuse,
        approved=lambda sha256: sha256 in watched.now().apps,
        report=report,
        memory=site.running / "agent",
    )
    agent.run(stop)


class _FlowerServices:
    """Flower processes of a site, which trust the release keys that are approved when they start."""

    def __init__(self, site: Site, watched: WatchedApprovals, report: Report) -> None:
        self._site, self._watched, self._report = site, watched, report
        self._keys: Mapping[str, str] = {}

    def arrange(self) -> list[Service]:
        """Return the processes for the keys that are approved now."""
        if self._keys:
            self._report("The processes are restarted with the release keys that are approved now.")
        self._keys = self._watched.now().release_keys
        services = services_of(self._site, self._keys)
        for service in services:
            self._report(service.command.as_typed())
        return services

    def outdated(self) -> bool:
        """Return True if other keys are approved now."""
        return self._watched.now().release_keys != self._keys


def _serve_standard(
    site: Site, handler: RequestHandler, watched: WatchedApprovals, report: Report, stop: threading.Event
) -> None:
    """Answer requests at the socket next to supervised Flower processes; when either fails, both end."""
    services = _FlowerServices(site, watched, report)
    failures: list[BaseException] = []
    ended = threading.Event()

    def answer() -> None:
        try:
            serve_socket(socket_of(site), handler.handle, ended)
        except BaseException as error:
            failures.append(error)
            stop.set()

    requests = threading.Thread(target=answer, name="requests", daemon=True)
    requests.start()
    try:
        log = site.folder / "flower.log"
        explain = partial(explain_end, site)
        Supervisor(services.arrange, log=log, report=report, outdated=services.outdated, explain=explain).run(stop)
    finally:
        ended.set()
        requests.join()
    if failures:
        raise failures[0]
