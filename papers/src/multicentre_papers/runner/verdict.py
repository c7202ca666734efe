"""A claim and what was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Verdict:
    """A claim and what was found.

    Parameters
    ----------
    claim : str
        With its level.
    reached : bool
        Whether the figures bear it out.
    found : str
        The figures; where the claim is not reached, also why, as far as it is known.
    """

    words: ClassVar[tuple[str, str]] = ("reached", "NOT reached")
    claim: str
    reached: bool
    found: str

    def __str__(self) -> str:
        return f"{self.words[not self.reached]}: {self.claim} ({self.found})"
