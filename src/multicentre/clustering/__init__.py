"""Groups of patients whose views are held by different sites."""

from multicentre.clustering.fedmsgl import FedMSGL
from multicentre.clustering.metrics import clustering_scores

__all__ = [
    "FedMSGL",
    "clustering_scores",
]
