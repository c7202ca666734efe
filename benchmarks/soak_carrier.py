"""Carrier of requests to site processes over Unix sockets, which loses and repeats some of them."""

from __future__ import annotations

import queue
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from multicentre.engines.remote.socket import Unreachable, ask_socket
from multicentre.errors import MessageError

LOST_EVERY, UNANSWERED_EVERY, TWICE_EVERY = 331, 223, 127  # requests; primes, so that all sites are affected
_WAIT_S = 30.0


class SoakCarrier:
    """One request per connection, in a few threads.

    Parameters
    ----------
    paths : mapping of str to Path
        Sockets of the sites.
    events : Counter
        Counts losses and repetitions.
    """

    def __init__(self, paths: Mapping[str, Path], events: Counter[str]) -> None:
        self._paths = dict(paths)
        self._events = events
        self._threads = ThreadPoolExecutor(2 * len(paths), thread_name_prefix="soak")
        self._outcomes: queue.SimpleQueue[tuple[str, int, bytes | Unreachable]] = queue.SimpleQueue()
        self._current: dict[str, int] = {}
        self._sent = 0

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return tuple(self._paths)

    def send(self, requests: Mapping[str, bytes]) -> None:
        """Send one request to each of these sites; give up earlier requests to them."""
        for site, request in requests.items():
            self._sent += 1
            self._current[site] = self._sent
            self._threads.submit(self._ask, site, self._sent, request)

    def collect(self, wait_s: float) -> dict[str, bytes | Unreachable]:
        """Return the outcomes since the last call, by site; wait at most `wait_s` seconds for the first."""
        outcomes: dict[str, bytes | Unreachable] = {}
        end = time.monotonic() + wait_s
        while (left := 0.0 if outcomes else end - time.monotonic()) > 0 or not self._outcomes.empty():
            try:
                site, number, outcome = self._outcomes.get(timeout=max(left, 0.001))
            except queue.Empty:
                break
            if self._current.get(site) == number:
                outcomes[site] = outcome
        return outcomes

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    def _ask(self, site: str, number: int, request: bytes) -> None:
        self._outcomes.put((site, number, self._outcome(site, number, request)))

    def _outcome(self, site: str, number: int, request: bytes) -> bytes | Unreachable:
        if number % LOST_EVERY == 0:
            self._events["requests lost"] += 1
            return Unreachable("lost")
        try:
            reply = ask_socket(self._paths[site], request, _WAIT_S)
            if number % TWICE_EVERY == 0:
                self._events["requests delivered twice"] += 1
                if ask_socket(self._paths[site], request, _WAIT_S) != reply:
                    raise RuntimeError("a repeated request must have the same reply")
        except (OSError, MessageError):
            return Unreachable("stopped")
        if number % UNANSWERED_EVERY == 0:
            self._events["replies lost"] += 1
            return Unreachable("lost")
        return reply
