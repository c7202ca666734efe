"""FedMVL: federated multi-view clustering by matrix factorisation (vertical partition)."""

from multicentre_papers.baselines.fedmvl.estimator import FedMVL

__all__ = ["FedMVL"]
