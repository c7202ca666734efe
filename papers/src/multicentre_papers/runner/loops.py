"""Tells a listener of fits, one loop a part of a reproduction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from multicentre.federation.rounds import Listener


@contextmanager
def loop(listener: Listener, name: str, n_fits: int) -> Iterator[Callable[[int], None]]:
    """Announce `n_fits` fits, and yield what is to be called with the number of fits after each.

    Parameters
    ----------
    listener : Listener
    name : str
        Shown beside the progress.
    n_fits : int
        How many are to come.
    """
    done = 0

    def heard(number: int) -> None:
        nonlocal done
        done = number
        listener.round_ended(name, number, {})

    listener.rounds_began(name, n_fits, 0)
    yield heard
    listener.rounds_ended(name, done)
