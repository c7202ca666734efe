"""Progress events of a reproduction, one loop per exercise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from multicentre.core.rounds import Listener


@contextmanager
def loop(listener: Listener, name: str, n_fits: int) -> Iterator[Callable[[int], None]]:
    """Announce `n_fits` fits and yield a callback for the number of completed fits.

    Parameters
    ----------
    listener : Listener
    name : str
        Label of the progress.
    n_fits : int
        Planned number of fits.
    """
    done = 0

    def report(number: int) -> None:
        nonlocal done
        done = number
        listener.round_ended(name, number, {})

    listener.rounds_began(name, n_fits, 0)
    yield report
    listener.rounds_ended(name, done)
