"""FedMVL: federated multi-view clustering by matrix factorisation (vertical)."""

from multicentre.clustering.fedmvl.estimator import FedMVL

__all__ = ["FedMVL"]
