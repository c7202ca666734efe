"""Reference levels of categories, which a model has no column for, as rows of its tables and forest plots."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from multicentre.estimator.figures import Figure, Forest, Table
from multicentre.estimator.presentation import variable_of
from multicentre.reports.curves import REFERENCE

COEFFICIENT, RATIO, INTERCEPT = "coefficient", "ratio", "(intercept)"
# Sign between a category and its level; not that of a comparison, nor one with a backslash, which is part of a name.
_LEVEL_SIGN = re.compile(r"(?<=[^\s<>!=\\])=(?=[^\s=])")


def with_references(figure: Figure, study: Mapping[str, Any]) -> Figure:
    """Return a figure of effects with a row for the reference level of every category, in the study's order of levels.

    The rows of the study's exposure are the first, after that of an intercept.

    Parameters
    ----------
    figure : Figure
        Tables without a column of effects, and figures of other kinds, are returned unchanged.
    study : mapping
        Contents of ``study.toml``.
    """
    data = study.get("data", {})
    section = data.get("survival") or data.get("table") or {}
    references = {name: str(level) for name, level in section.get("references", {}).items()}
    levels = {name: [str(level) for level in section.get("categories", {}).get(name, [])] for name in references}
    if isinstance(figure, Table) and any(map(_is_effect, figure.columns)):
        cells = [_at_reference(name) for name in figure.columns[1:]]
        effects = _exposure_first(figure.rows, study)
        rows = _insert(effects, [str(row[0]) for row in effects], references, levels, cells)
        return replace(figure, rows=rows)
    if isinstance(figure, Forest) and not figure.n_pooled:
        numbers = list(zip(figure.rows, figure.estimates, figure.lower, figure.upper, strict=True))
        effects = _exposure_first(numbers, study)
        cells = [figure.reference, None, None]
        forest = _insert(effects, [str(row[0]) for row in effects], references, levels, cells)
        names, estimates, lower, upper = (list(column) for column in zip(*forest, strict=True)) if forest else ([],) * 4
        return replace(figure, rows=names, estimates=estimates, lower=lower, upper=upper)
    return figure


def _exposure_first(rows: Sequence[Sequence[Any]], study: Mapping[str, Any]) -> list[Sequence[Any]]:
    exposure = study.get("study", {}).get("exposure")
    places = {True: 1, False: 2}
    return sorted(
        rows, key=lambda row: 0 if row[0] == INTERCEPT else places[exposure in (None, variable_of(str(row[0])))]
    )


def _is_effect(column: str) -> bool:
    return column == COEFFICIENT or column.endswith(RATIO)


def _at_reference(column: str) -> float | str | None:
    """Return the cell of a reference level: 1 for ratios, 0 for coefficients, nothing for errors and limits."""
    if _is_effect(column):
        return 0.0 if column == COEFFICIENT else 1.0
    return None if column.endswith(("lower", "upper")) else ""


def _insert(
    rows: Sequence[Sequence[Any]],
    names: Sequence[str],
    references: Mapping[str, str],
    levels: Mapping[str, Sequence[str]],
    cells: Sequence[Any],
) -> list[Sequence[Any]]:
    """Return rows with that of each reference level before the first of the levels that follow it in the study."""
    extended: list[Sequence[Any]] = [[spaced(name), *row[1:]] for name, row in zip(names, rows, strict=True)]
    for category, reference in references.items():
        places = [place for place, row in enumerate(extended) if str(row[0]).startswith(f"{category} = ")]
        order = list(levels[category])
        of_rows = [str(extended[place][0]).partition(" = ")[2] for place in places]
        if not places or not set(of_rows) <= set(order):  # several rows per level, of an outcome with several classes
            continue
        later = set(order[order.index(reference) + 1 :]) if reference in order else set(order)
        following = [place for place, level in zip(places, of_rows, strict=True) if level in later]
        extended.insert(min(following, default=places[-1] + 1), [f"{category} = {reference}{REFERENCE}", *cells])
    return extended


def spaced(name: str) -> str:
    """Return the name of a level with spaces, so that a line may be broken there; comparisons are unchanged.

    >>> spaced("grade=II"), spaced("sex=m:grade=II"), spaced("GCS<=8"), spaced("GCS<=8=yes")
    ('grade = II', 'sex = m:grade = II', 'GCS<=8', 'GCS<=8 = yes')
    """
    return _LEVEL_SIGN.sub(" = ", name)
