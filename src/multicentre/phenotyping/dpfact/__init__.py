"""DPFact: collaborative tensor factorisation for phenotyping, after Ma, Zhang, Lou, Ho, Xiong and Jiang (CIKM 2019)."""

from multicentre.phenotyping.dpfact.estimator import DPFact

__all__ = ["DPFact"]
