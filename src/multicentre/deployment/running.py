"""How an analyst's study reaches the sites: from the coordinator's folder to what carries letters."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from multicentre import __version__
from multicentre.deployment.bundle import plain_version, read_bundles
from multicentre.deployment.commands import Command
from multicentre.deployment.consortium import Consortium
from multicentre.deployment.register import Register
from multicentre.deployment.release import ReleaseKey
from multicentre.engines.remote.packing import Opening
from multicentre.engines.remote.requests import Request, Sign, sign_opening
from multicentre.engines.remote.socket import Carrier
from multicentre.federation.errors import ConfigurationError, MissingExtra
from multicentre.federation.requester import COORDINATOR
from multicentre.federation.storage import open_regular

CONNECTION = "consortium"


def connect_sites(folder: Path, sites: Iterable[str], tell: Callable[[str], None]) -> Carrier:
    """Return what carries letters to sites, over the coordinator of a folder.

    Parameters
    ----------
    folder : Path
        What ``multicentre study init`` made; its coordinator must be up.
    sites : iterable of str
        Names of the sites, as the register has them.
    tell : callable
        Is told each of Flower's commands as it is run.

    Raises
    ------
    MissingExtra
        Flower is not installed here.
    ConfigurationError
        A site is not in the register, the bundle of this version was not signed, or the coordinator
        does not answer.
    """
    try:
        from multicentre.engines.flower.bridge import Bridge
        from multicentre.engines.flower.handshake import run_config
    except ImportError as error:
        raise MissingExtra(
            "sites on machines of their own need Flower", where=str(error.name), hint="pip install multicentre[flower]"
        ) from None
    consortium = Consortium.read(folder)
    command = consortium.command("flwr")
    own = {name: value for name, value in command.settings.items() if name != "PATH"}  # flwr starts no other programme
    reference = _reference(consortium)

    def submit(bridge: Path) -> tuple[str, ...]:
        config = ("--format", "json", "--run-config", run_config(bridge))
        return (*command.arguments, "run", reference, CONNECTION, *config)

    def stop(run: int) -> tuple[str, ...]:
        return (*command.arguments, "stop", str(run), CONNECTION, "--format", "json")

    return Bridge(_keys(consortium, sites), submit, stop=stop, environment=own, told=tell)


def sign_as_coordinator(folder: Path) -> Sign:
    """Return what signs the opening of a run with the coordinator's release key, for its administrator."""

    def sign(opening: Opening) -> Request:
        return sign_opening(opening, ReleaseKey.read(Consortium.read(folder).release_key).identity, COORDINATOR)

    return sign


def _keys(consortium: Consortium, sites: Iterable[str]) -> dict[str, str]:
    """Return the public key of each site, in the order given."""
    registered = {entry.card.name: entry.card.public_key for entry in Register.read(consortium.register).current}
    named = tuple(sites)
    strangers = [site for site in named if site not in registered]
    if strangers:
        raise ConfigurationError(
            f"the coordinator's register holds no such site: {', '.join(strangers)}",
            where="sites",
            hint="Add it with its public card: multicentre coordinator add-site NAME.site.toml "
            f"--folder {consortium.folder}.",
        )
    return {site: registered[site] for site in named}


def _reference(consortium: Consortium) -> str:
    """Return how Flower names the signed bundle of this version."""
    bundle = read_bundles(consortium).get(plain_version(__version__))
    if bundle is None:
        raise ConfigurationError(
            "the bundle of this version was not signed",
            where=str(consortium.bundles),
            hint=f"Sign it: multicentre coordinator sign-app --folder {consortium.folder}.",
        )
    return bundle.reference


FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 15.0

STEADY_S = 60.0

_LOOK_S = 0.2

_READY_WITHIN_S = 300.0  # a service that ends is noticed at once; a busy machine needs minutes to start one

_LARGEST_LOG = 10 * 2**20

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux

Running = list[tuple[str, subprocess.Popen[bytes]]]


@dataclass(frozen=True)
class Service:
    """A process to keep running.

    Parameters
    ----------
    command : Command
    ready : callable, optional
        Says when the next may be started; at once by default.
    """

    command: Command
    ready: Callable[[], bool] = lambda: True

    @property
    def name(self) -> str:
        """The programme's name."""
        return Path(self.command.arguments[0]).name


class Supervisor:
    """Keeps services running until it is told to stop.

    When one of them ends, for whatever reason, the others are ended and all are started anew, after 2 seconds and then
    ever longer ones, up to 15: a coordinator lets a site that broke off in again only after a minute, and one that is
    down for the night is waited for.

    Parameters
    ----------
    arrange : callable
        Returns the services in the order in which they start; asked anew each time.
    log : Path
        Where what they print goes.
    told : callable
        Takes lines for the steward.
    outdated : callable, optional
        Says that what was arranged holds no longer: then all are ended at once and arranged anew.
    explain : callable, optional
        From what a round of them printed to why it ended, in plain words.
    stop_within_s : float
        So long they may take to end before they are killed.
    """

    def __init__(
        self,
        arrange: Callable[[], Sequence[Service]],
        *,
        log: Path,
        told: Callable[[str], None],
        outdated: Callable[[], bool] = lambda: False,
        explain: Callable[[str], str] = lambda printed: "",
        stop_within_s: float = 8.0,
    ) -> None:
        self._arrange = arrange
        self._log = log
        self._told = told
        self._outdated = outdated
        self._explain = explain
        self._stop_within_s = stop_within_s

    def run(self, stop: threading.Event) -> None:
        """Keep the services running until `stop` is set; then end them, and all that they started."""
        pause_s = FIRST_PAUSE_S
        while not stop.is_set():
            began, size = time.monotonic(), self._log_size()
            with self._started(stop) as running:
                ended = self._first_to_end(running, stop)
            if ended is None:
                continue
            if time.monotonic() - began > STEADY_S:
                pause_s = FIRST_PAUSE_S
            why = self._explain(self._printed_since(size)) or f"{self._log} holds the details"
            self._told(f"{ended} ended: {why}. It is started again in {pause_s:g} s.")
            stop.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    @contextlib.contextmanager
    def _started(self, stop: threading.Event) -> Iterator[Running]:
        running: Running = []
        with _opened(self._log) as log:
            try:
                for service in self._arrange():
                    running.append((service.name, _start(service.command, log)))
                    _await(service, running, stop)
                yield running
            finally:
                end_groups([process for _, process in reversed(running)], self._stop_within_s)

    def _first_to_end(self, running: Running, stop: threading.Event) -> str | None:
        """Return the name of the first process that ends, None when all are to."""
        while not stop.is_set() and not self._outdated():
            for name, process in running:
                if process.poll() is not None:
                    return name
            stop.wait(_LOOK_S)
        return None

    def _log_size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def _printed_since(self, size: int) -> str:
        with self._log.open("rb") as file:
            file.seek(size)
            return file.read(_LARGEST_LOG).decode(errors="replace")


def end_groups(processes: Sequence[subprocess.Popen[bytes]], within_s: float) -> None:
    """End processes that lead groups of their own, with all that is in these groups; kill what does not end in time."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + within_s
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(deadline - time.monotonic(), 0.0))
    for process in processes:
        _signal(process, signal.SIGKILL)
        process.wait()


def _await(service: Service, running: Running, stop: threading.Event) -> None:
    deadline = time.monotonic() + _READY_WITHIN_S
    while not service.ready() and not stop.is_set() and time.monotonic() < deadline:
        if running[-1][1].poll() is not None:
            return
        stop.wait(_LOOK_S)


def _start(command: Command, log: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command.arguments,
            env=command.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent if _LIBRARY is not None else None,
        )
    except OSError as error:
        raise ConfigurationError(
            f"the programme cannot be started ({error.strerror})", where=command.arguments[0]
        ) from None


def _signal(process: subprocess.Popen[bytes], which: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, which)


@contextlib.contextmanager
def _opened(log: Path) -> Iterator[int]:
    """Open a log to be appended to; one that has grown large is set aside, and takes the place of the one before."""
    if log.exists() and log.stat().st_size > _LARGEST_LOG:
        log.replace(log.with_name(f"{log.name}.old"))
    handle = open_regular(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, "log")
    try:
        yield handle
    finally:
        os.close(handle)


# Found before any fork: between fork and exec nothing is imported.
_LIBRARY = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    """Have the system end this process when the one that started it is killed."""
    if _LIBRARY is not None:
        _LIBRARY.prctl(_DIE_WITH_PARENT, signal.SIGTERM, 0, 0, 0)
