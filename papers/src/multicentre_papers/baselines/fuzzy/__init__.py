"""Federated fuzzy clustering of patients at different sites (horizontal)."""

from multicentre_papers.baselines.fuzzy.estimator import FedMVFCM, FedMVFPC

__all__ = ["FedMVFCM", "FedMVFPC"]
