"""Requests between two processes on one machine: frames over a Unix socket in a private folder.

A frame consists of the length of its header (four bytes), the header (JSON), and a body whose size is in the header.
Nothing is pickled, every size is bounded, and only processes of the same account are accepted.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from multicentre.core.links import REQUEST_LESS
from multicentre.errors import ConfigurationError, MessageError

REQUEST_FRAME = "request"  # kind of the frame that holds a request

MAX_MESSAGE_BYTES = 256 * 2**20  # 32 million numbers; several copies of a message must fit in memory

HEADER_BYTES = 256 * 2**10  # names and numbers of some thousand sites

_PIECE_BYTES = 2**20  # larger pieces are not faster over a Unix socket

_PATH_BYTES = 103  # limit of macOS, the smallest of the supported systems

_IDLE_S = 60.0  # the peer is on this machine; a busy one may need seconds to start sending

_LINGER_S = 5.0  # below the 10 s after which service managers kill a process that is stopped

_POLL_S = 0.2  # short for a person, and no measurable load


def check_size(packed: bytes, what: str) -> None:
    """Raise MessageError if a message is too large for every carrier."""
    if len(packed) > MAX_MESSAGE_BYTES:
        raise MessageError(
            f"a message must have at most {MAX_MESSAGE_BYTES / 2**20:.1f} MiB; got {len(packed) / 2**20:.1f} MiB",
            where=what,
            hint=REQUEST_LESS,
        )


def send_frame(connection: socket.socket, header: Mapping[str, object], body: bytes = b"") -> None:
    """Send one frame."""
    head = json.dumps({**header, "size": len(body)}).encode()
    check_size(body, "request")
    if len(head) > HEADER_BYTES:
        raise _malformed("that exceeds the size limit")
    connection.sendall(struct.pack(">I", len(head)) + head)
    for start in range(0, len(body), _PIECE_BYTES):
        connection.sendall(memoryview(body)[start : start + _PIECE_BYTES])


def receive_frame(
    connection: socket.socket, largest: int = MAX_MESSAGE_BYTES
) -> tuple[dict[str, object], bytes] | None:
    """Return the next frame's header and body of at most `largest` bytes; None if the peer has closed.

    Raises
    ------
    MessageError
        The bytes received are not a frame.
    OSError
        The connection breaks or is silent within a frame.
    """
    first = _receive(connection, 4, or_end=True)
    if not first:
        return None
    (length,) = struct.unpack(">I", first)
    if length > HEADER_BYTES:
        raise _malformed("whose header exceeds the size limit")
    header = _read_header(_receive(connection, length))
    size = header.pop("size", None)
    if not isinstance(size, int) or not 0 <= size <= largest:
        raise _malformed("whose size exceeds the limit or is missing")
    return header, _receive(connection, size)


def _receive(connection: socket.socket, size: int, *, or_end: bool = False) -> bytes:
    """Return `size` bytes; memory grows with the bytes received, not with the announced size."""
    parts: list[bytes] = []
    left = size
    while left:
        part = connection.recv(min(left, _PIECE_BYTES))
        if not part:
            if or_end and left == size:
                return b""
            raise _malformed("that ends too early")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _read_header(text: bytes) -> dict[str, object]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise _malformed("without a readable header") from None
    if not isinstance(header, dict):
        raise _malformed("without a readable header")
    return header


def _malformed(how: str) -> MessageError:
    return MessageError(
        f"received a frame {how} over the socket", hint="Run the same version of multicentre at both ends."
    )


def listen_at(path: Path) -> socket.socket:
    """Return a socket that listens at `path`, in a folder that only this account can access; replace a stale file.

    Raises
    ------
    ConfigurationError
        The path is too long, other accounts can access its folder, or another process listens there.
    """
    fresh = path.with_name(path.name + ".new")
    _check_length(fresh)
    _make_private_folder(path.parent)
    _check_free(path)
    fresh.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(fresh))
        fresh.chmod(0o600)
        listener.listen(128)  # more than connect at once; further clients are turned away
        fresh.replace(path)  # only now is the socket visible, and it already listens
    except BaseException:
        listener.close()
        raise
    return listener


def connect_to(path: Path, wait_s: float = _IDLE_S) -> socket.socket:
    """Return a connection to the socket at `path`, after a check of its owner; `wait_s` limits each part of a frame."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(wait_s)
        connection.connect(str(path))
        check_peer(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def check_peer(connection: socket.socket) -> None:
    """Refuse a peer of another account, if the system reports the account."""
    if not hasattr(socket, "SO_PEERCRED"):
        return
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[1] != os.geteuid():
        raise MessageError(
            "the process at the other end of the socket must belong to this account; got another account"
        )


def _check_length(path: Path) -> None:
    if len(os.fsencode(path)) > _PATH_BYTES:
        raise ConfigurationError(
            f"the path of a Unix socket must have at most {_PATH_BYTES} bytes; got {len(os.fsencode(path))}",
            where=str(path),
            hint="Choose a folder with a shorter path.",
        )


def _make_private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigurationError(
            "the folder of a socket must be accessible to this account only; others have rights to it",
            where=str(folder),
            hint=f"Run: chmod 700 {folder}",
        )


def _check_free(path: Path) -> None:
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise ConfigurationError(
            "the path of a socket must be free or a socket; got another file",
            where=str(path),
            hint="Move the file away.",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client, contextlib.suppress(ConnectionRefusedError):
        client.settimeout(1.0)
        client.connect(str(path))
        raise ConfigurationError(
            "another process already listens at this socket", where=str(path), hint="Stop the other process first."
        )


def ask_socket(path: Path, request: bytes, wait_s: float) -> bytes:
    """Send a request to the process that serves `path` and return its reply, which may take `wait_s` seconds.

    Raises
    ------
    MessageError
        The peer sends no reply.
    OSError
        The peer cannot be reached or stops.
    """
    with contextlib.closing(connect_to(path)) as connection:
        send_frame(connection, {"kind": REQUEST_FRAME}, request)
        connection.settimeout(wait_s)
        frame = receive_frame(connection)
    if frame is None or frame[0].get("kind") != "reply":
        raise MessageError("the process behind the socket gave no reply", hint="Read the site's own log.")
    return frame[1]


def serve_socket(path: Path, handle: Callable[[bytes], bytes], stop: threading.Event) -> None:
    """Answer requests at `path` until `stop` is set: one request per connection, one thread per request.

    Parameters
    ----------
    path : Path
        Path of the socket, in a folder that only this account can access.
    handle : callable
        Returns the reply to a request. Called by several threads at once.
    stop : threading.Event
        Ends the service. Requests in progress have a few seconds to finish.
    """
    listener = listen_at(path)
    threads: list[threading.Thread] = []
    try:
        for connection in _accept_until(listener, stop):
            threads = [thread for thread in threads if thread.is_alive()]
            threads.append(threading.Thread(target=_answer, args=(connection, handle), name="request", daemon=True))
            threads[-1].start()
    finally:
        path.unlink(missing_ok=True)
        listener.close()
        for thread in threads:
            thread.join(_LINGER_S)


def _accept_until(listener: socket.socket, stop: threading.Event) -> Iterator[socket.socket]:
    listener.settimeout(_POLL_S)
    while not stop.is_set():
        with contextlib.suppress(OSError):  # no connection yet, or too many open files: the next call tries again
            yield listener.accept()[0]


def _answer(connection: socket.socket, handle: Callable[[bytes], bytes]) -> None:
    """Answer the one request of `connection`; after any failure the peer only sees that the connection was closed."""
    with contextlib.closing(connection), contextlib.suppress(OSError, MessageError):
        connection.settimeout(_IDLE_S)
        check_peer(connection)
        frame = receive_frame(connection)
        if frame is None or frame[0].get("kind") != REQUEST_FRAME:
            return
        reply = _handled(handle, frame[1])
        if reply is not None:
            send_frame(connection, {"kind": "reply"}, reply)


def _handled(handle: Callable[[bytes], bytes], request: bytes) -> bytes | None:
    try:
        return handle(request)
    except Exception:  # a failed request must neither end the service nor reveal its reason
        return None


Reason = Literal["offline", "stopped", "unverified", "lost"]  # part of the wire protocol: a site may state one
CarrierReason = Literal[Reason, "partial"]  # of this side's carriers


@dataclass(frozen=True)
class Unreachable:
    """Outcome of a request without a reply.

    Parameters
    ----------
    reason : {"offline", "stopped", "unverified", "lost", "partial"}
        Site not connected; process of the site stopped while working; site does not accept the study's signed bundle;
        request lost by the carrier; reply not received completely.
    """

    reason: CarrierReason


class Carrier(Protocol):
    """Sends requests and collects replies.

    A carrier may lose a request or deliver it twice: a site answers a repeated request with the same reply.
    """

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in a fixed order."""

    def send(self, requests: Mapping[str, bytes]) -> None:
        """Send one request to each of these sites; give up earlier requests to them."""

    def collect(self, wait_s: float) -> dict[str, bytes | Unreachable]:
        """Return the outcomes since the last call, by site; wait at most `wait_s` seconds for the first."""

    def close(self) -> None:
        """Close connections and end processes."""
