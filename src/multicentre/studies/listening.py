"""Listeners: one that says which fit the rounds belong to, one that notes which sites were lost or left out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from multicentre.federation.rounds import Listener


class Labelled(Listener):
    """Passes on what it hears under a label in place of the loop's own name.

    Parameters
    ----------
    listener : Listener
        Who is told.
    label : str
        "fit", or "compare: pooled" and the like.
    """

    def __init__(self, listener: Listener, label: str) -> None:
        self._listener = listener
        self._label = label

    def rounds_began(self, name: str, n_rounds: int, done: int) -> None:
        """Pass on that a loop begins."""
        self._listener.rounds_began(self._label, n_rounds, done)

    def round_ended(self, name: str, number: int, metrics: Mapping[str, float]) -> None:
        """Pass on that a round ended."""
        self._listener.round_ended(self._label, number, metrics)

    def rounds_ended(self, name: str, number: int) -> None:
        """Pass on that a loop ended."""
        self._listener.rounds_ended(self._label, number)

    def site_lost(self, site: str, reason: str) -> None:
        """Pass on that a site was lost, and in which fit."""
        self._listener.site_lost(site, f"{self._label}: {reason}")

    def sites_left_out(self, reasons: Mapping[str, str]) -> None:
        """Pass on without which sites a fit is made."""
        self._listener.sites_left_out({site: f"{self._label}: {reason}" for site, reason in reasons.items()})

    def site_awaited(self, site: str, reason: str) -> None:
        """Pass on that a site is waited for."""
        self._listener.site_awaited(site, reason)


class Noting(Listener):
    """Passes on what it hears, and notes why sites were lost or left out.

    Parameters
    ----------
    listener : Listener
        Who is told.

    Attributes
    ----------
    losses : dict of str to str
        By site, in which fit it was last lost, since when and why.
    left_out : dict of str to str
        By site, which fit was last made without it because it refused, and why.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.losses: dict[str, str] = {}
        self.left_out: dict[str, str] = {}

    def rounds_began(self, name: str, n_rounds: int, done: int) -> None:
        """Pass on that a loop begins."""
        self._listener.rounds_began(name, n_rounds, done)

    def round_ended(self, name: str, number: int, metrics: Mapping[str, float]) -> None:
        """Pass on that a round ended."""
        self._listener.round_ended(name, number, metrics)

    def rounds_ended(self, name: str, number: int) -> None:
        """Pass on that a loop ended."""
        self._listener.rounds_ended(name, number)

    def site_lost(self, site: str, reason: str) -> None:
        """Note that a site was lost, and pass it on."""
        self.losses[site] = reason
        self._listener.site_lost(site, reason)

    def sites_left_out(self, reasons: Mapping[str, str]) -> None:
        """Note without which sites a fit is made, and pass it on."""
        self.left_out.update(reasons)
        self._listener.sites_left_out(reasons)

    def site_awaited(self, site: str, reason: str) -> None:
        """Pass on that a site is waited for."""
        self._listener.site_awaited(site, reason)


@contextmanager
def site_log(path: Path) -> Iterator[None]:
    """Send what breaks at a site to a file, which is made when something does."""
    log = logging.getLogger("multicentre.site")
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate
        handler.close()
