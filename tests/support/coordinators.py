"""A real coordinator on loopback, for tests: its folder, its processes, and cards of sites that never existed."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from multicentre.privacy.site_cards import SiteCard, write_card
from multicentre_sites.deployment.coordinator_folder import Consortium
from multicentre_sites.deployment.flower_commands import Command, flower_settings, program
from multicentre_sites.deployment.new_coordinator_folder import ConsortiumOptions, create_consortium
from multicentre_sites.deployment.process import end_process_groups
from support.ports import free_ports
from support.processes import processes_of
from support.proxies import PROXY, address_of
from support.waiting import GENEROUS_S, wait_for


def make_consortium(folder: Path, host: str = "127.0.0.1") -> Consortium:
    """Make a coordinator's folder with ports of its own."""
    port, superlink, bundles = free_ports(3)
    return create_consortium(folder, ConsortiumOptions(host, port, superlink_port=superlink, bundles_port=bundles))


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


def call(*arguments: object, timeout_s: float = GENEROUS_S) -> subprocess.CompletedProcess[str]:
    """Run a command of multicentre to its end."""
    command = [sys.executable, "-m", "multicentre", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def finished(command: Command, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of Flower to its end."""
    return subprocess.run(
        command.arguments,
        env=command.environment(),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=GENEROUS_S,
        check=False,
    )


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

    def __init__(self, consortium: Consortium, proxy: str = PROXY) -> None:
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
        wait_for(lambda: "Ready:" in self.printed or self._process.poll() is not None)
        assert self._process.poll() is None, self.printed

    def wait(self) -> int:
        return self._process.wait(GENEROUS_S)

    def stop(self) -> int:
        """End it as an administrator would; return its status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(GENEROUS_S)

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
def running(consortium: Consortium, proxy: str = PROXY):
    """Start a coordinator, wait until it is ready, and end it."""
    started = Running(consortium, proxy)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.end()


@contextlib.contextmanager
def supernode(consortium: Consortium, key: Path, folder: Path):
    """Run a stock SuperNode that connects from outside and trusts the consortium's release key alone."""
    (port,) = free_ports(1)
    command = Command(
        (
            program("flower-supernode"),
            *("--superlink", address_of(consortium)),
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
        end_process_groups([process], 8.0)
