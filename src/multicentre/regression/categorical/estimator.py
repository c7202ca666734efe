"""Fits of multinomial and ordinal regression."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.data.missing.values import GAP_STEPS
from multicentre.data.rare_columns import RARE_STEPS
from multicentre.estimator.formula import FORMULA
from multicentre.estimator.model_in_force import COMPUTING, Phrases
from multicentre.estimator.parameters import Applicable, Integer, OneOf, ParameterRanges, Real
from multicentre.estimator.penalty import PENALTY_APPLICABLE, PENALTY_PHRASES, PENALTY_RANGES
from multicentre.estimator.weighting import (
    WEIGHTING_APPLICABLE,
    WEIGHTING_PHRASES,
    WEIGHTING_RANGES,
    Errors,
    WeightType,
)
from multicentre.likelihood.sandwich import small_sample_factor
from multicentre.likelihood.separation import covariance_of
from multicentre.regression.categorical import rounds
from multicentre.regression.categorical.model import CategoricalModel
from multicentre.regression.categorical.results import CategoricalResults, Name
from multicentre.regression.categorical.rounds import Fit, Prepared
from multicentre.regression.categorical.site import CategoricalSite
from multicentre.regression.coefficients import warn_of_rounds
from multicentre.regression.patients import RegressionMissing
from multicentre.regression.rounds import Plan
from multicentre.statistics.chi_square import chi_square_test

Floats = NDArray[np.float64]


class CategoricalRegression(CategoricalResults):
    """Multinomial or ordinal regression."""

    site_part: ClassVar[type[SitePart]] = CategoricalSite
    model_phrases: ClassVar[Phrases] = {
        "formula": "covariates {}",
        "link": "link {}",
        "offset": "offset {}",
        **WEIGHTING_PHRASES,
        **PENALTY_PHRASES,
        **COMPUTING,
    }
    applicable: ClassVar[Applicable] = {**WEIGHTING_APPLICABLE, **PENALTY_APPLICABLE}
    parameter_ranges: ClassVar[ParameterRanges] = {
        "formula": FORMULA,
        **WEIGHTING_RANGES,
        **PENALTY_RANGES,
        "missing": OneOf("complete", "indicator", "mean"),
        "confidence_level": Real(0.5, 1, open="high"),
        "max_iter": Integer(1),
        "tol": Real(0),
    }

    def __init__(
        self,
        *,
        formula: str | None = None,
        weights: str | None = None,
        weight_type: WeightType = "frequency",
        alpha: float = 0.0,
        l1_ratio: float = 0.0,
        errors: Errors = "model",
        cluster: str | None = None,
        missing: RegressionMissing = "complete",
        confidence_level: float = 0.95,
        max_iter: int = 25,
        tol: float = 1e-8,
    ) -> None:
        self.formula = formula
        self.weights = weights
        self.weight_type = weight_type
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.errors = errors
        self.cluster = cluster
        self.missing = missing
        self.confidence_level = confidence_level
        self.max_iter = max_iter
        self.tol = tol

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_formula()
        self._check_weighting()

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters, and requests after it, may use."""
        steps = {"describe", "sum_classes", "sum_products", "sum_derivatives"} | GAP_STEPS | RARE_STEPS
        steps |= self._formula_steps() | ({"sum_score_products"} if self.errors != "model" else set())
        return frozenset(steps | ({"sum_unequal_slopes"} if self.kind == "ordinal" else set()))

    def _fit(self, session: Session) -> None:
        model = self._model_of(self.kind, self._link)
        agreed = rounds.agree(session, model, self.missing, self._parsed, independent=not self.alpha)
        self._set_design(agreed)
        ridge, lasso = self.alpha * (1.0 - self.l1_ratio), self.alpha * self.l1_ratio
        plan = Plan(ridge, int(self.max_iter), float(self.tol), session.protection == "masked", lasso)
        fit = rounds.fit_model(session, agreed, plan)
        null = agreed.moments.null_log_likelihood
        if self._offset_column:
            null = rounds.fit_model(session, agreed, plan, null=True).log_likelihood
        self._set_fit(session, agreed, fit, null)
        self._set_tests(session, agreed, fit)
        warn_of_rounds(agreed.names, fit.diverging, fit.converged, self.max_iter)

    def _set_fit(self, session: Session, agreed: Prepared, fit: Fit, null: float) -> None:
        k = len(agreed.classes) - 1
        empty = CategoricalModel(
            self.kind,
            self._link,
            agreed.unmarked,
            agreed.marked,
            agreed.covariates,
            agreed.classes,
            agreed.levels,
            self._offset_column,
            np.zeros(k),
            np.zeros((agreed.likelihood.n_predictors(k), len(agreed.covariates))),
            agreed.centre.centre,
            complete=agreed.complete,
        )
        self.model_ = with_parameters(empty, agreed.matrix @ fit.parameters)
        self.spread_, q = agreed.spread, len(fit.parameters)
        self.covariance_ = np.full((q, q), np.nan)
        if fit.settled and not self.alpha:
            self.covariance_ = self._covariance(session, agreed, fit)
        self.n_patients_ = round(agreed.totals.n_patients)
        self.class_counts_ = agreed.totals.counts
        self.log_likelihood_ = self.null_log_likelihood_ = np.nan
        if self._has_likelihood:
            self.log_likelihood_ = float(fit.log_likelihood)
            self.null_log_likelihood_ = null
        self.aic_ = self.bic_ = np.nan
        if not self.alpha:  # a penalised fit has fewer effective parameters than coefficients
            self.aic_ = 2.0 * q - 2.0 * self.log_likelihood_
            self.bic_ = float(np.log(self._size(agreed.totals))) * q - 2.0 * self.log_likelihood_
        self.converged_, self.history_ = fit.converged, fit.history

    def _covariance(self, session: Session, agreed: Prepared, fit: Fit) -> Floats:
        """Return the covariance of the parameters, shape (q, q); NaN for those that diverge."""
        if self.errors == "model":
            return covariance_of(agreed.matrix, fit.information, fit.diverging)
        sums = session.sum(rounds.part_of(session).sum_score_products, agreed.at(fit.parameters))
        size, q = self._size(agreed.totals), len(fit.parameters)
        factor = small_sample_factor(self.errors, size, q, sums.n_clusters)
        return factor * covariance_of(agreed.matrix, fit.information, fit.diverging, sums.products)

    def _set_tests(self, session: Session, agreed: Prepared, fit: Fit) -> None:
        self.tests_ = {}
        slopes = ~agreed.free_of_penalty
        if np.isnan(self.covariance_).any() or not slopes.any():
            return
        values, block = self.model_.parameters[slopes], self.covariance_[np.ix_(slopes, slopes)]
        n_slopes = int(slopes.sum())
        self.tests_ = {"wald": chi_square_test(float(values @ np.linalg.solve(block, values)), n_slopes)}
        if self.errors == "model":
            gain = 2.0 * (self.log_likelihood_ - self.null_log_likelihood_)
            self.tests_["likelihood_ratio"] = chi_square_test(gain, n_slopes)
            if not self._offset_column:
                self.tests_["score"] = chi_square_test(rounds.test_slopes(session, agreed), n_slopes)


class SingleIndexRegression(CategoricalRegression):
    """Regression of an outcome of K classes with K - 1 intercepts and one linear predictor.

    A subclass names its `kind`, its `link`, its site part, and the name of exponentiated coefficients. Parameters and
    attributes are those of :class:`FedOrdinalRegression`, but for its link and thresholds.

    Attributes
    ----------
    ratio : str
        Name of exponentiated coefficients; empty if they have none.

    Examples
    --------
    >>> from multicentre.extend import SingleIndexRegression
    >>> from multicentre.regression import FedOrdinalRegression
    >>> issubclass(FedOrdinalRegression, SingleIndexRegression)
    True
    """

    ratio: ClassVar[str] = ""

    @property
    def coef_(self) -> Floats:
        """Coefficients per unit of each covariate, shape (d,)."""
        check_is_fitted(self, "model_")
        return np.asarray(self.model_.slopes[0], dtype=np.float64)

    @property
    def standard_errors_(self) -> Floats:
        """Standard errors of intercepts and coefficients, shape (K - 1 + d,)."""
        return self._errors

    @property
    def p_values_(self) -> Floats:
        """Two-sided Wald tests, shape (K - 1 + d,)."""
        return self._p_values

    @property
    def intervals_(self) -> Floats:
        """Intervals, shape (K - 1 + d, 2)."""
        return self._intervals

    @property
    def _ratio(self) -> str:
        return self.ratio

    @property
    def _names(self) -> list[Name]:
        return list(self.model_.likelihood.names(self.model_.classes, self.feature_names_in_))

    def _is_slope(self, label: Name) -> bool:
        return label in self.feature_names_in_


def with_parameters(model: CategoricalModel, parameters: Floats) -> CategoricalModel:
    """Return a model with other parameters, in the order of the rounds."""
    fields = {name: getattr(model, name) for name in CategoricalModel.declarations()}
    intercepts, slopes = model.likelihood.split(parameters, len(model.intercepts))
    return CategoricalModel(**fields | {"intercepts": intercepts.copy(), "slopes": slopes.copy()})
