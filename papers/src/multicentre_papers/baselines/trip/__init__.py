"""TRIP: federated tensor factorisation by the alternating direction method of multipliers (Kim et al., KDD 2017)."""

from multicentre_papers.baselines.trip.estimator import TRIP

__all__ = ["TRIP"]
