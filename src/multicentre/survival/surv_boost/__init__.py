"""FedSurvBoost: AdaBoost of survival models over several sites."""

from multicentre.survival.surv_boost.estimator import FedSurvBoost

__all__ = ["FedSurvBoost"]
