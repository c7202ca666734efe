"""What brings letters to sites on other machines, and their replies back, without reading either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

Reason = Literal["offline", "stopped", "unverified", "lost"]


@dataclass(frozen=True)
class Unreachable:
    """A letter that brought no reply.

    Parameters
    ----------
    reason : {"offline", "stopped", "unverified", "lost"}
        The site is not connected; its process stopped at work; it does not accept the study's signed bundle; or the
        carrier itself lost the letter.
    """

    reason: Reason


class Carrier(Protocol):
    """Posts letters and collects replies.

    A carrier may lose a letter or deliver it twice: a site answers the same letter with the same reply.
    """

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in a fixed order."""

    def send(self, letters: Mapping[str, bytes]) -> None:
        """Post one letter to each site named; a letter that is still under way to a site is given up."""

    def collect(self, wait_s: float) -> dict[str, bytes | Unreachable]:
        """Return what came back since the last call, by site; wait at most `wait_s` seconds for the first."""

    def close(self) -> None:
        """Let go of connections and processes."""
