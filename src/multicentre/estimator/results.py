"""Summary tables of fits that print with a note."""

from __future__ import annotations

import html
from collections.abc import Mapping
from textwrap import fill
from typing import Any

import pandas as pd

from multicentre.estimator.printing import WIDTH, frame_as_latex, table_of, table_text

# Keys of the printed notes in ``attrs``, which pandas carries through selections and rounding.
NOTE, REMARK, MODEL = "missing", "remark", "model"


class Summary(pd.DataFrame):
    """Data frame whose printed form ends with the sentences in ``attrs``: "model", "remark" and "missing".

    Examples
    --------
    >>> print(with_note(pd.DataFrame({"coefficient": [0.5]}, index=["age"]), "No missing values."))
         coefficient
    age        0.500
    <BLANKLINE>
    No missing values.
    """

    @property
    def _constructor(self) -> type[Summary]:
        return Summary

    def __repr__(self) -> str:
        notes = "\n".join(fill(note, WIDTH) for note in self._notes())
        return "\n\n".join(filter(None, (table_text(self), notes)))

    __str__ = __repr__

    def to_latex(self, *args: Any, **options: Any) -> str:  # type: ignore[override]  # pandas overloads it
        """Return a LaTeX table with escaped names and the notes below it; pandas's own table if there are arguments."""
        if args or options:
            return str(super().to_latex(*args, **options))
        return frame_as_latex(self, notes=self._notes())

    def _repr_html_(self) -> Any:
        table = table_of(self).to_frame()._repr_html_()  # type: ignore[operator]
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        return f"{table}{notes}" if table else table

    def _notes(self) -> list[str]:
        return [self.attrs[key] for key in (MODEL, REMARK, NOTE) if self.attrs.get(key)]


def with_note(frame: pd.DataFrame, note: str, *, remark: str = "", model: str = "") -> Summary:
    """Return a frame that prints with the model in force, a remark on the results, and a note on missing values."""
    summary = Summary(frame)
    summary.attrs = {**frame.attrs, NOTE: note, REMARK: remark, MODEL: model}
    return summary


def summarise(values: Mapping[str, object], note: str, *, model: str = "") -> Summary:
    """Return labelled values as a frame with the column ``value``, which prints with a note.

    Examples
    --------
    >>> print(summarise({"patients": 120, "events": 40}, "No missing values."))
             value
    patients   120
    events      40
    <BLANKLINE>
    No missing values.
    """
    return with_note(
        pd.DataFrame({"value": list(values.values())}, index=list(values), dtype=object), note, model=model
    )
