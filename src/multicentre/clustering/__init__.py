"""Groups of patients from several views: vertical federations, and the methods they are compared with."""

from multicentre.clustering.fedmsgl import FedMSGL
from multicentre.clustering.fuzzy import FedMVFCM, FedMVFPC

__all__ = ["FedMSGL", "FedMVFCM", "FedMVFPC"]
