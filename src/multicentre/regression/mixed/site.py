"""Site parts of the mixed models: the steps that a coordinator can request.

Steps also inherited: ``describe``, ``sum_columns`` and ``sum_products`` from regression/patients.py; ``count_gaps``,
``handle_gaps``, ``add_indicators`` and ``report_gaps`` from data/missing/values.py; ``build_design`` from
formula/site.py, and ``count_below`` for knots from statistics/quantiles/site.py. Of these, only ``report_gaps`` returns
values of a single site.

``tell_effects`` returns the predicted effects of a single site, on request. All other answers are terms of sums over
sites.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Length, Lengths, Message
from multicentre.core.steps import step
from multicentre.core.withdrawal import unless_few
from multicentre.errors import MessageError, SchemaMismatch
from multicentre.regression.maths import patient_terms
from multicentre.regression.mixed import messages
from multicentre.regression.mixed.laplace import SiteData, expand, find_mode
from multicentre.regression.mixed.maths import Moments, lower, size_of, weigh, weigh_with_derivatives
from multicentre.regression.patients import STEEPEST, RegressionPatients

Floats = NDArray[np.float64]
# Entries of the Cholesky factor of the effects' covariance. A site differs from the mean by less than exp(50) in odds.
MAX_FACTOR = 50.0


class MixedSite(RegressionPatients):
    """Base of the site parts of mixed models."""

    lengths: ClassVar[Lengths] = {
        "p": "coefficients: the intercept and one per covariate",
        "q": "effects of a site: the intercept, and one per covariate in slopes",
        "r": "variances and covariances of the effects",
        "v": "covariates, intercept and outcome",
        "m": "candidates of the covariance of the effects",
        "w": Length("coefficients, and entries of the Cholesky factor of the effects' covariance"),
    }

    def n_parameters(self, request: Message) -> int:
        """Return the number of coefficients, variances and covariances of a request."""
        if not isinstance(request, messages.Effects):
            return 0
        n_effects = 1 + len(request.slopes)
        return 1 + len(request.spread) + n_effects * (n_effects + 1) // 2

    def _rows(self, request: messages.Effects) -> tuple[Floats, Floats, list[int]]:
        """Return standardised rows with a column of ones, outcomes, and places of the effects among the columns."""
        self._agree(request)
        centred, d = self._centred(request), len(self._places)
        if len(request.spread) != d or not (request.spread > 0).all() or not 0 < request.scale < np.inf:
            raise MessageError(f"the request must hold {d} positive standard deviations; got others", where=self.method)
        names = [self.data.columns[place] for place in self._places]
        if absent := sorted(set(request.slopes) - set(names)):
            raise SchemaMismatch(
                f"slopes must be covariates; got {', '.join(absent)}",
                where="slopes",
                hint=f"The covariates are {', '.join(names[:10])}.",
            )
        rows = np.column_stack([np.ones(len(self.data)), centred / request.spread])
        return rows, self._outcome, [0, *(1 + names.index(name) for name in request.slopes)]


class LinearMixedSite(MixedSite):
    """Site part of the federated linear mixed model."""

    method: ClassVar[str] = "fed-linear-mixed-model"
    revision: ClassVar[int] = 4

    @step(releases=messages.Weighted, when="once", summed=True)
    def sum_candidates(self, request: messages.Candidates) -> messages.Weighted:
        """Sum weighted products of covariates and outcome, at each of some covariances of the effects."""
        moments = self._moments(request)
        weighted = [weigh(moments, self._checked(each, moments)) for each in request.covariances]
        return messages.Weighted(
            float(len(self.data)),
            1.0,
            np.array([each.products for each in weighted]),
            np.array([each.log_determinant for each in weighted]),
            patients=self._behind(self._weights),
        )

    @step(releases=messages.Curved, when="every round", summed=True)
    def sum_curvature(self, request: messages.AtCovariance) -> messages.Curved:
        """Sum weighted products of covariates and outcome, and their derivatives by the covariance of the effects."""
        moments = self._moments(request)
        covariance = self._checked(request.covariance, moments)
        if request.directions.shape != covariance.shape:
            raise MessageError("directions must have the shape of the covariance; got another", where=self.method)
        sums = weigh_with_derivatives(moments, covariance, request.directions)
        return messages.Curved(
            float(len(self.data)),
            1.0,
            sums.products,
            sums.log_determinant,
            sums.slopes,
            sums.curvatures,
            sums.determinant_slopes,
            sums.determinant_curvatures,
            patients=self._behind(self._weights),
        )

    @step(releases=messages.OwnEffects, when="on request", refusable=True)
    def tell_effects(self, request: messages.AtSolution) -> messages.OwnEffects:
        """Predict the effects of the site, so that an analyst can compare the sites."""
        self._ask_only_once(request)
        moments = self._moments(request)
        covariance = self._checked(request.covariance, moments)
        if len(request.coefficients) != len(moments.total) - 1:
            raise MessageError("coefficients must be those of the covariates; got others", where=self.method)
        shrunk = covariance @ np.linalg.inv(np.eye(len(covariance)) + moments.effects @ covariance)
        effects = shrunk @ moments.cross @ np.append(-request.coefficients, 1.0)
        return messages.OwnEffects(effects, request.variance * shrunk, patients=self._behind(self._weights))

    def _moments(self, request: messages.Effects) -> Moments:
        rows, outcome, places = self._rows(request)
        return Moments.of(rows, (outcome - self._offset - request.mean) / request.scale, places)

    def _checked(self, covariance: Floats, moments: Moments) -> Floats:
        """Return a covariance of the effects if it is one."""
        size = len(moments.effects)
        is_square = covariance.shape == (size, size) and np.array_equal(covariance, covariance.T)
        # Products of a factor with its transpose have eigenvalues below 0 by rounding.
        if not is_square or np.linalg.eigvalsh(covariance)[0] < -1e-9 * max(1.0, float(np.trace(covariance))):
            raise MessageError(f"covariances must be {size} x {size}, without negative eigenvalues", where=self.method)
        return covariance


class GeneralizedMixedSite(MixedSite):
    """Site part of the federated generalised linear mixed model."""

    method: ClassVar[str] = "fed-glmm"
    revision: ClassVar[int] = 4

    @step(releases=messages.Laplace, when="every round", summed=True)
    def sum_laplace(self, request: messages.AtFactor) -> messages.Laplace:
        """Sum the likelihood of the sites, with their effects integrated out, and its derivatives."""
        site, parameters = self._site_data(request)
        value, gradient, information = expand(site, parameters)
        behind = self._behind_mode(site, request)
        sums = messages.Laplace(float(len(self.data)), 1.0, value, gradient, information, patients=behind)
        return unless_few(self, request, sums, self._most)

    @step(releases=messages.OwnEffects, when="on request", refusable=True)
    def tell_effects(self, request: messages.AtFactor) -> messages.OwnEffects:
        """Predict the effects of the site, so that an analyst can compare the sites."""
        self._ask_only_once(request)
        site, _ = self._site_data(request)
        factor = lower(request.factor)
        mode = find_mode(site, request.coefficients, factor, np.zeros(len(factor)))
        covariance = factor @ np.linalg.solve(mode.curvature, factor.T)
        return messages.OwnEffects(factor @ mode.effects, covariance, patients=self._behind_mode(site, request))

    def _site_data(self, request: messages.AtFactor) -> tuple[SiteData, Floats]:
        rows, outcome, places = self._rows(request)
        p, size = rows.shape[1], len(places)
        if (len(request.coefficients), len(request.factor)) != (p, size * (size + 1) // 2) or request.scale != 1.0:
            raise MessageError(
                f"the request must hold {p} coefficients of {size} effects; got others", where=self.method
            )
        parameters = np.concatenate([request.coefficients, request.factor])
        steepest = float(np.abs(request.coefficients[1:]).max(initial=0.0))
        if steepest > STEEPEST or float(np.abs(request.factor).max()) > MAX_FACTOR:
            raise MessageError(
                f"coefficients must be at most {STEEPEST:g} per standard deviation, and entries of the factor at most "
                f"{MAX_FACTOR:g}; got larger ones",
                where=self.method,
            )
        return SiteData(self._family, rows, rows[:, places], outcome, self._offset), parameters

    def _behind_mode(self, site: SiteData, request: messages.AtFactor) -> int:
        """Return the effective number of patients behind the derivatives at the mode of the site's effects."""
        factor = lower(request.factor)
        mode = find_mode(site, request.coefficients, factor, np.zeros(size_of(len(request.factor))))
        return self._behind_terms(patient_terms(self._family, self._link, site.outcome, mode.predictor))
