"""Offset, weights, clusters and errors of an estimator: their parameters, their checks and how a result names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from multicentre.errors import ConfigurationError
from multicentre.estimator.formula import HasFormula
from multicentre.estimator.model_in_force import Phrases
from multicentre.estimator.parameters import Applicable, OneOf, Only, ParameterRanges, Where

Errors = Literal["model", "HC0", "HC1", "cluster"]
WeightType = Literal["frequency", "probability"]
COLUMN = (None, Where("the name of a column", lambda value: isinstance(value, str) and bool(value)))
"""Range of a parameter that names a column."""
WEIGHTING_RANGES: ParameterRanges = {
    "weights": COLUMN,
    "weight_type": OneOf("frequency", "probability"),
    "errors": OneOf("model", "HC0", "HC1", "cluster"),
    "cluster": COLUMN,
}
WEIGHTING_APPLICABLE: Applicable = {"weight_type": Only("weights", lambda model: model.weights is not None)}
_ERRORS: Mapping[str, str] = {
    "model": "model-based standard errors",
    "HC0": "robust standard errors (HC0)",
    "HC1": "robust standard errors (HC1)",
}


def errors_in_force(model: Any) -> str:
    """Return the kind of the standard errors."""
    if model.alpha:
        return "no standard errors"
    return _ERRORS.get(model.errors, f"robust standard errors, clustered by {model.cluster}")


WEIGHTING_PHRASES: Phrases = {
    "weights": lambda model: f"{model.weight_type} weights {model.weights}" if model.weights else "",
    "weight_type": "",
    "errors": errors_in_force,
    "cluster": "",
}


class HasWeighting(HasFormula):
    """Estimator with weights of patients, robust standard errors and clusters."""

    weights: str | None
    weight_type: WeightType
    errors: Errors
    cluster: str | None

    @property
    def _has_likelihood(self) -> bool:
        """False with probability weights, whose weighted likelihood is that of no patients."""
        return not self.weights or self.weight_type == "frequency"

    def _check_weighting(self) -> None:
        """Raise ConfigurationError unless errors, clusters and weights fit each other."""
        if (self.errors == "cluster") != (self.cluster is not None):
            raise ConfigurationError(
                'cluster must name a column with errors="cluster", and be None otherwise',
                where="cluster",
                hint="Set both or neither.",
            )
        if self.weights and self.weight_type == "probability" and self.errors == "model":
            raise ConfigurationError(
                "errors of probability weights must be robust; got 'model'",
                where="errors",
                hint='Set errors="HC0", or "cluster".',
            )
        named = [name for name in (getattr(self, "offset", None), self.weights, self.cluster) if name]
        if len(set(named)) < len(named):
            raise ConfigurationError(
                "offset, weights and cluster must be different columns; got the same twice",
                where="offset, weights, cluster",
                hint="Name different columns.",
            )
