"""Average marginal effects of the columns and levels of a formula: the step of the sites and its use.

The effect of a number is the mean over patients of the derivative of the predicted mean, through all terms that contain
the number. The effect of a level is the mean difference between the predictions with this level and with the reference.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.core.steps import step
from multicentre.data.categories import split_level
from multicentre.errors import ConfigurationError
from multicentre.formula.columns import build_columns, differentiate_columns
from multicentre.formula.design import Design
from multicentre.regression import messages
from multicentre.regression.maths import Terms, predicted_mean, slopes
from multicentre.regression.patients import RegressionPatients

Floats = NDArray[np.float64]


class EffectsPart(RegressionPatients):
    """Base class of the site part of regression models, with the step for effects under a formula."""

    @step(releases=messages.EffectSums, when="on request", summed=True)
    def sum_effects(self, request: messages.Effects) -> messages.EffectSums:
        """Sum the effects of columns and levels of a formula on the predicted means, and their derivatives."""
        rows, outcome, predictor = self._at(request)
        behind = self._behind_terms(self._terms(request, outcome, predictor))
        if self.design is None or request.site_intercepts:
            raise ConfigurationError(
                "effects must be of a fit with a formula and without effects of sites; got another",
                where="formula",
                hint="Fit the formula with site_effects=None, or fit columns without a formula.",
            )
        parts = [self._effect_of_column(request, rows, predictor, column) for column in request.columns]
        for level, reference in zip(request.levels, request.references, strict=True):
            (first, lower), (second, higher) = (self._mean_at(request, fixed) for fixed in (reference, level))
            parts.append((higher - lower, second - first))
        effects, derivatives = zip(*parts, strict=True)
        return messages.EffectSums(
            float(self._weights.sum()), np.array(effects), np.array(derivatives), patients=behind
        )

    def _effect_of_column(
        self, request: messages.Effects, rows: Floats, predictor: Floats, column: str
    ) -> tuple[float, Floats]:
        """Return the sum of the slopes by a column, and its derivatives by the coefficients."""
        moved = differentiate_columns(self._design, self._table, column)[:, self._places] / request.spread
        moved = np.column_stack([np.zeros(len(rows)), np.nan_to_num(moved)])
        first, second = slopes(self._link, predictor, predicted_mean(self._link, predictor))
        slope, weights = moved @ request.coefficients, self._weights
        return float(weights @ (first * slope)), rows.T @ (weights * second * slope) + moved.T @ (weights * first)

    def _mean_at(self, request: messages.Effects, level: str) -> tuple[Floats, float]:
        """Return the derivatives and the sum of the predicted means if all patients had a level."""
        columns = build_columns(self._design, self._table, split_level(level))[:, self._places]
        rows = np.column_stack([np.ones(len(columns)), np.nan_to_num(columns - request.centre) / request.spread])
        predictor = rows @ request.coefficients + self._offset / request.scale
        mean, weights = predicted_mean(self._link, predictor), self._weights
        return rows.T @ (weights * slopes(self._link, predictor, mean)[0]), float(weights @ mean)

    @property
    def _design(self) -> Design:
        if self.design is None:
            raise ConfigurationError("there must be a formula; got none", where="formula", hint="Begin a new fit.")
        return self.design

    # The site part of generalised linear models defines the following.
    def _at(self, request: messages.At) -> tuple[Floats, Floats, Floats]:
        raise NotImplementedError

    def _terms(self, request: messages.At, outcome: Floats, predictor: Floats) -> Terms:
        raise NotImplementedError
