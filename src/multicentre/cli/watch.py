"""``multicentre watch``: the progress of a run, live at a terminal and line by line elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multicentre.cli.console import INTERRUPTED, AsJson, handle_errors, notify, show, show_json

if TYPE_CHECKING:
    from multicentre.studies.run_state import Event, RunReader

_POLL_S = 0.5  # short for a person, and no measurable load


@handle_errors
def watch(
    run: Annotated[
        Path, typer.Argument(metavar="RUN|FOLDER", help="Run folder, or a folder of runs: its newest run.")
    ] = Path("runs"),
    once: Annotated[bool, typer.Option("--once", help="Print the present state and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Follow a run until it ends.

    The command shows rounds, sites, the objective, the budget and what left the sites, and ends with the status of the
    run. Without a terminal, it prints one line per change.
    """
    from multicentre.cli.run_view import describe_state, state_as_dict
    from multicentre.studies.run_state import RunReader, find_run

    reader = RunReader(find_run(run))
    if once or as_json:
        for _ in [reader.read()] if once else _readings(reader):
            pass
        if as_json:
            show_json({"folder": reader.folder, **state_as_dict(reader.state)})
        else:
            show(describe_state(reader.state, width=_width(), blocks=_has_blocks()))
        return
    try:
        (_follow_live if _is_screen() else _follow_by_line)(reader)
    except KeyboardInterrupt:
        notify("Stopped watching. The run is not affected.")
        raise typer.Exit(INTERRUPTED) from None
    status = INTERRUPTED if reader.state.status == "stopped" else reader.state.exit_code
    raise typer.Exit(status or 0)


def _readings(reader: RunReader) -> Iterator[list[Event]]:
    """Yield new events until the run has ended."""
    while True:
        events = reader.read()
        yield events
        if reader.state.status != "running":
            return
        time.sleep(_POLL_S)


def _follow_live(reader: RunReader) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from multicentre.cli.run_view import describe_state

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as screen:
        for _ in _readings(reader):
            text = describe_state(reader.state, width=console.width, blocks=_has_blocks())
            screen.update(Text(text, no_wrap=True), refresh=True)


def _follow_by_line(reader: RunReader) -> None:
    from multicentre.cli.run_view import describe_event

    n_refusals = 0
    for events in _readings(reader):
        for event in events:
            if line := describe_event(event, reader.state):
                show(line)
        refusals = reader.state.releases.refusals
        for site, step, reason in refusals[n_refusals:]:
            show(f"{reader.state.time[11:19]}  refused by {site}, {step}: {reason}")
        n_refusals = len(refusals)
        sys.stdout.flush()
    if reader.state.status == "stopped":
        show(f"{reader.state.time[11:19]}  stopped: {reader.state.message}")


def _is_screen() -> bool:
    """Return whether standard output is a terminal whose cursor can be moved."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def _width() -> int:
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


def _has_blocks() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf8")
