"""Engine that runs all sites in threads of this process, without a service or a network."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from multicentre.core.calls import Call, Lost, Outcome, StateCommand, decode_call, encode_call
from multicentre.core.messages import Message
from multicentre.core.site_runtime import SiteRuntime
from multicentre.core.steps import SitePart, Step
from multicentre.core.wire import decode, encode
from multicentre.errors import ConfigurationError, QuorumLost
from multicentre.privacy.ledger_heads import Head

QUICK_S = 1e-3  # well above the cost of handing a call to a thread
Outbox = SimpleQueue[tuple[str, Outcome | BaseException]]
Task = tuple[Callable[[str, Call], Outcome], str, Call, Outbox]
Inbox = SimpleQueue[Task | None]


class InProcess:
    """Runs every site's steps in a thread of this process.

    Parameters
    ----------
    runtimes : mapping of str to SiteRuntime
        The sites, in order.
    strict : bool
        Encode and decode every call and every answer, so that whatever works here can also be sent over a network.

    Notes
    -----
    Each site has one thread and runs one step at a time. A step that exceeds its time limit continues, its answer is
    dropped, and the next call of this site waits for it; other sites do not wait. The threads end with the engine and
    never keep the process alive.
    """

    def __init__(self, runtimes: Mapping[str, SiteRuntime], *, strict: bool = False) -> None:
        self._runtimes = dict(runtimes)
        self._strict = strict
        self._closed = False
        self._inboxes: dict[str, Inbox] = {}
        self._installed: dict[str, type[SitePart]] = {}
        self._quick: frozenset[Step[Any, Any, Any]] = frozenset()
        weakref.finalize(self, _end_threads, self._inboxes).atexit = False

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in order."""
        return tuple(self._runtimes)

    def exchange(self, calls: Mapping[str, Call], time_limit_s: float | None) -> dict[str, Outcome]:
        """Run each call at its site: all sites in parallel, or in turn if the step is quicker than a thread."""
        if self._closed:
            raise ConfigurationError("the federation is closed", hint="Make a new one.")
        began = time.perf_counter()
        steps = {call.step for call in calls.values()}
        if time_limit_s is None and steps <= self._quick:
            outcomes = {site: self._answer(site, call) for site, call in calls.items()}
        else:
            outcomes = self._exchange_in_threads(calls, time_limit_s)
        quick = time.perf_counter() - began < QUICK_S * len(calls)
        self._quick = self._quick | steps if quick else self._quick - steps
        return outcomes

    def run_command(self, command: StateCommand, sites: tuple[str, ...]) -> None:
        """Run a command at `sites`."""
        for site in sites:
            self._runtimes[site].run_command(command)

    @property
    def heads(self) -> dict[str, Head | None]:
        """Head of each site's ledger."""
        return {site: runtime.head for site, runtime in self._runtimes.items()}

    def witness(self, heads: Mapping[str, bytes]) -> None:
        """Pass the heads of the peers' ledgers to each site."""
        for site, stated in heads.items():
            self._runtimes[site].receive_heads(stated)

    def close(self) -> None:
        """End the threads without waiting for steps that still run."""
        self._closed = True
        _end_threads(self._inboxes)

    def _exchange_in_threads(self, calls: Mapping[str, Call], time_limit_s: float | None) -> dict[str, Outcome]:
        outbox: Outbox = SimpleQueue()
        for site, call in calls.items():
            self._inbox(site).put((self._answer, site, call, outbox))
        deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
        answered: dict[str, Outcome] = {}
        while len(answered) < len(calls):
            try:
                site, outcome = outbox.get(timeout=None if deadline is None else max(deadline - time.monotonic(), 0.0))
            except Empty:
                break
            if isinstance(outcome, BaseException):
                raise outcome
            answered[site] = outcome
        return {site: answered.get(site) or _late(site, time_limit_s) for site in calls}

    def _inbox(self, site: str) -> Inbox:
        if site not in self._inboxes:
            self._inboxes[site] = SimpleQueue()
            threading.Thread(target=_work, args=(self._inboxes[site],), name=f"site {site}", daemon=True).start()
        return self._inboxes[site]

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


def _work(inbox: Inbox) -> None:
    while (task := inbox.get()) is not None:
        answer, site, call, outbox = task
        try:
            outbox.put((site, answer(site, call)))
        except BaseException as error:  # raised in the coordinator's thread
            outbox.put((site, error))
        del task, answer, call, outbox  # a thread that waits must not keep an engine alive


def _end_threads(inboxes: dict[str, Inbox]) -> None:
    for inbox in inboxes.values():
        inbox.put(None)
    inboxes.clear()


def _late(site: str, time_limit_s: float | None) -> Lost:
    return Lost(QuorumLost(f"no answer within {time_limit_s:g} seconds", where=site))
