"""Supervisor of processes that depend on each other: all are restarted when one of them ends."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from multicentre_sites.deployment.flower_commands import Command
from multicentre_sites.deployment.process import (
    LOG_LIMIT_BYTES,
    Backoff,
    ManagedProcess,
    rotate_log,
    rotate_running_log,
    stop_processes,
)

# A coordinator accepts a site that lost its connection again after a minute: seven pauses of 2, 4, 8, 15, 15, ... s
# last longer than that. The longest is 15 s, so that a coordinator that was down for the night is found soon.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 15.0

STEADY_S = 60.0  # a process that ran for a minute was connected

_POLL_S = 0.2  # short for a person, and no measurable load

_READY_WITHIN_S = 300.0  # a process that ends is noticed at once; a busy machine needs minutes to start one


@dataclass(frozen=True)
class Service:
    """A process to keep running.

    Parameters
    ----------
    command : Command
    ready : callable, optional
        Returns True once the next service may be started; by default at once.
    """

    command: Command
    ready: Callable[[], bool] = lambda: True

    @property
    def name(self) -> str:
        """Name of the program."""
        return Path(self.command.arguments[0]).name


class Supervisor:
    """Keeps services running until it is stopped.

    When a service ends, for whatever reason, the others are ended and all are started again after a pause.

    Parameters
    ----------
    arrange : callable
        Returns the services in the order in which they start. Called before every start.
    log : Path
        Receives the output of the services.
    report : callable
        Receives one line per event, for the steward.
    outdated : callable, optional
        Returns True if the services must be arranged and started again, without a pause.
    explain : callable, optional
        Returns the reason for the end of a service, from the output since the start; empty if unknown.
    stop_within_s : float
        Time in seconds that services have to end before they are killed.
    backoff : Backoff, optional
        Pauses before restarts; by default from 2 to 15 seconds.
    """

    def __init__(
        self,
        arrange: Callable[[], Sequence[Service]],
        *,
        log: Path,
        report: Callable[[str], None],
        outdated: Callable[[], bool] = lambda: False,
        explain: Callable[[str], str] = lambda output: "",
        stop_within_s: float = 8.0,  # below the 10 s after which Docker kills a container that is stopped
        backoff: Backoff | None = None,
    ) -> None:
        self._arrange = arrange
        self._log = log
        self._report = report
        self._outdated = outdated
        self._explain = explain
        self._stop_within_s = stop_within_s
        self._backoff = backoff or Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, STEADY_S)

    def run(self, stop: threading.Event) -> None:
        """Keep the services running until `stop` is set, then end them and everything that they started."""
        while not stop.is_set():
            rotate_log(self._log)
            start_time, log_size = time.monotonic(), self._log_size()
            with self._running_services(stop) as processes:
                ended_service = self._first_to_end(processes, stop)
            if ended_service is None:
                continue
            pause_s = self._backoff.next_pause(time.monotonic() - start_time)
            reason = self._explain(self._output_since(log_size)) or f"{self._log} holds the details"
            self._report(f"{ended_service} ended: {reason}. It is restarted in {pause_s:g} s.")
            stop.wait(pause_s)

    @contextlib.contextmanager
    def _running_services(self, stop: threading.Event) -> Iterator[list[ManagedProcess]]:
        processes: list[ManagedProcess] = []
        try:
            for service in self._arrange():
                process = ManagedProcess(service.name, service.command, self._log, ends_with_parent=True)
                process.start()
                processes.append(process)
                _wait_until_ready(service, process, stop)
            yield processes
        finally:
            stop_processes(processes[::-1], self._stop_within_s)

    def _first_to_end(self, processes: Sequence[ManagedProcess], stop: threading.Event) -> str | None:
        """Wait for the first process to end and return its name; None if all must be ended."""
        while not stop.is_set() and not self._outdated():
            for process in processes:
                if process.exit_status() is not None:
                    return process.name
            rotate_running_log(self._log)
            stop.wait(_POLL_S)
        return None

    def _log_size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def _output_since(self, size: int) -> str:
        with self._log.open("rb") as file:
            file.seek(size)
            return file.read(LOG_LIMIT_BYTES).decode(errors="replace")


def _wait_until_ready(service: Service, process: ManagedProcess, stop: threading.Event) -> None:
    deadline = time.monotonic() + _READY_WITHIN_S
    while not service.ready() and not stop.is_set() and time.monotonic() < deadline:
        if process.exit_status() is not None:
            return
        stop.wait(_POLL_S)
