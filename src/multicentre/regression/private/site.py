"""Steps of a differentially private fit: sums in which each patient's term is bounded.

The bounds hold for every request: a step decides on a refusal only by the request and the structure of the table, never
by a patient's record. Without noise that hides each patient, one patient is behind an answer, so that the guard of a
site with a minimum refuses it. Incomplete records are left out, and their number does not leave the site.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths
from multicentre.core.steps import step
from multicentre.data.tabledata import TableData
from multicentre.errors import MessageError, SchemaMismatch
from multicentre.formula.site import FormulaPart
from multicentre.regression.private import messages
from multicentre.regression.private.maths import scale_to_box, sum_logistic, sum_moments

Floats = NDArray[np.float64]
# Patients behind sums between bounds without noise that hides each of them.
BEHIND_BOUNDS = 1


class PrivateSteps(FormulaPart):
    """Steps whose releases declare their sensitivity: the largest change by one patient."""

    lengths: ClassVar[Lengths] = {
        "m": "products of two columns, the outcome and a column of ones among them",
        "t": "products of two coefficients",
    }
    data: TableData

    @step(releases=messages.PrivateMoments, when="once", summed=True)
    def sum_private_moments(self, request: messages.Box) -> messages.PrivateMoments:
        """Sum products of covariates and outcome between declared bounds, for a differentially private fit only."""
        rows, outcome, beyond = self._between(request)
        moments = sum_moments(np.column_stack([rows, outcome]))
        return messages.PrivateMoments(moments, float(beyond.sum()), patients=self._behind_bounds)

    @step(releases=messages.PrivateDerivatives, when="every round", summed=True)
    def sum_private_derivatives(self, request: messages.PrivateAt) -> messages.PrivateDerivatives:
        """Sum the derivatives of a logistic model between declared bounds, for a differentially private fit only."""
        rows, outcome, _ = self._between(request)
        if request.family != "binomial" or len(request.coefficients) != rows.shape[1]:
            raise MessageError(
                f"the request must be of family binomial with {rows.shape[1]} coefficients; got another",
                where=self.method,
            )
        sums = sum_logistic(rows, 0.5 * (outcome + 1.0), request.coefficients)
        return messages.PrivateDerivatives(*sums, patients=self._behind_bounds)

    @property
    def _behind_bounds(self) -> int:
        """Patients behind an answer: all where noise hides each of them.

        Otherwise one: bounds act as thresholds, and two requests with bounds to both sides of a patient's value differ
        by the outcome of that patient.
        """
        return len(self.data) if self.noised else BEHIND_BOUNDS

    def _between(self, request: messages.Box) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return rows of a one and covariates, and outcomes, all from -1 to 1, and flags of patients who were cut."""
        data, d = self.data, self.data.X.shape[1]
        low, high = (np.append(request.lower, request.outcome_lower), np.append(request.upper, request.outcome_upper))
        with np.errstate(over="ignore"):
            widths = high - low if len(high) == len(low) == d + 1 else np.zeros(1)
        if not (np.isfinite(widths) & (0.5 * widths > 0)).all():  # half of the smallest number is 0
            raise MessageError(
                f"the request must hold {d} lower and upper bounds, the lower first; got others", where=self.method
            )
        if (request.family == "binomial") != (data.outcome == "class") or len(data.classes) not in (0, 2):
            raise SchemaMismatch(
                "the outcome must be one of two classes for family binomial, and a number for family gaussian; got "
                "another",
                where="y",
                hint='Set family="binomial" for two classes, and outcome="number" in the data for numbers.',
            )
        complete = ~np.isnan(data.X).any(axis=1)
        covariates, cut = scale_to_box(data.X[complete], request.lower, request.upper)
        ends = np.array([request.outcome_lower]), np.array([request.outcome_upper])
        outcome, cut_outcome = scale_to_box(data.y[complete, None].astype(np.float64), *ends)
        rows = np.column_stack([np.ones(len(covariates)), covariates])
        return rows, outcome[:, 0], cut.any(axis=1) | cut_outcome[:, 0]
