"""Text of a run's state, and of the events of a run, for ``multicentre watch``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from multicentre.cli.console import align
from multicentre.core.printable import harmless
from multicentre.privacy.guarantee import rounded_up
from multicentre.studies.run_state import Event, Loop, RunState

# Widths of labels, of a bar, of a curve of the objective and of a step's name, which fit 80 columns.
_LABEL, _BAR, _CURVE, _STEP = 11, 24, 40, 24
# Rows of each table and list, so that a state fits a screen.
_MAX_ROWS = 10
_BLOCKS, _LETTERS = "▁▂▃▄▅▆▇█", "_.-=*#"


def describe_state(state: RunState, *, width: int = 80, blocks: bool = True, at: datetime | None = None) -> str:
    """Return the state of a run as text without colours.

    Parameters
    ----------
    state : RunState
    width : int, default 80
        Columns of the terminal.
    blocks : bool, default True
        Draw the objective with block characters; otherwise in ASCII.
    at : datetime, optional
        Time at which the state was read; only a running run shows it.
    """
    parts = [
        ("Run", [_title(state, at)]),
        ("Analyses", _analyses(state)),
        ("Rounds", _rounds(state)),
        ("Objective", _objective(state.loop, blocks=blocks)),
        ("Sites", _sites(state)),
        ("Budget", [_budget(state)]),
        ("Left", _left(state)),
        ("Refused", [f"{site}, {step}: {reason}" for site, step, reason in state.releases.refusals[-_MAX_ROWS:]]),
        ("Message", [state.message] if state.message else []),
    ]
    return "\n".join(line for label, lines in parts for line in _labelled(label, lines, width))


def describe_event(event: Event, state: RunState) -> str:
    """Return an event as one line, or an empty text if it does not concern a reader.

    Parameters
    ----------
    event : mapping
    state : RunState
        State after the event.
    """
    kind = str(event["event"])
    text = _DESCRIPTIONS[kind](event, state) if kind in _DESCRIPTIONS else ""
    return f"{str(event['time'])[11:19]}  {harmless(text)}" if text else ""


def state_as_dict(state: RunState) -> dict[str, Any]:
    """Return a state as plain values, for JSON."""
    loops = [
        {
            "name": loop.name,
            "rounds": loop.n_rounds,
            "done": loop.number,
            "ended": loop.ended,
            "metrics": loop.metrics,
            "objective": loop.objective,
        }
        for loop in state.loops.values()
    ]
    names = ("study", "method", "engine", "protection", "status", "message", "exit_code", "began", "analyses")
    more = ("lost", "left_out", "awaited", "calls", "bytes_from_sites", "bytes_to_sites", "ledger_ends")
    epsilon, delta = _spent(state)
    return {
        **{name: getattr(state, name) for name in names},
        "sites": list(state.sites),
        "answering": state.answering,
        "loops": loops,
        **{name: getattr(state, name) for name in more},
        "released": {step: vars(row) for step, row in state.releases.rows.items()},
        "refused": [dict(zip(("site", "step", "reason"), one, strict=True)) for one in state.releases.refusals],
        "spent": {"epsilon": epsilon, "delta": delta} if state.releases.noised else None,
    }


def _labelled(label: str, lines: Iterable[str], width: int) -> Iterator[str]:
    for number, line in enumerate(lines):
        head = f"{label:<{_LABEL}}" if number == 0 else " " * _LABEL
        pieces = textwrap.wrap(harmless(line), max(width - _LABEL - 1, 20), drop_whitespace=False) or [""]
        for place, piece in enumerate(pieces):
            yield f"{head if place == 0 else ' ' * _LABEL}{piece}".rstrip()


def _title(state: RunState, at: datetime | None) -> str:
    title = f"{state.study} ({state.method})" if state.method else state.study
    status = state.status if state.exit_code in (None, 0) else f"{state.status}, exit status {state.exit_code}"
    seconds = _seconds(state, at)
    return f"{title}: {status}" + (f", {timedelta(seconds=int(seconds))}" if seconds is not None else "")


def _seconds(state: RunState, at: datetime | None) -> float | None:
    """Return the time since the start of the run, until now or its last event."""
    try:
        began, last = datetime.fromisoformat(state.began), datetime.fromisoformat(state.time)
    except ValueError:
        return None
    until = (at or datetime.now(UTC)) if state.status == "running" else last
    return max((until - began).total_seconds(), 0.0)


def _analyses(state: RunState) -> list[str]:
    return [f"{name}: {status}" for name, status in state.analyses.items()]


def _rounds(state: RunState) -> list[str]:
    loop = state.loop
    if loop is None:
        return ["none so far"]
    before = [f"{one.name} ({one.number})" for one in state.loops.values() if one is not loop]
    ended = [f"before: {', '.join(before[-_MAX_ROWS:])}"] if before else []
    if loop.ended:
        return [f"{loop.name}: ended after round {loop.number}", *ended]
    share = loop.number / loop.n_rounds if loop.n_rounds else 0.0
    bar = "#" * round(share * _BAR)
    return [f"{loop.name}: {loop.number} of at most {loop.n_rounds}  [{bar.ljust(_BAR, '.')}]", *ended]


def _objective(loop: Loop | None, *, blocks: bool) -> list[str]:
    if loop is None or not loop.values:
        return []
    change = "" if loop.change is None else f", change {loop.change:+.3g}"
    return [f"{loop.objective} {loop.values[-1]:.6g}{change}", *_curve(loop.values[-_CURVE:], blocks=blocks)]


def _curve(values: Sequence[float], *, blocks: bool) -> list[str]:
    """Return values as a row of characters of rising height.

    >>> _curve([0.0, 1.0, 2.0], blocks=False)
    ['_-#']
    """
    least, span = min(values), max(values) - min(values)
    heights = _BLOCKS if blocks else _LETTERS
    if len(values) < 2 or span <= 0:
        return []
    return ["".join(heights[int((value - least) / span * (len(heights) - 1))] for value in values)]


def _sites(state: RunState) -> list[str]:
    absences = {"lost": state.lost, "left out": state.left_out, "waiting for": state.awaited}
    details = [f"{label} {site}: {reason}" for label, sites in absences.items() for site, reason in sites.items()]
    return [f"{len(state.answering)} of {len(state.sites)} answer", *details[:_MAX_ROWS]]


def _budget(state: RunState) -> str:
    if not state.noised:
        return "none is spent: the study adds no noise"
    if state.releases.noised:
        epsilon, delta = _spent(state)
        return f"epsilon {rounded_up(epsilon)} at delta {delta:g} spent by this run"
    return "its account is at each site: multicentre budget POLICY.toml"


def _spent(state: RunState) -> tuple[float, float]:
    return state.releases.spent(state.sites_per_patient)


def _left(state: RunState) -> list[str]:
    rows = state.releases.rows
    if not rows:
        ends = ", ".join(f"{site} {n_entries:,}" for site, n_entries in state.ledger_ends.items())
        at_sites = [f"entries in the ledgers at the sites: {ends}"] if ends else []
        return [f"{state.bytes_from_sites:,} bytes of answers in {state.calls:,} calls", *at_sites]
    table = [["step", "times", "numbers", "bytes", "fewest", "left as"]]
    for step, row in list(rows.items())[-_MAX_ROWS:]:
        fewest = "-" if row.fewest is None else f"{row.fewest:,}"
        times = max(row.times.values())
        table.append(
            [
                step if len(step) <= _STEP else f"{step[: _STEP - 3]}...",
                f"{times:,}",
                f"{row.numbers:,}",
                f"{row.n_bytes:,}",
                fewest,
                row.protection,
            ]
        )
    n_sites = len({site for row in rows.values() for site in row.times})
    hidden = [f"... and {len(rows) - _MAX_ROWS:,} earlier steps"] if len(rows) > _MAX_ROWS else []
    total = f"{state.releases.numbers:,} numbers, {state.releases.n_bytes:,} bytes from {n_sites} sites"
    counted = "fewest: smallest number of patients (or records) of a site behind a number"
    return [f"{total}; no patient's row", *align(table).splitlines(), *hidden, counted]


def _describe_start(event: Event, state: RunState) -> str:
    verb = "resumed" if event.get("resumed") else "began"
    return f"{verb}: {state.study} ({state.method}), {len(state.sites)} sites, {state.protection} sums"


def _describe_round(event: Event, state: RunState) -> str:
    loop = state.loops.get(event["loop"])
    if loop is None:
        return ""
    value = event["metrics"].get(loop.objective)
    objective = "" if value is None else f", {loop.objective} {value:.6g}"
    return f"{loop.name}: round {event['round']}{objective}"


def _describe_end(event: Event, state: RunState) -> str:
    message = f": {event['message']}" if event["message"] else ""
    return f"{event['status']}{message}"


_DESCRIPTIONS = {
    "run_began": _describe_start,
    "rounds_began": lambda event, _: f"{event['loop']}: at most {event['rounds']} rounds, {event['done']} done",
    "round_ended": _describe_round,
    "rounds_ended": lambda event, _: f"{event['loop']}: ended after round {event['round']}",
    "site_lost": lambda event, _: f"lost {event['site']}: {event['reason']}",
    "site_awaited": lambda event, _: f"waiting for {event['site']}: {event['reason']}",
    "sites_left_out": lambda event, _: "; ".join(
        f"left out {site}: {reason}" for site, reason in event["reasons"].items()
    ),
    "analysis_ended": lambda event, _: f"analysis {event['analysis']}: {event['status']}",
    "run_ended": _describe_end,
}
