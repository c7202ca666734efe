"""FedMSGL: self-expression and a hypergraph over views that lie at different sites."""

from multicentre.clustering.fedmsgl.estimator import FedMSGL

__all__ = ["FedMSGL"]
