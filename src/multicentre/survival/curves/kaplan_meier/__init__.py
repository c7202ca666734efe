"""Federated Kaplan-Meier curves."""

from multicentre.survival.curves.kaplan_meier.estimator import KaplanMeier
from multicentre.survival.curves.kaplan_meier.maths import Curves, Estimate

__all__ = ["Curves", "Estimate", "KaplanMeier"]
