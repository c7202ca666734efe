"""Requester of a run, named in every entry of a site's ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Requester:
    """The party that requests a run.

    Parameters
    ----------
    name : str
    fingerprint : str, optional
        Fingerprint of its public key; None if the request has no signature, or one with a key unknown to the site.
    """

    name: str
    fingerprint: str | None


COORDINATOR = "coordinator"
UNSIGNED = Requester(COORDINATOR, None)
_CURRENT: ContextVar[Requester | None] = ContextVar("requester", default=None)


@contextmanager
def answering(requester: Requester | None) -> Iterator[None]:
    """Name the requester in all ledger entries that this thread writes within the block."""
    token = _CURRENT.set(requester)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_requester() -> Requester | None:
    """Return the requester of the call that this thread answers; None in process."""
    return _CURRENT.get()


def requester_facts() -> dict[str, Any]:
    """Return the requester as fields of a ledger entry; no fields in process.

    Examples
    --------
    >>> with answering(Requester("ada", "0f1e")):
    ...     requester_facts()
    {'requested_by': {'name': 'ada', 'fingerprint': '0f1e'}}
    >>> requester_facts()
    {}
    """
    requester = _CURRENT.get()
    return {} if requester is None else {"requested_by": asdict(requester)}
