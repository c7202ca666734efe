"""A look at the coordinator from outside: whether the public address answers more than it may."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path

from multicentre.federation.errors import ConfigurationError

FLEET_ROUTE = "/v1/fleet/pull-messages"
FENCED = (
    ("POST", "/v1/control/list-nodes"),
    ("POST", "/v1/control/register-node"),
    ("POST", "/v1/control/unregister-node"),
    ("POST", "/v1/control/list-runs"),
    ("POST", "/v1/control/start-run"),
    ("POST", "/v1/control/stop-run"),
    ("POST", "/v1/control/stream-logs"),
    ("POST", "/v1/runtime/acquire-task"),
    ("POST", "/v1/runtime/get-nodes"),
    ("POST", "/v1/runtime/pull-messages"),
    ("POST", "/v1/runtime/push-messages"),
    ("POST", "/v1/runtime/responses"),
    ("POST", "/v1/fleet/register-node"),
    ("POST", "/v1/fleet/unregister-node"),
    ("POST", "//v1/control/list-nodes"),
    ("POST", "/v1/fleet/../control/list-nodes"),
    ("POST", "/v1/fleet/%2e%2e/control/list-nodes"),
    ("POST", "/v1/fleet/..%2fcontrol/list-nodes"),
    ("POST", "/v1/fleet//register-node"),
    ("POST", "/v1/fleet/register-node/"),
    ("POST", "/v1/fleet/%72egister-node"),
    ("GET", "/health"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("GET", "/"),
)
_REFUSALS = (403, 404)
_PATIENCE_S = 60.0  # for each step of a connection; a port that is closed answers at once
_LARGEST_ANSWER = 64 * 1024


@dataclass(frozen=True)
class Answer:
    """What came back for a route.

    Parameters
    ----------
    route : str
    status : int
        Of HTTP; 0 where the connection was cut.
    by_superlink : bool
        The SuperLink itself wrote it.
    """

    route: str
    status: int
    by_superlink: bool

    @property
    def refused(self) -> bool:
        """Whether something before the SuperLink turned it down."""
        return self.status == 0 or (self.status in _REFUSALS and not self.by_superlink)


class Unreached(ConfigurationError):
    """The public address gave no usable answer."""


def probe(host: str, port: int, ca: Path) -> None:
    """Ask the public address for what it must not answer; trusts the consortium's authority alone.

    Raises
    ------
    Unreached
        Nothing answers there, its certificate is not the consortium's, or no SuperLink stands behind it.
    ConfigurationError
        Something else than the routes of authenticated sites answers.
    """
    place = f"{host}:{port}"
    fleet = _ask(host, port, ca, "POST", FLEET_ROUTE)
    open_routes = [one for one in (_ask(host, port, ca, *fenced) for fenced in FENCED) if not one.refused]
    if open_routes:
        told = ", ".join(f"{one.route} ({one.status})" for one in open_routes)
        raise ConfigurationError(
            f"the public address answers what it must refuse: {told}",
            where=place,
            mend="Whoever reaches it could register sites and start runs. Let the proxy pass the routes of "
            "proxy/site.conf alone, and never publish the SuperLink's own port.",
        )
    if fleet.refused or fleet.status >= 500:
        raise Unreached(
            f"the routes of the sites do not reach the SuperLink ({FLEET_ROUTE}: {fleet.status})",
            where=place,
            mend="Use proxy/site.conf as it is written; does the proxy reach the SuperLink on this machine?",
        )


def ask_health(host: str, port: int, ca: Path) -> bool:
    """Return whether a SuperLink says that it is ready."""
    try:
        return _ask(host, port, ca, "GET", "/health").status == 200
    except Unreached:
        return False


def _ask(host: str, port: int, ca: Path, method: str, route: str) -> Answer:
    connection = http.client.HTTPSConnection(host, port, timeout=_PATIENCE_S, context=_context(ca))
    try:
        connection.connect()
    except ssl.SSLCertVerificationError as error:
        raise Unreached(
            f"its certificate is not one of the consortium's authority ({error.verify_message})",
            where=f"{host}:{port}",
            mend="Does another programme answer there? The proxy must use the files of coordinator.toml, [tls].",
        ) from None
    except OSError as error:
        raise Unreached(
            f"nothing answers ({error.strerror or type(error).__name__})",
            where=f"{host}:{port}",
            mend="Start the proxy, or see that the name leads to this machine.",
        ) from None
    try:
        headers = {"Content-Type": "application/protobuf", "Accept": "application/protobuf"}
        connection.request(method, route, body=b"" if method == "POST" else None, headers=headers)
        response = connection.getresponse()
        return Answer(route, response.status, _by_superlink(response))
    except (OSError, http.client.HTTPException):
        return Answer(route, 0, False)
    finally:
        connection.close()


def _by_superlink(response: http.client.HTTPResponse) -> bool:
    if "uvicorn" in response.headers.get("Server", ""):
        return True
    try:
        said = json.loads(response.read(_LARGEST_ANSWER))
    except (ValueError, http.client.HTTPException):
        return False
    return isinstance(said, dict)


def _context(ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    return context
