"""Evaluation of survival models on held-out patients of several sites."""

from multicentre.survival.evaluation.estimator import SurvivalEvaluation

__all__ = ["SurvivalEvaluation"]
