"""Whether the coordinator can be reached from here: through the proxy, over TLS, with its certificate and its clock."""

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

from multicentre.federation.errors import ConfigurationError

_SECONDS_A_DAY = 86400.0

_HALF_A_SECOND = 0.5


@dataclass(frozen=True)
class ConnectionReport:
    """What a coordinator showed.

    Parameters
    ----------
    proxy : str
        Host and port of the proxy on the way; empty without one.
    days_left : float
        For so long its certificate is valid.
    skew_s : float or None
        By so much this clock is ahead of the coordinator's; None where it did not tell its own.
    uncertainty_s : float
        By so much the skew may be off.
    """

    proxy: str
    days_left: float
    skew_s: float | None
    uncertainty_s: float


def check_connection(address: str, ca: Path, patience_s: float = 10.0) -> ConnectionReport:
    """Ask the coordinator for nothing, and look at how it answers.

    Parameters
    ----------
    address : str
        ``host:port``.
    ca : Path
        Certificate of the authority that must vouch for it.
    patience_s : float

    Raises
    ------
    ConfigurationError
        It cannot be reached, or its certificate does not hold.
    """
    host, _, port = address.rpartition(":")
    bare = host.strip("[]")
    proxy = proxy_for(bare, int(port))
    with _explained(address, proxy, ca):
        connection = _connection(bare, int(port), ca, proxy, patience_s)
        try:
            connection.connect()
            certificate = connection.sock.getpeercert()
            before = time.time()
            connection.request("HEAD", "/", headers={"User-Agent": "multicentre"})
            told = connection.getresponse().getheader("Date")
            after = time.time()
        finally:
            connection.close()
    ends = ssl.cert_time_to_seconds(str((certificate or {}).get("notAfter")))
    skew, uncertainty = _skew(told, before, after)
    where = "" if proxy is None else f"{proxy.hostname}:{proxy.port}"
    return ConnectionReport(where, (ends - time.time()) / _SECONDS_A_DAY, skew, uncertainty)


def proxy_for(host: str, port: int) -> SplitResult | None:
    """Return the proxy that the environment names for a host, None where none is.

    Raises
    ------
    ConfigurationError
        What it names is no address of a proxy.
    """
    named = getproxies().get("https")
    if not named or proxy_bypass(f"{host}:{port}"):
        return None
    try:
        found = urlsplit(named if "://" in named else f"http://{named}")
        if found.scheme == "http" and found.hostname and found.port:
            return found
    except ValueError:
        pass
    raise ConfigurationError(
        "this is no proxy that is reached by http://host:port", where="HTTPS_PROXY", hint="Correct or unset it."
    )


def read_certificate(ca: Path) -> ssl.SSLContext:
    """Return what trusts one authority and no other.

    Raises
    ------
    ConfigurationError
        The file cannot be read or holds no certificate.
    """
    try:
        context = ssl.create_default_context(cadata=ca.read_text(encoding="ascii"))
    except OSError as error:
        raise ConfigurationError(
            f"the certificate of the authority cannot be read ({error.strerror or 'it is none'})",
            where=str(ca),
            hint="Ask the coordinator for its file ca.crt, and compare its fingerprint by another way.",
        ) from None
    except ValueError:
        raise ConfigurationError("this is no certificate in PEM", where=str(ca)) from None
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
    told = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(told.encode()).decode()}"}


def _skew(told: str | None, before: float, after: float) -> tuple[float | None, float]:
    """Return by how much this clock is ahead; a header of whole seconds stands for the middle of its second."""
    uncertainty = (after - before) / 2 + _HALF_A_SECOND
    try:
        there = parsedate_to_datetime(told or "")
    except ValueError:
        return None, uncertainty
    moment = (there if there.tzinfo else there.replace(tzinfo=UTC)).timestamp() + _HALF_A_SECOND
    return (before + after) / 2 - moment, uncertainty


@contextmanager
def _explained(address: str, proxy: SplitResult | None, ca: Path) -> Iterator[None]:
    """Turn what a connection can run into into what a person can fix."""
    way = "" if proxy is None else f" through the proxy {proxy.hostname}:{proxy.port}"
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise ConfigurationError(
            f"its certificate does not hold ({error.verify_message})",
            where=address,
            hint=f"Is {ca.name} the authority's file, the address the one in the certificate, and this clock right? "
            "A proxy that opens TLS must let this address pass.",
        ) from None
    except ssl.SSLError as error:
        raise ConfigurationError(f"it does not speak TLS ({error.reason})", where=address) from None
    except socket.gaierror:
        raise ConfigurationError(f"the name is not known{way}", where=address, hint="Correct address.") from None
    except TimeoutError:
        raise ConfigurationError(
            f"no answer in time{way}", where=address, hint="Let the firewall open this port outwards."
        ) from None
    except (OSError, http.client.HTTPException) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConfigurationError(
            f"it cannot be reached{way} ({said})", where=address, hint="Is it up, and does the firewall let this pass?"
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

_REFUSALS = (403, 404)

_PATIENCE_S = 60.0  # for each step of a connection; a port that is closed answers at once

_LARGEST_ANSWER = 64 * 1024


@dataclass(frozen=True)
class RouteResponse:
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


class AddressUnreachable(ConfigurationError):
    """The public address gave no usable answer."""


def check_public_routes(host: str, port: int, ca: Path) -> None:
    """Ask the public address for what it must not answer; trusts the consortium's authority alone.

    Raises
    ------
    AddressUnreachable
        Nothing answers there, its certificate is not the consortium's, or no SuperLink stands behind it.
    ConfigurationError
        Something else than the routes of authenticated sites answers.
    """
    place = f"{host}:{port}"
    fleet = _ask(host, port, ca, "POST", FLEET_ROUTE)
    open_routes = [one for one in (_ask(host, port, ca, *fenced) for fenced in FORBIDDEN_ROUTES) if not one.refused]
    if open_routes:
        told = ", ".join(f"{one.route} ({one.status})" for one in open_routes)
        raise ConfigurationError(
            f"the public address answers what it must refuse: {told}",
            where=place,
            hint="Whoever reaches it could register sites and start runs. Let the proxy pass the routes of "
            "proxy/site.conf alone, and never publish the SuperLink's own port.",
        )
    if fleet.refused or fleet.status >= 500:
        raise AddressUnreachable(
            f"the routes of the sites do not reach the SuperLink ({FLEET_ROUTE}: {fleet.status})",
            where=place,
            hint="Use proxy/site.conf as it is written; does the proxy reach the SuperLink on this machine?",
        )


def is_healthy(host: str, port: int, ca: Path) -> bool:
    """Return whether a SuperLink says that it is ready."""
    try:
        return _ask(host, port, ca, "GET", "/health").status == 200
    except AddressUnreachable:
        return False


def _ask(host: str, port: int, ca: Path, method: str, route: str) -> RouteResponse:
    connection = http.client.HTTPSConnection(host, port, timeout=_PATIENCE_S, context=_context(ca))
    try:
        connection.connect()
    except ssl.SSLCertVerificationError as error:
        raise AddressUnreachable(
            f"its certificate is not one of the consortium's authority ({error.verify_message})",
            where=f"{host}:{port}",
            hint="Does another programme answer there? The proxy must use the files of coordinator.toml, [tls].",
        ) from None
    except OSError as error:
        raise AddressUnreachable(
            f"nothing answers ({error.strerror or type(error).__name__})",
            where=f"{host}:{port}",
            hint="Start the proxy, or see that the name leads to this machine.",
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
        said = json.loads(response.read(_LARGEST_ANSWER))
    except (ValueError, http.client.HTTPException):
        return False
    return isinstance(said, dict)


def _context(ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    return context
