"""Summary tables of fits that print with a note."""

from __future__ import annotations

import html
from typing import Any

import pandas as pd

NOTE = "missing"  # key of the note in ``attrs``, which pandas carries through selections and rounding


class Summary(pd.DataFrame):
    """Data frame whose printed form ends with the sentence in ``attrs["missing"]``.

    Examples
    --------
    >>> print(with_note(pd.DataFrame({"coefficient": [0.5]}, index=["age"]), "No missing values."))
         coefficient
    age          0.5
    No missing values.
    """

    @property
    def _constructor(self) -> type[Summary]:
        return Summary

    def __repr__(self) -> str:
        table = super().__repr__()
        return f"{table}\n{self.attrs[NOTE]}" if self.attrs.get(NOTE) else table

    def _repr_html_(self) -> Any:
        table = super()._repr_html_()  # type: ignore[misc]
        note = self.attrs.get(NOTE)
        return f"{table}<p>{html.escape(note)}</p>" if table and note else table


def with_note(frame: pd.DataFrame, note: str) -> Summary:
    """Return a frame that prints with a note."""
    summary = Summary(frame)
    summary.attrs = {**frame.attrs, NOTE: note}
    return summary
