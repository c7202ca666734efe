"""Figures and tables of Ma et al. (CIKM 2019) on simulated events and on the real data that are at hand."""

from multicentre_papers.dpfact.runner import reproduce

__all__ = ["reproduce"]
