"""Survival curves of several sites' patients."""

from multicentre.analytics.kaplan_meier.curves import Curves, Estimate
from multicentre.analytics.kaplan_meier.estimator import KaplanMeier

__all__ = ["Curves", "Estimate", "KaplanMeier"]
