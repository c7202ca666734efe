"""Processes of this machine, read from /proc where the system has it: ps is not installed everywhere."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import subprocess
import sys
from pathlib import Path

_PROC = Path("/proc")
_LISTENS = "0A"  # TCP_LISTEN of Linux


def command_line(pid: int) -> str:
    """Return the command line of a process, empty where it has ended."""
    if _PROC.is_dir():
        return _words(_PROC / str(pid) / "cmdline")
    asked = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout


def processes_of(folder: Path) -> list[int]:
    """Return the processes whose command line or environment names a folder, except this one."""
    if _PROC.is_dir():
        numbers = [int(path.name) for path in _PROC.iterdir() if path.name.isdecimal()]
        named = [pid for pid in numbers if str(folder) in _words(_PROC / str(pid) / "cmdline")]
        named += [pid for pid in numbers if str(folder) in _words(_PROC / str(pid) / "environ")]
        return sorted({pid for pid in named if pid != os.getpid() and is_alive(pid)})
    listed = subprocess.run(["ps", "eww", "-A", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 1) for line in listed.splitlines() if str(folder) in line]
    return [int(pid) for pid, _ in lines if int(pid) != os.getpid()]


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    if _PROC.is_dir():
        with contextlib.suppress(OSError):
            return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        return False
    asked = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(asked.stdout.strip()) and not asked.stdout.strip().startswith("Z")


def addresses_listened_on(processes: list[int]) -> list[tuple[str, int]]:
    """Return address and port of each TCP socket on which one of these processes listens (Linux)."""
    sockets = {link for pid in processes for link in _links(_PROC / str(pid) / "fd")}
    listening = []
    for table in ("tcp", "tcp6"):
        for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENS and f"socket:[{inode}]" in sockets:
                address, _, port = local.rpartition(":")
                listening.append((_readable(address), int(port, 16)))
    return listening


def _readable(address: str) -> str:
    """Return an address of /proc/net: words of 32 bits, each in the byte order of the machine."""
    words = [int(address[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(address), 8)]
    return str(ipaddress.ip_address(b"".join(words)))


def _links(folder: Path) -> list[str]:
    links = []
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                links.append(str(path.readlink()))
    return links


def _words(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
