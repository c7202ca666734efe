"""Regression over several sites: generalised linear models, and models of outcomes with several classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.regression.categorical.multinomial import FedMultinomialRegression
    from multicentre.regression.categorical.ordinal import FedOrdinalRegression
    from multicentre.regression.estimator import FedGLM
    from multicentre.regression.mixed.estimator import FedGLMM, FedLinearMixedModel
    from multicentre.regression.named_models import FedLinearRegression, FedLogisticRegression, FedPoissonRegression
    from multicentre.regression.path.estimator import FedGLMCV

__all__ = [
    "FedGLM",
    "FedGLMCV",
    "FedGLMM",
    "FedLinearMixedModel",
    "FedLinearRegression",
    "FedLogisticRegression",
    "FedMultinomialRegression",
    "FedOrdinalRegression",
    "FedPoissonRegression",
]

_MODULES = {
    "FedGLM": "estimator",
    "FedGLMCV": "path.estimator",
    "FedGLMM": "mixed.estimator",
    "FedLinearMixedModel": "mixed.estimator",
    "FedLinearRegression": "named_models",
    "FedLogisticRegression": "named_models",
    "FedMultinomialRegression": "categorical.multinomial",
    "FedOrdinalRegression": "categorical.ordinal",
    "FedPoissonRegression": "named_models",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
