"""Standard mode of a site: Flower's SuperNode, which only runs bundles signed by a trusted key, without installs."""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from multicentre.core.links import MAX_CLOCK_DIFFERENCE_S, proxy_refuses
from multicentre.core.storage import write_atomically
from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.connectivity import fault_of_connection
from multicentre_sites.deployment.flower_commands import Command, flower_settings, program
from multicentre_sites.deployment.release_key import trusted_entities
from multicentre_sites.deployment.site_folder import Site
from multicentre_sites.deployment.supervisor import Service

LOOPBACK = "127.0.0.1"
_SECRET_BYTES = 32  # 256 bits cannot be guessed
SOCKET = "requests"  # short: the path of a Unix socket has at most 103 bytes
_NOT_LET_IN = (
    "the coordinator refuses the site: its key is not registered, it was connected within the last minute, or "
    f"the clocks differ by more than {MAX_CLOCK_DIFFERENCE_S:g} s"
)
_EXPLANATIONS = {
    "CERTIFICATE_VERIFY_FAILED": "the coordinator's certificate is invalid; run multicentre site check",
    "[code: 2001]": "this site's key is not registered; send the site's card to the coordinator",
    "[code: 2004]": _NOT_LET_IN,
    "Exit Code: 305": "no connection to the coordinator",
}


def socket_of(site: Site) -> Path:
    """Return the socket at which the site's process receives requests."""
    return site.running / SOCKET


def services_of(site: Site, release_keys: Mapping[str, str]) -> list[Service]:
    """Return the processes of the standard mode: a SuperNode, and the SuperExec that starts its apps.

    The interface between the two is on loopback and requires a secret that is new at each start.

    Parameters
    ----------
    site : Site
    release_keys : mapping of str to str
        OpenSSH lines of the keys whose bundles may run, by fingerprint.

    Raises
    ------
    ConfigurationError
        No key is trusted: with an empty list, Flower would run any bundle.
    MissingExtra
        Flower is not installed.
    """
    if not release_keys:
        raise ConfigurationError(
            "a release key must be approved, since Flower would otherwise run any bundle; got none",
            where=site.name,
            hint="Approve the coordinator's: multicentre site approve release.pub.",
        )
    site.running.mkdir(mode=0o700, parents=True, exist_ok=True)
    trusted, secret, port = site.running / "trusted.yaml", site.running / "superexec", _free_port()
    keys = [load_ssh_public_key(line.encode()) for line in release_keys.values()]
    entities = trusted_entities(key for key in keys if isinstance(key, Ed25519PublicKey))
    write_atomically(trusted, entities.encode(), mode=0o600)
    write_atomically(secret, secrets.token_hex(_SECRET_BYTES).encode(), mode=0o600)
    settings = flower_settings(site.running / "flower")
    node = Command(_node_arguments(site, trusted, secret, port), settings)
    executor = Command(
        (
            program("flower-superexec"),
            *("--insecure", "--runtime-api-address", f"{LOOPBACK}:{port}"),
            *("--superexec-auth-secret-file", str(secret)),
        ),
        settings,
    )
    return [Service(node, lambda: _listens(port)), Service(executor)]


def explain_end(site: Site, output: str) -> str:
    """Return the reason for which a SuperNode ended; empty if unknown."""
    if re.search(r"\b407\b.*auth", output, re.IGNORECASE):
        return str(proxy_refuses(site.address))
    return explain(output) or fault_of_connection(site.address, site.ca)


def explain(output: str) -> str:
    """Return the reason for which a SuperNode ended, from its output; empty if unknown.

    Examples
    --------
    >>> explain("Exit Code: 305")
    'no connection to the coordinator'
    """
    return next((words for mark, words in _EXPLANATIONS.items() if mark in output), "")


def _node_arguments(site: Site, trusted: Path, secret: Path, port: int) -> tuple[str, ...]:
    return (
        program("flower-supernode"),
        *("--superlink", site.address),
        *("--root-certificates", str(site.ca)),
        *("--auth-supernode-private-key", str(site.keys.node)),
        *("--trusted-entities", str(trusted)),
        *("--node-config", f'requests="{socket_of(site)}"'),
        *("--isolation", "process", "--superexec-auth-secret-file", str(secret)),
        *("--host", LOOPBACK, "--port", str(port)),
    )


def _free_port() -> int:
    with socket.socket() as client:
        client.bind((LOOPBACK, 0))
        return int(client.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(0.2)  # loopback answers at once
        return client.connect_ex((LOOPBACK, port)) == 0
