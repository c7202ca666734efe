"""Boosting over sites: FedSurvBoost for survival; AdaBoost.F, DistBoost.F and PreWeak.F for classes."""

from multicentre.survival.boost.classes.estimator import AdaBoostF, DistBoostF, PreWeakF
from multicentre.survival.boost.estimator import FedSurvBoost

__all__ = ["AdaBoostF", "DistBoostF", "FedSurvBoost", "PreWeakF"]
