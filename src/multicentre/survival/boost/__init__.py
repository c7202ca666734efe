"""FedSurvBoost: AdaBoost for survival over several sites."""

from multicentre.survival.boost.estimator import FedSurvBoost

__all__ = ["FedSurvBoost"]
