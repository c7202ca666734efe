"""Reproduction of tables 1 and 2 of the FedSurvBoost paper on the same data."""

from multicentre_papers.fedsurvboost.runner import reproduce

__all__ = ["reproduce"]
