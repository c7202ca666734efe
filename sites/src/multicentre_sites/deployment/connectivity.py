"""Connectivity checks: from a site to the coordinator, and of the public address from the coordinator."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from multicentre.core.links import MAX_CLOCK_DIFFERENCE_S, PROXY_REFUSAL, clock_differs, proxy_refuses
from multicentre.errors import ConfigurationError, MulticentreError

# 24 hours * 60 minutes * 60 seconds.
_SECONDS_PER_DAY = 86400.0

_SHORT_PATIENCE_S = 3.0  # a process that is stopped waits for it

_HALF_SECOND = 0.5  # half the resolution of an HTTP date


@dataclass(frozen=True)
class ConnectionReport:
    """Result of a connection to a coordinator.

    Parameters
    ----------
    address : str
        ``host:port`` of the coordinator.
    proxy : str
        Host and port of the HTTPS proxy; empty without one.
    days_left : float
        Days for which the certificate is valid.
    skew_s : float or None
        Seconds by which this clock is ahead of the coordinator's; None if the coordinator reports no time.
    uncertainty_s : float
        Uncertainty of the skew in seconds.
    """

    address: str
    proxy: str
    days_left: float
    skew_s: float | None
    uncertainty_s: float

    @property
    def clock_error(self) -> ConfigurationError | None:
        """Error for clocks that certainly differ by more than is tolerated."""
        if self.skew_s is None or abs(self.skew_s) - self.uncertainty_s <= MAX_CLOCK_DIFFERENCE_S:
            return None
        return clock_differs(self.skew_s, self.address)


def check_connection(address: str, ca: Path, patience_s: float = 10.0) -> ConnectionReport:
    """Connect to the coordinator with TLS and check certificate and clock.

    Parameters
    ----------
    address : str
        ``host:port``.
    ca : Path
        Certificate of the authority that must have issued the coordinator's certificate.
    patience_s : float

    Raises
    ------
    ConfigurationError
        The coordinator cannot be reached, or its certificate is invalid.
    """
    host, _, port = address.rpartition(":")
    bare = host.strip("[]")
    proxy = proxy_for(bare, int(port))
    with _translate_errors(address, proxy, ca):
        connection = _connection(bare, int(port), ca, proxy, patience_s)
        try:
            connection.connect()
            certificate = connection.sock.getpeercert()
            before = time.time()
            connection.request("HEAD", "/", headers={"User-Agent": "multicentre"})
            date = connection.getresponse().getheader("Date")
            after = time.time()
        finally:
            connection.close()
    ends = ssl.cert_time_to_seconds(str((certificate or {}).get("notAfter")))
    skew, uncertainty = _skew(date, before, after)
    where = "" if proxy is None else f"{proxy.hostname}:{proxy.port}"
    return ConnectionReport(address, where, (ends - time.time()) / _SECONDS_PER_DAY, skew, uncertainty)


def fault_of_connection(address: str, ca: Path) -> str:
    """Return the fault of a connection to the coordinator, such as a wrong clock; empty without one."""
    try:
        error: MulticentreError | None = check_connection(address, ca, _SHORT_PATIENCE_S).clock_error
    except MulticentreError as raised:
        error = raised
    return "" if error is None else str(error)


def proxy_for(host: str, port: int) -> SplitResult | None:
    """Return the proxy that the environment names for a host; None without one.

    Raises
    ------
    ConfigurationError
        The environment names an unsupported proxy.
    """
    url = getproxies().get("https")
    if not url or proxy_bypass(f"{host}:{port}"):
        return None
    try:
        proxy = urlsplit(url if "://" in url else f"http://{url}")
        if proxy.scheme == "http" and proxy.hostname and proxy.port:
            return proxy
    except ValueError:
        pass
    raise ConfigurationError(
        "the proxy must have the form http://host:port; got another", where="HTTPS_PROXY", hint="Correct or unset it."
    )


def read_certificate(ca: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts one authority only.

    Raises
    ------
    ConfigurationError
        The file cannot be read or is not a certificate.
    """
    try:
        context = ssl.create_default_context(cadata=ca.read_text(encoding="ascii"))
    except OSError as error:
        raise ConfigurationError(
            f"the certificate of the authority cannot be read ({error.strerror or 'unknown error'})",
            where=str(ca),
            hint="Ask the coordinator for its file ca.crt, and compare its fingerprint over another channel.",
        ) from None
    except ValueError:
        raise ConfigurationError("ca must be a certificate in PEM format; got another file", where=str(ca)) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _connection(
    host: str, port: int, ca: Path, proxy: SplitResult | None, patience_s: float
) -> http.client.HTTPSConnection:
    context = read_certificate(ca)
    if proxy is None:
        return http.client.HTTPSConnection(host, port, timeout=patience_s, context=context)
    assert proxy.hostname is not None
    connection = http.client.HTTPSConnection(proxy.hostname, proxy.port, timeout=patience_s, context=context)
    connection.set_tunnel(host, port, headers=_credentials(proxy))
    return connection


def _credentials(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}


def _skew(date: str | None, before: float, after: float) -> tuple[float | None, float]:
    """Return skew and uncertainty; a header in whole seconds stands for the middle of its second."""
    uncertainty = (after - before) / 2 + _HALF_SECOND
    try:
        server_time = parsedate_to_datetime(date or "")
    except ValueError:
        return None, uncertainty
    moment = (server_time if server_time.tzinfo else server_time.replace(tzinfo=UTC)).timestamp() + _HALF_SECOND
    return (before + after) / 2 - moment, uncertainty


@contextmanager
def _translate_errors(address: str, proxy: SplitResult | None, ca: Path) -> Iterator[None]:
    """Translate failures of a connection to errors with hints."""
    way = "" if proxy is None else f" through the proxy {proxy.hostname}:{proxy.port}"
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise ConfigurationError(
            f"the certificate must be valid for this address; got: {error.verify_message.rstrip('.')}",
            where=address,
            hint=f"Check that {ca.name} is the authority's file, that the certificate is for this address, and this "
            "clock. A proxy that decrypts TLS must exempt this address.",
        ) from None
    except ssl.SSLError as error:
        raise ConfigurationError(f"the server must use TLS ({error.reason})", where=address) from None
    except socket.gaierror:
        raise ConfigurationError(
            f"the name cannot be resolved{way}", where=address, hint="Correct the address."
        ) from None
    except TimeoutError:
        raise ConfigurationError(
            f"no answer in time{way}", where=address, hint="Allow outbound connections to this port in the firewall."
        ) from None
    except (OSError, http.client.HTTPException) as error:
        if proxy is not None and f"failed: {PROXY_REFUSAL.split()[0]} " in str(error):
            raise proxy_refuses(address, f"{proxy.hostname}:{proxy.port}") from None
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConfigurationError(
            f"the address cannot be reached{way} ({reason})",
            where=address,
            hint="Check that the coordinator is up, and the firewall.",
        ) from None


FLEET_ROUTE = "/v1/fleet/pull-messages"

FORBIDDEN_ROUTES = (
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

_REFUSALS = (403, 404)  # the answers of proxy/site.conf

_TIMEOUT_S = 60.0  # per step of a connection; a closed port answers at once

_MAX_ANSWER = 64 * 1024  # an error of the SuperLink has some hundred bytes


@dataclass(frozen=True)
class RouteResponse:
    """Response to a route.

    Parameters
    ----------
    route : str
    status : int
        HTTP status; 0 if the connection was closed.
    by_superlink : bool
        True if the response is from the SuperLink.
    """

    route: str
    status: int
    by_superlink: bool

    @property
    def refused(self) -> bool:
        """True if a proxy refused the route before it reached the SuperLink."""
        return self.status == 0 or (self.status in _REFUSALS and not self.by_superlink)


class AddressUnreachable(ConfigurationError):
    """The public address gave no usable answer."""


def check_public_routes(host: str, port: int, ca: Path) -> None:
    """Check that the public address refuses all routes but those of authenticated sites.

    Only the consortium's authority is trusted.

    Raises
    ------
    AddressUnreachable
        Nothing answers, the certificate is not the consortium's, or there is no SuperLink behind the address.
    ConfigurationError
        Another route is answered.
    """
    place = f"{host}:{port}"
    fleet = _ask(host, port, ca, "POST", FLEET_ROUTE)
    open_routes = [one for one in (_ask(host, port, ca, *fenced) for fenced in FORBIDDEN_ROUTES) if not one.refused]
    if open_routes:
        answered = ", ".join(f"{one.route} ({one.status})" for one in open_routes)
        raise ConfigurationError(
            f"the public address must refuse all routes but those of sites; got answers to {answered}",
            where=place,
            hint="Anyone who reaches it could register sites and start runs. Let the proxy forward only the routes of "
            "proxy/site.conf, and never publish the SuperLink's port.",
        )
    if fleet.refused or fleet.status >= 500:
        raise AddressUnreachable(
            f"the routes of the sites do not reach the SuperLink ({FLEET_ROUTE}: {fleet.status})",
            where=place,
            hint="Use proxy/site.conf unchanged, and check that the proxy reaches the SuperLink on this machine.",
        )


def is_healthy(host: str, port: int, ca: Path) -> bool:
    """Return True if the SuperLink reports that it is ready."""
    try:
        return _ask(host, port, ca, "GET", "/health").status == 200
    except AddressUnreachable:
        return False


def _ask(host: str, port: int, ca: Path, method: str, route: str) -> RouteResponse:
    connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=_context(ca))
    try:
        connection.connect()
    except ssl.SSLCertVerificationError as error:
        raise AddressUnreachable(
            f"the certificate must be issued by the consortium's authority; got: {error.verify_message.rstrip('.')}",
            where=f"{host}:{port}",
            hint="Check that no other program answers there. The proxy must use the files of coordinator.toml, [tls].",
        ) from None
    except OSError as error:
        raise AddressUnreachable(
            f"nothing answers ({error.strerror or type(error).__name__})",
            where=f"{host}:{port}",
            hint="Start the proxy, or check that the name resolves to this machine.",
        ) from None
    try:
        headers = {"Content-Type": "application/protobuf", "Accept": "application/protobuf"}
        connection.request(method, route, body=b"" if method == "POST" else None, headers=headers)
        response = connection.getresponse()
        return RouteResponse(route, response.status, _by_superlink(response))
    except (OSError, http.client.HTTPException):
        return RouteResponse(route, 0, False)
    finally:
        connection.close()


def _by_superlink(response: http.client.HTTPResponse) -> bool:
    if "uvicorn" in response.headers.get("Server", ""):
        return True
    try:
        content = json.loads(response.read(_MAX_ANSWER))
    except (ValueError, http.client.HTTPException):
        return False
    return isinstance(content, dict)


def _context(ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    return context
