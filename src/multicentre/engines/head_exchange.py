"""Exchange of ledger heads: every site receives the last entry of each peer's ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from multicentre.core.calls import Call, Engine, Outcome, Refused, StateCommand
from multicentre.privacy.ledger_heads import Head
from multicentre.privacy.ledger_witnesses import HeadRecord


class ReportsHeads(Engine, Protocol):
    """Engine that returns ledger heads with answers and passes the heads of peers to the sites."""

    @property
    def heads(self) -> Mapping[str, Head | None]:
        """Head of each site's ledger at its last answer."""

    def witness(self, heads: Mapping[str, bytes]) -> None:
        """Send the heads of the peers' ledgers to each site, together with its next request."""


class HeadExchange:
    """Wraps an engine: records ledger heads, and sends them to all sites with every fit and checkpoint and at the end.

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
        """Carry the calls; a site whose ledger became shorter counts as refusing."""
        return self.exchange_together([calls], time_limit_s)[0]

    def exchange_together(
        self, batch: Sequence[Mapping[str, Call]], time_limit_s: float | None
    ) -> list[dict[str, Outcome]]:
        """Carry the calls of several exchanges; a site whose ledger became shorter counts as refusing all of them."""
        sessions = {call.session for calls in batch for call in calls.values()}
        if not sessions <= self._sessions:
            self._sessions |= sessions
            self._send_heads()
        if len(batch) == 1:
            batch_outcomes = [self._engine.exchange(batch[0], time_limit_s)]
        else:
            batch_outcomes = self._engine.exchange_together(batch, time_limit_s)
        refusals = {site: Refused(error) for site, error in self._record.note(self._engine.heads).items()}
        return [
            {**outcomes, **{site: refusal for site, refusal in refusals.items() if site in outcomes}}
            for outcomes in batch_outcomes
        ]

    def run_command(self, command: StateCommand, sites: tuple[str, ...]) -> None:
        """Run a command at `sites`."""
        self._engine.run_command(command, sites)
        if command.action == "keep":
            self._send_heads()

    def close(self) -> None:
        """Send the last heads and close the engine."""
        try:
            self._send_heads()
        finally:
            self._engine.close()

    def _send_heads(self) -> None:
        self._engine.witness(self._record.state())
