"""Columns of a design for some patients, their derivatives, and the check of their values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from multicentre.data.categories import families, join_level, read_level
from multicentre.errors import DataError, MessageError, SchemaMismatch, nearest_name
from multicentre.formula.design import BuiltFactor, Design
from multicentre.formula.functions import SCALARS, apply_scalar, apply_spline

Floats = NDArray[np.float64]
# Levels of a column of numbers: with more, each would rest on few patients.
MAX_LEVELS = 50


@dataclass(frozen=True)
class Table:
    """Columns of some patients."""

    X: Floats
    columns: tuple[str, ...]
    levels: tuple[str, ...] = ()

    def column(self, name: str) -> Floats:
        """Return a column, shape (n,).

        Raises
        ------
        SchemaMismatch
            The column does not exist.
        """
        return np.asarray(self.X[:, _place(name, self)], dtype=np.float64)


def build_columns(design: Design, table: Table, fixed: tuple[str, str] = ("", "")) -> Floats:
    """Return the columns of a design for some patients, shape (n, number of columns); NaN where missing.

    Parameters
    ----------
    design : Design
    table : Table
    fixed : tuple of two str
        Category, and the level that all patients get; for comparisons of predictions.

    Values outside the domain of a function, and values that are not one of the levels, are missing as well; see
    :func:`check_values`.

    Raises
    ------
    SchemaMismatch
        A column or a level does not exist.

    Examples
    --------
    >>> from multicentre.formula.design import Step
    >>> factors = [BuiltFactor("log(age)", "age", (Step("log"),)), BuiltFactor("dose", "dose")]
    >>> design = Design.of(factors, [(0,), (0, 1)])
    >>> design.column_names
    ('log(age)', 'log(age):dose')
    >>> build_columns(design, Table(np.array([[1.0, 5.0]]), ("age", "dose"))).tolist()
    [[0.0, 0.0]]
    """
    values = [factor_values(factor, table, fixed)[0] for factor in design.factors]
    products = [_product([values[place] for place in term]) for term in design.products]
    offset = [values[-1]] if design.has_offset else []
    passed = [table.X[:, [_place(name, table)]] for name in design.passed]
    return np.column_stack([np.zeros((len(table.X), 0)), *products, *offset, *passed])


def differentiate_columns(design: Design, table: Table, source: str) -> Floats:
    """Return the derivatives of the columns of a design by a numeric column, shape (n, number of columns).

    Examples
    --------
    >>> design = Design.of([BuiltFactor("age", "age"), BuiltFactor("dose", "dose")], [(0,), (0, 1)])
    >>> differentiate_columns(design, Table(np.array([[60.0, 5.0]]), ("age", "dose")), "age").tolist()
    [[1.0, 5.0]]
    """
    factors = design.factors
    pairs = [factor_values(factor, table) for factor in factors]
    parts = []
    for term in design.products:
        values, total = [pairs[place][0] for place in term], 0.0 * _product([pairs[place][0] for place in term])
        for position, place in enumerate(term):
            if factors[place].source == source and not factors[place].levels:
                total = total + _product([*values[:position], pairs[place][1], *values[position + 1 :]])
        parts.append(total)
    offset = [pairs[-1][1] if factors[-1].source == source else 0.0 * pairs[-1][1]] if design.has_offset else []
    passed = [np.zeros((len(table.X), len(design.passed)))]
    return np.column_stack([np.zeros((len(table.X), 0)), *parts, *offset, *passed])


def factor_values(factor: BuiltFactor, table: Table, fixed: tuple[str, str] = ("", "")) -> tuple[Floats, Floats]:
    """Return the columns of a factor and, for numbers, their derivatives, shape (n, number of columns) each."""
    if factor.levels:
        values = level_values(factor, table, fixed)[:, int(factor.reduced) :]
        return values, np.zeros_like(values)
    value = table.column(factor.source)
    slope = np.ones_like(value)
    for step in factor.steps:
        if step.function in SCALARS:
            value, inner = apply_scalar(step.function, step.numbers, value)
            slope = slope * inner
        else:
            basis, derivative = (apply_spline(step.function, step.numbers, value, order) for order in (0, 1))
            return basis, derivative * slope[:, None]
    return value[:, None], slope[:, None]


def level_values(factor: BuiltFactor, table: Table, fixed: tuple[str, str] = ("", "")) -> Floats:
    """Return 1 for the patients of each level and 0 for others, shape (n, levels); NaN where missing."""
    if fixed[0] == factor.source:
        chosen = np.array([level == fixed[1] for level in factor.levels], dtype=np.float64)
        return np.broadcast_to(chosen, (len(table.X), len(factor.levels)))
    if factor.source in families(table.levels):
        parts = [
            read_level(table.X, table.columns, table.levels, join_level(factor.source, level))
            for level in factor.levels
        ]
        present = [part for part in parts if part is not None]
        if len(present) < len(parts):
            raise SchemaMismatch(
                f"levels of {factor.source} must be declared in the data, all but one with a column; some are not",
                where="formula",
                hint="Declare the categories of the data with all of their levels.",
            )
        values = np.column_stack(present)
    else:
        column = table.column(factor.source)[:, None]
        try:
            numbers = np.array([float(level) for level in factor.levels])
        except ValueError:
            raise MessageError("levels of a column of numbers must be numbers; got texts", where="formula") from None
        if len(numbers) > MAX_LEVELS:
            raise MessageError(
                f"a column of numbers must have at most {MAX_LEVELS} levels; got {len(numbers)}", where="formula"
            )
        is_level = column == numbers
        values = np.where(is_level.any(axis=1, keepdims=True), is_level, np.nan)
    return values


def values_outside(factor: BuiltFactor, table: Table) -> NDArray[np.bool_]:
    """Flag values that are present but outside the domain of a function, or not one of the levels, shape (n,)."""
    if factor.levels and factor.source in families(table.levels):
        return np.zeros(len(table.X), dtype=np.bool_)
    missing = np.isnan(factor_values(factor, table)[0]).any(axis=1)
    return np.asarray(missing & ~np.isnan(table.column(factor.source)))


def check_values(design: Design, table: Table) -> None:
    """Raise DataError, without a count, if a function is not defined for a value or a value is not one of the levels.

    Examples
    --------
    >>> from multicentre.formula.design import Step
    >>> design = Design.of([BuiltFactor("log(age)", "age", (Step("log"),))], [(0,)])
    >>> check_values(design, Table(np.ones((2, 1)), ("age",)))
    """
    names = dict.fromkeys(factor.name for factor in design.factors if values_outside(factor, table).any())
    if names:
        raise DataError(
            f"functions and levels must be defined for all values; those of {', '.join(names)} are not",
            where="formula",
            hint="Correct the column, name all levels, or choose another function (log1p and sqrt allow 0).",
        )


def _place(name: str, table: Table) -> int:
    if name not in table.columns:
        raise SchemaMismatch(
            f"names in a formula must be columns or categories of the data; got {name}",
            where="formula",
            hint=f"The columns begin with {', '.join(table.columns[:10])}.",
        )
    return table.columns.index(name)


def _product(parts: Sequence[Floats]) -> Floats:
    """Return the products of the columns of some factors; columns of the first factor change fastest."""
    return reduce(lambda left, right: (right[:, :, None] * left[:, None, :]).reshape(len(left), -1), parts)


def check_names(sources: Iterable[str], columns: Sequence[str], levels: Sequence[str]) -> None:
    """Raise SchemaMismatch unless every name is a column or a category.

    Examples
    --------
    >>> check_names(["age", "sex"], ["age", "sex=m"], ["sex=f", "sex=m"])
    """
    available = [*columns, *families(levels)]
    if absent := [name for name in sources if name not in available]:
        category_of = {level: category for category, family in families(levels).items() for level in family}
        names = list(dict.fromkeys(category_of.get(name, name) for name in columns))
        raise SchemaMismatch(
            f"names in a formula must be columns or categories of the data; got {', '.join(absent)}",
            where="formula",
            hint=f"{nearest_name(absent, available)}The columns and categories begin with {', '.join(names[:10])}.",
        )
