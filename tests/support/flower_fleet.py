"""A coordinator with TLS, node authentication and a database, and sites in fast mode: processes of this machine."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from multicentre_sites.deployment.proxy import find_nginx
from support.ports import free_ports
from support.waiting import GENEROUS_S, wait_for

BIN = Path(sys.executable).parent
AGENT = Path(__file__).with_name("flower_agent.py")

_PROJECT = """
[project]
name = "letters"
version = "{version}"
license = {{ file = "LICENSE" }}
dependencies = ["flwr>=1.41"]
[tool.flwr.app]
publisher = "multicentre"
fab-format-version = 1
flwr-version-target = "1.41.0"
[tool.flwr.app.components]
serverapp = "multicentre_sites.flower.apps:server_app"
clientapp = "multicentre_sites.flower.apps:client_app"
[tool.flwr.app.config]
bridge = ""
"""

_PROXY = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; worker_processes 1;
events {{ worker_connections 256; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  client_max_body_size {limit};
  upstream superlink {{ server 127.0.0.1:{to}; keepalive 32; }}
  server {{
    listen 127.0.0.1:{port} ssl; ssl_certificate {folder}/server.crt; ssl_certificate_key {folder}/server.key;
    location /v1/fleet/ {{
      proxy_pass https://superlink; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
      proxy_ssl_trusted_certificate {folder}/ca.crt; proxy_ssl_verify on; proxy_ssl_name localhost;
    }}
    location = /v1/fleet/register-node {{ return 403; }}
    location / {{ return 404; }}
  }}
}}
"""


def make_authority(folder: Path) -> None:
    """Write `ca.crt`, and `server.crt` with its key for this machine."""
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "A study's authority")])
    root = _certificate(name, name, authority, authority, x509.BasicConstraints(ca=True, path_length=0))
    here = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    server = _certificate(subject, name, key, authority, here, usage)
    (folder / "ca.crt").write_bytes(root.public_bytes(Encoding.PEM))
    (folder / "server.crt").write_bytes(server.public_bytes(Encoding.PEM))
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "server.key").write_bytes(plain)


def make_key(path: Path) -> str:
    """Write a site's key and, beside it, its public half, which is returned."""
    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    path.with_suffix(".pub").write_text(public)
    return public


class Fleet:
    """The coordinator's processes and the sites' keys, all below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self.address = f"127.0.0.1:{self.port}"
        self.keys: dict[str, str] = {}
        self._superlink: subprocess.Popen[bytes] | None = None
        make_authority(folder)
        (folder / "home").mkdir()
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "fleet"\n[superlink.fleet]\naddress = "{self.address}"\n'
            f'root-certificates = "{folder / "ca.crt"}"\n'
        )

    @property
    def environment(self) -> dict[str, str]:
        """What every process of Flower is given."""
        return {
            **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_HOME": str(self.folder / "home"),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }

    def start(self) -> None:
        """Start the SuperLink, again on what it left behind, and wait until it answers."""
        secure = {"ca-certfile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}
        files = [part for name, file in secure.items() for part in (f"--ssl-{name}", str(self.folder / file))]
        command = [BIN / "flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), *files]
        command += ["--enable-supernode-auth", "--database", self.folder / "state.db"]
        command += ["--disable-runtime-dependency-installation"]
        self._superlink = self.run_beside(command, "superlink.log")
        wait_for(self._answers)

    def kill(self) -> None:
        """Kill the SuperLink and what it started."""
        if self._superlink is not None:
            end(self._superlink)

    def run_beside(self, command: list[object], log: str, **extra: str) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own, so that it can be ended with all that it starts."""
        with (self.folder / log).open("ab") as file:
            return subprocess.Popen(
                [str(part) for part in command],
                env=self.environment | extra,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def register(self, *names: str) -> None:
        """Make keys and register them under these names."""
        for name in names:
            self.keys[name] = make_key(self.folder / name)
            told = self.flwr("supernode", "register", self.folder / f"{name}.pub", "fleet", "--name", name)
            assert told["success"]

    def bundle(self, version: str) -> tuple[Path, str]:
        """Write a bundle without code; return its folder and the SHA-256 that sites approve."""
        folder = self.folder / f"bundle-{version.replace('.', '-')}"
        folder.mkdir()
        (folder / "pyproject.toml").write_text(_PROJECT.format(version=version))
        (folder / "LICENSE").write_text("Apache-2.0\n")
        subprocess.run(
            [BIN / "flwr", "build", "--app", folder],
            cwd=self.folder,
            env=self.environment,
            check=True,
            capture_output=True,
            timeout=GENEROUS_S,
        )
        built = next(self.folder.glob(f"*{version.replace('.', '-')}*.fab"))
        digest = hashes.Hash(hashes.SHA256())
        digest.update(built.read_bytes())
        return folder, digest.finalize().hex()

    def flwr(self, *arguments: object) -> dict[str, object]:
        """Run a command of Flower and return what it tells."""
        command = [str(part) for part in (BIN / "flwr", *arguments, "--format", "json")]
        done = subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=GENEROUS_S)
        return dict(json.loads(done.stdout))

    def agent(
        self, name: str, approved: str, *, address: str = "", authority: Path | None = None, **extra: str
    ) -> subprocess.Popen[bytes]:
        """Start a site's agent; what it tells goes to `<name>.log`."""
        trusted = authority or self.folder / "ca.crt"
        command = [sys.executable, AGENT, address or self.address, trusted, self.folder / name, approved]
        return self.run_beside(command, f"{name}.log", **extra)

    def told(self, name: str) -> str:
        """Return what a site's agent has told so far."""
        log = self.folder / f"{name}.log"
        return log.read_text() if log.exists() else ""

    @contextlib.contextmanager
    def proxy(self, limit: str = "8m") -> Iterator[str]:
        """Run nginx before the SuperLink, with a limit for bodies; yield its address."""
        (port,) = free_ports(1)
        file = self.folder / "nginx.conf"
        file.write_text(_PROXY.format(folder=self.folder, port=port, to=self.port, limit=limit))
        process = self.run_beside([find_nginx() or "", "-p", self.folder, "-c", file], "nginx.out")
        try:
            wait_for(lambda: _listens(port))
            yield f"127.0.0.1:{port}"
        finally:
            end(process)

    def _answers(self) -> bool:
        assert self._superlink is not None
        assert self._superlink.poll() is None, (self.folder / "superlink.log").read_text()
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with contextlib.suppress(OSError), opener.open(f"https://{self.address}/health", timeout=5) as answer:
            return bool(answer.status == 200)
        return False


def end(process: subprocess.Popen[bytes], how: int = signal.SIGKILL) -> None:
    """End a process that :meth:`Fleet.run_beside` started, and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, how)
    process.wait(GENEROUS_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *extensions: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return builder.sign(signer, hashes.SHA256())
