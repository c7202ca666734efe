"""Agreement on the design of a formula: levels by declaration, knots by quantiles over all sites.

1. Names in the formula are compared with the columns and categories that all sites have.
2. Levels of a category are those that the data declare, or those that the formula states.
3. Missing entries of the formula's columns are counted and handled.
4. Splines without knots get them from quantiles of their columns, via counts over all sites.
5. The sites receive the design and build its columns. A site where a function or a level is not defined for a value
   raises an error. Sites return counts of patients by level and between knots, whose sums must not be 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from multicentre.core.session import Session
from multicentre.data.categories import families, join_level, level_name, split_level
from multicentre.data.missing.values import Missing, MissingValues, TabularPart, handle_missing
from multicentre.data.schema import Columned
from multicentre.data.tabular import indicators_of
from multicentre.errors import ConfigurationError, DataError, MessageError
from multicentre.formula.coding import choose_codings
from multicentre.formula.columns import check_names
from multicentre.formula.design import BuiltFactor, Design, Step, single_number
from multicentre.formula.functions import LEADING, SCALARS, apply_scalar, check_function
from multicentre.formula.grammar import SPLINES, Call, Factor, Formula
from multicentre.formula.site import FormulaPart
from multicentre.statistics.quantiles import find_thresholds

Floats = NDArray[np.float64]
# Knots lie on a grid of 5 % of the patients, between boundary knots at 5 % and 95 %: the smallest and largest value
# belong to single patients and do not leave the sites.
GRID = 20
# As for quartiles of the descriptive table.
DIGITS_PER_CALL = 8
Quantiles = Mapping[str, Floats]


@dataclass(frozen=True)
class SharedColumns:
    """Columns of a fit that all sites share: those of the data or of a formula."""

    columns: tuple[str, ...]
    levels: tuple[str, ...]
    design: Design | None
    data_columns: tuple[str, ...]
    data_levels: tuple[str, ...]
    missing_values: MissingValues

    @property
    def marked(self) -> tuple[str, ...]:
        """Columns of the data whose missing entries have an indicator among `columns`; none with a formula."""
        values = self.missing_values
        return values.incomplete_columns if values.indicators and self.design is None else ()

    @property
    def complete(self) -> tuple[str, ...]:
        """Columns in which missing entries are not allowed."""
        return self.columns if self.missing_values.missing == "complete" else ()

    @property
    def unmarked(self) -> tuple[str, ...]:
        """Columns without indicators of missing entries."""
        return self.columns[: len(self.columns) - len(self.marked)]


def share_columns(
    session: Session,
    part: type[TabularPart],
    described: Columned,
    formula: Formula | None,
    missing: Missing,
    *,
    named: Sequence[str] = (),
    counted: Sequence[str] | None = None,
    marked: Sequence[str] | None = None,
) -> SharedColumns:
    """Handle missing entries of the columns of the data, or let the sites build those of a formula.

    Parameters
    ----------
    session : Session
    part : type
        Site part of the session; one that builds columns if there is a formula.
    described : description
        Columns and levels that all sites share.
    formula : Formula or None
    missing : {"complete", "indicator", "mean", "native"}
    named : sequence of str
        Columns that a fit with a formula needs as they are: offset, weights, clusters; empty names are ignored.
    counted : sequence of str, optional
        Columns in which missing entries are counted; by default all, with a formula those it needs.
    marked : sequence of str, optional
        See :func:`multicentre.data.missing.values.handle_missing`.
    """
    if formula is None:
        counted = described.columns if counted is None else counted
        gaps = handle_missing(session, part, counted, described.levels, missing, marked=marked)
        flagged = gaps.incomplete_columns if marked is None else marked
        columns = (*described.columns, *(indicators_of(flagged) if missing == "indicator" else ()))
        return SharedColumns(columns, described.levels, None, described.columns, described.levels, gaps)
    passed = [name for name in named if name not in ("", formula.offset_name)]
    of_formula = cast("type[FormulaPart]", part)
    design, gaps = agree_design(session, of_formula, formula, described, passed=passed, missing=missing)
    return SharedColumns(design.column_names, (), design, described.columns, described.levels, gaps)


def agree_design(
    session: Session,
    part: type[FormulaPart],
    formula: Formula,
    described: Columned,
    *,
    passed: Sequence[str],
    missing: Missing,
) -> tuple[Design, MissingValues]:
    """Agree on the columns of a formula, and let the sites build them.

    Parameters
    ----------
    session : Session
    part : type
        Site part of the session.
    formula : Formula
    described : description
        Columns and levels that all sites share.
    passed : sequence of str
        Columns that the fit needs as they are: weights, clusters, an offset that is not in the formula.
    missing : {"complete", "indicator", "mean", "native"}

    Raises
    ------
    SchemaMismatch
        A name is not a column or a category.
    ConfigurationError
        Arguments of a function are out of range, or levels are not declared.
    DataError
        A level or a piece of a spline has no patient, or a function is not defined for a value.
    """
    check_names((*formula.columns, *passed), described.columns, described.levels)
    searched = _searched(formula)
    columns = [*searched, *(name for name in (*formula.columns, *passed) if name not in searched)]
    encoded = [name for source in dict.fromkeys(columns) for name in _encoded(source, described)]
    gaps = handle_missing(session, part, encoded, described.levels, missing)
    quantiles = _find_quantiles(session, part, searched)
    design = make_design(formula, described, quantiles, (*passed, *gaps.indicators))
    if session.consortium.leaves_out_rare:
        session.ask(part.build_columns, design)
    else:
        _check_occupied(design, session.sum(part.build_design, design).patients_of_cells)
    return design, gaps


def make_design(
    formula: Formula, described: Columned, quantiles: Quantiles | None = None, passed: Sequence[str] = ()
) -> Design:
    """Return the design of a formula for some columns and levels.

    Parameters
    ----------
    formula : Formula
    described : description
    quantiles : mapping of str to array, optional
        Quantiles at 5 %, 10 %, ..., 95 % of the columns of splines without knots; equal ones once.
    passed : sequence of str
        Columns that remain as they are.

    Examples
    --------
    >>> from multicentre.formula.columns import Table
    >>> from multicentre.formula.grammar import parse_formula
    >>> table = Table(np.zeros((1, 2)), ("age", "sex=m"), ("sex=f", "sex=m"))
    >>> make_design(parse_formula("age * sex"), table).column_names
    ('age', 'sex=m', 'age:sex=m')
    """
    check_names(formula.columns, described.columns, described.levels)
    factors = [_built(factor, described, quantiles or {}) for factor in formula.factors]
    categories = frozenset(place for place, factor in enumerate(factors) if factor.levels)
    place_of = {factor: place for place, factor in enumerate(formula.factors)}
    terms = [tuple(place_of[factor] for factor in term) for term in formula.terms]
    variants: dict[tuple[int, bool], int] = {}
    built: list[BuiltFactor] = []
    products = []
    for term, codings in zip(terms, choose_codings(terms, categories, intercept=formula.intercept), strict=True):
        for coding in codings:
            full = dict(coding)
            used = [place for place in term if place in full or place not in categories]
            product = []
            for place in used:
                key = (place, not full.get(place, True))
                if key not in variants:
                    variants[key] = len(built)
                    built.append(_coded(factors[place], reduced=key[1]))
                product.append(variants[key])
            products.append(product)
    offset = None if formula.offset is None else _built(formula.offset, described, {})
    design = Design.of(built, products, offset, passed)
    names = design.column_names
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(
            f"terms of a formula must give different columns; several give {', '.join(repeated[:5])}",
            where="formula",
            hint="Write each column or category in the same way in all terms.",
        )
    try:
        return design.check()
    except MessageError as error:
        raise ConfigurationError(error.what, where=error.where, hint="Correct the formula.") from None


def _coded(factor: BuiltFactor, *, reduced: bool) -> BuiltFactor:
    return BuiltFactor(factor.name, factor.source, factor.steps, factor.levels, bool(factor.levels) and reduced)


def _built(factor: Factor, described: Columned, quantiles: Quantiles) -> BuiltFactor:
    where = f"formula, {factor.name}"
    if (factor.calls and factor.calls[-1].function == "C") or (
        not factor.calls and factor.column not in described.columns
    ):
        return BuiltFactor(factor.name, factor.column, (), _levels(factor, described))
    if factor.column not in described.columns:
        raise ConfigurationError(
            f"a function must be of a numeric column; {factor.column} is a category",
            where=where,
            hint="Use C for categories.",
        )
    steps: list[Step] = []
    for call in factor.calls:
        numbers = _numbers(call, steps, quantiles.get(factor.column), factor.name)
        try:
            check_function(call.function, numbers)
        except MessageError as error:
            raise ConfigurationError(error.what, where=where, hint="Correct the formula.") from None
        steps.append(Step(call.function, numbers))
    return BuiltFactor(factor.name, factor.column, tuple(steps))


def _levels(factor: Factor, described: Columned) -> tuple[str, ...]:
    """Return the levels of a category, the reference first."""
    call = factor.calls[-1] if factor.calls else Call("C")
    names = families(described.levels).get(factor.column, ())
    declared = tuple(split_level(name)[1] for name in names)
    chosen = call.get("levels")
    levels = declared if chosen is None else tuple(map(level_name, chosen if isinstance(chosen, tuple) else (chosen,)))
    absent = [name for name in names if name not in described.columns]
    reference = call.get("ref")
    first = split_level(absent[0])[1] if reference is None and absent else levels[0] if levels else ""
    first = first if reference is None else level_name(reference)
    where, example = f"formula, {factor.name}", f"C({factor.column}, levels=[1, 2, 3])"
    if declared and set(levels) != set(declared):
        raise ConfigurationError(
            f"levels must be those of the data: {', '.join(declared)}; got others",
            where=where,
            hint="Leave levels out.",
        )
    if not declared and not (levels and all(_is_number(level) for level in levels)):
        raise ConfigurationError(
            f"levels of a column of numbers must be stated as numbers; got {'none' if not levels else 'others'}",
            where=where,
            hint=f"Write {example}, or declare the column as a category of the data.",
        )
    if first not in levels or len(set(levels)) < max(len(levels), 2):
        raise ConfigurationError(
            f"the reference must be one of at least 2 different levels, {', '.join(levels)}; got {first}",
            where=where,
            hint=f"Write C({factor.column}, ref={levels[0]!r}).",
        )
    return (first, *(level for level in levels if level != first))


def _is_number(level: str) -> bool:
    try:
        return bool(np.isfinite(float(level)))
    except ValueError:
        return False


def _numbers(call: Call, inner: Sequence[Step], quantiles: Floats | None, name: str) -> tuple[float, ...]:
    if call.function in SCALARS:
        parameters = {"power": ("exponent",), "centre": ("value",), "scale": ("value", "deviation")}
        return tuple(single_number(call.get(each), name) for each in parameters.get(call.function, ()))
    degree = call.get("degree")
    lead = () if call.function != "bs" else (3.0 if degree is None else single_number(degree, name),)
    knots, boundary, df = call.get("knots"), call.get("boundary"), call.get("df")
    interior = None if knots is None else tuple(single_number(knot, name) for knot in _listed(knots))
    ends = None if boundary is None else tuple(single_number(knot, name) for knot in _listed(boundary))
    n_knots = _number_of_knots(call.function, lead, df, interior, name)
    if interior is None or ends is None:
        grid = _transformed(quantiles, inner, name)
        if len(grid) < n_knots + 2:
            raise DataError(
                f"the column of a spline with {n_knots} interior knots must have at least {n_knots + 2} different "
                f"quantiles; got {len(grid)}",
                where=f"formula, {name}",
                hint="Reduce df, state the knots and the boundary, or use C for a category.",
            )
        places = np.linspace(0, len(grid) - 1, n_knots + 2).round().astype(int)
        ends = (float(grid[0]), float(grid[-1])) if ends is None else ends
        interior = tuple(grid[places[1:-1]].tolist()) if interior is None else interior
    return (*lead, *ends, *interior)


def _number_of_knots(
    function: str, lead: Sequence[float], df: object, interior: Sequence[float] | None, name: str
) -> int:
    """Return the number of interior knots: as many as columns, less those of one polynomial piece."""
    fixed = int(lead[0]) if lead else 1
    if interior is not None:
        if df is not None and df != len(interior) + fixed:
            raise ConfigurationError(
                f"df must be the number of knots plus {fixed}; got {df}", where=f"formula, {name}", hint="Leave df out."
            )
        return len(interior)
    columns = single_number(df, name) if df is not None else 0.0
    if columns != round(columns) or columns < max(fixed, 2 if function != "bs" else 1) or columns - fixed > GRID - 3:
        raise ConfigurationError(
            f"df of {function} must be a whole number from {max(fixed, 2 if function != 'bs' else 1)} to "
            f"{GRID - 3 + fixed}, or knots must be stated; got {df}",
            where=f"formula, {name}",
            hint=f"Example: {function}(age, df=4).",
        )
    return int(columns) - fixed


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, tuple) else (value,)


def _transformed(quantiles: Floats | None, inner: Sequence[Step], name: str) -> Floats:
    """Return quantiles of the inner functions, which are increasing, from those of the column."""
    if quantiles is None:
        raise ConfigurationError(
            "knots and boundary of a spline must be stated without sites; got none",
            where=f"formula, {name}",
            hint="State them: ns(age, knots=[50, 60, 70], boundary=[40, 80]).",
        )
    values = quantiles
    for step in inner:
        values = apply_scalar(step.function, step.numbers, values)[0]
    if not (np.diff(values) > 0).all():
        raise ConfigurationError(
            "knots by quantiles must be of an increasing function of the column; got another",
            where=f"formula, {name}",
            hint="State the knots and the boundary.",
        )
    return values


def _searched(formula: Formula) -> list[str]:
    """Return the columns of splines that need quantiles for their knots or boundary."""
    return list(
        dict.fromkeys(
            factor.column
            for factor in formula.factors
            if factor.calls
            and factor.calls[-1].function in SPLINES
            and (factor.calls[-1].get("knots") is None or factor.calls[-1].get("boundary") is None)
        )
    )


def needs_quantiles(formula: Formula) -> bool:
    """Return whether a formula has a spline without knots or boundary.

    Examples
    --------
    >>> from multicentre.formula.grammar import parse_formula
    >>> needs_quantiles(parse_formula("ns(age, df=3)")), needs_quantiles(parse_formula("age"))
    (True, False)
    """
    return bool(_searched(formula))


def _find_quantiles(session: Session, part: type[FormulaPart], columns: Sequence[str]) -> dict[str, Floats]:
    if not columns:
        return {}
    thresholds = find_thresholds(
        session, part, n_columns=len(columns), n_parts=GRID, bits=DIGITS_PER_CALL, finest=part.finest, name="knots"
    )
    return dict(zip(columns, thresholds, strict=True))


def _encoded(source: str, described: Columned) -> list[str]:
    """Return the columns of the data that a name of the formula refers to."""
    if source in described.columns:
        return [source]
    return [name for name in families(described.levels)[source] if name in described.columns]


def _check_occupied(design: Design, occupied: NDArray[np.int64]) -> None:
    """Raise DataError if a level or the range between two knots has no patient at any site."""
    if empty := [name for name, n in zip(cell_names(design), occupied.tolist(), strict=True) if not n]:
        raise DataError(
            "each level and each range between knots must have patients of at least one site; these have none: "
            f"{', '.join(empty[:5])}",
            where="formula",
            hint="Leave the level out of the data's declaration, or choose other knots.",
        )


def cell_names(design: Design) -> list[str]:
    """Return the names of the cells that :meth:`FormulaPart.build_design` counts.

    Examples
    --------
    >>> design = Design.of([BuiltFactor("sex", "sex", (), ("f", "m"), True)], [(0,)])
    >>> cell_names(design)
    ['sex=f', 'sex=m']
    """
    names: list[str] = []
    for factor in design.factors:
        if factor.levels:
            names += [join_level(factor.source, level) for level in factor.levels]
        elif factor.is_spline:
            lead = LEADING[factor.steps[-1].function]
            names += [f"{factor.name}, range {place + 1}" for place in range(len(factor.steps[-1].numbers) - lead - 1)]
    return names
