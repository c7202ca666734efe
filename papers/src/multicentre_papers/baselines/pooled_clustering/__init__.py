"""Pooled multi-view clusterings; comparison methods for FedMSGL."""

from multicentre_papers.baselines.pooled_clustering.cdmgc import CDMGC
from multicentre_papers.baselines.pooled_clustering.fsmsc import FSMSC
from multicentre_papers.baselines.pooled_clustering.plain import Plain
from multicentre_papers.baselines.pooled_clustering.rcagl import RCAGL
from multicentre_papers.baselines.pooled_clustering.sc import SC
from multicentre_papers.baselines.pooled_clustering.sfmc import SFMC

__all__ = ["CDMGC", "FSMSC", "RCAGL", "SC", "SFMC", "Plain"]
