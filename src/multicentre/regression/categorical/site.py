"""Site part of multinomial and ordinal regression: the steps that a coordinator can request.

Steps also inherited: ``describe`` from regression/patients.py; ``count_gaps``, ``handle_gaps``, ``add_indicators`` and
``report_gaps`` from data/missing/values.py; ``build_design`` from formula/site.py, and ``count_below`` for knots from
statistics/quantiles/site.py. Of these, only ``report_gaps`` returns values of a single site.

All other answers are terms of sums over sites. An answer states its effective number of patients, the smallest over
classes or thresholds; unmasked, it is at most the smallest class of the site. The guard refuses an answer with too few.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Length, Lengths, Message
from multicentre.core.steps import step
from multicentre.core.withdrawal import unless_few
from multicentre.errors import ConfigurationError, MessageError, SchemaMismatch
from multicentre.regression.categorical import messages
from multicentre.regression.categorical.likelihoods import ClassLikelihood, likelihood_of
from multicentre.regression.categorical.maths import Derivatives, derive_unequal_slopes, link_of
from multicentre.regression.messages import Centre, Model
from multicentre.regression.patients import STEEPEST, RegressionColumns

Floats = NDArray[np.float64]
# Links of each kind of model.
LINKS = {"multinomial": ("logit",), "ordinal": ("logit", "probit")}


class CategoricalSite(RegressionColumns):
    """Site part of federated multinomial and ordinal regression."""

    method: ClassVar[str] = "fed-categorical"
    revision: ClassVar[int] = 5
    links: ClassVar[Mapping[str, tuple[str, ...]]] = LINKS
    lengths: ClassVar[Lengths] = {
        "k": "classes",
        "q": Length("parameters: intercepts or thresholds, and slopes"),
        "u": Length("parameters with slopes for each threshold"),
    }

    def n_parameters(self, request: Message) -> int:
        """Return the number of parameters of a request."""
        return len(request.parameters) if isinstance(request, messages.At) else 0

    @step(releases=messages.Totals, when="once", summed=True)
    def sum_classes(self, request: Model) -> messages.Totals:
        """Count the patients of each class, and sum the covariates for their means."""
        self._agree(request)
        counts, weights = (self._by_class(each) for each in (np.ones(len(self.data)), self._weights))
        return messages.Totals(*self._column_sums(), counts.astype(np.int64), weights, patients=self._most)

    @step(releases=messages.Moments, when="once", summed=True)
    def sum_products(self, request: Centre) -> messages.Moments:
        """Sum products of covariates about their means, and covariates by class, for scales and the start."""
        self._agree(request)
        rows = self._centred(request)
        sums = self._by_class(rows * self._weights[:, None])
        return messages.Moments(self._products(rows), sums, patients=self._most)

    @step(releases=messages.Sums, when="every round", summed=True)
    def sum_derivatives(self, request: messages.At) -> messages.Sums:
        """Sum the log-likelihood and its derivatives."""
        rows, sums = self._derive(request)
        behind = self._behind_sums(sums)
        release = messages.Sums(float(len(rows)), sums.log_likelihood, sums.gradient, sums.information, patients=behind)
        return unless_few(self, request, release, self._most)

    @step(releases=messages.Products, when="at the end", summed=True)
    def sum_score_products(self, request: messages.At) -> messages.Products:
        """Sum products of the first derivatives of patients, or of clusters of patients, for robust errors."""
        rows, sums = self._derive(request)
        scores = self._likelihood.scores(rows, self._classes, request.parameters, self._offset)
        return messages.Products(*self._score_products(scores), patients=self._behind_sums(sums))

    @step(releases=messages.UnequalSlopes, when="at the end", summed=True)
    def sum_unequal_slopes(self, request: messages.At) -> messages.UnequalSlopes:
        """Sum the derivatives of the model with slopes for each threshold, for the test of proportional odds."""
        rows = self._standardised(request)
        if request.family != "ordinal":
            raise ConfigurationError(
                f"the model must be ordinal; got {request.family}", where=self.method, hint="Fit an ordinal model."
            )
        link, at = link_of(request.link), (rows, self._classes, request.parameters)
        sums = derive_unequal_slopes(link, *at, self._weights, self._offset)
        return messages.UnequalSlopes(sums.gradient, sums.information, patients=self._behind_sums(sums))

    def _agree(self, request: Model) -> None:
        """Check and store the model of the fit, the same in all requests."""
        super()._agree(request)
        if request.site_intercepts or (request.offset and not self._likelihood.takes_offset):
            raise MessageError("the model must be without intercepts of sites, and multinomial without offset; got one")

    @property
    def _likelihood(self) -> ClassLikelihood:
        """Likelihood of the model of the fit."""
        return likelihood_of(self._model.family, self._model.link)

    @cached_property
    def _classes(self) -> NDArray[np.int64]:
        """Number of the class of each patient, shape (n,)."""
        data = self.data
        if data.outcome != "class" or len(data.classes) < 2:
            kind = "a number" if data.outcome == "number" else "one class"
            raise SchemaMismatch(
                f"the outcome must be one of several classes; got {kind}",
                where="y",
                hint="Declare classes= in the data, in their order, or use FedGLM for numbers.",
            )
        return np.asarray(data.y, dtype=np.int64)

    def _by_class(self, values: Floats) -> Floats:
        """Return sums of the patients' values by class, shape (K,) or (K, d)."""
        members = (self._classes[:, None] == np.arange(len(self.data.classes))).astype(np.float64)
        return np.asarray(members.T @ values, dtype=np.float64)

    def _derive(self, request: messages.At) -> tuple[Floats, Derivatives]:
        """Return standardised covariates, shape (n, d), and the sums at the parameters of a request."""
        rows, at = self._standardised(request), (self._classes, request.parameters, self._weights)
        return rows, self._likelihood.derive(rows, *at, self._offset)

    def _standardised(self, request: messages.At) -> Floats:
        """Return standardised covariates, after checks of the request, shape (n, d)."""
        self._agree(request)
        centred, d, k = self._centred(request), len(self._places), len(self.data.classes) - 1
        size = k + self._likelihood.n_predictors(k) * d
        if len(request.spread) != d or len(request.parameters) != size or not (request.spread > 0).all():
            raise MessageError(
                f"the request must hold {d} positive standard deviations and {size} parameters; got others",
                where=self.method,
            )
        intercepts, slopes = self._likelihood.split(request.parameters, k)
        if not self._likelihood.is_feasible(intercepts):
            raise MessageError("thresholds must increase; they do not", where=self.method)
        largest = float(np.abs(slopes).max(initial=0.0))
        if largest > STEEPEST:
            raise ConfigurationError(
                f"slopes must be at most {STEEPEST:g} per standard deviation; got {largest:g}",
                where="parameters",
                hint="Fit with alpha above 0.",
            )
        return centred / request.spread

    def _behind_sums(self, sums: Derivatives) -> int:
        """Return the smallest effective number of patients over classes; unmasked, also of the smallest group."""
        return min(self._behind(column) for column in sums.weights.T)
