"""Coordinator's app inside Flower: holds the Grid and carries requests for the process that started the run."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from multicentre.engines.remote.socket import REQUEST_FRAME, Unreachable, connect_to, receive_frame, send_frame
from multicentre.errors import MessageError
from multicentre_sites.flower import internal
from multicentre_sites.flower.carrier import GridCarrier
from multicentre_sites.flower.handshake import BRIDGE, SOCKET, greet_coordinator

Frame = tuple[dict[str, object], bytes]


def make_server_app() -> ServerApp:
    """Return a ServerApp that connects to the socket in the folder named by its run configuration."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        serve_grid(_faster(grid), Path(str(context.run_config[BRIDGE])), context.run_id)

    return app


def serve_grid(grid: Grid, folder: Path, run: int) -> None:
    """Carry requests between the socket in `folder` and the Grid until the peer closes or violates the protocol."""
    with contextlib.closing(connect_to(folder / SOCKET)) as connection:
        sites = greet_coordinator(connection, folder, run)
        connection.settimeout(None)
        _Service(connection, GridCarrier(grid, sites)).serve()


def _faster(grid: Grid) -> Grid:
    """Return a faster Grid if the installed flwr is supported; the public one otherwise."""
    if internal.self_test() is not None:
        return grid
    from multicentre_sites.flower.internal.grid import hasten

    return hasten(grid)


class _Service:
    """One connection. A thread reads from it, so that the peer never waits for the Grid."""

    def __init__(self, connection: socket.socket, carrier: GridCarrier) -> None:
        self._connection = connection
        self._carrier = carrier
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._requests: dict[str, bytes] = {}
        self._numbers: dict[str, object] = {}

    def serve(self) -> None:
        """Serve until the peer closes the connection or sends anything but a request."""
        reader = threading.Thread(target=self._read, name="bridge", daemon=True)
        reader.start()
        try:
            while self._serve_next():
                pass
        except MessageError:
            pass
        finally:
            self._carrier.close()
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
            reader.join()

    def _read(self) -> None:
        with contextlib.suppress(OSError, MessageError):
            while (frame := receive_frame(self._connection)) is not None:
                self._frames.put(frame)
        self._frames.put(None)

    def _serve_next(self) -> bool:
        """Receive the next request or forward replies; return False once there are no more requests."""
        try:
            frame = self._frames.get(timeout=self._carrier.pause_s if self._numbers else None)
        except queue.Empty:
            return self._forward_replies()
        if frame is None:
            return False
        self._store(*frame)
        return True

    def _forward_replies(self) -> bool:
        for site, outcome in self._carrier.collect(0.0).items():
            address = {"site": site, "number": self._numbers.pop(site)}
            try:
                if isinstance(outcome, Unreachable):
                    send_frame(self._connection, {"kind": "failure", "reason": outcome.reason, **address})
                else:
                    send_frame(self._connection, {"kind": "reply", **address}, outcome)
            except OSError:
                return False
        return True

    def _store(self, header: Mapping[str, object], request: bytes) -> None:
        """Store a request; requests of one batch are sent together with the last of them."""
        numbers = header.get("sites")
        if (
            header.get("kind") != REQUEST_FRAME
            or not isinstance(numbers, dict)
            or not all(map(self._is_known, numbers))
        ):
            raise MessageError("a frame from the analyst must be a request to known sites; got another")
        self._numbers |= numbers
        self._requests |= dict.fromkeys(numbers, request)
        if not header.get("more"):
            requests, self._requests = self._requests, {}
            self._carrier.send(requests)

    def _is_known(self, site: str) -> bool:
        return site in self._carrier.sites
