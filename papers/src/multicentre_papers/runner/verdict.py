"""Claim and its result in a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Verdict:
    """Claim and its result in a run.

    Parameters
    ----------
    claim : str
        Text of the claim with its level.
    reached : bool
        True if the figures support the claim.
    figures : str
        Figures of the run; if the claim is not reached, also possible reasons.
    """

    words: ClassVar[tuple[str, str]] = ("reached", "NOT reached")
    claim: str
    reached: bool
    figures: str

    def __str__(self) -> str:
        return f"{self.words[not self.reached]}: {self.claim} ({self.figures})"
