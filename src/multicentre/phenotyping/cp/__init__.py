"""Pooled factorisations to compare with: alternating least squares, and stochastic gradient descent over entries."""

from multicentre.phenotyping.cp.als import CPALS
from multicentre.phenotyping.cp.sgd import CPSGD

__all__ = ["CPALS", "CPSGD"]
