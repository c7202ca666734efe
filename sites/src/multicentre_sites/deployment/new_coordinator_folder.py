"""Creation of a coordinator's folder, and renewal of its certificate."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from multicentre.core.storage import write_atomically
from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.certificates import (
    CERTIFICATE_DAYS,
    RENEWED_BEFORE_DAYS,
    certify_host,
    check_certificate,
    days_left,
    make_private,
    new_authority,
    read_certified,
    write_certified,
)
from multicentre_sites.deployment.coordinator_folder import LOOPBACK, SETTINGS, Consortium, validate_host
from multicentre_sites.deployment.flower_commands import LOOPBACK_NAMES
from multicentre_sites.deployment.private_files import write_private
from multicentre_sites.deployment.proxy import write_proxy
from multicentre_sites.deployment.release_key import ReleaseKey, openssh_line, trusted_entities
from multicentre_sites.deployment.site_register import SiteRegister

FIRST_FREE_PORT = 1024  # lower ports require a capability on Unix

_README = """\
# The coordinator at {host}

| file or folder | what it is | who may have it |
|---|---|---|
| `coordinator.toml` | host, port, certificates, loopback ports | administrator |
| `pki/`, `secrets/` | keys: of the authority, of TLS, of releases, of the SuperExec | nobody else, ever |
| `public/` | `ca.crt`, `release.pub`, `trusted-entities.yaml`, `roster.toml`, `bundle.toml` | every site |
| `register.json` | the sites: names, public keys, numbers in Flower | administrator |
| `analysts.json` | the analysts who are admitted: names and public keys | administrator |
| `bundles/` | the signed bundle; it contains no code | anybody |
| `proxy/` | configurations of nginx, written again at every start | administrator |
| `flower/`, `state/` | Flower's private home, its database, logs | administrator |

## First steps

    multicentre coordinator sign-app --folder .
    multicentre coordinator up --folder .                  # starts nginx on {listen}
    multicentre coordinator up --folder . --proxy external # behind a proxy that you run, with proxy/site.conf
    multicentre coordinator up --folder . --proxy none     # a trial with sites on this machine alone; read its warning
    multicentre coordinator add-site lyon.site.toml --folder .
    multicentre coordinator sites --folder .
    multicentre coordinator remove-site lyon --folder .    # its keys are never taken again
    multicentre coordinator admit-analyst ada.analyst.toml --folder .   # and remove-analyst ada, analysts

Send `public/` to the sites, and compare fingerprints over another channel, such as the telephone:

| what | here | at the site |
|---|---|---|
| each site's card | `coordinator add-site`, `sites` | `site keygen`, `site check` (line `keys`) |
| authority, `ca.crt` | `study init`, `sign-app`, `add-site`, `roster` | `site check` (line `authority`) |
| release key, `release.pub` | the same | `site approve` |
| bundle, `bundle.toml` | the same, from `sign-app` on | `site approve` |
| roster, `roster.toml` | the same, from the first `add-site` on | `site approve` |

After each `add-site` and `remove-site`, send the new `public/roster.toml`. It is signed by the release key: sites that
approved this key need not compare the fingerprint of each new site again.

## What must hold

- Sites reach {host}:{port}, by TLS, outbound from the site. Nothing else of this machine needs to be reachable.
- The SuperLink listens on 127.0.0.1 alone. Never publish its port: only the routes in `proxy/site.conf` ask a caller
  who it is. Whoever has an account on this machine reaches the others: give accounts to administrators alone, or reject
  the others' packets to the ports of [loopback] (`multicentre docs deployment`, section Analysts, has the rule).
- `pki/`, `secrets/`, `state/` and `flower/` belong to the account of the service, mode 700, keys and database 600; the
  service does not start otherwise. Analysts have separate accounts and use the socket of [analysts].
- `multicentre coordinator up` asks the public address, at the start and every five minutes, for routes that must not
  answer, and stops everything when one does.
- With the authority of this consortium the certificate is renewed at the start when fewer than 60 days are left. You
  must replace a certificate of your own in `pki/`.
- Clocks of coordinator and sites may differ by at most 5 seconds.
- Copy this folder to a safe place after every change of the register.

## As a service

    [Unit]
    Description=multicentre coordinator
    After=network-online.target

    [Service]
    User=multicentre
    ExecStart=/opt/multicentre/bin/multicentre coordinator up --folder /srv/consortium
    Restart=on-failure
    RestartSec=15
    TimeoutStopSec=20
    RuntimeDirectory=multicentre
    RuntimeDirectoryMode=0755
    UMask=0077
    NoNewPrivileges=yes
{rights}    ProtectSystem=strict
    ReadWritePaths=/srv/consortium

    [Install]
    WantedBy=multi-user.target

The account `multicentre` owns this folder and nobody logs in to it. For analysts, `coordinator.toml` names a socket in
the runtime directory:

    [analysts]
    socket = "/run/multicentre/analysts"
"""

_LOW_PORT_RIGHTS = """\
    AmbientCapabilities=CAP_NET_BIND_SERVICE
    CapabilityBoundingSet=CAP_NET_BIND_SERVICE
"""


def coordinator_readme(host: str, port: int, listen: str) -> str:
    """Return the content of README.md.

    Parameters
    ----------
    host : str
    port : int
        Public address, to which sites connect.
    listen : str
        Address and port of the proxy, ``address:port``; a port below 1024 requires a capability.
    """
    rights = _LOW_PORT_RIGHTS if int(listen.rpartition(":")[2]) < FIRST_FREE_PORT else ""
    return _README.format(host=host, port=port, listen=listen, rights=rights)


_SECRET_BYTES = 32  # 256 bits cannot be guessed

_SETTINGS = """\
# The coordinator of a consortium. The SuperLink listens on this machine alone; sites reach the proxy.
host = {host}
port = {port}
listen = "{listen}"      # address and port of the proxy on this machine

[tls]
ca = "{ca}"              # authority that sites trust
certificate = "{certificate}"
key = "{key}"

[loopback]
superlink = {superlink}
bundles = {bundles}

# The Unix socket at which admitted analysts ask for runs under separate accounts. See README.md.
# [analysts]
# socket = "/run/multicentre/analysts"
"""


@dataclass(frozen=True)
class ConsortiumOptions:
    """Options of a new coordinator's folder.

    Parameters
    ----------
    host : str
        Name or IPv4 address that sites connect to.
    port : int, default 443
    listen : str, optional
        Address and port of the proxy; by default all addresses of this machine, or loopback if the host is loopback.
    superlink_port, bundles_port : int
        Ports on loopback.
    ca, certificate, key : Path, optional
        An authority, a certificate for the host with its chain, and its key: all or none. Without them, the coordinator
        gets an authority of this consortium.
    """

    host: str
    port: int = 443
    listen: str | None = None
    superlink_port: int = 18000
    bundles_port: int = 18300
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        try:
            validate_host(self.host)
        except ValueError as error:
            raise ConfigurationError(
                f"the host must be {error}", where=f"host {self.host!r}", hint="Say, --host fl.example.org"
            ) from None
        files = [one is not None for one in (self.ca, self.certificate, self.key)]
        if any(files) and not all(files):
            raise ConfigurationError(
                "ca, certificate and key must be given together; got only some",
                where="--ca, --certificate, --key",
                hint="Give all three, or none for a new authority.",
            )

    @property
    def new_authority(self) -> bool:
        """True if sites trust a new authority of the coordinator."""
        return self.ca is None

    @property
    def listening(self) -> str:
        """Address and port at which the proxy listens."""
        everywhere = LOOPBACK if self.host in LOOPBACK_NAMES else "0.0.0.0"
        return self.listen or f"{everywhere}:{self.port}"


def create_consortium(folder: Path, options: ConsortiumOptions) -> Consortium:
    """Create a coordinator's folder; on failure, restore the previous state.

    Raises
    ------
    ConfigurationError
        The folder has content, the host is invalid, or sites would reject the certificate.
    """
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(
            "the folder must be new or empty, since keys are never overwritten; it has content",
            where=str(folder),
            hint="Name a new folder.",
        )
    if options.ca is not None and options.certificate is not None and options.key is not None:
        check_certificate(options.ca, options.certificate, options.key, options.host)
    existed = folder.exists()
    try:
        make_private(folder)
        return _fill(folder, options)
    except BaseException:
        _empty(folder, keep=existed)
        raise


def renew_certificate(consortium: Consortium, report: Callable[[str], None]) -> bool:
    """Renew the certificate of the coordinator's authority if it expires soon; return True if renewed."""
    if days_left(consortium.superlink_certificate) >= RENEWED_BEFORE_DAYS:
        return False
    authority = read_certified(consortium.superlink_ca, consortium.superlink_ca_key)
    renewed = certify_host(authority, consortium.settings.host)
    write_certified(renewed, consortium.superlink_certificate, consortium.superlink_key)
    report(f"The certificate was renewed for {CERTIFICATE_DAYS} days.")
    return True


def _fill(folder: Path, options: ConsortiumOptions) -> Consortium:
    _write_settings(folder, options)
    consortium = Consortium.read(folder)
    for private in (consortium.pki, consortium.home, consortium.state, consortium.logs, consortium.release_key.parent):
        make_private(private)
    _write_pki(consortium, options)
    write_private(consortium.superexec_secret, secrets.token_hex(_SECRET_BYTES).encode())
    release = ReleaseKey.generate()
    release.write(consortium.release_key)
    SiteRegister().write(consortium.register)
    consortium.bundles.mkdir()
    _publish(consortium, release.public)
    consortium.write_connection()
    write_proxy(consortium)
    page = coordinator_readme(options.host, options.port, options.listening)
    write_atomically(folder / "README.md", page.encode())
    return consortium


def _write_settings(folder: Path, options: ConsortiumOptions) -> None:
    names = ("ca.crt", "coordinator.crt", "coordinator.key")
    ca, certificate, key = (f"pki/{name}" if options.new_authority else f"pki/public-{name}" for name in names)
    page = _SETTINGS.format(
        host=json.dumps(options.host),
        port=options.port,
        listen=options.listening,
        ca=ca,
        certificate=certificate,
        key=key,
        superlink=options.superlink_port,
        bundles=options.bundles_port,
    )
    write_atomically(folder / SETTINGS, page.encode())


def _write_pki(consortium: Consortium, options: ConsortiumOptions) -> None:
    authority = new_authority(options.host)
    write_certified(authority, consortium.superlink_ca, consortium.superlink_ca_key)
    write_certified(certify_host(authority, options.host), consortium.superlink_certificate, consortium.superlink_key)
    if options.ca is not None and options.certificate is not None and options.key is not None:
        tls = consortium.settings.tls
        write_private(tls.key, options.key.read_bytes())
        write_atomically(tls.certificate, options.certificate.read_bytes())
        write_atomically(tls.ca, options.ca.read_bytes())


def _publish(consortium: Consortium, release: Ed25519PublicKey) -> None:
    """Write the public files for the sites."""
    public = consortium.public
    write_atomically(public / "ca.crt", consortium.settings.tls.ca.read_bytes())
    write_atomically(public / "release.pub", f"{openssh_line(release)}\n".encode())
    write_atomically(public / "trusted-entities.yaml", trusted_entities([release]).encode())
    SiteRegister().roster.write(public / "roster.toml")


def _empty(folder: Path, *, keep: bool) -> None:
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for inside in folder.iterdir():
        if inside.is_dir():
            shutil.rmtree(inside, ignore_errors=True)
        else:
            inside.unlink()
