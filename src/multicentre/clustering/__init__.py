"""Groups of patients from several views: vertical federations, and the pooled methods they are compared with."""

from multicentre.clustering.fedmsgl import FedMSGL

__all__ = ["FedMSGL"]
