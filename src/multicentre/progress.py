"""Progress of fits in a terminal and in a notebook: one line per fit, which is updated."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from multicentre.core.rounds import Listener

# Redrawing a line more often serves no reader and slows down short rounds.
_INTERVAL_S = 0.1
# Of a line, so that the whole text fits 80 columns.
_BAR, _WIDTH = 20, 79
# Number of a session, which begins the name of a loop outside a study.
_SESSION = re.compile(r"[0-9a-f.]*\.\d+-")


class Progress(Listener):
    """Show the progress of fits as one line each.

    In a terminal and in a notebook, the line is updated after each round. Elsewhere, for example in a log, one line is
    printed per fit.

    Parameters
    ----------
    stream : text stream, optional
        Stream to write to; standard error by default. In a notebook, the default is the output of the cell.

    Examples
    --------
    >>> import multicentre as mc
    >>> sites = mc.datasets.split_scenario(mc.datasets.load_wisconsin(), "IID", n_sites=3, random_state=0)
    >>> data = {name: site.data for name, site in sites.items()}
    >>> federation = mc.Federation.in_process(data, listener=mc.Progress(sys.stdout))
    >>> model = mc.multiview.FedMvPPCA(n_components=2).fit(federation)
    shared: ... rounds, objective ...
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._cell = _notebook_cell() if stream is None else None
        self._updates = self._cell is not None or self._stream.isatty()
        self._drawn = 0.0
        self._n_rounds: dict[str, int] = {}
        self._began: dict[str, int] = {}
        self._metrics = ""

    def rounds_began(self, name: str, n_rounds: int, done: int) -> None:
        """Draw the line."""
        self._n_rounds[name], self._began[name], self._metrics = n_rounds, done, ""
        self._draw(name, done)

    def round_ended(self, name: str, number: int, metrics: Mapping[str, float]) -> None:
        """Update the line."""
        self._metrics = "".join(f", {metric} {value:.4g}" for metric, value in list(metrics.items())[:1])
        if time.monotonic() - self._drawn >= _INTERVAL_S:
            self._draw(name, number)

    def rounds_ended(self, name: str, number: int) -> None:
        """Replace the line by a summary."""
        if number > self._began.get(name, 0):
            self._finish(f"{_SESSION.sub('', name)}: {number} rounds{self._metrics}")

    def site_lost(self, site: str, reason: str) -> None:
        """Print the lost site."""
        self._finish(f"lost {site}: {reason}")

    def site_awaited(self, site: str, reason: str) -> None:
        """Print the awaited site."""
        self._finish(f"waiting for {site}: {reason}")

    def _draw(self, name: str, number: int) -> None:
        if not self._updates:
            return
        n_rounds = self._n_rounds.get(name, number)
        bar = "#" * (number * _BAR // n_rounds if n_rounds else 0)
        line = f"{_SESSION.sub('', name)}: round {number} of at most {n_rounds} [{bar:.<{_BAR}}]{self._metrics}"
        self._drawn = time.monotonic()
        if self._cell is not None:
            self._cell.show(line)
        else:
            self._write(f"\r{line[:_WIDTH]:<{_WIDTH}}")

    def _finish(self, line: str) -> None:
        """Print a line that remains, in place of the one that is updated."""
        if self._cell is not None:
            self._cell.show(line)
            self._cell.end()
        elif self._updates:
            self._write(f"\r{line:<{_WIDTH}}\n")
        else:
            self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class _Cell:
    """Line in the output of a notebook's cell that is replaced in place.

    Parameters
    ----------
    display : callable
        ``IPython.display.display``.
    """

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None

    def show(self, line: str) -> None:
        """Show a line in place of the last one."""
        content = {"text/plain": line}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def end(self) -> None:
        """Leave the line as it is; the next one is shown below it."""
        self._handle = None


def _notebook_cell() -> _Cell | None:
    """Return the line of a notebook, or None outside a notebook. IPython is not imported."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):  # a terminal's shell has no kernel
        return None
    import importlib

    return _Cell(importlib.import_module("IPython.display").display)
