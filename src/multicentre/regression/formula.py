"""Formula of a regression model: its columns for new patients, and its missing entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.messages import texts
from multicentre.data.categories import families, join_level, split_level
from multicentre.data.frames import is_frame
from multicentre.data.table import rows_for
from multicentre.data.tabular import add_indicators
from multicentre.errors import ConfigurationError
from multicentre.estimator.saved import Arrays, Saved, SavedAttributes, saved_message
from multicentre.estimator.site_estimates import SiteEstimates
from multicentre.estimator.terms import Term, knots_of, terms_of
from multicentre.formula.agreement import needs_quantiles
from multicentre.formula.columns import Table, build_columns, check_values
from multicentre.formula.design import Design
from multicentre.formula.grammar import Formula, parse_formula
from multicentre.formula.site import DESIGN_STEPS
from multicentre.regression import messages
from multicentre.regression.coefficients import INTERCEPT
from multicentre.regression.effects import requested_effects
from multicentre.regression.patients import RegressionMissing
from multicentre.regression.results import RegressionResults
from multicentre.regression.rounds import Agreed
from multicentre.regression.site import RegressionSite
from multicentre.regression.site_effects import SiteEffects

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FittedDesign(Design):
    """Design of a fit, and the columns of the data that it is built from."""

    data_columns: tuple[str, ...] = texts("columns of the data", default=())
    data_levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", default=())
    data_marked: tuple[str, ...] = texts("columns whose missing entries have an indicator", default=())

    @property
    def used(self) -> list[str]:
        """Columns of the data that the design needs, without indicators."""
        names = {*self.sources, *self.passed}
        of_category = {
            level for name, family in families(self.data_levels).items() if name in names for level in family
        }
        return [name for name in self.data_columns if name in names or name in of_category]

    def build(self, values: Floats, columns: tuple[str, ...]) -> Floats:
        """Return the columns of the design, shape (n, number of columns), for columns of the data."""
        marked = add_indicators(values, columns, self.data_levels, self.data_marked)
        names = (*columns, *(f"missing_{name}" for name in self.data_marked))
        table = Table(marked, names, self.data_levels)
        check_values(self, table)
        return build_columns(self, table)


class HasFormula(RegressionResults):
    """Regression whose covariates may be those of a formula.

    Attributes
    ----------
    design_ : FittedDesign
        Columns of the formula, with the knots and levels that the sites agreed on. Only with a formula.
    """

    saved_attributes: ClassVar[SavedAttributes] = {
        **RegressionResults.saved_attributes,
        "design_": Saved(saved_message(FittedDesign).pack, saved_message(FittedDesign).unpack, True, True),
    }
    design_: FittedDesign
    formula: str | None
    site_effects: SiteEffects | None
    missing: RegressionMissing

    @property
    def _parsed(self) -> Formula | None:
        return None if self.formula is None else parse_formula(self.formula)

    @property
    def fitted_design(self) -> FittedDesign | None:
        """Design of the fit; None without a formula."""
        return None if self.formula is None else self.design_

    def _reference_levels(self) -> Mapping[str, str]:
        if self.fitted_design is None:
            return super()._reference_levels()
        return dict(split_level(name) for name in requested_effects(self.fitted_design)[2])

    @property
    def _offset_column(self) -> str:
        """Name of the column of the offset, of the data or of the formula; empty without one."""
        parsed = self._parsed
        return self.offset or ("" if parsed is None else parsed.offset_name)

    def _check_formula(self) -> None:
        """Raise ConfigurationError unless the formula can be read and fits the other parameters."""
        parsed = self._parsed
        if parsed is None:
            return
        if self.offset and parsed.offset is not None:
            raise ConfigurationError(
                "there must be one offset; got one in the formula and the parameter offset",
                where="offset",
                hint="Leave the parameter out.",
            )
        counts = self._family == "negative_binomial"
        if not parsed.intercept and (counts or self.site_effects or self.missing != "complete"):
            raise ConfigurationError(
                'a model without intercept must have missing="complete", no site_effects and another family than '
                "negative_binomial; got others",
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

    def _set_design(self, agreed: Agreed) -> None:
        if agreed.design is None:
            return
        fields = {name: getattr(agreed.design, name) for name in Design.declarations()}
        gaps = self.missing_values_
        self.design_ = FittedDesign(
            **fields,
            data_columns=agreed.data_columns,
            data_levels=agreed.data_levels,
            data_marked=gaps.incomplete_columns if gaps.indicators else (),
        )

    def _formula_steps(self) -> set[str]:
        """Return the names of the steps that a formula needs."""
        parsed = self._parsed
        if parsed is None:
            return set()
        return {"sum_effects", *DESIGN_STEPS, *(("count_below",) if needs_quantiles(parsed) else ())}

    def to_frame(self) -> pd.DataFrame:
        """Return a row per coefficient; see :meth:`RegressionResults.to_frame`."""
        frame, parsed = super().to_frame(), self._parsed
        return frame if parsed is None or parsed.intercept else frame.drop(index=INTERCEPT)

    def _terms(self) -> list[Term]:
        check_is_fitted(self, "model_")
        return terms_of(self.feature_names_in_, self.model_.levels, self.fitted_design)

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
        return self.model_.design(design.build(columns, design.data_columns))[0]

    def marginal_effects(self) -> pd.DataFrame:
        """Request the average marginal effects from the sites of the last fit.

        Without a formula, the effect of a covariate is the mean over patients of the derivative of the predicted mean.
        With a formula, the effects are those of the columns of the data, through all of their terms; the effect of a
        level is the mean difference from the reference. Standard errors follow by the delta method.

        Returns
        -------
        pandas frame
            A row per covariate, or per column and level: effect, standard error, limits of the interval, p-value.

        Raises
        ------
        ConfigurationError
            The fit has a formula and effects of sites.
        QuorumLost
            A site of the fit no longer answers.
        """
        if self.fitted_design is None:
            return super().marginal_effects()
        if self.site_effects:
            raise ConfigurationError(
                "marginal effects of a formula must be of a fit without effects of sites; got "
                f"site_effects={self.site_effects!r}",
                where="site_effects",
                hint="Fit the formula with site_effects=None, or fit columns without a formula.",
            )
        columns, levels, references = requested_effects(self.fitted_design)
        at = self._at()
        fields = {name: getattr(at, name) for name in messages.At.declarations()}
        request = messages.Effects(**fields, columns=tuple(columns), levels=tuple(levels), references=tuple(references))
        sums = self._sum_of_fit(cast(type[RegressionSite], self.session.part).sum_effects, request)
        scale = self.scales_.scale
        derivatives = np.linalg.solve(self._to_units().T, sums.derivatives.T / sums.weight).T
        jacobian = np.asarray(scale * derivatives, dtype=np.float64)
        errors = np.sqrt(np.einsum("ij,jk,ik->i", jacobian, self.covariance_, jacobian))
        return self._effects_frame(scale * sums.effects / sums.weight, errors, [*columns, *levels])

    def by_site(self) -> SiteEstimates:
        """Fit each site alone; see :meth:`RegressionResults.by_site`.

        Raises
        ------
        ConfigurationError
            Knots of a spline follow from the patients, so that each site alone would have other columns.
        """
        parsed = self._parsed
        if parsed is not None and needs_quantiles(parsed):
            raise ConfigurationError(
                "splines must have stated knots if sites are compared; got knots by quantiles",
                where="formula",
                hint="State the knots and the boundary of the fit, which are in design_.",
            )
        return super().by_site()

    def _columns_of_fit(self) -> Sequence[str]:
        design = self.fitted_design
        return super()._columns_of_fit() if design is None else design.used

    def _columns_of(self, X: Any) -> Floats:
        check_is_fitted(self, "model_")
        design = self.fitted_design
        if design is None:
            return super()._columns_of(X)
        columns = tuple(design.used) if is_frame(X) or hasattr(X, "columns") else design.data_columns
        values = rows_for(X, columns, design.data_levels)
        self.require_complete(values[:, [columns.index(name) for name in design.used]])
        return design.build(values, columns)

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        if self.fitted_design is not None:
            self.fitted_design.check()
