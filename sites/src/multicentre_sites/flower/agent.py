"""Fast mode of a site: one process that keeps data and state in memory and polls for requests.

It never unpacks or runs a bundle that the coordinator sends. Import it only if :func:`internal.self_test` found no
reason against it.
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

from multicentre.core.links import clock_differs
from multicentre.core.storage import held
from multicentre.errors import ConfigurationError, MessageError, MulticentreError
from multicentre_sites.flower.connection import AuthenticationError, Lost, RunEnded, Unfit
from multicentre_sites.flower.internal.link import (
    BEAT_S,
    Delivery,
    FleetLink,
    refuse_stopped,
    refuse_unverified,
    reply_with,
)
from multicentre_sites.flower.records import Memory

_IDLE_SHARE, _LONGEST_POLL_S = 0.1, 1.0  # polls delay a request by at most 10 %, or one second
_SURE_SHARE, _GAPS = 0.75, 4  # no poll before this share of the shortest of the last gaps between requests
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.25, 10.0  # all sites retry after a restart of the coordinator
_RETRY_S = 2.0  # a key is accepted again within a minute; some seconds more do not matter
_AWAY_S = 2.0  # long enough for the coordinator to notice the absence
_POLL_S = 0.2  # short for a person, and no measurable load
_FINISH_WITHIN_S, _LEAVE_WITHIN_S = 0.4, 0.8  # together below the two seconds that `run` promises
_CACHED_RUNS = 64  # a few hundred bytes per run
_UNCONFIRMED = 64  # answered requests that the coordinator's database holds meanwhile
_IDLE_S = 1.0  # requests of a fit follow each other faster

Answer = TypeVar("Answer")


class _Stopped(Exception):
    """The process must end."""


class Agent:
    """Answers the requests of one coordinator.

    Polls begin when the next request may be there, judged by the gaps between the last ones. The pause between polls is
    `poll_s` at first and grows to a tenth of the time without a request, at most one second. Heartbeats are sent in a
    separate thread, also during a step.

    Parameters
    ----------
    address : str
        ``host:port`` of the coordinator. ``HTTPS_PROXY`` and ``NO_PROXY`` are respected.
    root_certificates : Path
        Certificate of the study's authority, the only one that is trusted.
    private_key : Path
        The site's private key; the coordinator registered its public key.
    handle : callable
        Returns the reply to a request. Called for one request at a time, not from the main thread.
    refuse : callable
        Returns the reply that states an error in place of the answer to a request, also if the request is repeated.
    approved : callable
        Returns True if the site accepts the bundle with this SHA-256. Called for every request.
    report : callable
        Receives lines for the steward. They contain neither requests nor texts of exceptions.
    poll_s : float, default 0.05
        Shortest pause between polls in seconds.
    memory : Path, optional
        File of the agent's state. With it, the site returns at once after a crash, instead of after half a minute, and
        reports the request that was lost. One file per agent.
    patience_s : float, default 90.0
        Time in seconds for which a key that the coordinator refuses, or a connection that a proxy refuses, is tried
        again. The coordinator refuses a registered key for up to a minute after a crash.
    """

    def __init__(
        self,
        address: str,
        *,
        root_certificates: Path,
        private_key: Path,
        handle: Callable[[bytes], bytes],
        refuse: Callable[[bytes, MulticentreError], bytes],
        approved: Callable[[str], bool],
        report: Callable[[str], None],
        poll_s: float = 0.05,
        memory: Path | None = None,
        patience_s: float = 90.0,
    ) -> None:
        self.address = address
        self.handle = handle
        self.refuse = refuse
        self.approved = approved
        self.report = report
        self.poll_s = poll_s
        self.patience_s = patience_s
        self._files = (root_certificates, private_key)
        self._memory = memory

    def note_heard(self) -> None:
        """Record that the coordinator answered, as the time of the file ``heard`` next to the agent's memory."""
        if self._memory is not None:
            with suppress(OSError):  # a full disk must not end the connection
                self._memory.with_name("heard").touch()

    def run(self, stop: threading.Event) -> None:
        """Answer requests until `stop` is set; then disconnect, within two seconds even in the middle of a step.

        Raises
        ------
        ConfigurationError
            A retry would not help: the coordinator's certificate is not the study's, the site's key is not registered,
            a proxy requires credentials, a file cannot be read, or another agent uses the same memory file.
        """
        lock = held(self._memory.with_name(f"{self._memory.name}.lock")) if self._memory else nullcontext()
        with lock:
            certificates, key = self._files
            link = FleetLink(self.address, root_certificates=certificates, private_key=key, stop=stop)
            _AgentSession(self, link, Memory.open(self._memory), stop).perform()


class _AgentSession:
    """One session of an agent, from connecting to disconnecting."""

    def __init__(self, agent: Agent, link: FleetLink, memory: Memory, stop: threading.Event) -> None:
        self._agent = agent
        self._link = link
        self._memory = memory
        self._stop = stop
        self._ended = threading.Event()
        self._connected = threading.Event()
        self._failure: MulticentreError | None = None
        self._reachable = True
        self._answered_at = time.monotonic()
        self._gaps_s: deque[float] = deque([0.0], maxlen=_GAPS)
        self._bundles: dict[int, str] = {}
        self._unconfirmed: deque[Delivery] = deque()

    def perform(self) -> None:
        """Serve until stopped, or until an error occurs that a person must correct."""
        work = threading.Thread(target=self._serve, name="requests", daemon=True)
        heartbeats = threading.Thread(target=self._send_heartbeats, name="heartbeats", daemon=True)
        try:
            work.start()
            heartbeats.start()
            while work.is_alive() and not self._stop.wait(_POLL_S):
                pass
            work.join(_FINISH_WITHIN_S)
        finally:
            self._disconnect()
        if self._failure:
            raise self._failure

    def _serve(self) -> None:
        for wait_s in _waits():
            try:
                self._connect()
                self._answer_unfinished()
                while True:
                    self._poll()
            except (_Stopped, MulticentreError) as error:
                self._failure = error if isinstance(error, MulticentreError) else None
                return
            except (AuthenticationError, Lost):
                continue
            except Exception as error:
                if self._stop.is_set():
                    return
                self._agent.report(f"The agent failed ({type(error).__name__}) and restarts.")
                self._sleep(wait_s)

    def _connect(self) -> None:
        self._connected.clear()
        if (node_id := self._memory.node_id) is not None:
            with suppress(AuthenticationError):
                self._retry(lambda: self._link.resume(node_id))
                return self._report_connected()
            self._memory.keep(node_id=None)
        deadline = time.monotonic() + self._agent.patience_s
        reported = False
        while True:
            try:
                self._memory.keep(node_id=self._retry(self._link.activate))
                return self._report_connected()
            except AuthenticationError as refused:
                if time.monotonic() >= deadline:
                    raise self._explain(refused) from None
                if not reported:
                    self._agent.report(_WAITS if refused.clock_off_s is None else str(self._explain(refused)))
                reported = True
                self._sleep(min(_RETRY_S, self._agent.patience_s))

    def _report_connected(self) -> None:
        self._connected.set()
        self._agent.note_heard()
        self._agent.report(f"Connected with {self._agent.address}.")

    def _answer_unfinished(self) -> None:
        if self._memory.under_way is None:
            return
        accepted = False
        with suppress(RunEnded, ValueError):
            unfinished = Delivery.from_bytes(self._memory.under_way)
            reply = refuse_stopped(unfinished)
            accepted = self._retry(lambda: self._link.push(reply))
            self._retry(lambda: self._link.confirm(unfinished))
        self._memory.end()
        if not accepted:  # a reply was begun, and parts of it may be missing
            self._reconnect()

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
        with suppress(RunEnded):
            self._push(delivery, *self._answer(delivery))
        self._memory.end()
        self._note_answered(delivery)
        self._confirm(_UNCONFIRMED if delivery.is_short else 0)
        self._answered_at = time.monotonic()
        # A poll costs time at the coordinator, for which the sites wait while requests follow each other.
        self._sleep(min(_SURE_SHARE * min(self._gaps_s), _LONGEST_POLL_S))

    def _note_answered(self, delivery: Delivery) -> None:
        """Store a request for its confirmation.

        A whole one has no parts that the coordinator would have to delete. Only the last of them is confirmed, because
        the coordinator deletes what remains of a run when a site confirms a request after the end of the run.
        """
        if self._unconfirmed and self._unconfirmed[-1].is_whole and delivery.is_whole:
            self._unconfirmed.pop()
        self._unconfirmed.append(delivery)

    def _confirm(self, but: int) -> None:
        """Confirm answered requests except for the newest ones; the coordinator then deletes them."""
        while len(self._unconfirmed) > but:
            with suppress(RunEnded):
                self._retry(lambda: self._link.confirm(self._unconfirmed[0]))
            self._unconfirmed.popleft()

    def _pull(self) -> Delivery | None:
        try:
            return self._link.pull()
        except Lost as lost:
            self._report_lost(lost)
            self._retry(self._link.beat)
            if lost.unsaid:
                self._reconnect()
            return None

    def _reconnect(self) -> None:
        """Disconnect for a moment, so that the sender receives a lost request back as undelivered.

        The same applies to a request whose reply is incomplete.
        """
        self._connected.clear()
        with suppress(Lost):
            self._link.deactivate()
        self._sleep(_AWAY_S)
        self._retry(self._link.beat)
        self._connected.set()

    def _push(self, delivery: Delivery, request: bytes, reply: Message) -> None:
        """Send a reply; if the link cannot carry it, send the reason in its place."""
        try:
            self._retry(lambda: self._link.push(reply))
        except Unfit as unfit:
            self._agent.report(f"Failed to send an answer: {unfit.error}")
            refusal = reply_with(self._agent.refuse(request, unfit.error), delivery)
            if not self._retry(lambda: self._link.push(refusal)):
                self._reconnect()  # the answer was announced: the sender repeats the request

    def _answer(self, delivery: Delivery) -> tuple[bytes, Message]:
        """Return the request and the reply to it."""
        bundle = self._bundle_of(delivery.run_id)
        if not self._agent.approved(bundle):
            self._agent.report(f"Refused a request: the bundle {bundle} is not approved at this site.")
            return b"", refuse_unverified(delivery)
        try:
            request = self._retry(lambda: self._link.fetch(delivery))
        except MessageError:
            self._agent.report("Refused a message without a request.")
            return b"", refuse_stopped(delivery)
        try:
            return request, reply_with(self._agent.handle(request), delivery)
        except Exception as error:
            self._agent.report(f"Failed to answer a request ({type(error).__name__}).")
            return request, refuse_stopped(delivery)

    def _bundle_of(self, run_id: int) -> str:
        if run_id not in self._bundles:
            if len(self._bundles) >= _CACHED_RUNS:
                self._bundles.clear()
            self._bundles[run_id] = self._retry(lambda: self._link.bundle_hash(run_id))
        return self._bundles[run_id]

    def _retry(self, call: Callable[[], Answer]) -> Answer:
        """Return the answer to `call`, repeated while the coordinator cannot be reached."""
        deadline = None
        for wait_s in _waits():
            if self._stop.is_set():
                break
            try:
                answer = call()
            except Lost as lost:
                self._report_lost(lost)
                if lost.lasting is not None:
                    deadline = deadline or time.monotonic() + self._agent.patience_s
                    if time.monotonic() >= deadline:
                        raise lost.lasting from None
                self._sleep(wait_s)
            else:
                self._report_reachable()
                return answer
        raise _Stopped

    def _send_heartbeats(self) -> None:
        wait_s = 0.0
        while not self._ended.wait(wait_s):
            wait_s = BEAT_S * random.uniform(0.5, 0.65)
            if not self._connected.is_set():
                wait_s = _POLL_S
                continue
            try:
                self._link.beat()
                self._agent.note_heard()
            except AuthenticationError:
                continue  # the next poll receives the same refusal and handles it
            except Exception:
                wait_s = _RETRY_S

    def _disconnect(self) -> None:
        self._ended.set()
        if self._connected.is_set():
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

    def _report_lost(self, lost: Lost) -> None:
        if self._reachable and not self._stop.is_set():
            self._agent.report(f"{self._agent.address} cannot be reached ({lost}); retrying.")
        self._reachable = False

    def _report_reachable(self) -> None:
        if not self._reachable:
            self._agent.report(f"{self._agent.address} can be reached again.")
        self._reachable = True

    def _explain(self, refused: AuthenticationError) -> ConfigurationError:
        if refused.clock_off_s is not None:
            return clock_differs(refused.clock_off_s, self._agent.address)
        return ConfigurationError(
            "this site's key must be registered at the coordinator and used by one process; the coordinator refused it",
            where=self._agent.address,
            hint="Send the site's card to the coordinator, who registers it with `multicentre coordinator add-site`.",
        )


_WAITS = (
    "The coordinator refuses this site: it has not noticed yet that an earlier process ended, "
    "or the site's key is not registered. Retrying."
)


def _waits() -> Iterator[float]:
    wait_s = _FIRST_RETRY_S
    while True:
        yield wait_s * random.uniform(0.75, 1.25)
        wait_s = min(2 * wait_s, _LONGEST_RETRY_S)
