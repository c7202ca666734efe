"""The coordinator's side: carries calls to sites in requests, and writes again until they are answered or given up."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from multicentre.engines.remote.packing import (
    Kind,
    Opening,
    Reply,
    Request,
    pack_command,
    unpack_error,
    unpack_outcome,
)
from multicentre.engines.remote.socket import Carrier, Reason, Unreachable
from multicentre.federation.engine import Call, Lost, Outcome, Refused, Upkeep, encode_call
from multicentre.federation.errors import (
    ConfigurationError,
    IntegrityError,
    MessageError,
    MulticentreError,
    QuorumLost,
    RefusedByPolicy,
    SiteBehind,
    StateGone,
)
from multicentre.federation.messages import Nothing
from multicentre.federation.rounds import Listener
from multicentre.privacy.ledger_heads import Head

Errors = dict[str, MulticentreError]
PATIENCE_S = 120.0
_PAUSES_S = (0.1, 0.5, 1.0, 2.0, 4.0)
_WAIT_S = 0.5
_SILENT_S = 600.0
_TELL_AFTER_S = 10.0
_REASONS: Mapping[Reason, str] = {
    "offline": "it is not connected",
    "stopped": "its process stopped at work",
    "lost": "the connection broke",
    "unverified": "it does not accept the bundle",
}


@dataclass
class _Underway:
    """A request to a site, and how often and since when it could not be delivered."""

    request: Request
    packed: bytes
    sent: float = field(default_factory=time.monotonic)
    tries: int = 0
    reason: Reason | None = None
    since: datetime | None = None
    failing: float = 0.0
    again_at: float | None = None
    told: bool = False


@dataclass
class _Site:
    """What the engine knows of a site."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    commands: list[Upkeep] = field(default_factory=list)
    head: Head | None = None
    unsent_heads: str = ""
    sessions: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    since: str = ""
    away: bool = False


class RemoteEngine:
    """Carries calls to sites that are processes of their own.

    Parameters
    ----------
    carrier : Carrier
    opening : Opening
        The run that the calls belong to.
    patience_s : float
        For so long a site may be out of reach before it counts as lost; its process may be restarted meanwhile.
    listener : Listener, optional
        Hears who is waited for.

    Notes
    -----
    What sites keep between rounds is asked for with the next request, so that it costs no request of its own.
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
        """What the sites that were reached told of themselves."""
        return {site: known.facts for site, known in self._sites.items() if known.facts}

    def open(self, time_limit_s: float | None = None) -> tuple[Errors, Errors]:
        """Open the run at every site.

        Returns
        -------
        away, refusals : dict of str to MulticentreError
            Sites that could not be reached, and sites that refuse: the study was not approved there, or their data or
            policies stand against it.
        """
        outcomes = self._opened(self.sites, time_limit_s)
        away = {site: one.error for site, one in outcomes.items() if isinstance(one, Lost)}
        return away, {site: one.error for site, one in outcomes.items() if isinstance(one, Refused)}

    def exchange(self, calls: Mapping[str, Call], time_limit_s: float | None) -> dict[str, Outcome]:
        """Carry each call to its site and return each site's outcome."""
        if self._closed:
            raise ConfigurationError("the federation was closed", hint="Make a new one.")
        deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
        outcomes: dict[str, Outcome] = {site: _forgotten(site, self._sites[site]) for site in self._without(calls)}
        bodies = {key: encode_call(call) for key, call in {id(call.ask): call for call in calls.values()}.items()}
        asked = {site: call for site, call in calls.items() if site not in outcomes}
        replies = self._correspond("call", {site: bodies[id(call.ask)] for site, call in asked.items()}, deadline)
        closed = [site for site, reply in replies.items() if isinstance(reply, Reply) and reply.kind == "closed"]
        for site in closed:
            self._sites[site].since = _since(replies[site])
            self._sites[site].forgotten |= self._sites[site].sessions
        again = self._reopened({site: asked[site] for site in closed}, bodies, deadline)
        for site, call in asked.items():
            outcomes[site] = self._outcome(site, call, again.get(site, replies[site]))
            self._sites[site].sessions.add(call.session)
        return outcomes

    def upkeep(self, command: Upkeep, sites: tuple[str, ...]) -> None:
        """Note a command for the next requests; what sites restore is restored at once.

        Raises
        ------
        MulticentreError
            A site cannot restore what it kept, or is out of reach.
        """
        if command.action != "restore":
            for site in sites:
                if command.action == "forget" or command.part.remembers is not Nothing:
                    self._sites[site].commands.append(command)
            return
        for site in sites:
            self._sites[site].commands.append(command)
            self._sites[site].sessions.add(command.session)
        replies = self._correspond("restore", dict.fromkeys(sites, b""), None)
        for site, reply in replies.items():
            if isinstance(reply, Lost | Refused):
                raise reply.error
            if reply.kind == "refused":
                raise _behind(unpack_error(reply)).at(site)
            if reply.kind == "closed":
                raise QuorumLost("the site's process began anew", where=site, hint="Resume the run once more.")

    @property
    def heads(self) -> dict[str, Head | None]:
        """End of each site's ledger, as of its last reply."""
        return {site: known.head for site, known in self._sites.items()}

    def witness(self, heads: Mapping[str, bytes]) -> None:
        """Note the ends of peers' ledgers for each site's next request."""
        for site, stated in heads.items():
            if site in self._sites:
                self._sites[site].unsent_heads = stated.decode()

    def close(self) -> None:
        """Have the sites keep what is still to be kept, and let go of the carrier."""
        if not self._closed:
            self._closed = True
            try:
                present = [site for site, known in self._sites.items() if known.facts and not known.away]
                self._correspond("close", dict.fromkeys(present, b""), time.monotonic() + _CLOSING_S)
            finally:
                self._carrier.close()

    def _opened(self, sites: tuple[str, ...], time_limit_s: float | None) -> dict[str, Lost | Refused | Reply]:
        deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
        replies = self._correspond("open", dict.fromkeys(sites, self._opening.pack()), deadline)
        for site, reply in replies.items():
            if isinstance(reply, Reply) and reply.kind == "refused":
                replies[site] = Refused(unpack_error(reply).at(site))
            elif isinstance(reply, Reply):
                replies[site] = self._noted(site, reply)
        return replies

    def _noted(self, site: str, reply: Reply) -> Reply | Refused:
        """Note what a site told of itself; one that comes back with other data is not part of the same run."""
        known = self._sites[site]
        try:
            if reply.kind != "opened":
                raise MessageError("the reply does not answer the opening", where="reply")
            facts = reply.facts
        except MulticentreError as error:
            return Refused(error.at(site))
        for name, what in (("data", "the data are"), ("version", "the site's version of multicentre is")):
            if known.facts and known.facts.get(name) != facts.get(name):
                said = f"{what} not {'those' if name == 'data' else 'the one'} that the run began with"
                return Refused(IntegrityError(said, where=site, hint="Run the study anew."))
        known.facts = facts
        return reply

    def _reopened(
        self, calls: Mapping[str, Call], bodies: Mapping[int, bytes], deadline: float | None
    ) -> dict[str, Reply | Lost | Refused]:
        """Open the run anew at sites whose process began anew, and ask those again that have nothing to remember."""
        if not calls:
            return {}
        limit = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        opened = self._opened(tuple(calls), limit)
        failed = {site: outcome for site, outcome in opened.items() if not isinstance(outcome, Reply)}
        lost = {site: _forgotten(site, self._sites[site]) for site in self._without(calls) if site not in failed}
        fresh = {s: bodies[id(call.ask)] for s, call in calls.items() if s not in failed and s not in lost}
        return {**failed, **lost, **self._correspond("call", fresh, deadline)}

    def _without(self, calls: Mapping[str, Call]) -> list[str]:
        """Return the sites that no longer remember the session of their call, or what its selection rests on."""
        return [site for site, call in calls.items() if self._sites[site].forgotten & _rests_on(call)]

    def _correspond(
        self, kind: Kind, bodies: Mapping[str, bytes], deadline: float | None
    ) -> dict[str, Reply | Lost | Refused]:
        number = next(self._numbers)
        requests = {site: self._request(kind, number, site, body) for site, body in bodies.items()}
        underway = {site: _Underway(request, request.pack()) for site, request in requests.items()}
        replies: dict[str, Reply | Lost | Refused] = {}
        asked = _now()
        if underway:
            self._carrier.send({site: one.packed for site, one in underway.items()})
        while underway and (deadline is None or time.monotonic() < deadline):
            wait_s = _WAIT_S if deadline is None else min(_WAIT_S, max(deadline - time.monotonic(), 0.0))
            for site, came in self._carrier.collect(wait_s).items():
                if site in underway and (reply := self._judged(site, came, underway[site])) is not None:
                    replies[site] = reply
                    self._sites[site].away = isinstance(reply, Lost)
                    if isinstance(reply, Reply) and reply.ledger is not None:
                        self._sites[site].head = reply.ledger
                    del underway[site]
            self._send_again(underway)
        for site, one in underway.items():
            away = "" if one.reason is None else f", {_REASONS[one.reason]}"
            replies[site] = Lost(QuorumLost(f"no answer since {asked} within the time limit{away}", where=site))
            self._sites[site].away = True
        return replies

    def _request(self, kind: Kind, number: int, site: str, body: bytes) -> Request:
        commands: list[Upkeep] = []
        heads, known = "", self._sites[site]
        if kind != "open":
            commands, known.commands = known.commands, []
            heads, known.unsent_heads = known.unsent_heads, ""
        told = tuple(pack_command(command) for command in commands)
        return Request(kind, self._opening.run, self._opening.attempt, number, told, body, heads)

    def _judged(self, site: str, came: bytes | Unreachable, one: _Underway) -> Reply | Lost | Refused | None:
        """Return what a site's reply means; None when the request has to be waited for or sent again."""
        if isinstance(came, bytes):
            if (reply := _read(site, came, one.request.number)) is not None:
                return reply
            came = Unreachable("lost")  # it answers another request, and will not answer this one by itself
        if came.reason == "unverified":
            return Refused(
                RefusedByPolicy(
                    "the site does not accept the study's bundle",
                    where=site,
                    hint="Have its steward approve the bundle: multicentre site approve.",
                )
            )
        now = time.monotonic()
        one.reason = came.reason
        if one.since is None:
            one.since, one.failing = datetime.now(UTC), now
        patience_s = 0.0 if self._sites[site].away else self._patience_s
        if now - one.failing >= patience_s:
            since = f"{one.since:%H:%M:%S} UTC"
            return Lost(QuorumLost(f"not reached since {since}: {_REASONS[came.reason]}", where=site))
        if now - one.failing >= _TELL_AFTER_S and not one.told:
            one.told = True
            why = _REASONS[came.reason].removeprefix("it is ")
            self._listener.site_awaited(site, f"{why} (patience {self._patience_s:g} s)")
        one.again_at = now + _PAUSES_S[min(one.tries, len(_PAUSES_S) - 1)]
        one.tries += 1
        return None

    def _send_again(self, underway: Mapping[str, _Underway]) -> None:
        """Send requests that failed once more, and those of which nothing was heard for long: a reply can be lost."""
        now = time.monotonic()
        due = {site: one for site, one in underway.items() if (one.again_at or one.sent + _SILENT_S) <= now}
        for one in due.values():
            one.again_at, one.sent = None, now
        if due:
            self._carrier.send({site: one.packed for site, one in due.items()})

    def _outcome(self, site: str, call: Call, reply: Reply | Lost | Refused) -> Outcome:
        if not isinstance(reply, Reply):
            return reply
        try:
            outcome = unpack_outcome(reply, call)
        except MulticentreError as error:
            return Refused(error.at(site))
        return Refused(outcome.error.at(site)) if isinstance(outcome, Refused) else outcome


def _read(site: str, came: bytes, number: int) -> Reply | Refused | None:
    try:
        reply = Reply.unpack(came)
    except MulticentreError as error:
        return Refused(error.at(site))
    unread = reply.number == 0 and reply.kind == "refused"  # a request that could not be read has no number there
    return reply if reply.number == number or unread else None


def _since(reply: Reply | Lost | Refused) -> str:
    """Return when a site's process began, as it says itself."""
    try:
        return str(reply.facts.get("since", ""))[:_LONGEST_TIME] if isinstance(reply, Reply) else ""
    except MulticentreError:
        return ""


def _rests_on(call: Call) -> set[str]:
    """Return the sessions that a call needs a site to remember."""
    needed, selection = {call.session}, call.selection
    while selection is not None:
        needed, selection = needed | {selection.plan}, selection.within
    return needed


def _forgotten(site: str, known: _Site) -> Lost:
    return Lost(QuorumLost(f"its process began anew at {known.since} and remembers nothing of this fit", where=site))


def _behind(error: MulticentreError) -> MulticentreError:
    """Return the error of a site that cannot restore what it kept; it may not have heard that it was to keep it."""
    return SiteBehind(error.what, where=error.where, hint=error.hint) if isinstance(error, StateGone) else error


def _now() -> str:
    return f"{datetime.now(UTC):%H:%M:%S} UTC"


_CLOSING_S = 5.0
_LONGEST_TIME = 40
