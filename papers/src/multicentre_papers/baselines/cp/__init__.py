"""Pooled CP factorisations for comparison: alternating least squares and stochastic gradient descent."""

from multicentre_papers.baselines.cp.als import CPALS
from multicentre_papers.baselines.cp.sgd import CPSGD

__all__ = ["CPALS", "CPSGD"]
