"""Processes that are kept alive: started again when they end, and ended together with all that they started."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from multicentre.deployment.commands import Command
from multicentre.deployment.consortium import LOOPBACK
from multicentre.deployment.running import end_groups
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.storage import write_atomically

FIRST_PAUSE_S, LONGEST_PAUSE_S, STEADY_AFTER_S = 1.0, 60.0, 60.0

_LARGEST_LOG = 20 * 2**20

_GONE_WITHIN_S, _TICK_S = 5.0, 0.05

_MENDS = {
    errno.EACCES: "An ordinary user needs a right to it (CAP_NET_BIND_SERVICE, as the unit for systemd in README.md "
    "has it); or name a port from 1024 on.",
    errno.EADDRNOTAVAIL: "Name an address that this machine has, or 0.0.0.0 for each of them.",
}


class Kept:
    """One process in a group of its own.

    Parameters
    ----------
    name : str
    command : Command
    log : Path
        Takes what it prints; one older log is kept.
    """

    def __init__(self, name: str, command: Command, log: Path) -> None:
        self.name = name
        self.command = command
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._again_at: float | None = None

    @property
    def pid(self) -> int | None:
        """The number of its process and of its group, once it was started."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start it."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > _LARGEST_LOG:
            self.log.replace(self.log.with_suffix(".old.log"))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command.arguments,
                env=self.command.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started = time.monotonic()
        self._again_at = None

    def ended(self) -> int | None:
        """Return its exit status, None while it runs."""
        return self._process.poll() if self._process is not None else None

    def last_words(self) -> str:
        """Return the last line of its log."""
        with contextlib.suppress(OSError):
            lines = self.log.read_bytes()[-4096:].decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def look(self, tell: Callable[[str], None]) -> None:
        """Start it again if it ended, after a pause that grows while it does not stay up."""
        status = self.ended()
        if status is None:
            return
        now = time.monotonic()
        if self._again_at is None:
            self.kill()  # what it started may have outlived it, with the port that it needs
            self._pause_s = FIRST_PAUSE_S if now - self._started > STEADY_AFTER_S else self._pause_s
            self._again_at = now + self._pause_s
            tell(f"{self.name} ended with status {status}; started again in {self._pause_s:g} s. Log: {self.log}")
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        elif now >= self._again_at:
            self.start()

    def kill(self) -> None:
        """End what is left of it and of all that it started."""
        end_groups(self._processes(), 0.0)

    def _processes(self) -> list[subprocess.Popen[bytes]]:
        return [] if self._process is None else [self._process]


def stop_all(kept: Sequence[Kept], within_s: float) -> None:
    """End processes, and all that they started; what has not ended in time is killed."""
    end_groups([process for one in kept for process in one._processes()], within_s)


def end_leftovers(record: Path, marks: Sequence[str]) -> None:
    """End processes that a killed coordinator left behind.

    Parameters
    ----------
    record : Path
        One number of a process a line, as :func:`write_record` wrote it.
    marks : sequence of str
        A process is ended only if its command line holds one of these.
    """
    if not record.exists():
        return
    noted = [int(line) for line in record.read_text(encoding="ascii").split() if line.isdecimal()]
    left = [pid for pid in noted if any(mark in command_line(pid) for mark in marks)]
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    deadline = time.monotonic() + _GONE_WITHIN_S
    while any(command_line(pid) for pid in left) and time.monotonic() < deadline:
        time.sleep(_TICK_S)
    record.unlink()


def write_record(record: Path, kept: Sequence[Kept]) -> None:
    """Note the numbers of the processes that run."""
    write_atomically(record, "\n".join(str(one.pid) for one in kept if one.pid is not None).encode())


def check_free(port: int, where: str, address: str = LOOPBACK) -> None:
    """Raise ConfigurationError if this process cannot listen on a port of this machine.

    Parameters
    ----------
    port : int
    where : str
        What names the port.
    address : str, default "127.0.0.1"
    """
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((address, port))
        except OSError as error:
            raise ConfigurationError(
                f"the port {port} of {address} cannot be had ({error.strerror})",
                where=where,
                hint=_MENDS.get(error.errno or 0, "Is a coordinator running already? Otherwise name a free port."),
            ) from None


def command_line(pid: int) -> str:
    """Return the command line of a process, empty where there is none."""
    told = Path(f"/proc/{pid}/cmdline")
    if told.parent.parent.is_dir():
        with contextlib.suppress(OSError):
            return told.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return ""
    asked = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout


Mark = tuple[int, int, int] | None


@dataclass(frozen=True)
class Seen:
    """Files as they stood at one moment.

    Parameters
    ----------
    files : tuple of Path
    marks : tuple
        Of each file the number, the time of its last change in nanoseconds and the size in bytes; None without a file.

    Examples
    --------
    >>> Seen.of([Path("nowhere.csv")]).stands
    True
    """

    files: tuple[Path, ...]
    marks: tuple[Mark, ...]

    @classmethod
    def of(cls, files: Iterable[Path]) -> Self:
        """Return these files as they stand now."""
        files = tuple(files)
        return cls(files, tuple(map(_mark, files)))

    @property
    def stands(self) -> bool:
        """Whether none was changed, replaced, added or removed since."""
        return tuple(map(_mark, self.files)) == self.marks


def _mark(file: Path) -> Mark:
    try:
        about = file.stat()
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns, about.st_size
