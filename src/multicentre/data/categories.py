"""Encoding of categories as columns of zeros and ones, one per level, named ``name=level``.

All sites declare the same levels of a category, in the same order. A level without a column is a reference: its
patients have 0 in the columns of all other levels. A patient whose level is missing has NaN in all of them.

The declaration is stored as the names ``name=level`` of all levels (:func:`level_names`), next to the column names.
Column names and level names together define the encoding of a table.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.data.cells import Fault, count_entries, is_categorical
from multicentre.errors import ConfigurationError, DataError, nearest_name

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Categories = Mapping[str, Sequence[object]]
Levels = Mapping[str, tuple[str, ...]]
MARK = "="
# A mark or a backslash in the name of a variable follows a backslash in the names of its levels.
_MARKS, _ESCAPES, _ESCAPED = re.compile(r"[\\=]"), re.compile(r"\\([\\=])"), r"\\\g<0>"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")  # of TOML
_PARTS = re.compile(r"((?:\\.|[^\\=])*)=(.*)", re.DOTALL)


def level_name(level: object) -> str:
    """Return a level as text; 1, 1.0 and "1" are one level, "01" is another.

    Examples
    --------
    >>> level_name(1.0), level_name(np.int64(1)), level_name("01")
    ('1', '1', '01')
    """
    return str(int(level)) if isinstance(level, float | np.floating) and float(level).is_integer() else str(level)


def declare_levels(
    frame: pd.DataFrame, chosen: Iterable[str], categories: Categories | Sequence[str] | None
) -> dict[str, tuple[str, ...]]:
    """Return the levels of all categories, as text.

    Parameters
    ----------
    frame : pandas frame
    chosen : sequence of str
        Columns of features. Pandas categoricals among them need no declaration: their categories are the levels.
    categories : mapping of str to sequence, or sequence of str, optional
        Levels by column, or columns whose levels are taken from the table.

    Raises
    ------
    DataError
        A declaration is invalid, or a level is repeated.

    Warns
    -----
    UserWarning
        Levels are taken from the table; other sites may have different levels.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"stage": [1, 2, None], "sex": pd.Categorical(["f", "f", None], ["f", "m"])})
    >>> declare_levels(frame, ["stage", "sex"], {"stage": [1, 2, 3]})
    {'stage': ('1', '2', '3'), 'sex': ('f', 'm')}
    """
    declared = categories if isinstance(categories, Mapping) else _levels_of_table(frame, categories)
    inferred = {name: _levels_of_column(frame[name]) for name in chosen if is_categorical(frame[name])}
    levels = {**declared, **{name: levels for name, levels in inferred.items() if name not in declared}}
    return {str(name): _checked_levels(str(name), column_levels) for name, column_levels in levels.items()}


def check_references(categories: Categories, references: Mapping[str, Any], where: str = "references") -> None:
    """Check that every reference is a level of a category.

    Raises
    ------
    ConfigurationError
        A category or a level is unknown.

    Examples
    --------
    >>> check_references({"stage": ["I", "II"]}, {"stage": "I"})
    """
    for name, reference in references.items():
        if name not in categories:
            raise ConfigurationError(
                f"references must name categories; got {name!r}",
                where=where,
                hint=f"{nearest_name([name], categories)}Declare its levels in `categories`. Declared are "
                f"{', '.join(map(str, categories)) or 'none'}.",
            )
        level_texts = [level_name(level) for level in categories[name]]
        if level_name(reference) not in level_texts:
            raise ConfigurationError(
                f"the reference must be a level of {name!r}; got {level_name(reference)!r}",
                where=f"{where}.{name}",
                hint=f"Name one of {', '.join(level_texts)}.",
            )


def read_levels(column: pd.Series, levels: Sequence[str]) -> Floats | Fault:
    """Encode a category as zeros and ones, shape (n, levels), NaN in all columns where the level is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> read_levels(pd.Series(["f", None], name="sex"), ["f", "m"]).tolist()
    [[1.0, 0.0], [nan, nan]]
    >>> read_levels(pd.Series(["f", "x"], name="sex"), ["f", "m"]).what
    "1 of 2 entries of 'sex' is a level that was not declared (row 2)"
    """
    codes, distinct = column.factorize()
    place_of = {level: place for place, level in enumerate(levels)}
    # The code of a missing entry is -1 and therefore indexes the last place.
    unknown, missing = len(levels), len(levels) + 1
    places = np.array([*(place_of.get(level_name(level), unknown) for level in distinct), missing])[codes]
    rows = np.flatnonzero(places == unknown)
    if len(rows):
        what = count_entries(rows, column, "a level that was not declared", "levels that were not declared")
        plain = {level.strip().casefold() for level in levels}
        n_variants = sum(level_name(distinct[code]).strip().casefold() in plain for code in codes[rows])
        variants = f", {n_variants} of them for upper and lower case or blanks only" if n_variants else ""
        return Fault(what + variants, "Agree on the levels between all sites, and declare all of them.")
    values: Floats = (places[:, None] == np.arange(len(levels))).astype(np.float64)
    values[places == missing] = np.nan
    return values


def join_level(variable: str, level: str) -> str:
    r"""Return the name ``variable=level``; a mark in the variable is escaped, so that the name can be split again.

    Examples
    --------
    >>> join_level("sex", "f"), join_level("GCS<=8", "1")
    ('sex=f', 'GCS<\\=8=1')
    """
    return f"{_MARKS.sub(_ESCAPED, variable)}{MARK}{level}"


def split_level(name: str) -> tuple[str, str]:
    """Return variable and level of a name from :func:`join_level`.

    Examples
    --------
    >>> split_level("sex=f"), split_level(join_level("GCS<=8", "a=b"))
    (('sex', 'f'), ('GCS<=8', 'a=b'))
    """
    parts = _PARTS.match(name)
    variable, level = parts.groups() if parts else (name, "")
    return _ESCAPES.sub(r"\1", variable), level


def level_names(levels: Levels) -> tuple[str, ...]:
    """Return the names ``name=level`` of all levels, in order.

    Examples
    --------
    >>> level_names({"sex": ("f", "m")})
    ('sex=f', 'sex=m')
    """
    return tuple(join_level(name, level) for name, category_levels in levels.items() for level in category_levels)


def families(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Group names of :func:`level_names` by category.

    Examples
    --------
    >>> families(["sex=f", "sex=m"])
    {'sex': ('sex=f', 'sex=m')}
    """
    by_category: dict[str, tuple[str, ...]] = {}
    for name in names:
        category, _ = split_level(name)
        by_category[category] = (*by_category.get(category, ()), name)
    return by_category


def dependent_error(
    names: Sequence[str], levels: Sequence[str], *, of_sites: str = "", has_penalty: bool = True
) -> DataError:
    """Return the error of columns that are combinations of others; the hint names the categories without a reference.

    Examples
    --------
    >>> dependent_error(["sex=f", "sex=m"], levels=["sex=f", "sex=m"]).hint
    'Name a reference level of each category, references = {sex = "f"}, or set alpha above 0.'
    """
    whole = [split_level(family[0]) for family in families(levels).values() if set(family) <= set(names)]
    listed = ", ".join(f"{_toml_key(name)} = {json.dumps(level, ensure_ascii=False)}" for name, level in whole)
    remedy = f"Name a reference level of each category, references = {{{listed}}}" if whole else "Leave one of them out"
    return DataError(
        f"columns must be independent of each other; these are combinations of others{of_sites}: "
        + ", ".join(names[:8])
        + (f" and {len(names) - 8} more" if len(names) > 8 else ""),
        where="columns",
        hint=f"{remedy}{', or set alpha above 0' * has_penalty}.",
    )


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def levels_left(names: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the declared levels of those categories that still have a column.

    Examples
    --------
    >>> levels_left(("sex=f", "sex=m", "stage=I", "stage=II"), ("age", "stage=II"))
    ('stage=I', 'stage=II')
    """
    remaining = set(columns)
    return tuple(name for family in families(names).values() if remaining & set(family) for name in family)


def have_other_levels(levels: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Return whether two tables declare different levels, in any order; numeric columns declare no levels.

    Examples
    --------
    >>> have_other_levels(("sex=f", "sex=m"), ("sex=m", "sex=f")), have_other_levels(("sex=f", "sex=m"), ("sex=f",))
    (False, True)
    """
    return bool(levels) and bool(others) and set(levels) != set(others)


def read_level(X: Floats, columns: Sequence[str], names: Sequence[str], level: str) -> Floats | None:
    """Return 1 for the patients of a level, 0 for others, NaN where it is missing; None if it cannot be derived.

    Parameters
    ----------
    X : array of shape (n, d)
    columns : sequence of str
        Column names of `X`.
    names : sequence of str
        Declared levels, from :func:`level_names`.
    level : str
        ``name=level``: a column, or the one level of its category that has no column.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [np.nan]])
    >>> read_level(X, ["stage=II"], ["stage=I", "stage=II"], "stage=I").tolist()
    [1.0, 0.0, nan]
    """
    places = {name: place for place, name in enumerate(columns)}
    if level in places:
        return np.asarray(X[:, places[level]])
    family = families(names).get(split_level(level)[0], ())
    others = [places[name] for name in family if name in places]
    if level not in family or len(others) != len(family) - 1:
        return None
    return np.asarray(1.0 - X[:, others].sum(axis=1))


def _levels_of_table(frame: pd.DataFrame, names: Sequence[str] | None) -> dict[str, Sequence[object]]:
    if isinstance(names, str):
        raise DataError(
            "categories must be a mapping of columns to levels or a list of columns; got str",
            where="categories",
            hint=f"Pass {{{names!r}: [...]}} with the levels.",
        )
    names = list(names or ())
    undeclared = [name for name in names if not is_categorical(frame[name])]
    if undeclared:
        warnings.warn(
            f"{', '.join(map(str, undeclared))}: the levels are taken from this table, and must be the same at all "
            "sites. Declare them as categories={column: [levels]}.",
            UserWarning,
            stacklevel=5,
        )
    return {name: _levels_of_column(frame[name]) for name in names}


def _levels_of_column(column: pd.Series) -> list[Any]:
    """Return the declared levels of a categorical, or the sorted distinct values of another column."""
    if is_categorical(column):
        return list(column.cat.categories)
    occurring = list(column.dropna().unique())
    try:
        return sorted(occurring)
    except TypeError:
        return sorted(occurring, key=level_name)


def _checked_levels(name: str, levels: Sequence[object]) -> tuple[str, ...]:
    if isinstance(levels, str) or MARK in name:
        got = "text" if isinstance(levels, str) else "a name with '='"
        raise DataError(
            f"levels must be a list, and the name of a category must not contain '='; got {got}",
            where=f"categories, {name!r}",
            hint='Example: {"sex": ["f", "m"]}.',
        )
    import pandas as pd

    if pd.Series(list(levels), dtype=object).isna().any():
        raise DataError(
            "levels must not include a missing entry; got one",
            where=f"categories, {name!r}",
            hint="Leave it out. A missing level is encoded as NaN in all columns of the category.",
        )
    texts = tuple(level_name(level) for level in levels)
    if not texts or len(set(texts)) < len(texts):
        raise DataError(
            f"levels must be at least one, all different; got {len(texts)}, of which {len(set(texts))} are different",
            where=f"categories, {name!r}",
            hint="Name each level once.",
        )
    return texts
