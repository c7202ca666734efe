"""Cumulative incidence of competing causes, over several sites."""

from multicentre.survival.curves.aalen_johansen.estimator import AalenJohansen

__all__ = ["AalenJohansen"]
