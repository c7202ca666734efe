"""Listeners: one that says which fit the rounds belong to, one that notes which sites were lost."""

from __future__ import annotations

from collections.abc import Mapping

from multicentre.federation.progress import Listener


class Labelled:
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

    def round_ended(self, name: str, number: int, figures: Mapping[str, float]) -> None:
        """Pass on that a round ended."""
        self._listener.round_ended(self._label, number, figures)

    def rounds_ended(self, name: str, number: int) -> None:
        """Pass on that a loop ended."""
        self._listener.rounds_ended(self._label, number)

    def site_lost(self, site: str, reason: str) -> None:
        """Pass on that a site was lost, and in which fit."""
        self._listener.site_lost(site, f"{self._label}: {reason}")

    def site_awaited(self, site: str, reason: str) -> None:
        """Pass on that a site is waited for."""
        self._listener.site_awaited(site, reason)


class Noting:
    """Passes on what it hears, and notes why sites were lost.

    Parameters
    ----------
    listener : Listener
        Who is told.

    Attributes
    ----------
    losses : dict of str to str
        By site, in which fit it was last lost, since when and why.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.losses: dict[str, str] = {}

    def rounds_began(self, name: str, n_rounds: int, done: int) -> None:
        """Pass on that a loop begins."""
        self._listener.rounds_began(name, n_rounds, done)

    def round_ended(self, name: str, number: int, figures: Mapping[str, float]) -> None:
        """Pass on that a round ended."""
        self._listener.round_ended(name, number, figures)

    def rounds_ended(self, name: str, number: int) -> None:
        """Pass on that a loop ended."""
        self._listener.rounds_ended(name, number)

    def site_lost(self, site: str, reason: str) -> None:
        """Note that a site was lost, and pass it on."""
        self.losses[site] = reason
        self._listener.site_lost(site, reason)

    def site_awaited(self, site: str, reason: str) -> None:
        """Pass on that a site is waited for."""
        self._listener.site_awaited(site, reason)
