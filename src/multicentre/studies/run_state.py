"""State of a run in progress, computed from the files of its folder.

Events are in ``events.jsonl``. Releases and the privacy loss are in the ledgers, if the sites are in the run's process;
of real sites, the coordinator stores only the ends of the ledgers (``heads.json``). Files are read from where the last
reading ended.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multicentre.core.storage import is_held, open_regular
from multicentre.errors import ConfigurationError, IntegrityError, MulticentreError
from multicentre.privacy.ledger_heads import read_statement
from multicentre.privacy.ledger_witnesses import HEADS
from multicentre.studies.release_totals import ReleaseTotals
from multicentre.studies.run_events import EVENTS

Event = dict[str, Any]
RUNNING = "running"
_LOCK = "run.lock"


@dataclass
class Loop:
    """Loop over the rounds of a fit.

    Attributes
    ----------
    name : str
    n_rounds : int
        Largest number of rounds, or their number once the loop has ended.
    number : int
        Last finished round.
    metrics : dict of str to float or None
        Metrics of that round.
    objective : str
        First metric that the method records; empty if it records none.
    values : list of float
        Its values by round.
    ended : bool
    """

    name: str
    n_rounds: int = 0
    number: int = 0
    metrics: dict[str, float | None] = field(default_factory=dict)
    objective: str = ""
    values: list[float] = field(default_factory=list)
    ended: bool = False

    @property
    def change(self) -> float | None:
        """Difference between the last two values of the objective."""
        return self.values[-1] - self.values[-2] if len(self.values) > 1 else None


@dataclass
class RunState:
    """State of a run.

    Attributes
    ----------
    status : {"running", "finished", "interrupted", "failed", "stopped"}
        "stopped" if the process ended without recording an end, for example after a power cut.
    """

    study: str = ""
    method: str = ""
    engine: str = ""
    protection: str = ""
    sites: tuple[str, ...] = ()
    analyses: dict[str, str] = field(default_factory=dict)
    noised: bool = False
    sites_per_patient: int = 1
    status: str = RUNNING
    message: str = ""
    exit_code: int | None = None
    began: str = ""
    time: str = ""
    loops: dict[str, Loop] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    awaited: dict[str, str] = field(default_factory=dict)
    calls: int = 0
    bytes_from_sites: int = 0
    bytes_to_sites: int = 0
    releases: ReleaseTotals = field(default_factory=ReleaseTotals)
    ledger_ends: dict[str, int] = field(default_factory=dict)

    @property
    def answering(self) -> list[str]:
        """Sites that are neither lost, left out nor awaited."""
        absent = {*self.lost, *self.left_out, *self.awaited}
        return [site for site in self.sites if site not in absent]

    @property
    def loop(self) -> Loop | None:
        """Loop of the last start or end of a round."""
        return next(reversed(self.loops.values()), None)

    def apply(self, event: Event) -> None:
        """Change the state by one event; an event of another version, or a damaged one, changes nothing."""
        if change := _CHANGES.get(event["event"]):
            with contextlib.suppress(KeyError, TypeError, AttributeError):
                change(self, event)
        self.time = str(event["time"])
        for name in ("calls", "bytes_from_sites", "bytes_to_sites"):
            if isinstance(count := event.get(name), int):
                setattr(self, name, count)


class RunReader:
    """Reads the state of a run again and again.

    Parameters
    ----------
    folder : Path

    Raises
    ------
    ConfigurationError
        The folder contains no run with a record of events.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / EVENTS).is_file():
            raise ConfigurationError(
                f"path must be a run folder with a record of events; it has no {EVENTS}",
                where=str(folder),
                hint="Name the folder of a run of this version of multicentre.",
            )
        self.folder = folder
        self.state = RunState()
        self._places: dict[Path, int] = {}

    def read(self) -> list[Event]:
        """Bring the state up to date, and return the events since the last reading.

        Raises
        ------
        ConfigurationError
            The folder was removed: the run ended before a site sent a result.
        """
        if not self.folder.is_dir():
            raise ConfigurationError(
                "the run ended before a site sent a result, and its folder was removed",
                where=str(self.folder),
                hint="The message of multicentre run states the reason.",
            )
        stopped = self.state.status == RUNNING and self._is_abandoned()  # before the events are read
        lines = self._lines(self.folder / EVENTS)
        events = [event for event in lines if "time" in event and isinstance(event.get("event"), str)]
        for event in events:
            self.state.apply(event)
        for path in sorted(self.folder.glob("sites/*/ledger.jsonl")):
            for entry in self._lines(path):
                with contextlib.suppress(TypeError, AttributeError):  # ledger verify reports a damaged entry
                    self.state.releases.add(path.parent.name, entry)
        self._read_heads()
        if stopped and self.state.status == RUNNING and not events:
            self.state.status = "stopped"
            self.state.message = "its process ended without recording an end; resume it: multicentre run --resume RUN"
        return events

    def _is_abandoned(self) -> bool:
        lock = self.folder / _LOCK
        return lock.is_file() and not is_held(lock)

    def _read_heads(self) -> None:
        if self.state.releases.rows or not (self.folder / HEADS).exists():
            return
        try:
            heads = read_statement(self.folder / HEADS).heads
        except MulticentreError:  # ledger verify reports it; a display of progress goes on
            return
        self.state.ledger_ends = {site: head.entries for site, head in heads.items()}

    def _lines(self, path: Path) -> Iterator[dict[str, Any]]:
        """Yield the complete lines that were added to a file since the last reading."""
        try:
            with os.fdopen(open_regular(path, os.O_RDONLY, "record"), "rb") as file:
                file.seek(self._places.get(path, 0))
                content, _, _ = file.read().rpartition(b"\n")
        except (OSError, IntegrityError):
            return
        if not content:
            return
        self._places[path] = self._places.get(path, 0) + len(content) + 1
        for line in content.split(b"\n"):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry


def find_run(path: Path) -> Path:
    """Return a run folder, or the newest one in a folder of runs.

    Raises
    ------
    ConfigurationError
        The folder contains no run.
    """
    if (path / EVENTS).is_file() or (path / "run.json").is_file():
        return path
    runs = sorted(path.glob(f"[!.]*/{EVENTS}"), key=lambda one: one.stat().st_mtime_ns)
    if not runs:
        raise ConfigurationError(
            "path must be a run folder, or a folder of runs; it contains no run",
            where=str(path),
            hint="Name the folder that multicentre run --output names, by default runs.",
        )
    return runs[-1].parent


def _run_began(state: RunState, event: Event) -> None:
    state.study, state.method = event["study"], event["method"]
    state.engine, state.protection = event["engine"], event["protection"]
    state.sites, state.noised = tuple(map(str, event["sites"])), event["noised"]
    state.sites_per_patient = event["sites_per_patient"]
    state.analyses = {name: state.analyses.get(name, "waiting") for name in event["analyses"]}
    state.began = state.began or event["time"]
    state.status, state.message, state.exit_code = RUNNING, "", None
    state.lost, state.left_out, state.awaited = {}, {}, {}


def _rounds_began(state: RunState, event: Event) -> None:
    loop = state.loops.pop(str(event["loop"]), None) or Loop(str(event["loop"]))
    loop.n_rounds, loop.number, loop.ended = event["rounds"], event["done"], False
    loop.values = loop.values[: event["done"]]
    state.loops[loop.name] = loop


def _round_ended(state: RunState, event: Event) -> None:
    loop = state.loops.pop(str(event["loop"]), None) or Loop(str(event["loop"]))
    state.loops[loop.name] = loop  # last, since loops can run side by side
    loop.number, loop.metrics = event["round"], event["metrics"]
    state.awaited = {}  # every awaited site has answered or was lost
    loop.objective = loop.objective or next(iter(event["metrics"]), "")
    value = event["metrics"].get(loop.objective)
    if value is not None:
        loop.values.append(value)


def _rounds_ended(state: RunState, event: Event) -> None:
    loop = state.loops.setdefault(str(event["loop"]), Loop(str(event["loop"])))
    loop.number = loop.n_rounds = event["round"]
    loop.ended = True


def _site_lost(state: RunState, event: Event) -> None:
    state.awaited.pop(event["site"], None)
    state.lost[event["site"]] = event["reason"]


def _sites_left_out(state: RunState, event: Event) -> None:
    state.left_out.update(event["reasons"])


def _site_awaited(state: RunState, event: Event) -> None:
    state.awaited[event["site"]] = event["reason"]


def _analysis_ended(state: RunState, event: Event) -> None:
    state.analyses[event["analysis"]] = event["status"]


def _run_ended(state: RunState, event: Event) -> None:
    state.status, state.message, state.exit_code = event["status"], event["message"], event["exit_code"]
    state.awaited = {}


_CHANGES: dict[str, Callable[[RunState, Event], None]] = {
    "run_began": _run_began,
    "rounds_began": _rounds_began,
    "round_ended": _round_ended,
    "rounds_ended": _rounds_ended,
    "site_lost": _site_lost,
    "sites_left_out": _sites_left_out,
    "site_awaited": _site_awaited,
    "analysis_ended": _analysis_ended,
    "run_ended": _run_ended,
}
