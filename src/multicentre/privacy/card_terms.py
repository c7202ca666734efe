"""Entries of a disclosure card: fields that leave, and letters of their shapes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal, Self

Kind = Literal["individual", "time", "total", "number", "flag", "text"]
_ARRAY = " array"
_BY_NAME = "[by name]"


@dataclass(frozen=True)
class Line:
    """One field that would leave.

    Attributes
    ----------
    span : str
        Range of one site's value and largest rounding error of the sum, where it leaves masked.
    noise : str
        Law and scale of the noise, and how far one patient moves the field without it.
    kind : {"individual", "time", "total", "number", "flag", "text"}
        A value about single patients, a recorded time, a share of a total over all sites, or a site's own number,
        yes-or-no answer or text.
    summed : bool
        Whether it leaves as a share of a total over all sites.
    masked : bool
        Whether that share is masked.
    answered : bool
        Whether the policy permits the step.
    min_in_total : int
        Fewest patients of all sites behind a total that is revealed; 0 for no minimum.
    """

    step: str
    when: str
    field: str
    what: str
    shape: str
    unit: str
    seen: str
    span: str = ""
    noise: str = ""
    kind: Kind = "number"
    summed: bool = False
    masked: bool = False
    answered: bool = True
    min_in_total: int = 0

    @property
    def name(self) -> str:
        """Name of the field in its message."""
        return self.field.removesuffix(_BY_NAME)

    @property
    def letters(self) -> tuple[str, ...]:
        """Letters in the shape."""
        sides = self.shape.removesuffix(_ARRAY).split(" x ") if self.shape.endswith(_ARRAY) else []
        return tuple(side for side in sides if side and not side.isdigit())


@dataclass(frozen=True)
class Letter:
    """Meaning of one letter in shapes.

    Attributes
    ----------
    number : str
        The length, where the study fixes it.
    method : str
        The method in whose fields the letter means this.
    """

    letter: str
    what: str
    number: str = ""
    method: str = ""

    @property
    def meaning(self) -> str:
        """The meaning as a card prints it."""
        return f"{self.what} ({self.method})" if self.method else self.what

    def without_method(self) -> Self:
        """Return the letter as it is used by all methods on a card."""
        return dataclasses.replace(self, method="")
