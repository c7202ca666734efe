"""Folder of a coordinator: ``coordinator.toml``, keys, register, Flower's private home and public files."""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field

from multicentre.core.storage import write_atomically
from multicentre.errors import ConfigurationError
from multicentre.studies.tables import File, Table
from multicentre_sites.deployment.flower_commands import Command, flower_settings, program
from multicentre_sites.deployment.settings import read_settings

SETTINGS = "coordinator.toml"
CONNECTION = "consortium"
LOOPBACK = "127.0.0.1"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def validate_host(host: str) -> str:
    """Return a host's name or IPv4 address; raise ValueError if it is invalid."""
    numeric = re.fullmatch(r"[0-9.]+", host) is not None
    try:
        fits = bool(ipaddress.IPv4Address(host)) if numeric else len(host) <= 253 and _HOST.fullmatch(host)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError("the name of a host or its IPv4 address, without a scheme or a port")
    return host


def _validate_listen(listen: str) -> str:
    address, _, port = listen.rpartition(":")
    if not (port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError("an address and a port, such as 0.0.0.0:443")
    ipaddress.IPv4Address(address)
    return listen


Port = Annotated[int, Field(ge=1, le=65535)]
Host = Annotated[str, AfterValidator(validate_host)]


class TlsTable(Table):
    """``[tls]``: certificate and key of the public address, and their authority."""

    ca: File = Field(default=Path("pki/ca.crt"), validate_default=True)
    certificate: File = Field(default=Path("pki/coordinator.crt"), validate_default=True)
    key: File = Field(default=Path("pki/coordinator.key"), validate_default=True)


class LoopbackTable(Table):
    """``[loopback]``: ports on loopback."""

    superlink: Port = 18000
    bundles: Port = 18300


class AnalystsTable(Table):
    """``[analysts]``: Unix socket of the service for analysts; without it, there is no service."""

    socket: File | None = None


class CoordinatorSettings(Table):
    """``coordinator.toml``."""

    host: Host
    port: Port = 443
    listen: Annotated[str, AfterValidator(_validate_listen)] = "0.0.0.0:443"
    tls: TlsTable = Field(default={}, validate_default=True)
    loopback: LoopbackTable = Field(default_factory=LoopbackTable)
    analysts: AnalystsTable = Field(default_factory=AnalystsTable)


@dataclass(frozen=True)
class Consortium:
    """A coordinator, described by its folder.

    Parameters
    ----------
    folder : Path
        Absolute.
    settings : CoordinatorSettings
    """

    folder: Path
    settings: CoordinatorSettings

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Read a coordinator's folder.

        Raises
        ------
        ConfigurationError
            ``coordinator.toml`` is missing, or a key in it is unknown, missing or invalid.
        """
        folder = Path(folder).absolute()
        if not (folder / SETTINGS).is_file():
            raise ConfigurationError(
                f"a coordinator's folder must contain {SETTINGS}; it is missing",
                where=str(folder),
                hint="Name the coordinator's folder, or make one: multicentre study init FOLDER --host HOST.",
            )
        return cls(folder, read_settings(CoordinatorSettings, folder / SETTINGS, SETTINGS))

    @property
    def address(self) -> str:
        """Public address of the coordinator, ``host:port``."""
        return f"{self.settings.host}:{self.settings.port}"

    @property
    def superlink_address(self) -> str:
        """Address of the SuperLink on loopback."""
        return f"{LOOPBACK}:{self.settings.loopback.superlink}"

    @property
    def hub_url(self) -> str:
        """URL of the bundle server on loopback."""
        return f"http://{LOOPBACK}:{self.settings.loopback.bundles}/v1"

    @property
    def pki(self) -> Path:
        """Folder of certificates and their keys."""
        return self.folder / "pki"

    @property
    def superlink_ca(self) -> Path:
        """Authority of the SuperLink, and of the public address unless ``[tls]`` names another."""
        return self.pki / "ca.crt"

    @property
    def superlink_ca_key(self) -> Path:
        """Key of :attr:`superlink_ca`."""
        return self.pki / "ca.key"

    @property
    def superlink_certificate(self) -> Path:
        """Certificate of the SuperLink."""
        return self.pki / "coordinator.crt"

    @property
    def superlink_key(self) -> Path:
        """Key of the SuperLink."""
        return self.pki / "coordinator.key"

    @property
    def release_key(self) -> Path:
        """Release key, which signs bundles: Ed25519 in OpenSSH format."""
        return self.folder / "secrets" / "release"

    @property
    def superexec_secret(self) -> Path:
        """Secret that the SuperLink requires from the SuperExec."""
        return self.folder / "secrets" / "superexec"

    @property
    def home(self) -> Path:
        """Flower's private home."""
        return self.folder / "flower"

    @property
    def bundles(self) -> Path:
        """Folder of signed bundles."""
        return self.folder / "bundles"

    @property
    def public(self) -> Path:
        """Folder of public files for the sites."""
        return self.folder / "public"

    @property
    def proxy(self) -> Path:
        """Folder of the proxy's configuration."""
        return self.folder / "proxy"

    @property
    def register(self) -> Path:
        """The register of sites."""
        return self.folder / "register.json"

    @property
    def analysts(self) -> Path:
        """The list of admitted analysts."""
        return self.folder / "analysts.json"

    @property
    def runs(self) -> Path:
        """Folder of the runs of analysts."""
        return self.state / "runs"

    @property
    def state(self) -> Path:
        """Folder of the SuperLink's database, logs and process files."""
        return self.folder / "state"

    @property
    def logs(self) -> Path:
        """Folder of logs, one per process."""
        return self.state / "logs"

    def command(self, name: str, *arguments: str) -> Command:
        """Return a Flower command with the settings of this coordinator."""
        settings = flower_settings(self.home, FLWR_SUPERGRID_API_URL=self.hub_url)
        return Command((program(name), *arguments), settings)

    def write_connection(self) -> None:
        """Write the connection of Flower's commands to the SuperLink: over loopback, with TLS."""
        page = (
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{self.superlink_address}"\n'
            f"root-certificates = {_quote(self.superlink_ca)}\n"
        )
        path = self.home / "config.toml"
        if not path.exists() or path.read_text(encoding="utf-8") != page:
            write_atomically(path, page.encode(), mode=0o600)


def _quote(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)
