"""All sites in threads of this process: no service, no network."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from multicentre.federation.engine import Call, Lost, Outcome, Upkeep, decode_call, encode_call
from multicentre.federation.errors import ConfigurationError, QuorumLost
from multicentre.federation.messages import Message
from multicentre.federation.runtime import SiteRuntime
from multicentre.federation.steps import SitePart, Step
from multicentre.federation.wire import decode, encode

QUICK_S = 1e-3


class InProcess:
    """Runs every site's steps in a thread of this process.

    Parameters
    ----------
    runtimes : mapping of str to SiteRuntime
        The sites, in order.
    strict : bool
        Send every call and every answer through the wire format, so that what works here also travels.
    """

    def __init__(self, runtimes: Mapping[str, SiteRuntime], *, strict: bool = False) -> None:
        self._runtimes = dict(runtimes)
        self._strict = strict
        self._threads = ThreadPoolExecutor(max_workers=len(self._runtimes), thread_name_prefix="site")
        self._installed: dict[str, type[SitePart]] = {}
        self._quick: frozenset[Step[Any, Any, Any]] = frozenset()

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in order."""
        return tuple(self._runtimes)

    def exchange(self, calls: Mapping[str, Call], time_limit_s: float | None) -> dict[str, Outcome]:
        """Run each call at its site: all sites at once, or in turn where a step is quicker than a thread."""
        began = time.perf_counter()
        steps = {call.step for call in calls.values()}
        if time_limit_s is None and steps <= self._quick:
            outcomes = {site: self._answer(site, call) for site, call in calls.items()}
        else:
            outcomes = self._exchange_in_threads(calls, time_limit_s)
        quick = time.perf_counter() - began < QUICK_S * len(calls)
        self._quick = self._quick | steps if quick else self._quick - steps
        return outcomes

    def _exchange_in_threads(self, calls: Mapping[str, Call], time_limit_s: float | None) -> dict[str, Outcome]:
        futures = {site: self._threads.submit(self._answer, site, call) for site, call in calls.items()}
        wait(futures.values(), timeout=time_limit_s)
        return {site: _outcome(site, future, time_limit_s) for site, future in futures.items()}

    def upkeep(self, errand: Upkeep, sites: tuple[str, ...]) -> None:
        """Run an errand at `sites`."""
        for site in sites:
            self._runtimes[site].upkeep(errand)

    def close(self) -> None:
        """Let go of the threads; a step that still runs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _answer(self, site: str, call: Call) -> Outcome:
        if not self._strict:
            return self._runtimes[site].answer(call)
        self._installed[call.step.method] = call.step.part
        received = decode_call(encode_call(call), self._offered)
        outcome = self._runtimes[site].answer(received)
        return decode(type(outcome), encode(outcome)) if isinstance(outcome, Message) else outcome

    def _offered(self, method: str) -> type[SitePart]:
        if method not in self._installed:
            raise ConfigurationError("the method is not installed at this site", where=method)
        return self._installed[method]


def _outcome(site: str, future: Future[Outcome], time_limit_s: float | None) -> Outcome:
    if future.done():
        return future.result()
    future.cancel()
    return Lost(QuorumLost(f"no answer within {time_limit_s:g} seconds", where=site))
