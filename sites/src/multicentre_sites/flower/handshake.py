"""Handshake between the coordinator's process and its app inside Flower, and the app of a site.

The run's configuration names a private folder with a socket and a token. The token is never sent: neither the list of
processes nor the SuperLink's database contains it. Both ends prove that they can read it.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_public_key,
)
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from multicentre.engines.remote.socket import Unreachable, ask_socket, receive_frame, send_frame
from multicentre.errors import ConfigurationError, MessageError
from multicentre_sites.flower.records import REQUEST_LIFETIME_S, pack_failure, pack_payload, unpack_payload

BRIDGE = "bridge"

SOCKET, _TOKEN = "socket", "token"


def run_config(folder: Path) -> str:
    """Return the value of ``flwr run --run-config``. The app's default configuration must have the key ``bridge``."""
    return f"{BRIDGE}={json.dumps(str(folder))}"


def write_token(folder: Path) -> bytes:
    """Write a new token to `folder`, readable by this account only, and return it."""
    token = secrets.token_bytes(32)
    path = folder / _TOKEN
    path.touch(mode=0o600)
    path.write_bytes(token)
    return token


def greet_coordinator(connection: socket.socket, folder: Path, run: int) -> dict[str, str]:
    """Authenticate the app of `run` and the coordinator to each other; return sites and their keys."""
    token, own_nonce = (folder / _TOKEN).read_bytes(), secrets.token_hex(32)
    send_frame(connection, {"kind": "hello", "nonce": own_nonce, "run": str(run)})
    header, _ = _expect(connection, "challenge")
    peer_nonce = str(header.get("nonce"))
    _check(header, _prove(token, "coordinator", own_nonce, peer_nonce, run))
    send_frame(connection, {"kind": "proof", "proof": _prove(token, "app", own_nonce, peer_nonce, run)})
    return _read_register(_expect(connection, "sites")[1])


def greet_app(connection: socket.socket, token: bytes, sites: Mapping[str, str]) -> int:
    """Authenticate the coordinator and the app to each other, send sites and keys, and return the number of the run."""
    header, _ = _expect(connection, "hello")
    peer_nonce, own_nonce, run = str(header.get("nonce")), secrets.token_hex(32), str(header.get("run"))
    if not run.isdecimal():
        raise _refused()
    proof = _prove(token, "coordinator", peer_nonce, own_nonce, int(run))
    send_frame(connection, {"kind": "challenge", "nonce": own_nonce, "proof": proof})
    answer, _ = _expect(connection, "proof")
    _check(answer, _prove(token, "app", peer_nonce, own_nonce, int(run)))
    send_frame(connection, {"kind": "sites"}, json.dumps(dict(sites)).encode())
    return int(run)


def _prove(token: bytes, who: str, app_nonce: str, coordinator_nonce: str, run: int) -> str:
    statement = json.dumps([who, app_nonce, coordinator_nonce, run]).encode()
    return hmac.new(token, statement, "sha256").hexdigest()


def _check(header: Mapping[str, object], proof: str) -> None:
    if not hmac.compare_digest(str(header.get("proof")).encode(), proof.encode()):
        raise _refused()


def _expect(connection: socket.socket, kind: str) -> tuple[dict[str, object], bytes]:
    frame = receive_frame(connection)
    if frame is None or frame[0].get("kind") != kind:
        raise _refused()
    return frame


def _read_register(text: bytes) -> dict[str, str]:
    register = json.loads(text)
    return {str(site): str(key) for site, key in register.items()}


def _refused() -> MessageError:
    return MessageError(
        "the process at the other end of the bridge must prove that it has the token; got no valid proof",
        hint="Start the run again.",
    )


Handle = Callable[[bytes], bytes | Unreachable]

NODE_CONFIG_KEY = "requests"


def make_client_app(handle: Handle | None = None) -> ClientApp:
    """Return a ClientApp that answers requests.

    Parameters
    ----------
    handle : callable, optional
        Returns the reply to a request. By default, requests go to the site's process, at the socket whose path is the
        SuperNode's option ``--node-config 'requests="..."'``.
    """
    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        return Message(_answered(message, context, handle), reply_to=message)

    return app


def relay_to(path: Path, wait_s: float = REQUEST_LIFETIME_S) -> Handle:
    """Return a function that forwards a request to the process at the socket `path` and never raises."""

    def relay(request: bytes) -> bytes | Unreachable:
        try:
            return ask_socket(path, request, wait_s)
        except (OSError, MessageError):
            return Unreachable("stopped")

    return relay


def _answered(message: Message, context: Context, handle: Handle | None) -> RecordDict:
    try:
        reply = (handle or relay_to(Path(str(context.node_config[NODE_CONFIG_KEY]))))(unpack_payload(message.content))
        return pack_failure(reply) if isinstance(reply, Unreachable) else pack_payload(reply)
    except Exception:  # Flower would send the text of the exception to the coordinator
        return pack_failure(Unreachable("stopped"))


def names_by_key(sites: Mapping[str, str]) -> dict[bytes, str]:
    """Return the names of sites by canonical key.

    Raises
    ------
    ConfigurationError
        A key cannot be read, or two sites have the same key.
    """
    names: dict[bytes, str] = {}
    for site, key in sites.items():
        canonical = canonical_key(key.encode())
        if canonical is None:
            raise ConfigurationError(
                "the public key of a site must be a readable OpenSSH or PEM key; got another text",
                where=site,
                hint="Register the site's card again.",
            )
        if canonical in names:
            raise ConfigurationError(
                "sites must have different keys; got the same key for two sites", where=f"{names[canonical]}, {site}"
            )
        names[canonical] = site
    return names


def canonical_key(key: bytes) -> bytes | None:
    """Return a key in one canonical notation; None if the bytes are not a public key."""
    try:
        read = load_pem_public_key(key) if key.startswith(b"-----") else load_ssh_public_key(key)
        return read.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, UnsupportedAlgorithm):
        return None
