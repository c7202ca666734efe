"""Coordinator's end of remote sites: sends calls as requests, and repeats them until they are answered or given up."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from multicentre.core.calls import Call, Lost, Outcome, Refused, StateCommand, encode_call
from multicentre.core.links import MAX_CLOCK_DIFFERENCE_S, PART_WITHIN_S, REQUEST_LESS
from multicentre.core.messages import Nothing
from multicentre.core.rounds import Listener
from multicentre.engines.remote.batches import WaitingCall, n_together, outcomes_of, request_of
from multicentre.engines.remote.opening import Opening
from multicentre.engines.remote.packing import Kind, Reply, Request, pack_command, pack_nonces, unpack_error
from multicentre.engines.remote.socket import Carrier, CarrierReason, Unreachable, check_size
from multicentre.errors import (
    ConfigurationError,
    IntegrityError,
    MessageError,
    MulticentreError,
    QuorumLost,
    RefusedByPolicy,
    SiteBehind,
    StateGone,
)
from multicentre.privacy.ledger_heads import Head

Errors = dict[str, MulticentreError]
PATIENCE_S = 120.0  # a site that restarts is connected again after about a minute
_PAUSES_S = (0.1, 0.5, 1.0, 2.0, 4.0)  # a short break costs little, and a long one little traffic
_WAIT_S = 0.5  # longest wait for replies before failed requests are repeated
_SILENT_S = 600.0  # few steps take longer; a repeated request costs one message
_REPORT_AFTER_S = 10.0  # most breaks are shorter
_REASONS: Mapping[CarrierReason, str] = {
    "offline": "the site is not connected",
    "stopped": "the site's process stopped while working",
    "lost": "the connection broke",
    "unverified": "the site does not accept the bundle",
    "partial": "the site's answer arrived only in part",
}
_HINTS: Mapping[CarrierReason, str] = {
    "offline": "multicentre site check at the site names the cause: network, proxy, key, or a clock that is more than "
    f"{MAX_CLOCK_DIFFERENCE_S:g} s off.",
    "partial": f"The site needs a link that carries 5 MiB within {PART_WITHIN_S:g} s, and proxies that permit bodies "
    f"of 8 MiB. {REQUEST_LESS}",
}


@dataclass
class _PendingRequest:
    """Request in progress: number of attempts, and since when delivery has failed."""

    request: Request
    packed: bytes
    sent_at: float = field(default_factory=time.monotonic)
    silent_s: float = field(default_factory=lambda: _SILENT_S)
    tries: int = 0
    reason: CarrierReason | None = None
    since: datetime | None = None
    failing_since: float = 0.0
    retry_time: float | None = None
    reported: bool = False


@dataclass
class _Site:
    """State of the engine for one site."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    commands: list[StateCommand] = field(default_factory=list)
    head: Head | None = None
    unsent_heads: str = ""
    unsent_nonces: Mapping[str, str] | None = None
    sessions: set[str] = field(default_factory=set)
    lost_sessions: set[str] = field(default_factory=set)
    since: str = ""
    away: bool = False


class RemoteEngine:
    """Carries calls to sites in separate processes.

    Parameters
    ----------
    carrier : Carrier
    opening : Opening
        Run of the calls.
    patience_s : float
        Time in seconds after which an unreachable site counts as lost. Its process may be restarted meanwhile.
    listener : Listener, optional
        Receives progress events, such as the sites that are awaited.

    Notes
    -----
    Commands to store state between rounds are sent with the next request, so that they cost no extra request.
    """

    def __init__(
        self,
        carrier: Carrier,
        opening: Opening,
        *,
        patience_s: float = PATIENCE_S,
        listener: Listener | None = None,
    ) -> None:
        self._carrier = carrier
        self._opening = opening
        self._patience_s = patience_s
        self._listener = listener or Listener()
        self._numbers = itertools.count(1)
        self._sites = {site: _Site() for site in carrier.sites}
        self._closed = False

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in order."""
        return tuple(self._sites)

    @property
    def facts(self) -> dict[str, Mapping[str, Any]]:
        """Facts that the reached sites sent when the run was opened."""
        return {site: state.facts for site, state in self._sites.items() if state.facts}

    def open(self, time_limit_s: float | None = None) -> tuple[Errors, Errors]:
        """Open the run at every site.

        Returns
        -------
        away, refusals : dict of str to MulticentreError
            Sites that could not be reached, and sites that refused: the study is not approved there, or conflicts with
            their data or policy.
        """
        outcomes = self._open_at(self.sites, time_limit_s)
        away = {site: one.error for site, one in outcomes.items() if isinstance(one, Lost)}
        return away, {site: one.error for site, one in outcomes.items() if isinstance(one, Refused)}

    def exchange(self, calls: Mapping[str, Call], time_limit_s: float | None) -> dict[str, Outcome]:
        """Carry each call to its site and return each site's outcome."""
        return self.exchange_together([calls], time_limit_s)[0]

    def exchange_together(
        self, batch: Sequence[Mapping[str, Call]], time_limit_s: float | None
    ) -> list[dict[str, Outcome]]:
        """Carry the calls of several exchanges in one request per site; in several if they exceed a message."""
        if self._closed:
            raise ConfigurationError("the federation is closed", hint="Make a new one.")
        waiting: dict[str, list[WaitingCall]] = {}
        for place, calls in enumerate(batch):
            bodies = {key: encode_call(one) for key, one in {id(one.request): one for one in calls.values()}.items()}
            for site, call in calls.items():
                waiting.setdefault(site, []).append(WaitingCall(place, call, bodies[id(call.request)]))
        most = max(map(len, waiting.values()), default=0)
        deadline = None if time_limit_s is None else time.monotonic() + time_limit_s * most
        outcomes: list[dict[str, Outcome]] = [{} for _ in batch]
        reopened: set[str] = set()
        while waiting := self._without_lost_states(waiting, outcomes):
            self._carry(waiting, outcomes, reopened, deadline)
        return outcomes

    def run_command(self, command: StateCommand, sites: tuple[str, ...]) -> None:
        """Queue a state command for the next requests; a restore is sent at once.

        Raises
        ------
        MulticentreError
            A site cannot restore its state, or cannot be reached.
        """
        if command.action != "restore":
            for site in sites:
                if command.action == "forget" or command.part.remembers is not Nothing:
                    self._sites[site].commands.append(command)
            return
        for site in sites:
            self._sites[site].commands.append(command)
            self._sites[site].sessions.add(command.session)
        replies = self._send_and_collect(dict.fromkeys(sites, ("restore", b"")), None)
        for site, reply in replies.items():
            if isinstance(reply, Lost | Refused):
                raise reply.error
            if reply.kind == "refused":
                raise _site_behind(unpack_error(reply)).at(site)
            if reply.kind == "closed":
                raise QuorumLost("the site's process restarted", where=site, hint="Resume the run once more.")

    @property
    def heads(self) -> dict[str, Head | None]:
        """Head of each site's ledger at its last reply."""
        return {site: state.head for site, state in self._sites.items()}

    def witness(self, heads: Mapping[str, bytes]) -> None:
        """Queue the heads of the peers' ledgers for each site's next request."""
        for site, stated in heads.items():
            if site in self._sites:
                self._sites[site].unsent_heads = stated.decode()

    def close(self) -> None:
        """Send the queued commands to the sites and close the carrier."""
        if not self._closed:
            self._closed = True
            try:
                present = [site for site, state in self._sites.items() if state.facts and not state.away]
                self._send_and_collect(dict.fromkeys(present, ("close", b"")), time.monotonic() + _CLOSING_S)
            finally:
                self._carrier.close()

    def _open_at(self, sites: tuple[str, ...], time_limit_s: float | None) -> dict[str, Lost | Refused | Reply]:
        deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
        replies = self._send_and_collect(dict.fromkeys(sites, ("open", self._opening.pack())), deadline)
        for site, reply in replies.items():
            if isinstance(reply, Reply) and reply.kind == "refused":
                replies[site] = Refused(unpack_error(reply).at(site))
            elif isinstance(reply, Reply):
                replies[site] = self._store_facts(site, reply)
        nonces = {site: str(facts.get("nonce")) for site, facts in self.facts.items()}
        for site in nonces:
            self._sites[site].unsent_nonces = nonces
        return replies

    def _store_facts(self, site: str, reply: Reply) -> Reply | Refused:
        """Store the facts of a site; refuse a site that returns with other data."""
        state = self._sites[site]
        try:
            if reply.kind != "opened":
                raise MessageError(f"the reply to an opening must be of kind opened; got {reply.kind}", where="reply")
            facts = reply.facts
        except MulticentreError as error:
            return Refused(error.at(site))
        if state.facts and state.facts.get("data") != facts.get("data"):
            message = "the data of the site must be the same as at the start of the run; got others"
            return Refused(IntegrityError(message, where=site, hint="Start a new run of the study."))
        state.facts = facts
        return reply

    def _without_lost_states(
        self, waiting: Mapping[str, list[WaitingCall]], outcomes: list[dict[str, Outcome]]
    ) -> dict[str, list[WaitingCall]]:
        """Return the calls whose site has the session of the call and those that its selection depends on."""
        left: dict[str, list[WaitingCall]] = {}
        for site, calls in waiting.items():
            for one in calls:
                if self._sites[site].lost_sessions & _sessions_needed(one.call):
                    outcomes[one.place][site] = _lost_state(site, self._sites[site])
                else:
                    left.setdefault(site, []).append(one)
        return left

    def _carry(
        self,
        waiting: dict[str, list[WaitingCall]],
        outcomes: list[dict[str, Outcome]],
        reopened: set[str],
        deadline: float | None,
    ) -> None:
        """Send every site as many of its calls as fit a message, and remove those with an outcome.

        The calls of a site that restarted stay: the run is opened there again, once.
        """
        sent = {site: calls[: n_together([len(one.body) for one in calls])] for site, calls in waiting.items()}
        replies = self._send_and_collect({site: request_of(calls) for site, calls in sent.items()}, deadline)
        closed = [site for site, one in replies.items() if isinstance(one, Reply) and one.kind == "closed"]
        for site in closed:
            self._sites[site].since = _since(replies[site])
            self._sites[site].lost_sessions |= self._sites[site].sessions
        restarted = [site for site in closed if site not in reopened]
        reopened.update(restarted)
        limit = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        opened = self._open_at(tuple(restarted), limit) if restarted else {}
        for site, calls in sent.items():
            if site in opened and isinstance(opened[site], Reply):
                continue
            calls = waiting[site][:] if site in opened else calls  # a site that cannot be opened has no outcome
            for one, outcome in zip(calls, outcomes_of(site, calls, opened.get(site, replies[site])), strict=False):
                outcomes[one.place][site] = outcome
                waiting[site].remove(one)
            self._sites[site].sessions.update(one.call.session for one in calls)
        for site in [site for site, calls in waiting.items() if not calls]:
            del waiting[site]

    def _send_and_collect(
        self, contents: Mapping[str, tuple[Kind, bytes]], deadline: float | None
    ) -> dict[str, Reply | Lost | Refused]:
        number = next(self._numbers)
        requests = {site: self._request(kind, number, site, body) for site, (kind, body) in contents.items()}
        pending = {site: _PendingRequest(request, request.pack()) for site, request in requests.items()}
        replies: dict[str, Reply | Lost | Refused] = {}
        for site in list(pending):
            try:
                check_size(pending[site].packed, "request")
            except MessageError as error:
                replies[site] = Refused(error.at(site))
                del pending[site]
        start_time = _now()
        if pending:
            self._carrier.send({site: one.packed for site, one in pending.items()})
        while pending and (deadline is None or time.monotonic() < deadline):
            wait_s = _WAIT_S if deadline is None else min(_WAIT_S, max(deadline - time.monotonic(), 0.0))
            for site, outcome in self._carrier.collect(wait_s).items():
                if site in pending and (reply := self._outcome_of_request(site, outcome, pending[site])) is not None:
                    replies[site] = reply
                    self._sites[site].away = isinstance(reply, Lost)
                    if isinstance(reply, Reply) and reply.ledger is not None:
                        self._sites[site].head = reply.ledger
                    del pending[site]
            self._send_again(pending)
        for site, one in pending.items():
            away = "" if one.reason is None else f", {_REASONS[one.reason]}"
            replies[site] = Lost(QuorumLost(f"no answer since {start_time} within the time limit{away}", where=site))
            self._sites[site].away = True
        return replies

    def _request(self, kind: Kind, number: int, site: str, body: bytes) -> Request:
        commands: list[dict[str, Any]] = []
        heads, state = "", self._sites[site]
        if kind != "open":
            commands = [] if state.unsent_nonces is None else [pack_nonces(state.unsent_nonces)]
            commands += [pack_command(command) for command in state.commands]
            state.commands, state.unsent_nonces = [], None
            heads, state.unsent_heads = state.unsent_heads, ""
        return Request(kind, self._opening.run, self._opening.attempt, number, tuple(commands), body, heads)

    def _outcome_of_request(
        self, site: str, outcome: bytes | Unreachable, one: _PendingRequest
    ) -> Reply | Lost | Refused | None:
        """Return the outcome of a request; None if it is still awaited or must be repeated."""
        if isinstance(outcome, bytes):
            if (reply := _read(site, outcome, one.request.number)) is not None:
                return reply
            outcome = Unreachable("lost")  # a reply to another request: this one must be repeated
        if outcome.reason == "unverified":
            return Refused(
                RefusedByPolicy(
                    "the site must accept the study's bundle; got a refusal",
                    where=site,
                    hint="Have its steward approve the bundle: multicentre site approve.",
                )
            )
        now = time.monotonic()
        one.reason = outcome.reason
        if one.since is None:
            one.since, one.failing_since = datetime.now(UTC), now
        patience_s = 0.0 if self._sites[site].away else self._patience_s
        if now - one.failing_since >= patience_s:
            since = f"{one.since:%H:%M:%S} UTC"
            hint = _HINTS.get(outcome.reason, "")
            return Lost(QuorumLost(f"not reached since {since}: {_REASONS[outcome.reason]}", where=site, hint=hint))
        if now - one.failing_since >= _REPORT_AFTER_S and not one.reported:
            one.reported = True
            why = _REASONS[outcome.reason].removeprefix("the site is ")
            self._listener.site_awaited(site, f"{why} (patience {self._patience_s:g} s)")
        one.retry_time = now + _PAUSES_S[min(one.tries, len(_PAUSES_S) - 1)]
        one.tries += 1
        return None

    def _send_again(self, pending: Mapping[str, _PendingRequest]) -> None:
        """Repeat requests that failed, and those without an outcome for a long time: a reply can be lost."""
        now = time.monotonic()
        due = {site: one for site, one in pending.items() if (one.retry_time or one.sent_at + one.silent_s) <= now}
        for one in due.values():
            if one.retry_time is None:  # a slow link may need longer: a reply to an earlier message is not received
                one.silent_s *= 2
            one.retry_time, one.sent_at = None, now
        if due:
            self._carrier.send({site: one.packed for site, one in due.items()})


def _read(site: str, outcome: bytes, number: int) -> Reply | Refused | None:
    try:
        reply = Reply.unpack(outcome)
    except MulticentreError as error:
        return Refused(error.at(site))
    unread = (
        reply.number == 0 and reply.kind == "refused"
    )  # the site cannot know the number of a request that it cannot read
    return reply if reply.number == number or unread else None


def _since(reply: Reply | Lost | Refused) -> str:
    """Return the start time of a site's process, as reported by the site."""
    try:
        return str(reply.facts.get("since", ""))[:_LONGEST_TIME] if isinstance(reply, Reply) else ""
    except MulticentreError:
        return ""


def _sessions_needed(call: Call) -> set[str]:
    """Return the sessions whose state at the site a call depends on."""
    needed, selection = {call.session}, call.selection
    while selection is not None:
        needed, selection = needed | {selection.plan}, selection.within
    return needed


def _lost_state(site: str, state: _Site) -> Lost:
    return Lost(QuorumLost(f"the site's process restarted at {state.since} and lost the state of this fit", where=site))


def _site_behind(error: MulticentreError) -> MulticentreError:
    """Return the error of a site that cannot restore its state; it may never have received the command to store it."""
    return SiteBehind(error.what, where=error.where, hint=error.hint) if isinstance(error, StateGone) else error


def _now() -> str:
    return f"{datetime.now(UTC):%H:%M:%S} UTC"


_CLOSING_S = 5.0  # the results are complete; a site that does not answer must not delay them
_LONGEST_TIME = 40  # an ISO 8601 time with a zone has at most 32 characters
