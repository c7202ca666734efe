"""Access to the application: every request passes these checks before a page is computed.

- The ``Host`` header must name the address that was printed. A foreign name that resolves to this machine (DNS
  rebinding) is refused.
- All pages are below a random path, and the session's cookie is limited to it. Browsers send the cookies of a host to
  every port: without the path, other programs on this machine could receive the cookie.
- A random token in the printed address is exchanged for the cookie, which scripts cannot read and which other sites
  cannot use.
- A form must come from a page of the application. Its origin is checked here, its token in
  :mod:`multicentre_sites.serve.forms`.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
# Bytes of a random token: guessing it takes longer than any attack.
_TOKEN_BYTES = 32
# A working day: a forgotten browser cannot approve on the next.
_IDLE_S = 8 * 3600.0
# A person has few browsers; the oldest session ends first.
_MAX_SESSIONS = 8
_METHODS = ("GET", "HEAD", "POST")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_REFUSED = "Open the address that multicentre serve printed in its terminal."


@dataclass
class Session:
    """Session of one browser.

    Parameters
    ----------
    form_token : str
        Token that every form of the session contains.
    used : float
        Time of the last request, of a monotonic clock.
    """

    form_token: str
    used: float


@dataclass
class Access:
    """Secrets of one process of the application.

    Parameters
    ----------
    port : int
    """

    port: int
    area: str = field(default_factory=lambda: secrets.token_urlsafe(_TOKEN_BYTES))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(_TOKEN_BYTES))
    sessions: dict[str, Session] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Value of the ``Host`` header."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def origin(self) -> str:
        """Origin of the pages."""
        return f"http://{self.host}"

    @property
    def address(self) -> str:
        """Address with the token, for the terminal."""
        return f"{self.origin}/{self.area}/enter?token={self.token}"

    @property
    def cookie(self) -> str:
        """Name of the session's cookie."""
        return f"multicentre-{self.port}"

    def enter(self, token: str) -> str | None:
        """Return the name of a new session, or None if the token is wrong."""
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        name = secrets.token_urlsafe(_TOKEN_BYTES)
        while len(self.sessions) >= _MAX_SESSIONS:
            del self.sessions[min(self.sessions, key=lambda one: self.sessions[one].used)]
        self.sessions[name] = Session(secrets.token_urlsafe(_TOKEN_BYTES), time.monotonic())
        return name

    def session(self, name: str) -> Session | None:
        """Return a session that has been used in the last hours, or None."""
        session = self.sessions.get(name)
        if session is None:
            return None
        if time.monotonic() - session.used > _IDLE_S:
            del self.sessions[name]
            return None
        session.used = time.monotonic()
        return session


class Door:
    """ASGI middleware that checks each request and adds the security headers to each response.

    Parameters
    ----------
    application : ASGI application
        It is called for requests of a session only, with the session in ``scope["state"]``.
    access : Access
    """

    def __init__(self, application: ASGIApp, access: Access) -> None:
        self._application, self._access = application, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or forward one request."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                message["headers"] = headers.raw
            await send(message)

        answer = self._check(scope)
        await (answer or self._application)(scope, receive, send_with_headers)

    def _check(self, scope: MutableMapping[str, Any]) -> Response | None:
        """Return the response to a request that does not reach a page; None for one that does."""
        headers, access = Headers(scope=scope), self._access
        if headers.getlist("host") != [access.host]:
            return PlainTextResponse("The Host header must name the printed address.\n", 421)
        if scope["method"] not in _METHODS:
            return PlainTextResponse("The method must be GET, HEAD or POST.\n", 405)
        area, _, path = scope["path"].removeprefix("/").partition("/")
        if not hmac.compare_digest(area.encode(), access.area.encode()):
            return PlainTextResponse(f"{_REFUSED}\n", 404)
        if path == "enter":
            return self._enter(scope)
        name = _cookie_of(headers, access.cookie)
        session = access.session(name)
        if session is None:
            return PlainTextResponse(f"{_REFUSED}\n", 403)
        if scope["method"] == "POST" and not self._is_own_form(headers):
            return PlainTextResponse("A form must come from a page of this application.\n", 403)
        scope["path"] = f"/{path}"
        scope.setdefault("state", {}).update(session=session, session_name=name)
        return None

    def _enter(self, scope: MutableMapping[str, Any]) -> Response:
        query = parse_qs(scope["query_string"].decode("ascii", "replace"))
        name = self._access.enter(query.get("token", [""])[0]) if scope["method"] == "GET" else None
        if name is None:
            return PlainTextResponse(f"{_REFUSED}\n", 403)
        path = f"/{self._access.area}/"
        response = RedirectResponse(path, 303)
        response.set_cookie(self._access.cookie, name, path=path, httponly=True, samesite="strict")
        return response

    def _is_own_form(self, headers: Headers) -> bool:
        site = headers.get("sec-fetch-site", "same-origin")  # older browsers send none
        return headers.getlist("origin") == [self._access.origin] and site == "same-origin"


def _cookie_of(headers: Headers, name: str) -> str:
    """Return a cookie of a request; empty without it, or if it occurs more than once."""
    values = []
    for line in headers.getlist("cookie"):
        for pair in line.split(";"):
            try:
                values += [morsel.value for key, morsel in SimpleCookie(pair).items() if key == name]
            except CookieError:
                continue
    return values[0] if len(values) == 1 else ""
