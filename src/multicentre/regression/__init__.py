"""Generalised linear models over several sites: linear, logistic, Poisson and gamma regression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.regression.estimator import FedGLM
    from multicentre.regression.mixed.estimator import FedGLMM, FedLinearMixedModel
    from multicentre.regression.named_models import FedLinearRegression, FedLogisticRegression, FedPoissonRegression

__all__ = [
    "FedGLM",
    "FedGLMM",
    "FedLinearMixedModel",
    "FedLinearRegression",
    "FedLogisticRegression",
    "FedPoissonRegression",
]

_MODULES = {
    "FedGLM": "estimator",
    "FedGLMM": "mixed.estimator",
    "FedLinearMixedModel": "mixed.estimator",
    "FedLinearRegression": "named_models",
    "FedLogisticRegression": "named_models",
    "FedPoissonRegression": "named_models",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
