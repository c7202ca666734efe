"""Site part of the generalised linear models: the steps that a coordinator can request.

Steps also inherited: ``describe``, ``sum_columns`` and ``sum_products`` from regression/patients.py; ``count_gaps``,
``handle_gaps``, ``add_indicators`` and ``report_gaps`` from data/missing/values.py; ``build_design`` from
formula/site.py, and ``count_below`` for knots from statistics/quantiles/site.py. Of these, only ``report_gaps`` returns
values of a single site.

``tell_intercept`` returns the intercept of a single site, on request. All other answers are terms of sums over sites.
An answer states its effective number of patients: those of its smallest group, or fewer if a few patients dominate the
weights. The guard refuses an answer with too few.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Length, Lengths, Message
from multicentre.core.steps import step
from multicentre.core.withdrawal import unless_few
from multicentre.errors import ConfigurationError, MessageError
from multicentre.regression import messages
from multicentre.regression.effects import EffectsPart
from multicentre.regression.maths import (
    MAX_PREDICTOR,
    Terms,
    derive,
    patient_terms,
    predicted_mean,
    slopes,
)
from multicentre.regression.negative_binomial import derive_counts
from multicentre.regression.patients import STEEPEST
from multicentre.regression.private.site import PrivateSteps
from multicentre.regression.site_intercepts import (
    FLAT,
    OwnIntercept,
    centre_rows,
    is_one_sided,
    maximise_intercept,
)

Floats = NDArray[np.float64]


class RegressionSite(EffectsPart, PrivateSteps):
    """Site part of federated generalised linear models."""

    method: ClassVar[str] = "fed-glm"
    revision: ClassVar[int] = 3
    lengths: ClassVar[Lengths] = {
        "v": "columns and levels of a formula",
        "p": Length("coefficients: the intercept and one per covariate"),
    }

    def n_parameters(self, request: Message) -> int:
        """Return the number of coefficients of a request."""
        return len(request.coefficients) if isinstance(request, messages.At) else 0

    @step(releases=messages.Sums, when="every round", summed=True)
    def sum_derivatives(self, request: messages.At) -> messages.Sums:
        """Sum the deviance of the outcomes under the model, and the derivatives of their log-likelihood."""
        rows, outcome, predictor = self._at(request)
        sums = derive(self._family, self._link, rows, outcome, predictor, self._weights, request.overdispersion)
        behind = self._behind_terms(self._terms(request, outcome, predictor))
        release = messages.Sums(float(len(self.data)), **vars(sums), patients=behind)
        return unless_few(self, request, release, self._most)

    @step(releases=messages.CountSums, when="every round", summed=True)
    def sum_count_derivatives(self, request: messages.AtCounts) -> messages.CountSums:
        """Sum the log-likelihood of negative binomial counts and its derivatives."""
        rows, outcome, predictor = self._at(request)
        if self._family != "negative_binomial" or not request.unit > 0:
            raise MessageError("the family must be negative_binomial, and the unit positive", where=self.method)
        sums = derive_counts(rows, outcome, predictor, self._weights, request.overdispersion, request.unit)
        behind = self._behind_terms(self._terms(request, outcome, predictor))
        release = messages.CountSums(n_patients=float(len(self.data)), **vars(sums), patients=behind)
        return unless_few(self, request, release, self._most)

    @step(releases=messages.Products, when="at the end", summed=True)
    def sum_score_products(self, request: messages.At) -> messages.Products:
        """Sum products of the first derivatives of patients, or of clusters of patients, for robust errors."""
        rows, outcome, predictor = self._at(request)
        terms = self._terms(request, outcome, predictor)
        n_clusters, products = self._score_products(rows * terms.score[:, None])
        return messages.Products(n_clusters, products, patients=self._behind_terms(terms))

    @step(releases=messages.Slopes, when="on request", summed=True)
    def sum_slopes(self, request: messages.At) -> messages.Slopes:
        """Sum the slopes of the predicted means, and their derivatives by the coefficients, for marginal effects."""
        rows, outcome, predictor = self._at(request)
        first, second = slopes(self._link, predictor, predicted_mean(self._link, predictor))
        weights, terms = self._weights, self._terms(request, outcome, predictor)
        about_intercepts = 0.0
        if self._model.site_intercepts:
            about_intercepts = float(weights @ second) ** 2 / float(weights @ terms.weight)
        return messages.Slopes(
            float(weights.sum()),
            float(weights @ first),
            rows.T @ (weights * second),
            about_intercepts,
            patients=self._behind_terms(terms),
        )

    @step(releases=messages.Intercepts, when="at the end", summed=True)
    def sum_intercepts(self, request: messages.At) -> messages.Intercepts:
        """Sum the sites' intercepts, weighted by their patients; 0 for a site without a finite intercept."""
        result, behind = self._own_intercept(request)
        weight = float(self._weights.sum())
        if result is None:
            return messages.Intercepts(1.0, 0.0, 0.0, 0.0, 0.0, np.zeros(len(request.coefficients)), patients=behind)
        shares = weight * result.centred.mean
        return messages.Intercepts(
            1.0, 1.0, weight, weight * result.intercept, weight**2 / result.centred.information, shares, patients=behind
        )

    @step(releases=messages.OwnIntercept, when="on request", refusable=True)
    def tell_intercept(self, request: messages.Uncertainty) -> messages.OwnIntercept:
        """Return the site's intercept and its standard error, so that an analyst can compare the sites."""
        self._ask_only_once(request)
        result, behind = self._own_intercept(request)
        if result is None:
            return messages.OwnIntercept(0.0, 0.0, patients=0)
        # From the means over all sites, which the rounds subtract, to covariates of 0.
        shift = np.concatenate([[0.0], request.centre / request.spread])
        mean, covariance = result.centred.mean + shift, request.covariance
        if covariance.shape != (len(shift),) * 2:
            raise MessageError(f"covariance must be {len(shift)} x {len(shift)}; got another shape", where=self.method)
        variance = request.dispersion / result.centred.information + float(mean @ covariance @ mean)
        value = request.coefficients[0] + result.intercept - float(shift @ request.coefficients)
        return messages.OwnIntercept(value, float(np.sqrt(max(variance, 0.0))), patients=behind)

    def _own_intercept(self, request: messages.At) -> tuple[OwnIntercept | None, int]:
        """Return the site's intercept, None if it is not finite, and the effective number of patients."""
        rows, outcome, predictor = self._standardised(request)
        family, link, weights = self._family, self._link, self._weights
        shifted = self._with_intercept(outcome, predictor)
        terms = patient_terms(family, link, outcome, shifted)
        behind = self._behind_terms(terms)
        centred = centre_rows(rows, weights * terms.weight)
        # Without information, all outcomes are predicted with certainty, and a range of intercepts does so.
        if is_one_sided(family, outcome, weights) or centred.information < FLAT:
            return None, behind
        return OwnIntercept(float(shifted[0] - predictor[0]), centred), behind

    def _at(self, request: messages.At) -> tuple[Floats, Floats, Floats]:
        """Return standardised rows with a column of ones, outcomes, and linear predictors.

        If each site has an intercept, linear predictors have that of the site, and rows are about their mean.
        """
        rows, outcome, predictor = self._standardised(request)
        if not self._model.site_intercepts:
            return rows, outcome, predictor
        predictor = self._with_intercept(outcome, predictor)
        terms = patient_terms(self._family, self._link, outcome, predictor)
        return centre_rows(rows, self._weights * terms.weight).rows, outcome, predictor

    def _with_intercept(self, outcome: Floats, predictor: Floats) -> Floats:
        """Return linear predictors with the site's intercept at the maximum of its likelihood."""
        family, link = self._family, self._link
        if is_one_sided(family, outcome, self._weights):
            return np.full_like(predictor, MAX_PREDICTOR if outcome[self._weights > 0][0] else -MAX_PREDICTOR)
        return predictor + maximise_intercept(
            lambda at: patient_terms(family, link, outcome, at), predictor, self._weights
        )

    def _standardised(self, request: messages.At) -> tuple[Floats, Floats, Floats]:
        """Return standardised rows with a column of ones, outcomes, and predictors without a site's intercept."""
        self._agree(request)
        centred, d = self._centred(request), len(self._places)
        if (len(request.spread), len(request.coefficients)) != (d, d + 1) or not (request.spread > 0).all():
            raise MessageError(
                f"the request must hold {d} positive standard deviations and {d + 1} coefficients; got others",
                where=self.method,
            )
        if not 0 < request.scale < np.inf or (request.scale != 1.0 and self._family != "gaussian"):
            raise MessageError("scale must be positive, and 1 unless the family is gaussian", where=self.method)
        if request.overdispersion < 0 or (request.overdispersion and self._family != "negative_binomial"):
            raise MessageError("overdispersion must be at least 0, and 0 for other families", where=self.method)
        largest = float(np.abs(request.coefficients[1:]).max(initial=0.0))
        if largest > STEEPEST:
            raise ConfigurationError(
                f"coefficients must be at most {STEEPEST:g} per standard deviation; got {largest:g}",
                where="coefficients",
                hint="Fit with alpha above 0.",
            )
        rows = np.column_stack([np.ones(len(self.data)), centred / request.spread])
        offset = self._offset / (request.scale if self._link == "identity" else 1.0)
        return rows, self._outcome / request.scale, rows @ request.coefficients + offset

    def _terms(self, request: messages.At, outcome: Floats, predictor: Floats) -> Terms:
        return patient_terms(self._family, self._link, outcome, predictor, request.overdispersion)
