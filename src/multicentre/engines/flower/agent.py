"""The fast mode of a site: one process that stays, keeps data and state in memory, and asks for requests.

It never unpacks nor runs what the coordinator sends. Import it only where :func:`internal.self_test` found nothing
against it.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TypeVar

from flwr.app import Message

from multicentre.engines.flower.connection import Lost, NotLetIn, Over
from multicentre.engines.flower.internal.link import (
    BEAT_S,
    Delivery,
    FleetLink,
    refuse_stopped,
    refuse_unverified,
    reply_with,
)
from multicentre.engines.flower.records import Memory
from multicentre.federation.errors import ConfigurationError, MessageError, MulticentreError
from multicentre.federation.storage import held

_IDLE_SHARE, _LONGEST_POLL_S = 0.1, 1.0
_SURE_SHARE, _GAPS = 0.75, 4
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.25, 10.0
_ASK_AGAIN_S = 2.0
_AWAY_S = 2.0
_LOOK_S = 0.2
_FINISH_WITHIN_S, _LEAVE_WITHIN_S = 0.4, 0.8
_RUNS_KNOWN = 64
_UNCONFIRMED = 64
_IDLE_S = 1.0

Answer = TypeVar("Answer")


class _Stopped(Exception):
    """The process was told to end."""


class Agent:
    """Answers the requests of one coordinator.

    Polls begin when, after the gaps between the last requests, the next may be there; they go out every `poll_s` at
    first, then ever more seldom: after a tenth of the silence, at most one second. A step does not hold up the signs of
    life, which go out beside it.

    Parameters
    ----------
    address : str
        ``host:port`` of the coordinator. ``HTTPS_PROXY`` and ``NO_PROXY`` are honoured.
    root_certificates : Path
        Certificate of the study's authority; no other is believed.
    private_key : Path
        The site's key, whose public half the coordinator registered.
    handle : callable
        Answers a request. Called for one request at a time, not from the main thread.
    approved : callable
        Says whether the site accepts the bundle with this SHA-256; asked for every request.
    report : callable
        Takes lines for the steward. They hold no request and no exception text.
    poll_s : float, default 0.05
        Shortest time between two polls.
    memory : Path, optional
        A file that makes a return after a crash immediate, where it would be refused for half a minute, and tells the
        coordinator which request the crash took. Not to be shared by two agents.
    patience_s : float, default 90.0
        For how long a key that the coordinator does not accept is tried: it refuses a known one for up to a minute
        after a crash.
    """

    def __init__(
        self,
        address: str,
        *,
        root_certificates: Path,
        private_key: Path,
        handle: Callable[[bytes], bytes],
        approved: Callable[[str], bool],
        report: Callable[[str], None],
        poll_s: float = 0.05,
        memory: Path | None = None,
        patience_s: float = 90.0,
    ) -> None:
        self.address = address
        self.handle = handle
        self.approved = approved
        self.report = report
        self.poll_s = poll_s
        self.patience_s = patience_s
        self._files = (root_certificates, private_key)
        self._memory = memory

    def run(self, stop: threading.Event) -> None:
        """Answer requests until `stop` is set; then take leave, within two seconds even in the middle of a step.

        Raises
        ------
        ConfigurationError
            Trying again would not help: the coordinator's certificate is not the study's, it does not know the site's
            key, a file cannot be read, or another agent holds the same memory.
        """
        lock = held(self._memory.with_name(f"{self._memory.name}.lock")) if self._memory else nullcontext()
        with lock:
            certificates, key = self._files
            link = FleetLink(self.address, root_certificates=certificates, private_key=key, stop=stop)
            _Duty(self, link, Memory.open(self._memory), stop).perform()


class _Duty:
    """One agent at work, from its arrival to its leave."""

    def __init__(self, agent: Agent, link: FleetLink, memory: Memory, stop: threading.Event) -> None:
        self._agent = agent
        self._link = link
        self._memory = memory
        self._stop = stop
        self._over = threading.Event()
        self._present = threading.Event()
        self._failure: MulticentreError | None = None
        self._reachable = True
        self._answered_at = time.monotonic()
        self._gaps_s: deque[float] = deque([0.0], maxlen=_GAPS)
        self._bundles: dict[int, str] = {}
        self._unconfirmed: deque[Delivery] = deque()

    def perform(self) -> None:
        """Serve until told to stop, or until something happened that a person must fix."""
        work = threading.Thread(target=self._serve, name="requests", daemon=True)
        signs = threading.Thread(target=self._give_signs, name="signs of life", daemon=True)
        try:
            work.start()
            signs.start()
            while work.is_alive() and not self._stop.wait(_LOOK_S):
                pass
            work.join(_FINISH_WITHIN_S)
        finally:
            self._take_leave()
        if self._failure:
            raise self._failure

    def _serve(self) -> None:
        for wait_s in _waits():
            try:
                self._enter()
                self._answer_what_was_left()
                while True:
                    self._poll()
            except (_Stopped, MulticentreError) as error:
                self._failure = error if isinstance(error, MulticentreError) else None
                return
            except (NotLetIn, Lost):
                continue
            except Exception as error:
                if self._stop.is_set():
                    return
                self._agent.report(f"The agent stumbled ({type(error).__name__}) and starts anew.")
                self._sleep(wait_s)

    def _enter(self) -> None:
        self._present.clear()
        if (node_id := self._memory.node_id) is not None:
            with suppress(NotLetIn):
                self._insist(lambda: self._link.resume(node_id))
                return self._arrived()
            self._memory.keep(node_id=None)
        deadline = time.monotonic() + self._agent.patience_s
        said = False
        while True:
            try:
                self._memory.keep(node_id=self._insist(self._link.activate))
                return self._arrived()
            except NotLetIn as refused:
                if time.monotonic() >= deadline:
                    raise self._explain(refused) from None
                if not said:
                    self._agent.report(_WAITS if refused.clock_off_s is None else f"{_clock(refused.clock_off_s)}.")
                said = True
                self._sleep(min(_ASK_AGAIN_S, self._agent.patience_s))

    def _arrived(self) -> None:
        self._present.set()
        self._agent.report(f"Connected with {self._agent.address}.")

    def _answer_what_was_left(self) -> None:
        if self._memory.under_way is None:
            return
        taken = False
        with suppress(Over, ValueError):
            left = Delivery.from_bytes(self._memory.under_way)
            reply = refuse_stopped(left)
            taken = self._insist(lambda: self._link.push(reply))
            self._insist(lambda: self._link.confirm(left))
        self._memory.end()
        if not taken:  # a reply had begun, and parts of it may be lacking
            self._go_and_come_back()

    def _poll(self) -> None:
        delivery = self._pull()
        if delivery is None:
            silent_s = time.monotonic() - self._answered_at
            if silent_s > _IDLE_S:
                self._confirm(0)
            self._sleep(min(max(self._agent.poll_s, _IDLE_SHARE * silent_s), _LONGEST_POLL_S))
            return
        self._gaps_s.append(time.monotonic() - self._answered_at)
        self._memory.begin(delivery.to_bytes())
        with suppress(Over):
            reply = self._answer(delivery)
            self._insist(lambda: self._link.push(reply))
        self._memory.end()
        self._unconfirmed.append(delivery)
        self._confirm(_UNCONFIRMED if delivery.is_short else 0)
        self._answered_at = time.monotonic()
        # Every poll takes time from the coordinator, which is what sites wait for while requests follow each other.
        self._sleep(min(_SURE_SHARE * min(self._gaps_s), _LONGEST_POLL_S))

    def _confirm(self, but: int) -> None:
        """Let the coordinator forget requests that are answered, but for the newest: it is busy with the next one."""
        while len(self._unconfirmed) > but:
            with suppress(Over):
                self._insist(lambda: self._link.confirm(self._unconfirmed[0]))
            self._unconfirmed.popleft()

    def _pull(self) -> Delivery | None:
        try:
            return self._link.pull()
        except Lost as lost:
            self._say_lost(lost)
            self._insist(self._link.beat)
            if lost.unsaid:
                self._go_and_come_back()
            return None

    def _go_and_come_back(self) -> None:
        """Be away for a moment: a request that was lost on its way here then comes back to its sender as unreachable.

        So does one whose reply broke off half-way.
        """
        self._present.clear()
        with suppress(Lost):
            self._link.deactivate()
        self._sleep(_AWAY_S)
        self._insist(self._link.beat)
        self._present.set()

    def _answer(self, delivery: Delivery) -> Message:
        bundle = self._bundle_of(delivery.run_id)
        if not self._agent.approved(bundle):
            self._agent.report(f"Refused a request: the bundle {bundle} is not approved at this site.")
            return refuse_unverified(delivery)
        try:
            request = self._insist(lambda: self._link.fetch(delivery))
        except MessageError:
            self._agent.report("Refused a message that holds no request.")
            return refuse_stopped(delivery)
        try:
            return reply_with(self._agent.handle(request), delivery)
        except Exception as error:
            self._agent.report(f"A request could not be answered ({type(error).__name__}).")
            return refuse_stopped(delivery)

    def _bundle_of(self, run_id: int) -> str:
        if run_id not in self._bundles:
            if len(self._bundles) >= _RUNS_KNOWN:
                self._bundles.clear()
            self._bundles[run_id] = self._insist(lambda: self._link.bundle_hash(run_id))
        return self._bundles[run_id]

    def _insist(self, call: Callable[[], Answer]) -> Answer:
        """Return the answer to `call`, made again while the coordinator cannot be reached."""
        for wait_s in _waits():
            if self._stop.is_set():
                break
            try:
                answer = call()
            except Lost as lost:
                self._say_lost(lost)
                self._sleep(wait_s)
            else:
                self._say_back()
                return answer
        raise _Stopped

    def _give_signs(self) -> None:
        wait_s = 0.0
        while not self._over.wait(wait_s):
            wait_s = BEAT_S * random.uniform(0.5, 0.65)
            if not self._present.is_set():
                wait_s = _LOOK_S
                continue
            try:
                self._link.beat()
            except NotLetIn:
                continue  # the next poll is told the same, and acts on it
            except Exception:
                wait_s = _ASK_AGAIN_S

    def _take_leave(self) -> None:
        self._over.set()
        if self._present.is_set():
            leave = threading.Thread(target=self._deactivate, daemon=True)
            leave.start()
            leave.join(_LEAVE_WITHIN_S)
        self._link.close()

    def _deactivate(self) -> None:
        with suppress(Exception):
            self._link.deactivate()

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise _Stopped

    def _say_lost(self, lost: Lost) -> None:
        if self._reachable and not self._stop.is_set():
            self._agent.report(f"{self._agent.address} cannot be reached ({lost}); trying on.")
        self._reachable = False

    def _say_back(self) -> None:
        if not self._reachable:
            self._agent.report(f"{self._agent.address} can be reached again.")
        self._reachable = True

    def _explain(self, refused: NotLetIn) -> ConfigurationError:
        if refused.clock_off_s is not None:
            return ConfigurationError(
                _clock(refused.clock_off_s), where=self._agent.address, hint="Set the clock, best by NTP."
            )
        return ConfigurationError(
            "the coordinator does not know this site's key, or another process uses it",
            where=self._agent.address,
            hint="Send the site's card to the coordinator, who registers it with `multicentre coordinator add-site`.",
        )


_WAITS = (
    "The coordinator does not let this site in: it has not noticed yet that an earlier process is gone, "
    "or the site's key is not registered. Trying on."
)


def _clock(off_s: float) -> str:
    return f"This site's clock is {abs(off_s):.0f} s {'ahead of' if off_s > 0 else 'behind'} the coordinator's"


def _waits() -> Iterator[float]:
    wait_s = _FIRST_RETRY_S
    while True:
        yield wait_s * random.uniform(0.75, 1.25)
        wait_s = min(2 * wait_s, _LONGEST_RETRY_S)
