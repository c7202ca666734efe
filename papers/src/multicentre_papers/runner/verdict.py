"""Claim and its result in a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

# The standard error of a mean difference over fewer repetitions is itself uncertain by more than a third.
MIN_REPETITIONS = 5


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
    n_repetitions : int, optional
        Number of repetitions behind the figures; below `MIN_REPETITIONS` the claim is not judged, and with 0 it was
        not tested. By default the figures do not depend on repetitions.
    """

    words: ClassVar[tuple[str, str]] = ("reached", "NOT reached")
    claim: str
    reached: bool
    figures: str
    n_repetitions: int | None = None

    @property
    def verdict(self) -> str:
        """Result in words: the claim holds or does not, was not tested, or rests on too few repetitions."""
        if self.n_repetitions == 0:
            return "untested"
        if self.n_repetitions is not None and self.n_repetitions < MIN_REPETITIONS:
            return "too few to judge"
        return self.words[not self.reached]

    def __str__(self) -> str:
        return f"{self.verdict}: {self.claim} ({self.figures})"
