"""Connections of the application: those that send no complete request end first, so that others are answered."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 64  # a few browsers have some six connections each
_REQUEST_WITHIN_S = 10.0  # a browser on this machine sends a request at once


class Connection(H11Protocol):
    """Connection whose requests must arrive in time; the oldest one that waits for its client makes room for others."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close the connection that waits the longest for its client if there are too many."""
        super().connection_made(transport)
        self._await_request()
        others = [one for one in cast("set[Connection]", self.connections) if one is not self and one.is_waiting]
        if others and len(self.connections) >= MAX_CONNECTIONS:
            oldest = min(others, key=lambda one: one.deadline)
            self.connections.discard(oldest)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time limit."""
        super().connection_lost(exc)
        self._cancel_timer()

    def on_response_complete(self) -> None:
        """Limit the time until the next request is complete."""
        super().on_response_complete()
        self._await_request()

    @property
    def is_waiting(self) -> bool:
        """True until the client has sent a complete request, and again after its response."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is None or cycle.more_body or cycle.response_complete

    @property
    def deadline(self) -> float:
        """Time of the event loop until which the client must have sent a complete request."""
        return 0.0 if self._timer is None else self._timer.when()

    def _await_request(self) -> None:
        self._cancel_timer()
        self._timer = self.loop.call_later(_REQUEST_WITHIN_S, self._close_if_waiting)

    def _close_if_waiting(self) -> None:
        if self.is_waiting:
            self.transport.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
