"""Weights of a regression as a message to the sites, and its number of patients."""

from __future__ import annotations

from multicentre.estimator.weighting import HasWeighting
from multicentre.regression import messages


class HasRegressionWeights(HasWeighting):
    """Regression with weights of patients, robust standard errors and clusters."""

    def _size(self, totals: messages.ColumnTotals) -> float:
        """Return the number of patients, the sum of frequency weights."""
        return totals.weight if self.weight_type == "frequency" else totals.n_patients

    def _model_of(self, family: str, link: str, *, site_intercepts: bool = False) -> messages.Model:
        """Return the family, and the columns that are not covariates, as a message."""
        return messages.Model(
            family,
            link,
            self._offset_column,
            self.weights or "",
            self.cluster or "",
            self.weight_type == "frequency",
            site_intercepts=site_intercepts,
        )
