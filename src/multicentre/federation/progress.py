"""Who is told how a run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Listener(Protocol):
    """Hears of rounds and losses while they happen; a progress bar, a log, a test."""

    def rounds_began(self, name: str, n_rounds: int, done: int) -> None:
        """Hear that a loop of at most `n_rounds` rounds begins, `done` of them restored from a checkpoint."""

    def round_ended(self, name: str, number: int, figures: Mapping[str, float]) -> None:
        """Hear that a round ended with these figures."""

    def rounds_ended(self, name: str, number: int) -> None:
        """Hear that a loop ended after round `number`."""

    def site_lost(self, site: str, reason: str) -> None:
        """Hear that a site did not answer and takes no further part in the session."""

    def sites_left_out(self, reasons: Mapping[str, str]) -> None:
        """Receive the sites that a fit is made without, and why each refuses."""

    def site_awaited(self, site: str, reason: str) -> None:
        """Hear that a site has been out of reach for a while and is still waited for."""


class Silence:
    """The listener that does nothing."""

    def rounds_began(self, name: str, n_rounds: int, done: int) -> None:
        """Do nothing."""

    def round_ended(self, name: str, number: int, figures: Mapping[str, float]) -> None:
        """Do nothing."""

    def rounds_ended(self, name: str, number: int) -> None:
        """Do nothing."""

    def site_lost(self, site: str, reason: str) -> None:
        """Do nothing."""

    def sites_left_out(self, reasons: Mapping[str, str]) -> None:
        """Do nothing."""

    def site_awaited(self, site: str, reason: str) -> None:
        """Do nothing."""
