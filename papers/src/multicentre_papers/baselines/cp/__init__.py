"""Pooled factorisations to compare with: alternating least squares, and stochastic gradient descent over entries."""

from multicentre_papers.baselines.cp.als import CPALS
from multicentre_papers.baselines.cp.sgd import CPSGD

__all__ = ["CPALS", "CPSGD"]
