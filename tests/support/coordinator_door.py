"""What a site sees of a coordinator before its first run: a TLS port that tells the time, and a proxy on the way."""

import contextlib
import socket
import ssl
import threading
import time
from email.utils import formatdate


class _Listener:
    """Accepts connections on loopback in a thread of its own until it is closed."""

    def __init__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._socket.settimeout(0.1)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self):
        while not self._closed.is_set():
            with contextlib.suppress(OSError):
                connection, _ = self._socket.accept()
                connection.settimeout(5)
                threading.Thread(target=self._alone, args=(connection,), daemon=True).start()

    def _alone(self, connection):
        with contextlib.closing(connection), contextlib.suppress(OSError):
            self.answer(connection)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._closed.set()
        self._thread.join(5)
        self._socket.close()


class Door(_Listener):
    """Answers every request with one status and a date, which may be `ahead_s` off."""

    def __init__(self, certificate=None, key=None, ahead_s=0.0, tells=True, status="404 Not Found"):
        self.ahead_s, self.tells, self.context, self.status = ahead_s, tells, None, status
        if certificate is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate, key)
        super().__init__()

    def answer(self, connection):
        if self.context is None:
            return self._tell(connection)
        with self.context.wrap_socket(connection, server_side=True) as spoken:
            self._tell(spoken)
        return None

    def _tell(self, spoken):
        spoken.recv(4096)
        date = f"Date: {formatdate(time.time() + self.ahead_s, usegmt=True)}\r\n" if self.tells else ""
        spoken.sendall(f"HTTP/1.1 {self.status}\r\n{date}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())


class Proxy(_Listener):
    """A proxy for TLS; `heard` holds the heads of requests."""

    def __init__(self, refuses=False):
        self.refuses, self.heard = refuses, []
        super().__init__()

    def answer(self, connection):
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(4096)
        self.heard.append(head.decode())
        if self.refuses:
            connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return
        host, _, port = head.split()[1].decode().rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5) as onward:
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            other_way = threading.Thread(target=_pass_on, args=(connection, onward), daemon=True)
            other_way.start()
            _pass_on(onward, connection)
            other_way.join(5)


def _pass_on(source, target):
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
