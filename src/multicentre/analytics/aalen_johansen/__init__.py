"""Cumulative incidence of competing causes, over several sites."""

from multicentre.analytics.aalen_johansen.estimator import AalenJohansen

__all__ = ["AalenJohansen"]
