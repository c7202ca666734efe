"""Groups of patients from several views: vertical federations, and the methods they are compared with."""

from multicentre.clustering.fedmsgl import FedMSGL
from multicentre.clustering.fedmvl import FedMVL
from multicentre.clustering.fuzzy import FedMVFCM, FedMVFPC
from multicentre.clustering.metrics import clustering_scores
from multicentre.clustering.pooled import CDMGC, FSMSC, RCAGL, SC, SFMC

__all__ = [
    "CDMGC",
    "FSMSC",
    "RCAGL",
    "SC",
    "SFMC",
    "FedMSGL",
    "FedMVFCM",
    "FedMVFPC",
    "FedMVL",
    "clustering_scores",
]
