"""Relays between sites and their coordinator: connections that are reset, slow, or gone for a while."""

import contextlib
import socket
import struct
import threading
import time

_PIECE_BYTES = 2**14
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: closing sends a reset instead of an orderly end


class Link:
    """TCP relay to an address of this machine.

    Parameters
    ----------
    address : str
        Host and port of the coordinator.
    bytes_per_s : float, optional
        Rate of each connection in each direction; unlimited without it.
    delay_s : float
        Delay of each piece of data.
    reset_after : int, optional
        Bytes after which a connection is reset, in the middle of whatever it carries.
    """

    def __init__(
        self, address: str, *, bytes_per_s: float | None = None, delay_s: float = 0.0, reset_after: int | None = None
    ) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._bytes_per_s, self._delay_s, self._reset_after = bytes_per_s, delay_s, reset_after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_cut = False
        self.n_connections = self.n_resets = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """Address that the site connects to."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Reset all connections, and every new one until :meth:`mend`."""
        with self._lock:
            self._is_cut = True
            connections, self._open = self._open, set()
        for one in connections:
            self._reset(one)

    def mend(self) -> None:
        """Carry new connections again."""
        self._is_cut = False

    def close(self) -> None:
        """Reset all connections and carry no more."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                return
            self.n_connections += 1
            try:
                far = socket.create_connection(self._target)
            except OSError:
                self._reset(near)
                continue
            with self._lock:
                is_cut = self._is_cut
                self._open |= set() if is_cut else {near, far}
            if is_cut:
                self._reset(near)
                far.close()
                continue
            carried = [0]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, sink, carried), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, carried: list[int]) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                carried[0] += len(piece)
                if self._reset_after is not None and carried[0] > self._reset_after:
                    self._reset(source)
                    self._reset(sink)
                    return
                pause_s = self._delay_s + (len(piece) / self._bytes_per_s if self._bytes_per_s else 0.0)
                if pause_s:
                    time.sleep(pause_s)
                sink.sendall(piece)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _reset(self, connection: socket.socket) -> None:
        self.n_resets += 1
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
        connection.close()
