"""Progress on standard error: a bar at a terminal, otherwise one line per fit."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from multicentre.cli.console import notify
from multicentre.core.rounds import Listener

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bars(Listener):
    """Draws one bar per fit.

    Parameters
    ----------
    progress : rich.progress.Progress
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def rounds_began(self, name: str, n_rounds: int, done: int) -> None:
        """Add a bar."""
        self._tasks[name] = self._progress.add_task(name, total=n_rounds, completed=done)

    def round_ended(self, name: str, number: int, metrics: Mapping[str, float]) -> None:
        """Move the bar."""
        self._progress.update(self._tasks[name], completed=number)

    def rounds_ended(self, name: str, number: int) -> None:
        """Fill the bar."""
        self._progress.update(self._tasks[name], total=number, completed=number)

    def site_lost(self, site: str, reason: str) -> None:
        """Print the loss above the bars."""
        self._progress.console.print(f"lost {site}: {reason}", markup=False, highlight=False)

    def sites_left_out(self, reasons: Mapping[str, str]) -> None:
        """Print nothing: a warning names the sites."""

    def site_awaited(self, site: str, reason: str) -> None:
        """Print the awaited site above the bars."""
        self._progress.console.print(f"waiting for {site}: {reason}", markup=False, highlight=False)


class Lines(Listener):
    """Prints a line when a loop ends."""

    def __init__(self) -> None:
        self._done: dict[str, int] = {}

    def rounds_began(self, name: str, n_rounds: int, done: int) -> None:
        """Store the number of completed rounds."""
        self._done[name] = done

    def round_ended(self, name: str, number: int, metrics: Mapping[str, float]) -> None:
        """Print nothing."""

    def rounds_ended(self, name: str, number: int) -> None:
        """Print the rounds of the loop."""
        if number > self._done[name]:
            notify(f"{name}: rounds {self._done[name] + 1} to {number}")

    def site_lost(self, site: str, reason: str) -> None:
        """Print the lost site."""
        notify(f"lost {site}: {reason}")

    def sites_left_out(self, reasons: Mapping[str, str]) -> None:
        """Print nothing: a warning names the sites."""

    def site_awaited(self, site: str, reason: str) -> None:
        """Print the awaited site."""
        notify(f"waiting for {site}: {reason}")


@contextmanager
def progress() -> Iterator[Listener]:
    """Yield bars if standard error is a terminal, otherwise lines."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        yield Bars(bars)
