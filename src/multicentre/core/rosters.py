"""Facts about the sites of a call that are the same for all calls with the same sites."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from multicentre.core.latest import Latest


@dataclass(frozen=True)
class Roster:
    """Sites that take part in a call.

    Parameters
    ----------
    names : tuple of str
        In the order of the call.
    distinct : frozenset of str
    digest : str
        SHA-256 of the names in their order.
    """

    names: tuple[str, ...]
    distinct: frozenset[str]
    digest: str


def roster_of(names: tuple[str, ...]) -> Roster:
    """Return the facts about sites, from memory if the latest tuple was the same object.

    Examples
    --------
    >>> names = ("lyon", "nice", "lyon")
    >>> len(roster_of(names).distinct), roster_of(names) is roster_of(names)
    (2, True)
    """
    return _latest(names)


def _new(names: tuple[str, ...]) -> Roster:
    return Roster(names, frozenset(names), hashlib.sha256(json.dumps(names).encode()).hexdigest())


_latest = Latest(_new)
