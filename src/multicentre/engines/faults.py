"""Fault injection: an engine that fails on purpose, for tests of lost and late sites."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from multicentre.core.calls import Call, Engine, Lost, Outcome, StateCommand
from multicentre.errors import QuorumLost


@dataclass
class Faults:
    """Faults to inject.

    Parameters
    ----------
    lose : mapping of str to int or str
        Sites that stop answering permanently: from this exchange on (counted from 0), or from the first call of the
        step of this name.
    delay_s : mapping of str to float
        Delay of a site's answers in seconds. An answer later than the time limit counts as lost.
    interrupt_at : int, optional
        Exchange at which the coordinator is interrupted, as with Ctrl-C.
    """

    lose: Mapping[str, int | str] = field(default_factory=dict)
    delay_s: Mapping[str, float] = field(default_factory=dict)
    interrupt_at: int | None = None


class Faulty:
    """Wraps an engine and injects faults.

    Parameters
    ----------
    engine : Engine
        The engine that does the work.
    faults : Faults
    """

    def __init__(self, engine: Engine, faults: Faults) -> None:
        self._engine = engine
        self._faults = faults
        self.exchanges = 0
        self._called: set[str] = set()

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return self._engine.sites

    def exchange(self, calls: Mapping[str, Call], time_limit_s: float | None) -> dict[str, Outcome]:
        """Carry the calls that no fault affects."""
        return self.exchange_together([calls], time_limit_s)[0]

    def exchange_together(
        self, batch: Sequence[Mapping[str, Call]], time_limit_s: float | None
    ) -> list[dict[str, Outcome]]:
        """Carry the calls that no fault affects; a batch is one exchange."""
        number = self.exchanges
        self.exchanges += 1
        if number == self._faults.interrupt_at:
            raise KeyboardInterrupt
        late = {site for site, delay in self._faults.delay_s.items() if time_limit_s and delay > time_limit_s}
        reached = []
        for calls in batch:
            self._called |= {call.step.name for call in calls.values()}
            silent = {site for site, since in self._faults.lose.items() if self._has_come(since, number)}
            reached.append({site: call for site, call in calls.items() if site not in silent | late})
        waits = [delay for site, delay in self._faults.delay_s.items() if any(site in calls for calls in reached)]
        time.sleep(max(waits, default=0.0))
        if len(batch) == 1:
            outcomes = [self._engine.exchange(reached[0], time_limit_s)]
        else:
            outcomes = self._engine.exchange_together(reached, time_limit_s)
        return [
            {site: answered.get(site) or Lost(QuorumLost("no answer", where=site)) for site in calls}
            for calls, answered in zip(batch, outcomes, strict=True)
        ]

    def run_command(self, command: StateCommand, sites: tuple[str, ...]) -> None:
        """Run a command at `sites`."""
        self._engine.run_command(command, sites)

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()

    def _has_come(self, since: int | str, number: int) -> bool:
        return since in self._called if isinstance(since, str) else number >= since
