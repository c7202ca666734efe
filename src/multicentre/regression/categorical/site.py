"""Site part of multinomial and ordinal regression: the steps that a coordinator can request.

Steps also inherited: ``count_gaps``, ``handle_gaps``, ``add_indicators`` and ``report_gaps`` from
data/missing/values.py. Of these, only ``report_gaps`` returns values of a single site.

All other answers are terms of sums over sites. An answer states its effective number of patients, the smallest over
classes or thresholds; unmasked, it is at most the smallest class of the site. The guard refuses an answer with too few.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Length, Lengths, Message, Nothing
from multicentre.core.steps import step
from multicentre.core.withdrawal import unless_few
from multicentre.data.missing.values import Missing
from multicentre.data.rare_columns import RareColumnsPart
from multicentre.data.records import check_squares, effective_number, fewest_different
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError, MessageError, SchemaMismatch
from multicentre.regression.categorical import messages
from multicentre.regression.categorical.maths import (
    Derivatives,
    are_ordered,
    derive_multinomial,
    derive_ordinal,
    derive_unequal_slopes,
    link_of,
)
from multicentre.regression.messages import TOTAL, Described
from multicentre.regression.patients import ROUNDING, STEEPEST, RegressionMissing

Floats = NDArray[np.float64]
# Links of each kind of model.
LINKS = {"multinomial": ("logit",), "ordinal": ("logit", "probit")}


class CategoricalSite(RareColumnsPart):
    """Site part of federated multinomial and ordinal regression."""

    method: ClassVar[str] = "fed-categorical"
    revision: ClassVar[int] = 2
    holds: ClassVar[type] = TableData
    remembers: ClassVar[type[Message]] = messages.Model
    handles: ClassVar[tuple[Missing, ...]] = get_args(RegressionMissing)
    lengths: ClassVar[Lengths] = {
        "d": "covariates; a category has one for each of its levels",
        "k": "classes",
        "q": Length("parameters: intercepts or thresholds, and slopes"),
        "u": Length("parameters with slopes for each threshold"),
    }
    data: TableData
    state: messages.Model | None = None

    def n_parameters(self, request: Message) -> int:
        """Return the number of parameters of a request."""
        return len(request.parameters) if isinstance(request, messages.At) else 0

    @step(releases=Described, when="once")
    def describe(self, request: Nothing) -> Described:
        """Return the names of columns, levels of categories and classes, which must agree over sites."""
        data = self.data
        return Described(data.columns, data.classes, levels=data.levels, patients=len(data))

    @step(releases=messages.Totals, when="once", summed=True)
    def sum_classes(self, request: messages.Model) -> messages.Totals:
        """Count the patients of each class, and sum the covariates for their means."""
        self._agree(request)
        X = self.data.X
        counts = np.bincount(self._classes, minlength=len(self.data.classes)).astype(np.int64)
        return messages.Totals(
            float(len(X)),
            counts,
            (~np.isnan(X)).sum(axis=0).astype(np.float64),
            np.nan_to_num(X).sum(axis=0),
            patients=self._behind(np.ones((len(X), 1))),
        )

    @step(releases=messages.Moments, when="once", summed=True)
    def sum_products(self, request: messages.Centre) -> messages.Moments:
        """Sum products of covariates about their means, and covariates by class, for scales and the start."""
        self._agree(request)
        rows = self._centred(request)
        check_squares(self.data.columns, np.square(rows).sum(axis=0), TOTAL)
        members = (self._classes[:, None] == np.arange(len(self.data.classes))).astype(np.float64)
        return messages.Moments(rows.T @ rows, members.T @ rows, patients=self._behind(np.ones((len(rows), 1))))

    @step(releases=messages.Sums, when="every round", summed=True)
    def sum_derivatives(self, request: messages.At) -> messages.Sums:
        """Sum the log-likelihood and its derivatives."""
        rows = self._standardised(request)
        if request.kind == "multinomial":
            columns = np.column_stack([np.ones(len(rows)), rows])
            sums = derive_multinomial(columns, self._classes, request.parameters)
        else:
            sums = derive_ordinal(link_of(request.link), rows, self._classes, request.parameters)
        behind = self._behind_sums(sums)
        release = messages.Sums(float(len(rows)), sums.log_likelihood, sums.gradient, sums.information, patients=behind)
        return unless_few(self, request, release, self._most)

    @step(releases=messages.UnequalSlopes, when="at the end", summed=True)
    def sum_unequal_slopes(self, request: messages.At) -> messages.UnequalSlopes:
        """Sum the derivatives of the model with slopes for each threshold, for the test of proportional odds."""
        rows = self._standardised(request)
        if request.kind != "ordinal":
            raise ConfigurationError(
                f"the model must be ordinal; got {request.kind}", where=self.method, hint="Fit an ordinal model."
            )
        sums = derive_unequal_slopes(link_of(request.link), rows, self._classes, request.parameters)
        return messages.UnequalSlopes(sums.gradient, sums.information, patients=self._behind_sums(sums))

    def _agree(self, request: messages.Model) -> None:
        """Check and store the model of the fit, the same in all requests."""
        model = messages.Model(request.kind, request.link)
        if self.state not in (None, model):
            raise ConfigurationError(
                "the model must be that of the first request; got a different one",
                where=self.method,
                hint="Begin a new fit.",
            )
        if request.link not in LINKS.get(request.kind, ()):
            raise ConfigurationError(
                f"the link must be one of {request.kind}; got {request.link}",
                where="link",
                hint="See the parameters of FedOrdinalRegression.",
            )
        self.state = model

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

    def _centred(self, request: messages.Centre) -> Floats:
        """Return the covariates minus their means, with missing entries at the mean, shape (n, d)."""
        d = self.data.X.shape[1]
        if len(request.centre) != d:
            raise MessageError(f"the request must hold {d} covariates; got {len(request.centre)}", where=self.method)
        return np.nan_to_num(self.data.X - request.centre)

    def _standardised(self, request: messages.At) -> Floats:
        """Return standardised covariates, after checks of the request, shape (n, d)."""
        self._agree(request)
        centred, d, k = self._centred(request), self.data.X.shape[1], len(self.data.classes) - 1
        size = k * (d + 1) if request.kind == "multinomial" else k + d
        if len(request.spread) != d or len(request.parameters) != size or not (request.spread > 0).all():
            raise MessageError(
                f"the request must hold {d} positive standard deviations and {size} parameters; got others",
                where=self.method,
            )
        slopes = request.parameters[k:]
        if request.kind == "multinomial":
            slopes = request.parameters.reshape(k, d + 1)[:, 1:].ravel()
        elif not are_ordered(request.parameters[:k]):
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
        return self._behind(sums.weights)

    def _behind(self, weights: Floats) -> int:
        """Return the smallest effective number of patients over classes; unmasked, also of the smallest group."""
        numbers = [min(effective_number(column), len(self.data)) for column in weights.T]
        effective = int(min(numbers) + ROUNDING)
        return effective if self.masked else min(effective, self._fewest)

    @property
    def _most(self) -> int:
        """Largest effective number of patients behind derivatives, at any parameters."""
        return len(self.data) if self.masked else self._fewest

    @cached_property
    def _fewest(self) -> int:
        """Fewest patients with a class, or who differ from the others in a column."""
        counts = np.bincount(self._classes)
        return int(min(fewest_different(self.data.X), counts[counts > 0].min()))
