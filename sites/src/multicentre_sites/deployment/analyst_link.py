"""Protocol between an analyst's process and the coordinator's service: frames over a Unix socket.

The service sends a nonce; the analyst answers with an order, signed together with the nonce. The service then sends
lines for the terminal, the opening of the run for signature, the files of the run and its end.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from multicentre import __version__
from multicentre.core.parsing import load_json
from multicentre.core.protocol import WIRE_PROTOCOL
from multicentre.engines.remote.opening import Opening
from multicentre.engines.remote.packing import Reply, pack_own_error, unpack_error
from multicentre.engines.remote.socket import MAX_MESSAGE_BYTES, receive_frame, send_frame
from multicentre.errors import ConfigurationError, MessageError, MulticentreError, RefusedByPolicy
from multicentre.privacy.secure_sum.identity import bytes_of_hex, verify
from multicentre_sites.deployment.analysts import Analyst, AnalystCard

_TOKEN = re.compile(r"[0-9a-f]{32}")
_MAX_ORDER = 4 * 2**20  # a study file has a few kilobytes
_NONCE_BYTES = 32  # 256 random bits never repeat
_OTHERS_WRITE = 0o022  # write permission of group and others
_REACHED_WITHIN_S = 1.0  # loopback answers or refuses at once; a rule that drops packets never answers
_UNFENCED = (
    "Warning: the account of analyst {name} reaches the SuperLink at 127.0.0.1:{port} and could run code under the "
    "service's account. Reject other accounts by the machine's firewall: multicentre docs deployment, section Analysts."
)


@dataclass(frozen=True)
class Order:
    """Order of an analyst to the coordinator's service.

    Parameters
    ----------
    card : AnalystCard
    token : str
        Name of the run at the service: 32 random hexadecimal digits from the analyst's process.
    study : str
        Content of the study file; empty if a run is resumed.
    """

    card: AnalystCard
    token: str
    study: str = ""

    def pack(self) -> bytes:
        """Return the order as bytes."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Read an order.

        Raises
        ------
        MessageError
            A field is missing, unknown, or has the wrong type.
        """
        try:
            content = load_json(packed) if len(packed) <= _MAX_ORDER else {}
            order = cls(AnalystCard(**content.pop("card")), **content)
        except (ValueError, TypeError, KeyError, AttributeError, ConfigurationError):
            raise _malformed() from None
        if {type(order.study), type(order.token)} != {str} or not _TOKEN.fullmatch(order.token):
            raise _malformed()
        return order


def connect_to_service(path: Path) -> socket.socket:
    """Return a connection to the service's socket.

    Raises
    ------
    ConfigurationError
        Other accounts may replace the socket, or no service listens there.
    """
    hint = "Ask the coordinator's administrator for the socket ([analysts] in coordinator.toml) and its state."
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        check_folder(path.parent)
        connection.connect(str(path))
    except OSError as error:
        connection.close()
        raise ConfigurationError(
            f"the coordinator's service cannot be reached ({error.strerror or error})", where=str(path), hint=hint
        ) from None
    except BaseException:
        connection.close()
        raise
    return connection


def check_folder(folder: Path) -> None:
    """Check that only the owner of a folder can create a socket in it.

    Raises
    ------
    ConfigurationError
        The folder does not exist, or its group or others may write to it.
    """
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError as error:
        raise ConfigurationError(
            f"the folder of the coordinator's socket cannot be read ({error.strerror})", where=str(folder)
        ) from None
    if mode & _OTHERS_WRITE:
        raise ConfigurationError(
            "the folder of the coordinator's socket must be writable by its owner only; others may write to it",
            where=str(folder),
            hint="Name a folder such as /run/multicentre with mode 755.",
        )


def send_order(connection: socket.socket, analyst: Analyst, order: Order) -> None:
    """Send an order, signed together with the nonce that the service sends first."""
    header, _ = expect_frame(connection, "hello")
    if header.get("protocol") != WIRE_PROTOCOL:
        raise ConfigurationError(
            f"analyst and coordinator must have the same wire protocol; got {WIRE_PROTOCOL} and "
            f"{header.get('protocol')!s:.40}",
            hint=f"Install a release of the coordinator's protocol; it has release {header.get('version')!s:.40}.",
        )
    packed = order.pack()
    signature = analyst.identity.sign(_proof(str(header.get("nonce")), packed))
    reached = _reaches(header.get("superlink"))
    send_frame(connection, {"kind": "order", "signature": signature.hex(), "reaches_superlink": reached}, packed)


def receive_order(connection: socket.socket, superlink: int, warn: Callable[[str], None]) -> Order:
    """Return an order whose signature holds for this connection.

    Parameters
    ----------
    connection : socket
    superlink : int
        Port of the SuperLink on this machine.
    warn : callable
        Receives a warning if the analyst's account reaches the SuperLink, which authenticates nobody on this machine.

    Raises
    ------
    MessageError
        A field is missing, unknown, or has the wrong type.
    RefusedByPolicy
        The order is not signed for this connection with the key of its card.
    """
    nonce = secrets.token_hex(_NONCE_BYTES)
    send_frame(connection, _hello(nonce, superlink))
    header, packed = expect_frame(connection, "order", _MAX_ORDER)
    order = Order.unpack(packed)
    try:
        signature = bytes_of_hex(str(header.get("signature")))
    except ValueError:
        raise _malformed() from None
    if not verify(bytes.fromhex(order.card.public_key), signature, _proof(nonce, packed)):
        raise RefusedByPolicy(
            "the order must be signed for this connection with the key of its card; got no valid signature",
            where=order.card.name,
        )
    if header.get("reaches_superlink") is True:
        warn(_UNFENCED.format(name=order.card.name, port=superlink))
    return order


def _hello(nonce: str, superlink: int) -> dict[str, object]:
    facts = {"protocol": WIRE_PROTOCOL, "version": __version__, "superlink": superlink}
    return {"kind": "hello", "nonce": nonce, **facts}


def pack_opening(opening: Opening) -> bytes:
    """Return an opening for its analyst's signature."""
    return json.dumps({"run": opening.run, "attempt": opening.attempt, **json.loads(opening.pack())}).encode()


def unpack_opening(packed: bytes) -> Opening:
    """Read an opening that is to be signed.

    Raises
    ------
    MessageError
        A field is missing, unknown, or has the wrong type.
    """
    try:
        content = load_json(packed)
        opening = Opening(**{**content, "sites": tuple(content["sites"])})
    except (ValueError, TypeError, KeyError):
        raise _malformed() from None
    kinds = (type(opening.run), type(opening.attempt), type(opening.study), type(opening.terms), type(opening.protocol))
    if kinds != (str, int, str, str, dict) or opening.request is not None or type(opening.secure_sum) is not bool:
        raise _malformed()
    return opening


def send_end(connection: socket.socket, status: int, error: MulticentreError | None = None) -> None:
    """Send the end of a run, with the error that ended it; sites' errors arrived here without paths."""
    send_frame(connection, {"kind": "end", "status": status}, b"" if error is None else pack_own_error(error))


def read_error(body: bytes) -> MulticentreError:
    """Return the error that ended a run."""
    return unpack_error(Reply(0, "refused", body))


def expect_frame(
    connection: socket.socket, kind: str, largest: int = MAX_MESSAGE_BYTES
) -> tuple[Mapping[str, Any], bytes]:
    """Return the next frame, which must have this kind and at most `largest` bytes.

    Raises
    ------
    MessageError
        The peer has closed, or sent another kind.
    """
    frame = receive_frame(connection, largest)
    if frame is not None and frame[0].get("kind") == "end" and frame[1]:
        raise read_error(frame[1])
    if frame is None or frame[0].get("kind") != kind:
        raise _malformed()
    return frame


def listen_for_analysts(path: Path) -> socket.socket:
    """Return a socket at `path` that every account on this machine may connect to; replace a stale one.

    Raises
    ------
    ConfigurationError
        Others may write to its folder, the path is another file, or the socket cannot be created.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        check_folder(path.parent)
        if os.path.lexists(path):
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise ConfigurationError(
                    "the path of a socket must be free or a socket; got another file", where=str(path)
                )
            path.unlink()
        listener.bind(str(path))
        path.chmod(0o666)  # signatures decide who may run studies, not accounts
        listener.listen(128)  # more than connect at once; further clients wait
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"the socket of analysts cannot be created ({error.strerror or error})",
            where=str(path),
            hint="Name a path of at most 103 bytes in a folder of the service's account: [analysts] socket.",
        ) from None
    except BaseException:
        listener.close()
        raise
    return listener


def _reaches(port: object) -> bool:
    """Return True if this account can connect to the SuperLink directly."""
    if not isinstance(port, int) or not 0 < port < 2**16:
        return False
    with socket.socket() as client:
        client.settimeout(_REACHED_WITHIN_S)
        return client.connect_ex(("127.0.0.1", port)) == 0


def _proof(nonce: str, packed: bytes) -> bytes:
    return b"\0".join([b"multicentre order v1", nonce.encode(), hashlib.sha256(packed).digest()])


def _malformed() -> MessageError:
    return MessageError(
        "frames on the coordinator's socket must follow the protocol; got others",
        hint="Run the same version of multicentre.",
    )
