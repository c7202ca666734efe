"""How well a survival model does on patients it has not seen, wherever they are."""

from multicentre.survival.evaluation.estimator import SurvivalEvaluation

__all__ = ["SurvivalEvaluation"]
