"""Child processes: start, log, restart after a pause, and end with everything that they started."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from multicentre.core.storage import open_regular, write_atomically
from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.coordinator_folder import LOOPBACK
from multicentre_sites.deployment.flower_commands import Command

# Enough for the time before a failure, and little for any disk; one older log of this size is stored, too.
LOG_LIMIT_BYTES = 20 * 2**20

_LAST_LINE_BYTES = 4096  # more than the longest line that Flower prints

_KILLED_WITHIN_S = 5.0  # SIGKILL takes effect at once unless the kernel is busy, for example with a slow disk
_POLL_S = 0.05  # the operator waits for the start meanwhile

_PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>

_PORT_HINTS = {
    errno.EACCES: "An ordinary user needs the capability CAP_NET_BIND_SERVICE (see the systemd unit in README.md), or "
    "a port from 1024 on.",
    errno.EADDRNOTAVAIL: "Name an address that this machine has, or 0.0.0.0 for all of its addresses.",
}


class Backoff:
    """Pauses before restarts: they double, and begin at the shortest again after a steady run.

    Parameters
    ----------
    first_s : float
        Shortest pause.
    longest_s : float
        Longest pause.
    steady_s : float
        Uptime after which a process counts as steady.

    Examples
    --------
    >>> backoff = Backoff(1.0, 3.0, 60.0)
    >>> [backoff.next_pause(uptime_s=5.0) for _ in range(3)]
    [1.0, 2.0, 3.0]
    """

    def __init__(self, first_s: float, longest_s: float, steady_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._steady_s = steady_s
        self._pause_s = first_s

    def next_pause(self, uptime_s: float) -> float:
        """Return the pause in seconds before a process is restarted that ran for `uptime_s` seconds."""
        pause_s = self._first_s if uptime_s > self._steady_s else self._pause_s
        self._pause_s = min(2 * pause_s, self._longest_s)
        return pause_s


class ManagedProcess:
    """One process that leads its own process group.

    Parameters
    ----------
    name : str
        Name in log lines and messages.
    command : Command
    log : Path
        Receives standard output and standard error.
    backoff : Backoff, optional
        Pauses of :meth:`restart_if_ended`.
    ends_with_parent : bool
        On Linux, the process receives SIGTERM when this process is killed.
    """

    def __init__(
        self, name: str, command: Command, log: Path, *, backoff: Backoff | None = None, ends_with_parent: bool = False
    ) -> None:
        self.name = name
        self.command = command
        self.log = log
        # From 1 s, so that a short failure costs little, to 60 s, so that a lasting one does not fill the log.
        self._backoff = backoff or Backoff(1.0, 60.0, 60.0)
        self._ends_with_parent = ends_with_parent
        self._process: subprocess.Popen[bytes] | None = None
        self._start_time = 0.0
        self._restart_time: float | None = None

    @property
    def pid(self) -> int | None:
        """Number of the process and of its group; None before the first start."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the process.

        Raises
        ------
        ConfigurationError
            The program is missing or cannot be run.
        """
        rotate_log(self.log)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        handle = open_regular(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, "log")
        try:
            self._process = subprocess.Popen(
                self.command.arguments,
                env=self.command.environment(),
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent if self._ends_with_parent and _LIBC is not None else None,
            )
        except OSError as error:
            raise ConfigurationError(
                f"the program cannot be started ({error.strerror})", where=self.command.arguments[0]
            ) from None
        finally:
            os.close(handle)
        self._start_time = time.monotonic()
        self._restart_time = None

    def exit_status(self) -> int | None:
        """Return the exit status; None while the process runs."""
        return self._process.poll() if self._process is not None else None

    def last_log_line(self) -> str:
        """Return the last line of the log that is not blank."""
        with contextlib.suppress(OSError):
            lines = self.log.read_bytes()[-_LAST_LINE_BYTES:].decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def restart_if_ended(self, report: Callable[[str], None]) -> None:
        """Restart the process if it ended and its pause is over; call it repeatedly."""
        status = self.exit_status()
        if status is None:
            return
        now = time.monotonic()
        if self._restart_time is None:
            self.kill()  # its children may have outlived it, and may hold the port that it needs
            pause_s = self._backoff.next_pause(now - self._start_time)
            self._restart_time = now + pause_s
            report(f"{self.name} ended with status {status}; it is restarted in {pause_s:g} s. Log: {self.log}")
        elif now >= self._restart_time:
            self.start()

    def kill(self) -> None:
        """Kill the process and everything in its group."""
        stop_processes([self], 0.0)


def stop_processes(processes: Sequence[ManagedProcess], within_s: float) -> None:
    """End processes and their groups; kill those that have not ended in `within_s` seconds."""
    end_process_groups([one._process for one in processes if one._process is not None], within_s)


def end_process_groups(processes: Sequence[subprocess.Popen[bytes]], within_s: float) -> None:
    """Send SIGTERM to the groups that `processes` lead, wait, then send SIGKILL to what remains."""
    for process in processes:
        _signal_group(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + within_s
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(deadline - time.monotonic(), 0.0))
    for process in processes:
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()


def record_processes(record: Path, processes: Sequence[ManagedProcess]) -> None:
    """Write the process numbers to a file, for :func:`end_recorded_processes`."""
    write_atomically(record, "\n".join(str(one.pid) for one in processes if one.pid is not None).encode())


def end_recorded_processes(record: Path, marks: Sequence[str]) -> None:
    """Kill processes that a killed coordinator left running.

    Parameters
    ----------
    record : Path
        One process number per line, as written by :func:`record_processes`.
    marks : sequence of str
        A process is killed only if its command line contains one of these. The system may have given its number to
        another process since.
    """
    if not record.exists():
        return
    recorded = [int(line) for line in record.read_text(encoding="ascii").split() if line.isdecimal()]
    leftovers = [pid for pid in recorded if any(mark in command_line(pid) for mark in marks)]
    for pid in leftovers:
        _signal_group(pid, signal.SIGKILL)
    deadline = time.monotonic() + _KILLED_WITHIN_S
    while any(command_line(pid) for pid in leftovers) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    record.unlink()


def command_line(pid: int) -> str:
    """Return the command line of a process; empty if there is no such process."""
    file = Path(f"/proc/{pid}/cmdline")
    if file.parent.parent.is_dir():
        with contextlib.suppress(OSError):
            return file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return ""
    return subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout


def check_port_free(port: int, where: str, address: str = LOOPBACK) -> None:
    """Raise ConfigurationError if this process cannot listen on a port of this machine.

    Parameters
    ----------
    port : int
    where : str
        The setting that names the port.
    address : str, default "127.0.0.1"
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
        except OSError as error:
            raise ConfigurationError(
                f"port {port} of {address} must be free for this program; got {error.strerror}",
                where=where,
                hint=_PORT_HINTS.get(error.errno or 0, "Is a coordinator running already? Otherwise name a free port."),
            ) from None


def rotate_log(log: Path) -> None:
    """Rename a log that exceeds the limit; it replaces the log that was renamed before."""
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.replace(log.with_name(f"{log.name}.old"))


def rotate_running_log(log: Path) -> None:
    """Copy a log that exceeds the limit and empty it; processes that append to it continue with the empty file."""
    with contextlib.suppress(OSError):  # a log that was just removed, or a full disk: the next call tries again
        if log.stat().st_size > LOG_LIMIT_BYTES:
            shutil.copyfile(log, log.with_name(f"{log.name}.old"))
            os.truncate(log, 0)


# Loaded before any fork: nothing can be imported safely between fork and exec.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def end_with_parent() -> None:
    """Have Linux send SIGTERM to this process when its parent process is killed."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
