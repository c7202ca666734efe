"""The coordinator's app inside Flower: holds the Grid, and carries requests for the process that started the run."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from multicentre.engines.flower import internal
from multicentre.engines.flower.carrier import GridCarrier
from multicentre.engines.flower.handshake import BRIDGE, SOCKET, greet_coordinator
from multicentre.engines.remote.socket import REQUEST_FRAME, Unreachable, connect_to, receive_frame, send_frame
from multicentre.federation.errors import MessageError

Frame = tuple[dict[str, object], bytes]


def make_server_app() -> ServerApp:
    """Return a ServerApp that connects to the folder that its run's configuration names, and serves requests there."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        serve_grid(_hastened(grid), Path(str(context.run_config[BRIDGE])), context.run_id)

    return app


def serve_grid(grid: Grid, folder: Path, run: int) -> None:
    """Carry requests between the socket in `folder` and the Grid until the other end closes or breaks the rules."""
    with contextlib.closing(connect_to(folder / SOCKET)) as connection:
        sites = greet_coordinator(connection, folder, run)
        connection.settimeout(None)
        _Service(connection, GridCarrier(grid, sites)).serve()


def _hastened(grid: Grid) -> Grid:
    """Return a Grid that hands replies over sooner, where the installed flwr is known; the public one otherwise."""
    if internal.self_test() is not None:
        return grid
    from multicentre.engines.flower.internal.grid import hasten

    return hasten(grid)


class _Service:
    """One connection: a thread reads, so that the other end never waits for the Grid."""

    def __init__(self, connection: socket.socket, carrier: GridCarrier) -> None:
        self._connection = connection
        self._carrier = carrier
        self._came: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._requests: dict[str, bytes] = {}
        self._numbers: dict[str, object] = {}

    def serve(self) -> None:
        """Go on until the other end closes, or sends what is no request."""
        reader = threading.Thread(target=self._read, name="bridge", daemon=True)
        reader.start()
        try:
            while self._turn():
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
                self._came.put(frame)
        self._came.put(None)

    def _turn(self) -> bool:
        """Take the next request, or look what came back while none comes; False where there will be no more."""
        try:
            frame = self._came.get(timeout=self._carrier.pause_s if self._numbers else None)
        except queue.Empty:
            return self._hand_over()
        if frame is None:
            return False
        self._take(*frame)
        return True

    def _hand_over(self) -> bool:
        for site, came in self._carrier.collect(0.0).items():
            about = {"site": site, "number": self._numbers.pop(site)}
            try:
                if isinstance(came, Unreachable):
                    send_frame(self._connection, {"kind": "failure", "reason": came.reason, **about})
                else:
                    send_frame(self._connection, {"kind": "reply", **about}, came)
            except OSError:
                return False
        return True

    def _take(self, header: Mapping[str, object], request: bytes) -> None:
        """Note a request; those that were sent together are posted together, with the last of them."""
        numbers = header.get("sites")
        if (
            header.get("kind") != REQUEST_FRAME
            or not isinstance(numbers, dict)
            or not all(map(self._expected, numbers))
        ):
            raise MessageError("a frame that is no request came over the bridge")
        self._numbers |= numbers
        self._requests |= dict.fromkeys(numbers, request)
        if not header.get("more"):
            requests, self._requests = self._requests, {}
            self._carrier.send(requests)

    def _expected(self, site: str) -> bool:
        return site in self._carrier.sites
