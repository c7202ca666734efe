"""The process that stays at a site: it holds data, keys and state, and answers the coordinator's letters."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from multicentre.deployment.approvals import Approvals, WatchedApprovals
from multicentre.deployment.commands import flower_settings
from multicentre.deployment.site import Site
from multicentre.deployment.site_service import DeployedSiteService
from multicentre.deployment.supernode import explain, services_of, socket_of
from multicentre.deployment.supervisor import Service, Supervisor
from multicentre.engines.remote.request_handler import RequestHandler
from multicentre.engines.remote.socket import serve_socket
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.storage import held, write_atomically
from multicentre.studies.listening import site_log

Mode = Literal["standard", "fast"]
Wanted = Literal["standard", "fast", "auto"]
Report = Callable[[str], None]


@dataclass(frozen=True)
class AvailableModes:
    """Which modes a site can run in.

    Parameters
    ----------
    standard, fast : str
        What stands against the mode; empty where nothing does.
    """

    standard: str
    fast: str

    def choose(self, wanted: Wanted) -> tuple[Mode, str]:
        """Return the mode to run in, and what stood against the fast one.

        Raises
        ------
        ConfigurationError
            Neither the wanted mode nor the one to fall back to is possible.
        """
        if wanted != "standard" and not self.fast:
            return "fast", ""
        if not self.standard:
            return "standard", "" if wanted == "standard" else self.fast
        against = self.standard if wanted == "standard" else f"fast: {self.fast}; standard: {self.standard}"
        raise ConfigurationError(
            f"the site cannot run ({against})", where=f"mode {wanted}", hint="multicentre site check lists what to fix."
        )


def find_modes(approvals: Approvals) -> AvailableModes:
    """Return which modes are possible with what is installed and approved."""
    try:
        from multicentre.engines.flower.internal import self_test
    except ImportError:
        lacking = "Flower is not installed: pip install 'multicentre[flower]'"
        return AvailableModes(lacking, lacking)
    standard = "" if approvals.release_keys else "no release key is approved"
    fast = self_test() or ("" if approvals.apps else "no bundle is approved")
    return AvailableModes(standard, fast)


def serve(
    site: Site, wanted: Wanted, *, report: Report, stop: threading.Event, ready: Callable[[], None] = lambda: None
) -> None:
    """Answer letters until told to stop; no process is left then.

    Parameters
    ----------
    site : Site
    wanted : {"standard", "fast", "auto"}
        Auto is fast where that is possible. Where the fast mode is not, the standard one takes its place.
    report : callable
        Takes lines for the steward.
    stop : threading.Event
    ready : callable, optional
        Looks at the site once no other process can serve it; what it raises keeps the site from starting.

    Raises
    ------
    ConfigurationError
        The site cannot run, another process serves the same folder, or the coordinator does not know the site's key.
    """
    with _alone(site):
        ready()
        site.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ.update(flower_settings(site.running / "flower"))
        with site_log(site.log):
            _serve(site, wanted, report, stop)


@contextmanager
def _alone(site: Site) -> Iterator[None]:
    """Serve as the only process of a site, known by its number to one that tries the same."""
    number = site.running / "pid"
    try:
        site.running.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"the folder cannot be made ({error.strerror})", where=str(site.running)) from None
    with ExitStack() as stack:
        try:
            stack.enter_context(held(site.running / "lock"))
        except ConfigurationError as error:
            raise (_already_up(site, number) if "another process" in error.what else error) from None
        write_atomically(number, f"{os.getpid()}\n".encode(), mode=0o600)
        stack.callback(number.unlink, missing_ok=True)
        yield


def _already_up(site: Site, number: Path) -> ConfigurationError:
    try:
        known = str(int(number.read_bytes()))
    except (OSError, ValueError):
        known = ""
    by = f" (process {known})" if known else ""
    stop = f"kill {known}" if known else "kill and its number"
    return ConfigurationError(
        f"this site is already up{by}",
        where=str(site.folder),
        hint=f"To stop it: Ctrl-C where it runs, {stop}, or stop the service or container that started it.",
    )


def _serve(site: Site, wanted: Wanted, report: Report, stop: threading.Event) -> None:
    site.log.touch(mode=0o600)
    watched = WatchedApprovals(site.approved)
    mode, against = find_modes(watched.now()).choose(wanted)
    if against:
        report(f"The fast mode is not possible ({against}); the site runs in the standard mode.")
    handler = RequestHandler(site.name, DeployedSiteService(site), site.state, site.vault_key)
    if mode == "fast":
        _serve_fast(site, handler, watched, report, stop)
    else:
        _serve_standard(site, handler, watched, report, stop)


def _serve_fast(
    site: Site, handler: RequestHandler, watched: WatchedApprovals, report: Report, stop: threading.Event
) -> None:
    from multicentre.engines.flower.agent import Agent

    report(f"The agent of this process asks {site.address} for letters; no Flower command is run.")
    agent = Agent(
        site.address,
        root_certificates=site.ca,
        private_key=site.keys.node,
        handle=handler.handle,
        approved=lambda sha256: sha256 in watched.now().apps,
        report=report,
        memory=site.running / "agent",
    )
    agent.run(stop)


class _FlowerServices:
    """The Flower processes of a site, which trust the release keys that are approved when they start."""

    def __init__(self, site: Site, watched: WatchedApprovals, report: Report) -> None:
        self._site, self._watched, self._report = site, watched, report
        self._keys: Mapping[str, str] = {}

    def arrange(self) -> list[Service]:
        """Return the processes for the keys that are approved now."""
        if self._keys:
            self._report("The processes are started with the release keys that are approved now.")
        self._keys = self._watched.now().release_keys
        services = services_of(self._site, self._keys)
        for service in services:
            self._report(service.command.as_typed())
        return services

    def outdated(self) -> bool:
        """Tell whether other keys are approved now."""
        return self._watched.now().release_keys != self._keys


def _serve_standard(
    site: Site, handler: RequestHandler, watched: WatchedApprovals, report: Report, stop: threading.Event
) -> None:
    """Serve letters on the socket beside supervised Flower processes; when either breaks, both end."""
    services = _FlowerServices(site, watched, report)
    broke: list[BaseException] = []
    ended = threading.Event()

    def answer() -> None:
        try:
            serve_socket(socket_of(site), handler.handle, ended)
        except BaseException as error:
            broke.append(error)
            stop.set()

    letters = threading.Thread(target=answer, name="letters", daemon=True)
    letters.start()
    try:
        log = site.folder / "flower.log"
        Supervisor(services.arrange, log=log, report=report, outdated=services.outdated, explain=explain).run(stop)
    finally:
        ended.set()
        letters.join()
    if broke:
        raise broke[0]
