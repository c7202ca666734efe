"""Local server from which Flower fetches signed bundles, in place of Flower's public hub."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from multicentre.core.parsing import load_json
from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.bundle import APP_ID, SUFFIX, Bundle, read_bundles
from multicentre_sites.deployment.coordinator_folder import LOOPBACK, Consortium
from multicentre_sites.deployment.waiting_connections import WaitingConnections

_FETCH, _BUNDLES = "/v1/hub/fetch-fab", "/v1/bundles/"  # the first is the route of Flower's hub

_MAX_QUERY_BYTES = 64 * 1024  # a query holds the name of an app and versions, below 1 KiB

_MAX_WAITING = 64  # each connection without a complete request holds a thread

_REQUEST_WITHIN_S = 10.0  # clients are on this machine and send at once

_SHUTDOWN_POLL_S = 0.1  # the stop of the coordinator waits for this


class BundleServer:
    """Serves the signed bundles of a consortium until it is closed.

    Parameters
    ----------
    port : int
        Port on 127.0.0.1.
    bundles : callable
        Returns the bundles by version. Called for every query, so that a bundle signed later is served, too.

    Raises
    ------
    ConfigurationError
        The port is in use.
    """

    def __init__(self, port: int, bundles: Callable[[], Mapping[str, Bundle]]) -> None:
        try:
            self._server = _Server((LOOPBACK, port), bundles)
        except OSError as error:
            raise ConfigurationError(
                f"the bundle server cannot listen on {LOOPBACK}:{port} ({error.strerror})",
                where="coordinator.toml, loopback.bundles",
                hint="Is a coordinator running already? Otherwise name a free port.",
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_SHUTDOWN_POLL_S,), name="bundle server", daemon=True
        )
        self._thread.start()

    @classmethod
    def of(cls, consortium: Consortium) -> BundleServer:
        """Start the bundle server of a consortium."""
        return cls(consortium.settings.loopback.bundles, lambda: read_bundles(consortium))

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # connections beyond the default of five wait seconds for a second attempt

    def __init__(self, address: tuple[str, int], bundles: Callable[[], Mapping[str, Bundle]]) -> None:
        super().__init__(address, _Handler)
        self.bundles = bundles
        self.waiting = WaitingConnections(_MAX_WAITING, _REQUEST_WITHIN_S)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Answer the one request of a connection."""
        with self.server.waiting.hold(self.connection), contextlib.suppress(ConnectionError):
            super().handle()

    def do_POST(self) -> None:
        """Return the address of a bundle and its signatures."""
        query = self._read_query()
        if self.path != _FETCH or query is None:
            return self._send_json(HTTPStatus.NOT_FOUND, {"detail": "no such route"})
        bundles = self.server.bundles()
        versions = sorted(bundles, key=lambda version: [int(part) for part in version.split(".")])
        version = str(query.get("app_version") or (versions or [""])[-1])
        if query.get("app_id") != APP_ID or version not in bundles:
            return self._send_json(HTTPStatus.NOT_FOUND, {"detail": {"available_app_versions": versions}})
        bundle = bundles[version]
        url = f"http://{LOOPBACK}:{self.server.server_port}{_BUNDLES}{bundle.sha256}{SUFFIX}"
        verifications = [signature.as_flower() for signature in bundle.signatures]
        return self._send_json(HTTPStatus.OK, {"fab_url": url, "verifications": verifications})

    def do_GET(self) -> None:
        """Return the bundle whose hash the route names."""
        for bundle in self.server.bundles().values():
            if self.path == f"{_BUNDLES}{bundle.sha256}{SUFFIX}":
                return self._send(HTTPStatus.OK, "application/octet-stream", bundle.content)
        return self._send_json(HTTPStatus.NOT_FOUND, {"detail": "no such bundle"})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""

    def _read_query(self) -> dict[str, Any] | None:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > _MAX_QUERY_BYTES:
            return None
        try:
            query = load_json(self.rfile.read(int(size)))
        except ValueError:
            return None
        return query if isinstance(query, dict) else None

    def _send_json(self, status: HTTPStatus, content: Mapping[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(content).encode())

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
