"""Pairs of ways to do one task, timed in turns within one run.

The machine's load changes from minute to minute. All ways of a task are therefore called in turns, and the ratio of two
ways is taken within each turn. A first turn is not counted: it compiles kernels, fills caches and starts processes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

# Fewer turns have no spread; more add little to a median.
MIN_TURNS, MAX_TURNS = 3, 9


class PeerFailed(RuntimeError):
    """A separate process ended before it answered."""


@dataclass(frozen=True)
class Timed:
    """Result of a way that another process ran, with the seconds that the process took for it."""

    seconds: float
    result: Any


@dataclass(frozen=True)
class Way:
    """One way to do a task.

    Parameters
    ----------
    name : str
        Name on the page.
    run : callable
        Does the task and returns its result, or ``Timed`` if another process does it.
    module : str, optional
        Module without which the way is skipped.
    compared : bool
        Whether its result should be that of the others.
    """

    name: str
    run: Callable[[], Any]
    module: str | None = None
    compared: bool = True

    @property
    def present(self) -> bool:
        """Whether the module of this way is installed."""
        return self.module is None or find_spec(self.module) is not None


@dataclass(frozen=True)
class Pair:
    """A task, the ways in which this package does it, and those of other packages.

    Parameters
    ----------
    task, data : str
        Task, and data on which it is done.
    ours, peers : sequence of Way
        Ways of this package, and others.
    compare : callable, optional
        Figures by name from the results of one of ours and one peer: nearness, accuracy of both.
    unit, n_units : str and float, optional
        Unit of work, of which a run does so many; times are also stated per unit.
    """

    task: str
    data: str
    ours: Sequence[Way]
    peers: Sequence[Way]
    compare: Callable[[Any, Any], Mapping[str, float]] | None = None
    unit: str | None = None
    n_units: float = 1.0


Pairs = Iterator[Pair]


@dataclass
class Turns:
    """Seconds of all turns and the last result, by way."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)

    def run(self, way: Way) -> float:
        """Run a way once and return its seconds."""
        began = time.perf_counter()
        result = way.run()
        seconds = time.perf_counter() - began
        if isinstance(result, Timed):
            seconds, result = result.seconds, result.result
        self.results[way.name] = result
        return seconds

    def take(self, ways: Sequence[Way]) -> None:
        """Take one turn."""
        for way in ways:
            self.seconds.setdefault(way.name, []).append(self.run(way))


def measure(group: str, pair: Pair, budget_s: float) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Time a pair, and return a row for each of our ways beside each peer, and the ways that are absent."""
    turns, present, absent, first_s = Turns(), [], [], 0.0
    for way in (*pair.ours, *pair.peers):
        reason = None if way.present else f"{way.module} is not installed"
        if reason is None:
            try:
                first_s += turns.run(way)
            except (PeerFailed, ImportError) as error:  # a package may lack one of its own dependencies
                reason = str(error)
        if reason is None:
            present.append(way)
        else:
            absent.append({"group": group, "task": pair.task, "way": way.name, "reason": reason})
    for number in range(max(MIN_TURNS, min(MAX_TURNS, int(budget_s / first_s)))):
        turns.take(present if number % 2 else present[::-1])  # so that no way always follows the same one
    rows = [
        _row(group, pair, ours, peer, turns)
        for ours in pair.ours
        for peer in pair.peers
        if ours in present and peer in present
    ]
    return rows, absent


def _row(group: str, pair: Pair, ours: Way, peer: Way, turns: Turns) -> dict[str, Any]:
    """Return the row of one of our ways beside a peer."""
    ratios = [b / a for a, b in zip(turns.seconds[ours.name], turns.seconds[peer.name], strict=True)]
    compared = pair.compare if ours.compared and peer.compared else None
    figures = compared(turns.results[ours.name], turns.results[peer.name]) if compared else {}
    return {
        "group": group,
        "task": pair.task,
        "data": pair.data,
        "ours": ours.name,
        "peer": peer.name,
        "ratio": _spread(ratios),
        "ours_s": _spread(turns.seconds[ours.name]),
        "peer_s": _spread(turns.seconds[peer.name]),
        "turns": len(ratios),
        "unit": pair.unit,
        "n_units": pair.n_units,
        "figures": {name: float(value) for name, value in figures.items()},
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, least and most, to five digits."""
    spread = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return {name: float(f"{value:.5g}") for name, value in spread.items()}
