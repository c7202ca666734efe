"""Survival curves of several sites' patients."""

from multicentre.survival.curves.kaplan_meier.curves import Curves, Estimate
from multicentre.survival.curves.kaplan_meier.estimator import KaplanMeier

__all__ = ["Curves", "Estimate", "KaplanMeier"]
