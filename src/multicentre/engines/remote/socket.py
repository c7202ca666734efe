"""Requests between two processes of one machine: frames over a Unix socket in a private folder.

A frame is the length of its header in four bytes, the header as JSON, and a body of as many bytes as the header says.
Nothing is pickled, every size has a bound, and only processes of the same account are listened to.
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

from multicentre.federation.errors import ConfigurationError, MessageError

REQUEST_FRAME = "request"  # kind of the frame that holds a request

MAX_MESSAGE_BYTES = 256 * 2**20

HEADER_BYTES = 256 * 2**10

_PIECE_BYTES = 2**20

_PATH_BYTES = 103

_IDLE_S = 60.0

_LINGER_S = 5.0

_LOOK_S = 0.2


def send_frame(connection: socket.socket, header: Mapping[str, object], body: bytes = b"") -> None:
    """Send one frame."""
    head = json.dumps({**header, "size": len(body)}).encode()
    if len(head) > HEADER_BYTES or len(body) > MAX_MESSAGE_BYTES:
        raise _malformed("longer than what may be sent")
    connection.sendall(struct.pack(">I", len(head)) + head)
    for start in range(0, len(body), _PIECE_BYTES):
        connection.sendall(memoryview(body)[start : start + _PIECE_BYTES])


def receive_frame(
    connection: socket.socket, largest: int = MAX_MESSAGE_BYTES
) -> tuple[dict[str, object], bytes] | None:
    """Return the next frame's header and body, of at most `largest` bytes; None where the other end has closed.

    Raises
    ------
    MessageError
        Where what comes is not a frame.
    OSError
        Where the connection breaks or falls silent within a frame.
    """
    first = _receive(connection, 4, or_end=True)
    if not first:
        return None
    (length,) = struct.unpack(">I", first)
    if length > HEADER_BYTES:
        raise _malformed("with a header longer than what may be sent")
    header = _read_header(_receive(connection, length))
    size = header.pop("size", None)
    if not isinstance(size, int) or not 0 <= size <= largest:
        raise _malformed("of no permitted size")
    return header, _receive(connection, size)


def _receive(connection: socket.socket, size: int, *, or_end: bool = False) -> bytes:
    """Return `size` bytes; memory grows with what arrives, never with what was announced."""
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
    return MessageError(f"a frame {how} came over the socket", hint="Run the same version of multicentre at both ends.")


def listen_at(path: Path) -> socket.socket:
    """Return a socket that listens at `path`, in a folder of this account alone; a stale socket file is replaced.

    Raises
    ------
    ConfigurationError
        Where the path is too long, its folder is open to others, or another process listens there.
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
        listener.listen(16)
        fresh.replace(path)  # so that whoever finds the socket is also listened to
    except BaseException:
        listener.close()
        raise
    return listener


def connect_to(path: Path, wait_s: float = _IDLE_S) -> socket.socket:
    """Return a connection to the socket at `path`, whose owner is checked; each part of a frame may take `wait_s`."""
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
    """Refuse a peer of another account, where the system tells whose it is."""
    if not hasattr(socket, "SO_PEERCRED"):
        return
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[1] != os.geteuid():
        raise MessageError("a process of another account is at the other end of the socket")


def _check_length(path: Path) -> None:
    if len(os.fsencode(path)) > _PATH_BYTES:
        raise ConfigurationError(
            f"the path of a Unix socket may hold {_PATH_BYTES} bytes",
            where=str(path),
            hint="Choose a folder with a shorter path.",
        )


def _make_private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise ConfigurationError(
            "the folder of a socket must belong to this account alone", where=str(folder), hint="chmod 700 it."
        )


def _check_free(path: Path) -> None:
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise ConfigurationError("a file stands where a socket belongs", where=str(path), hint="Move the file away.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, contextlib.suppress(ConnectionRefusedError):
        probe.settimeout(1.0)
        probe.connect(str(path))
        raise ConfigurationError(
            "another process already listens at this socket", where=str(path), hint="Stop the other process first."
        )


def ask_socket(path: Path, request: bytes, wait_s: float) -> bytes:
    """Return the reply of the process that serves `path`; the reply may take `wait_s` seconds.

    Raises
    ------
    MessageError
        Where the other end answers no reply.
    OSError
        Where it cannot be reached or stops.
    """
    with contextlib.closing(connect_to(path)) as connection:
        send_frame(connection, {"kind": REQUEST_FRAME}, request)
        connection.settimeout(wait_s)
        frame = receive_frame(connection)
    if frame is None or frame[0].get("kind") != "reply":
        raise MessageError("the process behind the socket gave no reply", hint="Read the site's own log.")
    return frame[1]


def serve_socket(path: Path, handle: Callable[[bytes], bytes], stop: threading.Event) -> None:
    """Answer requests at `path` until `stop` is set: one request per connection, each in its own thread.

    Parameters
    ----------
    path : Path
        Where to listen, in a folder of this account alone.
    handle : callable
        Answers a request. It may be called by several threads at once.
    stop : threading.Event
        Set by whoever wants the service to end; requests under way are given a few seconds.
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
    listener.settimeout(_LOOK_S)
    while not stop.is_set():
        with contextlib.suppress(TimeoutError, ConnectionError):
            yield listener.accept()[0]


def _answer(connection: socket.socket, handle: Callable[[bytes], bytes]) -> None:
    """Answer the one request of `connection`; whatever breaks, the other end sees no more than that it closed."""
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
    except Exception:  # a request that breaks the site must not take the service down, nor say why outside
        return None


Reason = Literal["offline", "stopped", "unverified", "lost"]


@dataclass(frozen=True)
class Unreachable:
    """A request that brought no reply.

    Parameters
    ----------
    reason : {"offline", "stopped", "unverified", "lost"}
        The site is not connected; its process stopped at work; it does not accept the study's signed bundle; or the
        carrier itself lost the request.
    """

    reason: Reason


class Carrier(Protocol):
    """Posts requests and collects replies.

    A carrier may lose a request or deliver it twice: a site answers the same request with the same reply.
    """

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in a fixed order."""

    def send(self, requests: Mapping[str, bytes]) -> None:
        """Post one request to each site named; a request that is still under way to a site is given up."""

    def collect(self, wait_s: float) -> dict[str, bytes | Unreachable]:
        """Return what came back since the last call, by site; wait at most `wait_s` seconds for the first."""

    def close(self) -> None:
        """Let go of connections and processes."""
