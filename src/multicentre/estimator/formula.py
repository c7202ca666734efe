"""Formula of an estimator: its checks, its columns for new patients, and its missing entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.data.categories import join_level, split_level
from multicentre.data.frames import is_frame
from multicentre.data.missing.values import HandlesMissing
from multicentre.data.table import rows_for
from multicentre.errors import ConfigurationError
from multicentre.estimator.model_in_force import reference_levels
from multicentre.estimator.parameters import Where
from multicentre.estimator.presentation import Presented
from multicentre.estimator.saved import Saved, SavedAttributes, saved_message
from multicentre.estimator.terms import HasEffects, HasTerms, Term, knots_of, terms_of, wald_text
from multicentre.formula.agreement import SharedColumns, needs_quantiles
from multicentre.formula.design import Design
from multicentre.formula.fitted import FittedDesign, requested_effects
from multicentre.formula.grammar import Formula, parse_formula
from multicentre.formula.site import DESIGN_STEPS

FORMULA = (None, Where("a formula", lambda value: isinstance(value, str) and bool(value.strip())))
"""Range of the parameter `formula`."""
Floats = NDArray[np.float64]


class HasFormula(HasTerms, HandlesMissing, Presented):
    """Estimator whose covariates may be those of a formula.

    Attributes
    ----------
    design_ : FittedDesign
        Columns of the formula, with the knots and levels that the sites agreed on. Only with a formula.
    """

    saved_attributes: ClassVar[SavedAttributes] = {
        "design_": Saved(saved_message(FittedDesign).pack, saved_message(FittedDesign).unpack, True, True),
    }
    model_: Any
    design_: FittedDesign
    formula: str | None

    @property
    def _parsed(self) -> Formula | None:
        return None if self.formula is None else parse_formula(self.formula)

    @property
    def _columns_and_levels(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns of the data, and declared levels of categories, that the model of a fit without formula reads."""
        return self.model_.columns, self.model_.levels

    @property
    def fitted_design(self) -> FittedDesign | None:
        """Design of the fit; None without a formula."""
        return None if self.formula is None else self.design_

    @property
    def _offset_column(self) -> str:
        """Name of the column of the offset, of the data or of the formula; empty without one."""
        parsed = self._parsed
        return getattr(self, "offset", None) or ("" if parsed is None else parsed.offset_name)

    @property
    def _intercept_rule(self) -> str:
        """Rule that a formula without intercept breaks; empty if there is none."""
        return f"the formula of {type(self).__name__} must have an intercept"

    def _check_formula(self) -> None:
        """Raise ConfigurationError unless the formula can be read and fits the other parameters."""
        parsed = self._parsed
        if parsed is None:
            return
        if parsed.offset is not None and not hasattr(self, "offset"):
            raise ConfigurationError(
                f"the formula of {type(self).__name__} must have no offset; got {parsed.offset_name}",
                where="formula",
                hint="Leave the offset out of the formula.",
            )
        if parsed.offset is not None and getattr(self, "offset", None):
            raise ConfigurationError(
                "there must be one offset; got one in the formula and the parameter offset",
                where="offset",
                hint="Leave the parameter out.",
            )
        if self._intercept_rule and not parsed.intercept:
            raise ConfigurationError(
                f"{self._intercept_rule}; got a formula without intercept",
                where="formula",
                hint="Keep the intercept in the formula.",
            )
        named = [getattr(self, name, None) for name in ("offset", "weights", "cluster")]
        if repeated := sorted({name for name in named if name} & set(parsed.columns)):
            raise ConfigurationError(
                f"offset, weights and cluster must not be in the formula; got {', '.join(repeated)}",
                where="formula",
                hint="Leave the column out of the formula.",
            )

    def _set_design(self, shared: SharedColumns) -> None:
        """Set the counts of missing entries, and with a formula its design."""
        self.missing_values_ = shared.missing_values
        if shared.design is None:
            return
        fields = {name: getattr(shared.design, name) for name in Design.declarations()}
        gaps = self.missing_values_
        self.design_ = FittedDesign(
            **fields,
            data_columns=shared.data_columns,
            data_levels=shared.data_levels,
            data_marked=gaps.incomplete_columns if gaps.indicators else (),
        )

    def _formula_steps(self) -> set[str]:
        """Return the names of the steps that a formula needs; a study fits each subgroup with one."""
        parsed = self._parsed
        if parsed is None:
            return set(DESIGN_STEPS) if self.in_subgroups else set()
        return {*DESIGN_STEPS, *(("count_below",) if needs_quantiles(parsed) else ())}

    def _reference_levels(self) -> Mapping[str, str]:
        design = self.fitted_design
        if design is None:
            columns, levels = self._columns_and_levels
            return reference_levels(levels, columns)
        return dict(split_level(name) for name in requested_effects(design)[2])

    def _terms(self) -> list[Term]:
        check_is_fitted(self, "model_")
        return terms_of(filter(None, self._estimates().names), self._columns_and_levels[1], self.fitted_design)

    @property
    def _bases(self) -> dict[str, str]:
        """Term of each column of a spline or a polynomial."""
        return {column: term.name for term in self._terms() if term.is_basis for column in term.columns}

    def _answer_by_term(self, rows: Sequence[str]) -> str:
        """Return the test of the term of the exposure, or of the first row, if single columns of it are no effects."""
        bases = {term.name: term for term in self._terms() if term.is_basis}
        of_exposure = [name for name, term in bases.items() if self.exposure in term.sources]
        name = of_exposure[0] if of_exposure else rows[self.first_effect(rows)]
        if name not in bases or self.fitted_design is None:
            return ""
        numbers = requested_effects(self.fitted_design)[0]
        variable = next(source for source in bases[name].sources if source in numbers)
        return f"Effect of {variable} by {name}: {wald_text(*self.term_tests().loc[name])}{self._adjustment(variable)}"

    def _check_knots(self) -> None:
        """Raise ConfigurationError if knots follow from the patients, so that each site alone has other columns."""
        parsed = self._parsed
        if parsed is not None and needs_quantiles(parsed):
            raise ConfigurationError(
                "splines must have stated knots if sites are compared; got knots by quantiles",
                where="formula",
                hint="State the knots and the boundary of the fit, which are in design_.",
            )

    def _columns_of_fit(self) -> Sequence[str]:
        design = self.fitted_design
        return super()._columns_of_fit() if design is None else design.used

    def _columns_of(self, X: Any) -> Floats:
        """Return the columns that the model reads, shape (n, number of columns), for patients of the data."""
        check_is_fitted(self, "model_")
        design, (values, columns) = self.fitted_design, self._data_of(X)
        if design is None:
            self.require_complete(values)
            return values
        self.require_complete(values[:, [columns.index(name) for name in design.used]])
        return design.build(values, columns)

    def _data_of(self, X: Any) -> tuple[Floats, tuple[str, ...]]:
        """Return columns of the data that hold those of the fit, NaN where missing, and their names."""
        design = self.fitted_design
        if design is None:
            columns, levels = self._columns_and_levels
        else:
            columns = tuple(design.used) if is_frame(X) or hasattr(X, "columns") else design.data_columns
            levels = design.data_levels
        return rows_for(X, columns, levels), columns

    def _check_saved(self) -> None:
        """Raise IntegrityError unless the parts of a saved model fit each other."""
        self.model_.check()
        if self.fitted_design is not None:
            self.fitted_design.check()


class HasFormulaEffects(HasFormula, HasEffects):
    """Estimator with one linear predictor, in which the effect of a number in a formula is a curve."""

    def _numbers(self) -> list[str]:
        design = self.fitted_design
        if design is None:
            return super()._numbers()
        used = {place for product in design.products for place in product}
        return list(
            dict.fromkeys(design.factors[place].source for place in sorted(used) if not design.factors[place].levels)
        )

    def _knots(self, variable: str) -> list[float]:
        return [] if self.fitted_design is None else knots_of(self.fitted_design, variable)

    def _rows_at(self, variable: str, values: Floats, at: Mapping[str, float | str]) -> Floats:
        design = self.fitted_design
        if design is None:
            return super()._rows_at(variable, values, at)
        means = {name: mean for name, (mean, _) in self._location().items()}
        base = {name: means.get(name, 1.0) for name in design.data_columns}
        base |= {
            factor.source: float(factor.levels[0])
            for factor in design.factors
            if factor.source in base and factor.levels
        }
        base |= dict.fromkeys((name for name in design.data_levels if name in base), 0.0)
        base |= {join_level(name, value): 1.0 for name, value in at.items() if isinstance(value, str)}
        base |= {name: float(value) for name, value in at.items() if name in base and not isinstance(value, str)}
        columns = np.tile([base[name] for name in design.data_columns], (len(values), 1))
        columns[:, design.data_columns.index(variable)] = values
        built = dict(zip(design.column_names, design.build(columns, design.data_columns).T, strict=True))
        constant = np.ones(len(values))
        return np.column_stack([built.get(name, constant) for name in self._estimates().names])
