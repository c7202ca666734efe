"""Decisions of a steward about studies, and the check of the reason for a rejection."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from multicentre.errors import ConfigurationError

# Two or three sentences. A longer text belongs in a letter, and could carry a table.
MAX_CHARACTERS = 300
WHO_READS_IT = (
    "Everyone who asks this site to run the study receives the reason. Write no values and no counts of patients."
)
# Line and paragraph separators; all control, formatting and unassigned characters have categories that start with C.
_SEPARATORS = ("Zl", "Zp")


@dataclass(frozen=True)
class Decision:
    """Decision of the steward about a study.

    Parameters
    ----------
    study : str
    decision : {"approved", "rejected", "revoked"}
    sha256 : str
        SHA-256 of the study's file.
    terms : str
        Hash of the study's terms. A study with other terms waits for another decision.
    time : str
        Time of the decision, in UTC.
    reason : str
        Reason for a rejection; empty otherwise.
    """

    study: str
    decision: Literal["approved", "rejected", "revoked"]
    sha256: str
    terms: str
    time: str
    reason: str = ""

    @property
    def objection(self) -> str:
        """Clause with the reason for a rejection, for the requester and for the steward's lists."""
        return f"the site's steward rejected the study: {self.reason.rstrip('.')}"


def check_reason(reason: str) -> str:
    """Return the reason for a rejection without spaces at its ends.

    Raises
    ------
    ConfigurationError
        It is empty, too long, or contains control characters.

    Examples
    --------
    >>> check_reason(" The outcome is not collected here. ")
    'The outcome is not collected here.'
    """
    reason = reason.strip()
    if not 0 < len(reason) <= MAX_CHARACTERS:
        raise ConfigurationError(
            f"reason must have 1 to {MAX_CHARACTERS} characters; got {len(reason)}",
            hint=f"Write one or two sentences. {WHO_READS_IT}",
        )
    if any(_is_control(character) for character in reason):
        raise ConfigurationError(
            "reason must be one line of text; got control characters", hint="Remove line breaks and tabs."
        )
    return reason


def rejections_among(decisions: Iterable[Decision]) -> list[Decision]:
    """Return the rejections in force: the last decision about a study and its terms is a rejection."""
    last = {(one.study, one.terms): one for one in decisions}
    return [one for one in last.values() if one.decision == "rejected"]


def current_time() -> str:
    """Return the time of a decision, in UTC to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _is_control(character: str) -> bool:
    category = unicodedata.category(character)
    return category.startswith("C") or category in _SEPARATORS
