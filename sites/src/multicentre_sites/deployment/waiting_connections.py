"""Connections whose request is incomplete: each has a time limit, and the oldest makes room for others."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class WaitingConnections:
    """Connections that wait for a request, each in a thread.

    Parameters
    ----------
    most : int
        Number of connections from which on the oldest is shut down for a new one.
    within_s : float
        Time in seconds after which a connection is shut down, even while data still arrive slowly.
    """

    def __init__(self, most: int, within_s: float) -> None:
        self._most, self._within_s = most, within_s
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []

    @contextlib.contextmanager
    def hold(self, connection: socket.socket) -> Iterator[None]:
        """Count a connection as waiting during the block."""
        timer = threading.Timer(self._within_s, _cut, (connection,))
        timer.daemon = True
        timer.start()
        with self._lock:
            self._connections.append(connection)
            if len(self._connections) > self._most:
                _cut(self._connections.pop(0))
        try:
            yield
        finally:
            timer.cancel()
            with self._lock, contextlib.suppress(ValueError):
                self._connections.remove(connection)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
