"""Labels of variables, for everything that a reader sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

from multicentre.estimator.figures import Curves, Densities, Figure, Table

AnyFigure = TypeVar("AnyFigure", bound=Figure)
# Headings of columns whose cells begin with the name of a variable or a group.
OF_NAMES = frozenset({"", "column", "covariate", "variable", "feature", "group", "name", "subgroup", "term"})
# Words of the reports' own sentences. A variable of such a name is labelled there only where one of its levels follows.
_WORDS = (
    "all area at band bands baseline case cases cause censored centre class count counts curve date day days deviance "
    "difference distance effect estimate event events fit follow group groups hazard horizon interval level limit mean "
    "median method missing model month months n number numbers observed odds outcome p patient patients predicted rate "
    "ratio record records risk round score share site sites size status sum survival table test tests time times total "
    "value values variable view week weeks weight weights year years"
)
WORDS = frozenset(_WORDS.split())
# Fields of figures that hold names of variables, and those that hold words as well.
_NAMES = frozenset({"rows", "columns", "categories", "at_risk", "group_label"})
_TEXTS = frozenset({"title", "caption", "x_label", "y_label", "series", "spread"})
_UNIT = re.compile(r"\(([^()]+)\)\s*$")


@dataclass(frozen=True)
class Labels:
    """Labels of variables by name, and the levels of the categories among them.

    Examples
    --------
    >>> labels = Labels({"map": "mean arterial pressure (mmHg)", "grade": "Grade"}, {"grade": ("I", "II")})
    >>> labels.name("map"), labels.name("grade=II"), labels.unit("map")
    ('mean arterial pressure (mmHg)', 'Grade: II', 'mmHg')
    >>> labels.sentence("Median survival of grade II, adjusted for map.")
    'Median survival of Grade: II, adjusted for mean arterial pressure (mmHg).'
    """

    labels: Mapping[str, str]
    levels: Mapping[str, Sequence[str | int]] = field(default_factory=dict)

    @classmethod
    def of_study(cls, data: Mapping[str, Any]) -> Labels:
        """Return the labels of the table ``[data]`` of a study."""
        tables = [data.get(kind) or {} for kind in ("survival", "table")]
        levels = {name: tuple(one) for table in tables for name, one in (table.get("categories") or {}).items()}
        return cls(data.get("labels") or {}, levels)

    def name(self, text: str) -> str:
        """Return the name of a variable, level, group or term with labels in place of variables."""
        return self._replace(text, frozenset())

    def sentence(self, text: str) -> str:
        """Return a sentence with labels; a variable named as a common word is labelled only before its levels."""
        return self._replace(text, WORDS)

    def unit(self, variable: str) -> str:
        """Return the unit of a variable, which ends its label in parentheses; empty without one."""
        unit = _UNIT.search(self.labels.get(variable, ""))
        return unit[1] if unit else ""

    def figure(self, figure: AnyFigure) -> AnyFigure:
        """Return a figure or table with labels in its title, caption, axes and names."""
        if not (self.labels or self.levels):
            return figure
        changes: dict[str, Any] = {
            part.name: _each(self._change(part.name), getattr(figure, part.name))
            for part in fields(figure)
            if part.name in _NAMES | _TEXTS
        }
        if isinstance(figure, Table):
            head = figure.columns[0] if figure.columns else None
            first = self.group if head == "group" else self.name if head in OF_NAMES else self.sentence
            changes["columns"] = _each(self.sentence, figure.columns)
            changes["rows"] = [[*_each(first, row[:1]), *_each(self.sentence, row[1:])] for row in figure.rows]
        if isinstance(figure, Curves):
            changes["bands"] = [replace(band, name=self.group(band.name)) for band in figure.bands]
        if isinstance(figure, Densities):
            changes["panels"] = [replace(panel, title=self.name(panel.title)) for panel in figure.panels]
        return replace(figure, **changes)

    def _change(self, part: str) -> Callable[[str], str]:
        """Return the change of the texts of a part of a figure."""
        return self.group if part == "at_risk" else self.name if part in _NAMES else self.sentence

    def group(self, text: str) -> str:
        """Return the name of a group with labels; a text that is a level stays, also if a variable has its name."""
        return text if any(text in map(str, levels) for levels in self.levels.values()) else self.name(text)

    def _replace(self, text: str, words: frozenset[str]) -> str:
        return self._pattern.sub(lambda match: self._label(match, words), text) if self.labels or self.levels else text

    def _label(self, match: re.Match[str], words: frozenset[str]) -> str:
        """Return the label of a name, with a colon where a level follows; in a study without labels, ``arm = y``."""
        pair, name, sign = match.groups()
        if pair:
            category, level = self._pairs[pair]
            if category not in self.labels and category in words and "=" not in pair:
                return pair
            return f"{self.labels.get(category, category)}{': ' if self.labels else ' = '}{level}"
        if name in words:
            return match[0]
        return f"{self.labels[name]}: " if sign else self.labels[name]

    @cached_property
    def _pairs(self) -> dict[str, tuple[str, str]]:
        """Category and level by each text that names a level: ``grade=I``, ``grade = I`` and ``grade I``."""
        return {
            f"{name}{sign}{level}": (name, str(level))
            for name, levels in self.levels.items()
            for level in levels
            for sign in ("=", " = ", " ")
        }

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Categories with a level, and names of variables, as whole words, longest first."""
        pairs, names = (
            "|".join(map(re.escape, sorted(each, key=len, reverse=True))) for each in (self._pairs, self.labels)
        )
        level = rf"({pairs})(?!\w|[.]\d)" if pairs else "(?!)()"
        return re.compile(rf"(?<![\w-])(?:{level}|({names or '(?!)'})(?:( ?= ?)(?=\S)|(?![\w-])))")


NO_LABELS = Labels({})


def _each(change: Any, value: Any) -> Any:
    """Change a text, every text of a sequence, or every name of a mapping."""
    if isinstance(value, Mapping):
        return {change(name): part for name, part in value.items()}
    if isinstance(value, str):
        return change(value)
    return [change(part) if isinstance(part, str) else part for part in value]
