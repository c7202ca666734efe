"""An engine whose sites see where each other's ledgers end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from multicentre.federation.engine import Call, Engine, Outcome, Refused, Upkeep
from multicentre.privacy.ledger_heads import Head
from multicentre.privacy.ledger_witnesses import HeadRecord


class ReportsHeads(Engine, Protocol):
    """An engine that returns the ends of ledgers with the answers, and takes those of others to the sites."""

    @property
    def heads(self) -> Mapping[str, Head | None]:
        """End of each site's ledger, as of its last answer."""

    def witness(self, heads: Mapping[str, bytes]) -> None:
        """Send each site the ends of its peers' ledgers, with what it is sent next."""


class HeadExchange:
    """Wraps an engine: records where ledgers end, and passes that on with every fit, every checkpoint and at the end.

    Parameters
    ----------
    engine : ReportsHeads
        The engine that does the work.
    record : HeadRecord
    """

    def __init__(self, engine: ReportsHeads, record: HeadRecord) -> None:
        self._engine = engine
        self._record = record
        self._sessions: set[str] = set()

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return self._engine.sites

    def exchange(self, calls: Mapping[str, Call], time_limit_s: float | None) -> dict[str, Outcome]:
        """Carry the calls; a site whose ledger went back counts as refusing."""
        sessions = {call.session for call in calls.values()}
        if not sessions <= self._sessions:
            self._sessions |= sessions
            self._pass_on()
        outcomes = self._engine.exchange(calls, time_limit_s)
        shortened = self._record.note(self._engine.heads)
        return {**outcomes, **{site: Refused(error) for site, error in shortened.items() if site in outcomes}}

    def upkeep(self, command: Upkeep, sites: tuple[str, ...]) -> None:
        """Run a command at `sites`."""
        self._engine.upkeep(command, sites)
        if command.action == "keep":
            self._pass_on()

    def close(self) -> None:
        """Pass the last ends on and close the engine."""
        try:
            self._pass_on()
        finally:
            self._engine.close()

    def _pass_on(self) -> None:
        self._engine.witness(self._record.state())
