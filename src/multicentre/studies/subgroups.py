"""Analyses of subgroups: conditions of a study, fits of an analysis to each level of a category, and their comparison.

The test of interaction compares the estimates of the levels by Cochran's Q, which is a chi-squared statistic with one
degree of freedom fewer than levels. It is the Wald test of the interaction in a model in which all terms interact with
the subgroup.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats
from sklearn.base import clone

from multicentre.core.consortium import Consortium
from multicentre.errors import DataError, MulticentreError
from multicentre.estimator.figures import Figure, Forest, Table
from multicentre.estimator.presentation import variable_of
from multicentre.validation.folds.subgroups import Subgroup, divide_into_subgroups

if TYPE_CHECKING:
    from multicentre.estimator.base import FederatedEstimator
    from multicentre.studies.study import Study

# Methods with a coefficient and a standard error per column.
REGRESSIONS = ("fed-cox", "fed-glm", "fed-linear-regression", "fed-logistic-regression", "fed-poisson-regression")
COLUMNS = ["subgroup", "coefficient of", "records", "estimate", "lower", "upper", "p interaction", "note"]


@dataclass(frozen=True)
class _Row:
    level: str
    name: str
    n_records: int
    coefficient: float
    standard_error: float
    note: str


def level_conditions(study: Study, variable: str) -> dict[str, str]:
    """Return the condition of each level of a category of a study, by level.

    Levels are those that the study declares, so that all sites divide their records in the same way.
    """
    levels = next(
        (
            table.categories[variable]
            for table in (study.data.survival, study.data.table)
            if table is not None and variable in table.categories
        ),
        (),
    )
    return {str(level): f"`{variable}` == {_literal(level)}" for level in levels}


def conditions_of(study: Study) -> frozenset[tuple[str, ...]]:
    """Return the conditions by which analyses of a study may divide the records of a site."""
    conditions = set[tuple[str, ...]]()
    for block in study.analyses:
        if block.where is not None:
            conditions.add((block.where,))
        for variable in block.subgroups or ():
            conditions.add(tuple(level_conditions(study, variable).values()))
    return frozenset(conditions)


def compare_subgroups(
    study: Study, estimator: FederatedEstimator, federation: Consortium, variables: Sequence[str]
) -> list[Figure]:
    """Fit an analysis to each level of some categories; return a table with tests of interaction, and a forest plot.

    Parameters
    ----------
    study : Study
    estimator : FederatedEstimator
        The fitted estimator of the analysis; its exposure, or the first coefficient, is compared.
    federation : Consortium
        Records of the analysis.
    variables : sequence of str
        Categories.
    """
    names = _compared(estimator)
    ratio = next((str(name) for name in estimator.to_frame().columns if str(name).endswith("_ratio")), "")
    label = ratio.replace("_", " ") or "coefficient"
    rows: list[list[str | float | None]] = []
    labels, estimates = list[str](), list[tuple[float | None, ...]]()
    critical = float(stats.norm.ppf(0.5 + getattr(estimator, "confidence_level", 0.95) / 2))
    for variable in variables:
        fits = list(_fit_levels(study, estimator, federation, variable, names))
        for name in names:
            of_name = [row for row in fits if row.name == name]
            p_value = _heterogeneity([row for row in of_name if np.isfinite(row.standard_error)])
            for place, row in enumerate(of_name):
                interval = _interval(row, critical, is_ratio=bool(ratio))
                p_shown = p_value if place == 0 else None
                records = row.n_records if row.n_records >= study.least_published else None
                rows.append([row.level, name, records, *interval, p_shown, row.note])
                labels.append(f"{row.level}: {name}" if len(names) > 1 else row.level)
                estimates.append(interval)
    caption = (
        f"Each level is fitted by itself, without the variable of the subgroups. Estimates are the {label} of "
        f"{', '.join(names)}. p interaction: Cochran's Q of the levels of a variable."
    )
    table = Table("Subgroups", caption, "model", COLUMNS, rows)
    drawn = [place for place, interval in enumerate(estimates) if interval[0] is not None]
    middle, low, high = ([estimates[place][part] for place in drawn] for part in range(3))
    names_drawn, reference = [labels[place] for place in drawn], 1.0 if ratio else 0.0
    forest = Forest("Estimates in subgroups", caption, "model", label, names_drawn, middle, low, high, 0, reference)
    return [table, forest] if drawn else [table]


def _fit_levels(
    study: Study, estimator: FederatedEstimator, federation: Consortium, variable: str, names: Sequence[str]
) -> Iterator[_Row]:
    """Yield a row for each level and coefficient; a level that cannot be fitted has the reason as its note."""
    conditions = level_conditions(study, variable)
    groups = divide_into_subgroups(federation, list(conditions.values()))
    for level, group in zip(conditions, groups, strict=True):
        label = f"{variable} = {level}"
        try:
            coefficients = _fit_level(estimator, group, variable)
        except MulticentreError as error:
            coefficients = dict.fromkeys(names, (np.nan, np.nan))
            note = str(error)
        else:
            note = f"without {', '.join(group.absent)}" if group.absent else ""
        for name in names:
            yield _Row(label, name, group.n_records, *coefficients.get(name, (np.nan, np.nan)), note)


def _fit_level(estimator: FederatedEstimator, group: Subgroup, variable: str) -> dict[str, tuple[float, float]]:
    if group.federation is None:
        raise DataError("at least two sites must have enough patients in the subgroup; fewer have")
    model = clone(estimator)
    if "formula" in model.get_params(deep=False) and model.get_params(deep=False)["formula"] is None:
        others = [name for name in _variables(estimator) if name != variable]
        model.set_params(formula=" + ".join(f"`{name}`" for name in others))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the variable of the subgroups is constant in each of them
        model.fit(group.federation)
    table = model.to_frame()[["coefficient", "standard_error"]]
    return {str(name): (float(row.coefficient), float(row.standard_error)) for name, row in table.iterrows()}


def _variables(estimator: FederatedEstimator) -> list[str]:
    return list(dict.fromkeys(variable_of(name) for name in _coefficients(estimator)))


def _coefficients(estimator: FederatedEstimator) -> list[str]:
    return [str(name) for name in estimator.to_frame().index if not str(name).startswith("(intercept)")]


def _compared(estimator: FederatedEstimator) -> list[str]:
    """Return the coefficients of the exposure."""
    names = _coefficients(estimator)
    exposure = variable_of(names[estimator.first_effect(names)])
    return [name for name in names if variable_of(name) == exposure]


def _heterogeneity(rows: Sequence[_Row]) -> float | None:
    """Return the p-value of Cochran's Q; None for fewer than two estimates.

    Examples
    --------
    >>> rows = [_Row("", "", 50, coefficient, 0.1, "") for coefficient in (0.0, 0.2)]
    >>> round(_heterogeneity(rows), 4)
    0.1573
    """
    if len(rows) < 2:
        return None
    weights = np.array([row.standard_error**-2 for row in rows])
    values = np.array([row.coefficient for row in rows])
    q = float((weights * (values - np.average(values, weights=weights)) ** 2).sum())
    return float(stats.chi2.sf(q, len(rows) - 1))


def _interval(row: _Row, critical: float, *, is_ratio: bool) -> tuple[float | None, float | None, float | None]:
    if not np.isfinite(row.standard_error) or not row.standard_error:
        return None, None, None
    half = critical * row.standard_error
    values = [row.coefficient, row.coefficient - half, row.coefficient + half]
    estimate, low, high = (float(np.exp(value)) if is_ratio else value for value in values)
    return estimate, low, high


def _literal(level: str | int) -> str:
    if isinstance(level, int):
        return str(level)
    return f'"{level}"' if "'" in level else f"'{level}'"
