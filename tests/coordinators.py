"""A real coordinator on loopback, for tests: its folder, its processes, and cards of sites that never existed."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from multicentre.deployment.cards import SiteCard, write_card
from multicentre.deployment.commands import Command, flower_settings, program
from multicentre.deployment.consortium import Consortium
from multicentre.deployment.founding import Founding, found_consortium
from multicentre.deployment.supervise import end_groups

READY_WITHIN_S = 120.0


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on; all are bound at once, so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def found(folder: Path, host: str = "127.0.0.1") -> Consortium:
    """Make a coordinator's folder with ports of its own."""
    port, superlink, hub = free_ports(3)
    return found_consortium(folder, Founding(host, port, superlink_port=superlink, hub_port=hub))


def make_key(path: Path | None = None) -> str:
    """Return a public key on P-384, its private half in `path` if one is given."""
    key = ec.generate_private_key(ec.SECP384R1())
    if path is not None:
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        path.chmod(0o600)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def make_card(name: str, key: Path | None = None) -> SiteCard:
    """Return the card of a new site."""
    return SiteCard(name, make_key(key), os.urandom(32).hex())


def call(*arguments: object, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run a command of multicentre to its end."""
    command = [sys.executable, "-m", "multicentre", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def add_site(consortium: Consortium, card: SiteCard, folder: Path) -> subprocess.CompletedProcess[str]:
    """Add a site by its card, as a person would."""
    path = write_card(card, folder)
    return call("coordinator", "add-site", path, "--folder", consortium.folder, "--json")


class Running:
    """``multicentre coordinator up`` as a process.

    Parameters
    ----------
    consortium : Consortium
    proxy : str
    """

    def __init__(self, consortium: Consortium, proxy: str = "nginx") -> None:
        self.consortium = consortium
        self._printed = consortium.state / "up.txt"
        command = [sys.executable, "-m", "multicentre", "coordinator", "up", "--folder", str(consortium.folder)]
        with self._printed.open("wb") as printed:
            self._process = subprocess.Popen(
                [*command, "--proxy", proxy], stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def printed(self) -> str:
        return self._printed.read_text(encoding="utf-8")

    def wait_until_ready(self) -> None:
        wait_for(lambda: "Ready:" in self.printed or self._process.poll() is not None, READY_WITHIN_S)
        assert self._process.poll() is None, self.printed

    def wait(self) -> int:
        return self._process.wait(READY_WITHIN_S)

    def stop(self) -> tuple[int, float]:
        """End it as an administrator would; return its status and how long that took, in seconds."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30.0), time.monotonic() - began

    def end(self) -> None:
        """Leave nothing behind, whatever the test came to."""
        if self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pid in processes_of(self.consortium.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def running(consortium: Consortium, proxy: str = "nginx"):
    """Start a coordinator, wait until it is ready, and end it."""
    started = Running(consortium, proxy)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.end()


def processes_of(folder: Path) -> list[int]:
    """Return the processes whose command line or environment names a folder, this one aside."""
    told = subprocess.run(["ps", "eww", "-A", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 1) for line in told.splitlines() if str(folder) in line]
    return [int(pid) for pid, _ in lines if int(pid) != os.getpid()]


def wait_for(happened, within_s: float) -> None:
    """Wait until something happened; fail when it does not."""
    deadline = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


@contextlib.contextmanager
def supernode(consortium: Consortium, key: Path, folder: Path):
    """Run a stock SuperNode that connects from outside and trusts the consortium's release key alone."""
    (port,) = free_ports(1)
    command = Command(
        (
            program("flower-supernode"),
            *("--superlink", consortium.address),
            *("--root-certificates", str(consortium.public / "ca.crt")),
            *("--auth-supernode-private-key", str(key)),
            *("--trusted-entities", str(consortium.public / "trusted-entities.yaml")),
            *("--host", "127.0.0.1"),
            *("--port", str(port)),
        ),
        flower_settings(folder / "home"),
    )
    with (folder / "supernode.log").open("wb") as log:
        process = subprocess.Popen(
            command.arguments, env=command.environment(), stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    try:
        yield process
    finally:
        end_groups([process], 8.0)
