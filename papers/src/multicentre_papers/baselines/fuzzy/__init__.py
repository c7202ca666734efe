"""Federated fuzzy clustering of patients at different sites (horizontal partition)."""

from multicentre_papers.baselines.fuzzy.estimator import FedMVFCM, FedMVFPC

__all__ = ["FedMVFCM", "FedMVFPC"]
