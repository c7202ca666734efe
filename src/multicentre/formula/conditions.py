"""Conditions that select records, such as ``age >= 18 and sex == 'f'``: grammar and evaluation.

A condition consists of comparisons of a column with a value (``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``) or with a
list of values (``in``, ``not in``), joined by ``and``, ``or``, ``not`` and parentheses. Nothing else is evaluated.

A comparison with a missing entry is unknown, and so is a condition that depends on it (Kleene's logic, as in SQL).
Records for which the condition is unknown are not selected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.data.categories import families, split_level
from multicentre.data.tabular import Tabular
from multicentre.errors import ConfigurationError, nearest_name
from multicentre.formula.lexer import Token, split_formula

Flags = NDArray[np.bool_]
Cells = NDArray[Any]
# Takes the name of a column and whether its entries are compared as texts. Returns the entries, shape (n,), floats or
# texts, and a mask of the missing ones.
Reader = Callable[[str, bool], tuple[Cells, Flags]]
_ORDERED = ("<", "<=", ">", ">=")
_OPERATORS = ("==", "!=", *_ORDERED)
# A person cannot read more nested parts, and Python's recursion limit is not reached.
_DEEPEST = 20
_EXAMPLE = "Example: \"age >= 18 and sex == 'f'\"."


@dataclass(frozen=True)
class Comparison:
    """Comparison of a column with values of one type; ``in`` is true if the entry equals one of them."""

    column: str
    operator: str
    values: tuple[float | str, ...]

    @property
    def is_text(self) -> bool:
        """True if entries are compared as texts."""
        return isinstance(self.values[0], str)

    def evaluate(self, read: Reader) -> tuple[Flags, Flags]:
        """Return masks of the records for which the comparison is true, and unknown."""
        cells, missing = read(self.column, self.is_text)
        if self.operator in ("==", "in", "!="):
            met = np.isin(cells, self.values) != (self.operator == "!=")
        else:
            compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[self.operator]
            met = compare(cells, self.values[0])
        return met & ~missing, missing


@dataclass(frozen=True)
class Joined:
    """Conditions joined by ``and`` or ``or``, or negated by ``not`` (one part)."""

    operator: Literal["and", "or", "not"]
    parts: tuple[Comparison | Joined, ...]

    def evaluate(self, read: Reader) -> tuple[Flags, Flags]:
        """Return masks of the records for which the condition is true, and unknown."""
        pairs = [part.evaluate(read) for part in self.parts]
        if self.operator == "not":
            met, unknown = pairs[0]
            return ~met & ~unknown, unknown
        met = np.logical_and.reduce([met for met, _ in pairs])
        if self.operator == "or":
            met = np.logical_or.reduce([met for met, _ in pairs])
            return met, np.logical_or.reduce([unknown for _, unknown in pairs]) & ~met
        false = np.logical_or.reduce([~met & ~unknown for met, unknown in pairs])
        return met, ~met & ~false


@dataclass(frozen=True)
class Condition:
    """Content of a condition.

    Attributes
    ----------
    text : str
    root : Comparison or Joined
    comparisons : tuple of Comparison
        All comparisons, in the order of the text.
    """

    text: str
    root: Comparison | Joined
    comparisons: tuple[Comparison, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, each once."""
        return tuple(dict.fromkeys(one.column for one in self.comparisons))

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Names of the columns whose entries are compared as texts, each once."""
        return tuple(dict.fromkeys(one.column for one in self.comparisons if one.is_text))

    def evaluate(self, read: Reader) -> tuple[Flags, Flags]:
        """Return masks of the records for which the condition is true, and unknown because of a missing entry.

        Parameters
        ----------
        read : callable
            Returns the entries of a column; see :data:`Reader`.
        """
        return self.root.evaluate(read)


def parse_condition(text: str) -> Condition:
    """Return the content of a condition.

    Raises
    ------
    ConfigurationError
        The text is not in the grammar.

    Examples
    --------
    >>> condition = parse_condition("age >= 18 and not stage in ('I', 'II')")
    >>> condition.columns, condition.text_columns
    (('age', 'stage'), ('stage',))
    >>> parse_condition("__import__('os').system('ls') == 0")
    Traceback (most recent call last):
    multicentre.errors.ConfigurationError: condition, character 17: a formula must consist of names, numbers, texts ...
    """
    try:
        return _Parser(text).condition()
    except ConfigurationError as error:
        raise ConfigurationError(
            error.what, where=error.where.replace("formula", "condition"), hint=error.hint
        ) from None


class _Parser:
    """Recursive descent over the tokens of one condition; ``or`` binds least, then ``and``, then ``not``."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._next = text, split_formula(text), 0
        self._comparisons: list[Comparison] = []
        self._depth = 0

    def condition(self) -> Condition:
        root = self._joined("or")
        if self._peek.kind != "end":
            raise self._error("expected 'and' or 'or' between comparisons", self._peek)
        return Condition(self._text.strip(), root, tuple(self._comparisons))

    def _joined(self, word: Literal["and", "or"]) -> Comparison | Joined:
        parts = [self._joined("and") if word == "or" else self._negated()]
        while self._takes(word):
            parts.append(self._joined("and") if word == "or" else self._negated())
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _negated(self) -> Comparison | Joined:
        start = self._peek
        if not (self._takes("not") or self._takes("(")):
            return self._comparison()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"a condition must have at most {_DEEPEST} nested parts", start)
        inner = self._negated() if start.text == "not" else self._joined("or")
        if start.text == "(":
            self._expect(")")
        self._depth -= 1
        return Joined("not", (inner,)) if start.text == "not" else inner

    def _comparison(self) -> Comparison | Joined:
        column = self._take()
        if column.kind not in ("name", "quoted"):
            raise self._error("expected a column", column)
        is_negated, operator = self._takes("not"), self._take()
        if operator.text == "in" and operator.kind == "name":
            comparison = Comparison(column.text, "in", self._values())
        elif operator.kind == "sign" and operator.text in _OPERATORS and not is_negated:
            comparison = Comparison(column.text, operator.text, (self._value(),))
        else:
            raise self._error("expected a comparison (==, !=, <, <=, >, >=, in, not in)", operator)
        if len({type(value) for value in comparison.values}) > 1 or (comparison.is_text and operator.text in _ORDERED):
            raise self._error("values must be all numbers, or all texts that are compared for equality", operator)
        self._comparisons.append(comparison)
        return Joined("not", (comparison,)) if is_negated else comparison

    def _values(self) -> tuple[float | str, ...]:
        closing = ")" if self._takes("(") else "]"
        if closing == "]":
            self._expect("[")
        values = [self._value()]
        while self._takes(","):
            values.append(self._value())
        self._expect(closing)
        return tuple(values)

    def _value(self) -> float | str:
        is_negative, token = self._takes("-"), self._take()
        if token.kind == "number":
            return -float(token.text) if is_negative else float(token.text)
        if token.kind == "text" and not is_negative:
            return token.text
        raise self._error("expected a number, or a text in quotes", token)

    @property
    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _takes(self, word: str) -> bool:
        if self._peek.text != word or self._peek.kind not in ("sign", "name"):
            return False
        self._take()
        return True

    def _expect(self, sign: str) -> None:
        token = self._peek
        if not self._takes(sign):
            raise self._error(f"expected {sign!r}", token)

    def _error(self, expected: str, token: Token) -> ConfigurationError:
        got = repr(token.text) if token.kind != "end" else "the end"
        return ConfigurationError(
            f"{expected}; got {got}", where=f"condition, character {token.place + 1}", hint=_EXAMPLE
        )


def reader_of_data(data: Tabular) -> Reader:
    """Return the reader of a site's encoded columns; a category is read as its levels."""
    levels = families(data.levels)

    def read(name: str, is_text: bool) -> tuple[Cells, Flags]:
        if name in levels:
            return _level_of_each(data, levels[name], is_text)
        if name not in data.columns:
            names = [*levels, *data.columns]
            raise ConfigurationError(
                f"a condition must name columns of the data; got {name!r}",
                where="where",
                hint=f"{nearest_name([name], names)}A condition of an analysis can name the study's covariates.",
            )
        if is_text:
            raise ConfigurationError(
                f"the values of {name!r} must be numbers; got texts",
                where="where",
                hint="Write numbers without quotes.",
            )
        cells = data.X[:, data.columns.index(name)]
        return cells, np.isnan(cells)

    return read


def _level_of_each(data: Tabular, family: tuple[str, ...], is_text: bool) -> tuple[Cells, Flags]:
    """Return the level of each record; a record with zeros in all columns of a category has its reference level."""
    present = [name for name in family if name in data.columns]
    indicators = data.X[:, [data.columns.index(name) for name in present]]
    missing = np.asarray(np.isnan(indicators).any(axis=1))
    reference = next((name for name in family if name not in present), family[0])
    names = np.array([*present, reference])
    place = np.where((indicators == 1).any(axis=1), np.argmax(indicators == 1, axis=1), len(present))
    texts = np.array([split_level(name)[1] for name in names])
    try:
        return (texts if is_text else texts.astype(np.float64))[place], missing
    except ValueError:
        raise ConfigurationError(
            f"the values of {family[0].partition('=')[0]!r} must be texts; got numbers",
            where="where",
            hint="Write levels in quotes.",
        ) from None
