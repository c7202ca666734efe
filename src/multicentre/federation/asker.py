"""Who asked for the run whose calls a site answers, for every entry of its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Asker:
    """The party that asked for a run.

    Parameters
    ----------
    name : str
    fingerprint : str, optional
        Of its public key; None where nobody signed the request, or by a key that the site does not know.
    """

    name: str
    fingerprint: str | None


COORDINATOR = "coordinator"
UNSIGNED = Asker(COORDINATOR, None)
_CURRENT: ContextVar[Asker | None] = ContextVar("asker", default=None)


@contextmanager
def answering(asker: Asker | None) -> Iterator[None]:
    """Name the asker in all ledger entries that this thread writes within the block."""
    token = _CURRENT.set(asker)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_asker() -> Asker | None:
    """Return the asker of the call that this thread answers; None in process."""
    return _CURRENT.get()


def asker_facts() -> dict[str, Any]:
    """Return what a ledger entry says of the asker; nothing in process.

    Examples
    --------
    >>> with answering(Asker("ada", "0f1e")):
    ...     asker_facts()
    {'asked_by': {'name': 'ada', 'fingerprint': '0f1e'}}
    >>> asker_facts()
    {}
    """
    asker = _CURRENT.get()
    return {} if asker is None else {"asked_by": asdict(asker)}
