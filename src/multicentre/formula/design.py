"""Design of a formula: the message that a site receives, and the columns that it builds.

A design names columns of the data, functions of a closed list, their numbers, and products of these. The columns are
computed by the functions in this package. The same code builds the columns of new patients for predictions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Self

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, flag, texts
from multicentre.data.categories import join_level
from multicentre.errors import ConfigurationError, MessageError
from multicentre.formula.functions import (
    LEADING,
    MAX_EXPONENT,
    apply_spline,
    check_function,
    has_domain,
)
from multicentre.formula.grammar import MAX_FACTORS

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Columns of a design; more do not fit into memory for a million patients.
MAX_COLUMNS = 2000


@dataclass(frozen=True)
class Step:
    """Function in a factor of a design, and its numbers."""

    function: str
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True)
class BuiltFactor:
    """Factor of a design.

    Attributes
    ----------
    name : str
        Name in the names of columns.
    source : str
        Column or category of the data.
    steps : tuple of Step
        Functions of a number, the inner one first.
    levels : tuple of str
        Levels of a category, the reference first; empty for numbers.
    reduced : bool
        True if the reference has no column.
    """

    name: str
    source: str
    steps: tuple[Step, ...] = ()
    levels: tuple[str, ...] = ()
    reduced: bool = False

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the factor's columns."""
        if self.levels:
            return tuple(join_level(self.source, level) for level in self.levels[int(self.reduced) :])
        if not self.is_spline:
            return (self.name,)
        last = self.steps[-1]
        width = apply_spline(last.function, last.numbers, np.zeros(1)).shape[1]
        return tuple(f"{self.name}[{place + 1}]" for place in range(width))

    @property
    def is_spline(self) -> bool:
        """True if the last function is a spline."""
        return bool(self.steps) and self.steps[-1].function in LEADING


@dataclass(frozen=True)
class Design(Message):
    """Columns that sites build for a formula. Lists of lists travel as one list and the end of each part."""

    names: tuple[str, ...] = texts("factors of the formula")
    sources: tuple[str, ...] = texts("column or category of each factor")
    functions: tuple[str, ...] = texts("functions of each factor: logarithms, sqrt, power, centre, scale, splines")
    functions_end: Integers = array("end of the functions of each factor", ("f",), dtype="i8")
    function_numbers: Floats = array("numbers of each function: exponents, knots", ("v",))
    function_numbers_end: Integers = array("end of the numbers of each function", ("g",), dtype="i8")
    category_levels: tuple[str, ...] = texts("levels of each category, its reference first")
    category_levels_end: Integers = array("end of the levels of each factor", ("f",), dtype="i8")
    reduced: NDArray[np.bool_] = array("whether the reference has no column", ("f",), dtype="b1")
    terms: Integers = array("factors of each product", ("t",), dtype="i8")
    terms_end: Integers = array("end of the factors of each product", ("m",), dtype="i8")
    has_offset: bool = flag("the last factor is an offset")
    passed: tuple[str, ...] = texts("columns that remain as they are: offset, weights, clusters, indicators")

    @classmethod
    def of(
        cls,
        factors: Sequence[BuiltFactor],
        terms: Sequence[Sequence[int]],
        offset: BuiltFactor | None = None,
        passed: Iterable[str] = (),
    ) -> Self:
        """Return the message for factors, and terms that are places of factors."""
        every = [*factors, *([] if offset is None else [offset])]
        steps = [step for factor in every for step in factor.steps]
        return cls(
            tuple(factor.name for factor in every),
            tuple(factor.source for factor in every),
            tuple(step.function for step in steps),
            _ends(factor.steps for factor in every),
            np.array([number for step in steps for number in step.numbers], dtype=np.float64),
            _ends(step.numbers for step in steps),
            tuple(level for factor in every for level in factor.levels),
            _ends(factor.levels for factor in every),
            np.array([factor.reduced for factor in every], dtype=np.bool_),
            np.array([place for term in terms for place in term], dtype=np.int64),
            _ends(terms),
            offset is not None,
            tuple(passed),
        )

    @property
    def factors(self) -> tuple[BuiltFactor, ...]:
        """Factors, that of the offset last."""
        numbers = _split(tuple(self.function_numbers.tolist()), self.function_numbers_end)
        steps = [Step(name, of_step) for name, of_step in zip(self.functions, numbers, strict=True)]
        parts = zip(
            self.names,
            self.sources,
            _split(tuple(steps), self.functions_end),
            _split(self.category_levels, self.category_levels_end),
            self.reduced.tolist(),
            strict=True,
        )
        return tuple(BuiltFactor(*part) for part in parts)

    @property
    def products(self) -> list[tuple[int, ...]]:
        """Places of the factors of each term."""
        return _split(tuple(self.terms.tolist()), self.terms_end)

    @property
    def offset_name(self) -> str:
        """Name of the column of the offset; empty without one."""
        return f"offset({self.names[-1]})" if self.has_offset else ""

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns that sites build: covariates, offset, columns that remain as they are."""
        of_factor = [factor.column_names for factor in self.factors]
        covariates = [name for term in self.products for name in _crossed_names([of_factor[place] for place in term])]
        return (*covariates, *([self.offset_name] if self.has_offset else []), *self.passed)

    def check(self) -> Self:
        """Return the design if its parts fit each other and its functions and numbers are in range.

        Raises
        ------
        MessageError
            A part does not fit, or a function is not in the list.
        """
        self.checked()
        ends = (
            (self.functions_end, len(self.functions)),
            (self.function_numbers_end, len(self.function_numbers)),
            (self.category_levels_end, len(self.category_levels)),
            (self.terms_end, len(self.terms)),
        )
        fits = all((np.diff(end, prepend=0) >= 0).all() and (end[-1] if len(end) else 0) == n for end, n in ends)
        n_usable = len(self.names) - int(self.has_offset)
        fits = fits and len(self.function_numbers_end) == len(self.functions) and n_usable >= 0
        fits = fits and len(self.names) == len(self.sources) == len(self.functions_end)
        fits = fits and bool(((self.terms >= 0) & (self.terms < n_usable)).all())
        if not (fits and all(1 <= len(term) <= MAX_FACTORS for term in self.products)):
            raise MessageError("factors and terms of a design must fit each other; they do not", where="formula")
        for factor in self.factors:
            _check_factor(factor)
        if any(sum(_degree(self.factors[place]) for place in term) > MAX_FACTORS for term in self.products):
            raise MessageError(
                f"the powers of a term must add up to at most {MAX_FACTORS}, a column without power counted as 1; "
                "got more",
                where="formula",
            )
        names = self.column_names
        if len(set(names)) < len(names) or len(names) > MAX_COLUMNS:
            raise MessageError(
                f"a design must have different columns, at most {MAX_COLUMNS}; got {len(names)}", where="formula"
            )
        return self


def _check_factor(factor: BuiltFactor) -> None:
    for step in factor.steps:
        check_function(step.function, step.numbers)
    # A limit within the domain, such as log(centre(age, c)), would let the coordinator search for the smallest value.
    late = [step for step in factor.steps[1:] if has_domain(step.function, step.numbers)]
    inner_splines = [step for step in factor.steps[:-1] if step.function in LEADING]
    bad_levels = factor.levels and (factor.steps or len(set(factor.levels)) < max(len(factor.levels), 2))
    if late or inner_splines or bad_levels or len(factor.steps) > MAX_FACTORS or _degree(factor) > MAX_EXPONENT:
        raise MessageError(
            f"a factor must be a category with different levels, or at most {MAX_FACTORS} functions: logarithms and "
            "roots first, splines last, powers up to 3; got another",
            where=f"formula, {factor.name}",
        )


def _degree(factor: BuiltFactor) -> float:
    """Return the product of the exponents of a number, at least 1; 0 for a category."""
    exponents = [abs(step.numbers[0]) for step in factor.steps if step.function == "power"]
    return 0.0 if factor.levels else max(math.prod(exponents), 1.0)


def _crossed_names(parts: Sequence[Sequence[str]]) -> list[str]:
    return list(reduce(lambda left, right: [f"{first}:{second}" for second in right for first in left], parts))


def _ends(parts: Iterable[Sequence[object]]) -> Integers:
    return np.cumsum([len(part) for part in parts], dtype=np.int64)


def _split(values: tuple, ends: Integers) -> list[tuple]:  # type: ignore[type-arg]
    starts = [0, *ends.tolist()]
    return [values[first:last] for first, last in zip(starts, ends.tolist(), strict=False)]


def single_number(values: object, where: str) -> float:
    """Return an argument of a function as a number.

    Raises
    ------
    ConfigurationError
        It is not a number.

    Examples
    --------
    >>> single_number(2.0, "power(age, 2)")
    2.0
    """
    if isinstance(values, int | float):
        return float(values)
    raise ConfigurationError(
        "the argument must be a number; got another value or none",
        where=f"formula, {where}",
        hint="Examples: power(age, 2), centre(age, 60), scale(age, 60, 10).",
    )
