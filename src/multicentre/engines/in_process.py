"""Engine that runs all sites in threads of this process, without a service or a network."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from multicentre.core.calls import Call, Lost, Outcome, StateCommand, decode_call, encode_call
from multicentre.core.messages import Message
from multicentre.core.site_runtime import SiteRuntime
from multicentre.core.steps import SitePart, Step
from multicentre.core.wire import decode, encode
from multicentre.errors import ConfigurationError, QuorumLost
from multicentre.privacy.ledger_heads import Head

MAX_THREADS = 32  # more than the cores of most machines; a thousand threads wait for each other most of the time
_POOL = "pool of sites"
QUICK_S = 1e-3  # well above the cost of handing a call to a thread
Outbox = SimpleQueue[tuple[str, int, Outcome | BaseException]]
Task = tuple[Callable[[str, Call], Outcome], str, int, Call, Outbox]
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
    Each site runs one step at a time. With a time limit, each site has a thread. A step that exceeds the limit
    continues, its answer is dropped, and the next call of this site waits for it; other sites do not wait. Without a
    limit, up to 32 sites run at the same time. The threads end with the engine and never keep the process alive.
    """

    def __init__(self, runtimes: Mapping[str, SiteRuntime], *, strict: bool = False) -> None:
        self._runtimes = dict(runtimes)
        # After an interrupt, a step may still run while another thread receives the site's next call.
        self._turns = {site: threading.Lock() for site in runtimes}
        self._strict = strict
        self._closed = False
        self._inboxes: dict[str, Inbox] = {}
        self._installed: dict[str, type[SitePart]] = {}
        self._quick: frozenset[Step[Any, Any, Any]] = frozenset()
        nonces = {site: runtime.nonce for site, runtime in runtimes.items()}
        for runtime in runtimes.values():
            runtime.join(nonces)
        weakref.finalize(self, _end_threads, self._inboxes).atexit = False

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in order."""
        return tuple(self._runtimes)

    def exchange(self, calls: Mapping[str, Call], time_limit_s: float | None) -> dict[str, Outcome]:
        """Run each call at its site: all sites in parallel, or in turn if the step is quicker than a thread."""
        return self.exchange_together([calls], time_limit_s)[0]

    def exchange_together(
        self, batch: Sequence[Mapping[str, Call]], time_limit_s: float | None
    ) -> list[dict[str, Outcome]]:
        """Run the calls of several exchanges, in order at each site."""
        if self._closed:
            raise ConfigurationError("the federation is closed", hint="Make a new one.")
        began = time.perf_counter()
        steps = {call.step for calls in batch for call in calls.values()}
        if time_limit_s is None and steps <= self._quick:
            outcomes = [{site: self._answer(site, call) for site, call in calls.items()} for calls in batch]
        elif time_limit_s is None:
            outcomes = self._exchange_in_pool(batch)
        else:
            outcomes = self._exchange_in_threads(batch, time_limit_s)
        quick = time.perf_counter() - began < QUICK_S * sum(map(len, batch))
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

    def _exchange_in_pool(self, batch: Sequence[Mapping[str, Call]]) -> list[dict[str, Outcome]]:
        """Run the calls in threads that the sites share: a thread per site would cost more than short steps."""
        outbox: Outbox = SimpleQueue()
        sites = dict.fromkeys(site for calls in batch for site in calls)
        inboxes = [self._inbox(f"{_POOL} {number}") for number in range(min(len(sites), MAX_THREADS))]
        for inbox, site in zip(itertools.cycle(inboxes), sites):
            for place, calls in enumerate(batch):
                if site in calls:
                    inbox.put((self._answer, site, place, calls[site], outbox))
        outcomes: list[dict[str, Outcome]] = [{} for _ in batch]
        for _ in range(sum(map(len, batch))):
            site, place, outcome = outbox.get()
            if isinstance(outcome, BaseException):
                raise outcome
            outcomes[place][site] = outcome
        return [{site: outcome[site] for site in calls} for calls, outcome in zip(batch, outcomes, strict=True)]

    def _exchange_in_threads(
        self, batch: Sequence[Mapping[str, Call]], time_limit_s: float
    ) -> list[dict[str, Outcome]]:
        outbox: Outbox = SimpleQueue()
        pending: dict[str, deque[int]] = {}
        for place, calls in enumerate(batch):
            for site, call in calls.items():
                pending.setdefault(site, deque()).append(place)
                self._inbox(site).put((self._answer, site, place, call, outbox))
        outcomes: list[dict[str, Outcome]] = [{} for _ in batch]
        deadlines = dict.fromkeys(pending, time.monotonic() + time_limit_s)
        while pending:
            first = min(deadlines[site] for site in pending)
            try:
                site, place, outcome = outbox.get(timeout=max(first - time.monotonic(), 0.0))
                if isinstance(outcome, BaseException):
                    raise outcome
            except Empty:
                site = min(pending, key=deadlines.__getitem__)
                place, outcome = pending[site][0], _late(site, time_limit_s)
            places = pending.get(site)
            if places and places[0] == place:  # otherwise it is the answer of a call that was given up
                outcomes[places.popleft()][site] = outcome
                deadlines[site] = time.monotonic() + time_limit_s  # the site begins its next call
                if not places:
                    del pending[site]
        return [{site: outcome[site] for site in calls} for calls, outcome in zip(batch, outcomes, strict=True)]

    def _inbox(self, site: str) -> Inbox:
        if site not in self._inboxes:
            self._inboxes[site] = SimpleQueue()
            threading.Thread(target=_work, args=(self._inboxes[site],), name=f"site {site}", daemon=True).start()
        return self._inboxes[site]

    def _answer(self, site: str, call: Call) -> Outcome:
        with self._turns[site]:
            return self._answer_alone(site, call)

    def _answer_alone(self, site: str, call: Call) -> Outcome:
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
        answer, site, place, call, outbox = task
        try:
            outbox.put((site, place, answer(site, call)))
        except BaseException as error:  # raised in the coordinator's thread
            outbox.put((site, place, error))
        del task, answer, call, outbox  # a thread that waits must not keep an engine alive


def _end_threads(inboxes: dict[str, Inbox]) -> None:
    for inbox in inboxes.values():
        inbox.put(None)
    inboxes.clear()


def _late(site: str, time_limit_s: float) -> Lost:
    return Lost(QuorumLost(f"no answer within {time_limit_s:g} seconds", where=site))
