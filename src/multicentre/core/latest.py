"""Memory of the latest result of a function, for arguments that the sites of one process share."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
V = TypeVar("V")


class Latest(Generic[P, V]):
    """Function that computes its result once as long as its arguments are the same objects.

    Sites in one process receive the same messages and tuples of names. Without a memory, each site would compute what
    is about all sites, and the time would grow with the square of their number. Arguments are compared by identity,
    which takes the same time for any size. They must not be changed.

    Parameters
    ----------
    compute : callable
        Takes positional arguments.

    Examples
    --------
    >>> names = ("lyon", "nice", "lyon")
    >>> distinct = Latest(frozenset)
    >>> distinct(names) is distinct(names), distinct(("lyon",)) is distinct(names)
    (True, False)
    """

    def __init__(self, compute: Callable[P, V]) -> None:
        self._compute: Callable[..., V] = compute
        self._latest: tuple[tuple[object, ...], V] | None = None

    def __call__(self, *arguments: P.args, **by_name: P.kwargs) -> V:
        """Return the result for these arguments, none of them passed by name."""
        latest = self._latest
        if latest is None or not all(map(operator.is_, latest[0], arguments)):
            latest = self._latest = (arguments, self._compute(*arguments))
        return latest[1]
