"""Elastic net: the parameters of a penalty, their ranges, and how a result names it."""

from __future__ import annotations

from typing import Any

from multicentre.estimator.model_in_force import Phrases
from multicentre.estimator.parameters import Applicable, Only, ParameterRanges, Real

PENALTY_RANGES: ParameterRanges = {"alpha": Real(0), "l1_ratio": Real(0, 1)}
PENALTY_APPLICABLE: Applicable = {"l1_ratio": Only("alpha above 0", lambda model: model.alpha > 0)}


def penalty_in_force(model: Any) -> str:
    """Return the penalty on the coefficients of standardised covariates."""
    if not model.alpha:
        return "no penalty"
    kinds = {0.0: "ridge penalty", 1.0: "lasso penalty"}
    ratio = float(getattr(model, "l1_ratio", 0.0))
    return f"{kinds.get(ratio, f'elastic net penalty (share of lasso {ratio:g})')} {model.alpha:g}"


PENALTY_PHRASES: Phrases = {"alpha": penalty_in_force, "l1_ratio": ""}
