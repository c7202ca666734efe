"""A private hub on loopback: the only place where the SuperLink finds bundles, with their signatures."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from multicentre.deployment.bundle import APP_ID, SUFFIX, Bundle, read_bundles
from multicentre.deployment.consortium import LOOPBACK, Consortium
from multicentre.federation.errors import ConfigurationError

_FETCH, _BUNDLES = "/v1/hub/fetch-fab", "/v1/bundles/"
_LARGEST_QUESTION = 64 * 1024
_QUIET_AFTER_S = 10.0


class Hub:
    """Serves the signed bundles of a consortium until it is closed.

    Parameters
    ----------
    port : int
        On 127.0.0.1.
    bundles : callable
        Returns the bundles by version; asked anew for every question, so that one signed later is found.

    Raises
    ------
    ConfigurationError
        The port is taken.
    """

    def __init__(self, port: int, bundles: Callable[[], Mapping[str, Bundle]]) -> None:
        try:
            self._server = _Server((LOOPBACK, port), bundles)
        except OSError as error:
            raise ConfigurationError(
                f"the hub cannot listen on {LOOPBACK}:{port} ({error.strerror})",
                where="coordinator.toml, loopback.hub",
                mend="Is a coordinator running already? Otherwise name a free port.",
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="hub", daemon=True)
        self._thread.start()

    @classmethod
    def of(cls, consortium: Consortium) -> Hub:
        """Return the hub of a consortium, serving."""
        return cls(consortium.settings.loopback.hub, lambda: read_bundles(consortium))

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], bundles: Callable[[], Mapping[str, Bundle]]) -> None:
        super().__init__(address, _Handler)
        self.bundles = bundles


class _Handler(BaseHTTPRequestHandler):
    timeout = _QUIET_AFTER_S
    server: _Server

    def do_POST(self) -> None:
        """Tell where a bundle is and who signed it."""
        question = self._question()
        if self.path != _FETCH or question is None:
            return self._answer(HTTPStatus.NOT_FOUND, {"detail": "no such route"})
        bundles = self.server.bundles()
        versions = sorted(bundles, key=lambda version: [int(part) for part in version.split(".")])
        wanted = str(question.get("app_version") or (versions or [""])[-1])
        if question.get("app_id") != APP_ID or wanted not in bundles:
            return self._answer(HTTPStatus.NOT_FOUND, {"detail": {"available_app_versions": versions}})
        bundle = bundles[wanted]
        place = f"http://{LOOPBACK}:{self.server.server_port}{_BUNDLES}{bundle.sha256}{SUFFIX}"
        told = {"fab_url": place, "verifications": [one.as_flower() for one in bundle.signatures]}
        return self._answer(HTTPStatus.OK, told)

    def do_GET(self) -> None:
        """Hand out a bundle by its hash."""
        for bundle in self.server.bundles().values():
            if self.path == f"{_BUNDLES}{bundle.sha256}{SUFFIX}":
                return self._send(HTTPStatus.OK, "application/octet-stream", bundle.content)
        return self._answer(HTTPStatus.NOT_FOUND, {"detail": "no such bundle"})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep quiet."""

    def _question(self) -> dict[str, Any] | None:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > _LARGEST_QUESTION:
            return None
        try:
            question = json.loads(self.rfile.read(int(size)))
        except ValueError:
            return None
        return question if isinstance(question, dict) else None

    def _answer(self, status: HTTPStatus, told: Mapping[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(told).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
