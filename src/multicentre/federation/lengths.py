"""Meanings of the letters in the shapes of a method's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Length:
    """Meaning of a letter in the shapes of a method's fields.

    Parameters
    ----------
    what : str
        Human-readable description shown on the disclosure card.
    parameter : str
        Parameter of the estimator that fixes the length, empty if none does.

    Examples
    --------
    >>> Length("phenotypes", "rank").number({"rank": 20}), Length("phenotypes", "rank").number({})
    ('20', '')
    """

    what: str
    parameter: str = ""

    def number(self, parameters: Mapping[str, Any]) -> str:
        """Return the length as text where the parameters fix it, empty otherwise."""
        value = parameters.get(self.parameter)
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


Lengths = Mapping[str, str | Length]


def lengths_of(part: type[Any]) -> dict[str, Length]:
    """Return the meaning of every letter that a site part and its bases define; a subclass goes before its bases."""
    letters: dict[str, Length] = {}
    for kind in reversed(part.__mro__):
        for letter, meaning in vars(kind).get("lengths", {}).items():
            letters[letter] = Length(meaning) if isinstance(meaning, str) else meaning
    return letters
