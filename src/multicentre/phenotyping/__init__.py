"""Phenotypes from patients' coded events: sparse tensors factorised over many sites."""

from multicentre.phenotyping.dpfact import DPFact

__all__ = ["DPFact"]
