"""Recalibrated models: a line in place of the linear predictor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from multicentre.errors import ConfigurationError
from multicentre.validation.scoring.tables import BoostedTrees, ScoredLinearModel

# Links at which a line in the linear predictor is a line in what the validation fitted: log odds, or the number itself.
_LINKS = ("logit", "identity")
_OBJECTIVES = ("binary:logistic", "reg:squarederror")


def recalibrate(
    model: ScoredLinearModel | BoostedTrees, intercept: float, slope: float
) -> ScoredLinearModel | BoostedTrees:
    """Return a model whose linear predictor is ``intercept + slope * linear predictor``.

    Raises
    ------
    ConfigurationError
        Intercept or slope are not finite, or the model has another link than the logit or the identity.

    Examples
    --------
    >>> from multicentre.validation.external.model_files import model_from_mapping
    >>> model = model_from_mapping({"family": "binomial", "intercept": -1.0, "coefficients": {"age": 2.0}})
    >>> changed = recalibrate(model, 0.5, 0.5)
    >>> changed.intercept, changed.coefficients.tolist()
    (0.0, [1.0])
    """
    if not np.isfinite([intercept, slope]).all():
        raise ConfigurationError(
            "the recalibration must have converged; it has no finite intercept and slope",
            where="recalibrated",
            hint="Predictions separate the outcomes, or hardly differ. Evaluate more records.",
        )
    if isinstance(model, BoostedTrees):
        _check_link(model.objective, _OBJECTIVES)
        base = (intercept + slope * model.base.astype(np.float64)).astype(np.float32)
        value, weight = (slope * part.astype(np.float64) for part in (model.value, model.weight))
        return replace(model, base=base, value=value.astype(np.float32), weight=weight.astype(np.float32))
    _check_link(model.link, _LINKS)
    return replace(model, intercept=intercept + slope * model.intercept, coefficients=slope * model.coefficients)


def _check_link(link: str, supported: tuple[str, ...]) -> None:
    if link not in supported:
        raise ConfigurationError(
            f"a model that is recalibrated must have {' or '.join(supported)}; got {link}", where="recalibrated"
        )
